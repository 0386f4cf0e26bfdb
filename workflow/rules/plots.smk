# A figure is one narrow column. Its first page is STEM.svg and STEM.png; what does not fit there goes on further pages,
# more/STEM/2.svg and so on, so that 500 cells are as readable as five.


rule plot_preservation:
    """Preservation bars of one probe set."""
    input:
        "results/preservation.csv",
    output:
        svg=report(
            "results/plots/preservation-{probes}.svg",
            caption="../report/captions/preservation.rst",
            category="Preservation",
            labels={"figure": "preservation", "probe set": "{probes}"},
        ),
        png="results/plots/preservation-{probes}.png",
        more=report(
            directory("results/plots/more/preservation-{probes}"),
            patterns=["{page}.svg"],
            caption="../report/captions/preservation.rst",
            category="Preservation",
            labels={"figure": "preservation, page {page}", "probe set": "{probes}"},
        ),
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
        " --out {params.stem} --more {output.more} > {log} 2>&1"


rule plot_coverage:
    """Sites placed, and refused by reason."""
    input:
        table="results/coverage.csv",
        refusals="results/refusals.csv",
    output:
        svg=report(
            "results/plots/coverage.svg",
            caption="../report/captions/coverage.rst",
            category="Coverage",
            labels={"figure": "site coverage", "probe set": "all"},
        ),
        png="results/plots/coverage.png",
        more=report(
            directory("results/plots/more/coverage"),
            patterns=["{page}.svg"],
            caption="../report/captions/coverage.rst",
            category="Coverage",
            labels={"figure": "site coverage, page {page}", "probe set": "all"},
        ),
    log:
        "results/logs/plots/coverage.log",
    conda:
        ENV
    params:
        stem=lambda wildcards, output: Path(output.svg).with_suffix(""),
    message:
        "plot: {output.svg}"
    shell:
        "python -m workflow.scripts.plots coverage --table {input.table} --refusals {input.refusals}"
        " --out {params.stem} --more {output.more} > {log} 2>&1"


rule plot_overhead:
    """Overhead of every cell with interval, control, budget and verdict."""
    input:
        table="results/overhead.csv",
    output:
        svg=report(
            "results/plots/overhead.svg",
            caption="../report/captions/overhead.rst",
            category="Overhead and architectures",
            labels={"figure": "overhead", "probe set": "all"},
        ),
        png="results/plots/overhead.png",
        more=report(
            directory("results/plots/more/overhead"),
            patterns=["{page}.svg"],
            caption="../report/captions/overhead.rst",
            category="Overhead and architectures",
            labels={"figure": "overhead, page {page}", "probe set": "all"},
        ),
    log:
        "results/logs/plots/overhead.log",
    conda:
        ENV
    params:
        figure="overhead",
        stem=lambda wildcards, output: Path(output.svg).with_suffix(""),
    message:
        "plot: {output.svg}"
    shell:
        "python -m workflow.scripts.plots {params.figure} --table {input.table} --out {params.stem}"
        " --more {output.more} > {log} 2>&1"


use rule plot_overhead as plot_trend with:
    input:
        table="results/trend.csv",
    output:
        svg=report(
            "results/plots/trend.svg",
            caption="../report/captions/trend.rst",
            category="Overhead and architectures",
            labels={"figure": "trend over revisions", "probe set": "all"},
        ),
        png="results/plots/trend.png",
        more=report(
            directory("results/plots/more/trend"),
            patterns=["{page}.svg"],
            caption="../report/captions/trend.rst",
            category="Overhead and architectures",
            labels={"figure": "trend over revisions, page {page}", "probe set": "all"},
        ),
    log:
        "results/logs/plots/trend.log",
    params:
        figure="trend",
        stem=lambda wildcards, output: Path(output.svg).with_suffix(""),


use rule plot_overhead as plot_prediction with:
    input:
        table="results/prediction.csv",
    output:
        svg=report(
            "results/plots/prediction.svg",
            caption="../report/captions/prediction.rst",
            category="Overhead and architectures",
            labels={"figure": "prediction and measurement", "probe set": "all"},
        ),
        png="results/plots/prediction.png",
        more=report(
            directory("results/plots/more/prediction"),
            patterns=["{page}.svg"],
            caption="../report/captions/prediction.rst",
            category="Overhead and architectures",
            labels={"figure": "prediction, page {page}", "probe set": "all"},
        ),
    log:
        "results/logs/plots/prediction.log",
    params:
        figure="prediction",
        stem=lambda wildcards, output: Path(output.svg).with_suffix(""),


use rule plot_overhead as plot_architectures with:
    input:
        table="results/architectures.csv",
    output:
        svg=report(
            "results/plots/architectures.svg",
            caption="../report/captions/architectures.rst",
            category="Overhead and architectures",
            labels={"figure": "architectures", "probe set": "all"},
        ),
        png="results/plots/architectures.png",
        more=report(
            directory("results/plots/more/architectures"),
            patterns=["{page}.svg"],
            caption="../report/captions/architectures.rst",
            category="Overhead and architectures",
            labels={"figure": "architectures, page {page}", "probe set": "all"},
        ),
    log:
        "results/logs/plots/architectures.log",
    params:
        figure="architectures",
        stem=lambda wildcards, output: Path(output.svg).with_suffix(""),


rule plot_blocks:
    """Distribution of block ratios. Cells without any block are named."""
    input:
        table="results/blocks.csv",
        cells="results/overhead.csv",
    output:
        svg=report(
            "results/plots/blocks.svg",
            caption="../report/captions/blocks.rst",
            category="Overhead and architectures",
            labels={"figure": "blocks", "probe set": "all"},
        ),
        png="results/plots/blocks.png",
        more=report(
            directory("results/plots/more/blocks"),
            patterns=["{page}.svg"],
            caption="../report/captions/blocks.rst",
            category="Overhead and architectures",
            labels={"figure": "blocks, page {page}", "probe set": "all"},
        ),
    log:
        "results/logs/plots/blocks.log",
    conda:
        ENV
    params:
        figure="blocks",
        stem=lambda wildcards, output: Path(output.svg).with_suffix(""),
    message:
        "plot: {output.svg}"
    shell:
        "python -m workflow.scripts.plots {params.figure} --table {input.table} --cells {input.cells}"
        " --out {params.stem} --more {output.more} > {log} 2>&1"


use rule plot_blocks as plot_replicates with:
    input:
        table="results/replicates.csv",
        cells="results/overhead.csv",
    output:
        svg=report(
            "results/plots/replicates.svg",
            caption="../report/captions/replicates.rst",
            category="Overhead and architectures",
            labels={"figure": "process replicates", "probe set": "all"},
        ),
        png="results/plots/replicates.png",
        more=report(
            directory("results/plots/more/replicates"),
            patterns=["{page}.svg"],
            caption="../report/captions/replicates.rst",
            category="Overhead and architectures",
            labels={"figure": "process replicates, page {page}", "probe set": "all"},
        ),
    log:
        "results/logs/plots/replicates.log",
    params:
        figure="replicates",
        stem=lambda wildcards, output: Path(output.svg).with_suffix(""),


rule plot_dose:
    """Overhead against the number of records, with the fitted line."""
    input:
        table="results/dose.csv",
        fit="results/dose_fit.csv",
    output:
        svg=report(
            "results/plots/dose.svg",
            caption="../report/captions/dose.rst",
            category="Overhead and architectures",
            labels={"figure": "dose and response", "probe set": "all"},
        ),
        png="results/plots/dose.png",
        more=report(
            directory("results/plots/more/dose"),
            patterns=["{page}.svg"],
            caption="../report/captions/dose.rst",
            category="Overhead and architectures",
            labels={"figure": "dose and response, page {page}", "probe set": "all"},
        ),
    log:
        "results/logs/plots/dose.log",
    conda:
        ENV
    params:
        stem=lambda wildcards, output: Path(output.svg).with_suffix(""),
    message:
        "plot: {output.svg}"
    shell:
        "python -m workflow.scripts.plots dose --table {input.table} --fit {input.fit}"
        " --out {params.stem} --more {output.more} > {log} 2>&1"


rule plot_timeline:
    """Warps of one thread block over time, whole and in detail."""
    input:
        lambda wildcards: trace_file(wildcards.workload),
    output:
        svg=report(
            "results/plots/timeline-{workload}.svg",
            caption="../report/captions/timeline.rst",
            category="Timeline",
            labels={"figure": "{workload}", "probe set": "pp"},
        ),
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
