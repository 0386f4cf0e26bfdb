# What each step of making probes cheap is worth, from recorded samples (workflow/scripts/ablation.py measures them).


rule ablation:
    """Overhead of every step, and its gain over the one before. Without samples every row says so."""
    input:
        samples=ablation_samples,
    output:
        "results/ablation.csv",
    log:
        "results/logs/ablation.log",
    conda:
        ENV
    params:
        samples=lambda wildcards, input: (f"--samples {input.samples}" if input.samples else ""),
        workloads=ABLATION,
    message:
        "ablation: {output}"
    shell:
        "python -m workflow.scripts.ablation_table {params.samples} --workloads {params.workloads} --out {output}"
        " > {log} 2>&1"


use rule plot_overhead as plot_ablation with:
    input:
        table="results/ablation.csv",
    output:
        svg=report(
            "results/plots/ablation.svg",
            caption="../report/captions/ablation.rst",
            category="Overhead and architectures",
            labels={"figure": "ablation", "probe set": "pp"},
        ),
        png="results/plots/ablation.png",
        more=report(
            directory("results/plots/more/ablation"),
            patterns=["{page}.svg"],
            caption="../report/captions/ablation.rst",
            category="Overhead and architectures",
            labels={"figure": "ablation, page {page}", "probe set": "pp"},
        ),
    log:
        "results/logs/plots/ablation.log",
    params:
        figure="ablation",
        stem=lambda wildcards, output: Path(output.svg).with_suffix(""),
