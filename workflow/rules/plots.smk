rule plot_preservation:
    """Preservation bars of one probe set."""
    input:
        "results/preservation.csv",
    output:
        svg="results/plots/preservation-{probes}.svg",
        png="results/plots/preservation-{probes}.png",
    log:
        "results/logs/plots/preservation-{probes}.log",
    conda:
        ENV
    params:
        stem=lambda wildcards, output: Path(output.svg).with_suffix(""),
    message:
        "plot: {output.svg}"
    shell:
        "python -m workflow.scripts.plots preservation --table {input} --probes {wildcards.probes}"
        " --out {params.stem} > {log} 2>&1"


rule plot_table:
    """Site coverage, and overhead with intervals."""
    input:
        "results/{figure}.csv",
    output:
        svg="results/plots/{figure}.svg",
        png="results/plots/{figure}.png",
    log:
        "results/logs/plots/{figure}.log",
    wildcard_constraints:
        figure="overhead|coverage",
    conda:
        ENV
    params:
        stem=lambda wildcards, output: Path(output.svg).with_suffix(""),
    message:
        "plot: {output.svg}"
    shell:
        "python -m workflow.scripts.plots {wildcards.figure} --table {input} --out {params.stem} > {log} 2>&1"


rule plot_timeline:
    """Warps of one thread block over time, whole and in detail."""
    input:
        lambda wildcards: trace_file(wildcards.workload),
    output:
        svg="results/plots/timeline-{workload}.svg",
        png="results/plots/timeline-{workload}.png",
        zoom="results/plots/timeline-{workload}-zoom.svg",
    log:
        "results/logs/plots/timeline-{workload}.log",
    conda:
        ENV
    params:
        stem=lambda wildcards, output: Path(output.svg).with_suffix(""),
    message:
        "plot: {output.svg}"
    shell:
        "python -m workflow.scripts.plots timeline --table {input} --out {params.stem} > {log} 2>&1"
