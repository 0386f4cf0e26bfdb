# Analysis of samples. It never touches a device, so it can be repeated at any time.


rule statistics:
    """Raw samples to one row a cell, a block and a process; cells without samples are rows that say so."""
    input:
        raw=raw_samples,
        baselines=cells(
            "results/baselines/{tracer}/{workload}/{probes}/result.json",
            [p for p in TIMED if p in GROUPS],
            tracer=TRACERS,
        ),
        budgets=config.get("budgets", "configs/budgets.yaml"),
    output:
        cells="results/overhead.csv",
        blocks="results/blocks.csv",
        replicates="results/replicates.csv",
    log:
        "results/logs/statistics.log",
    conda:
        ENV
    params:
        source="measured" if MEASURE else "recorded",
        cells=[":".join(cell) for cell in CELLS],
    message:
        "statistics: {output.cells} ({params.source} samples)"
    shell:
        "python -m workflow.scripts.overhead_table --source {params.source} --expect {params.cells}"
        " --baseline-results {input.baselines} --budgets {input.budgets} --out {output.cells} --blocks {output.blocks}"
        " --replicates {output.replicates} --raw {input.raw} > {log} 2>&1"


rule dose:
    """Overhead against the number of records, and the lines fitted through it."""
    input:
        cells="results/overhead.csv",
        replicates="results/replicates.csv",
    output:
        points="results/dose.csv",
        fit="results/dose_fit.csv",
    log:
        "results/logs/dose.log",
    conda:
        ENV
    message:
        "dose: {output.points}"
    shell:
        "python -m workflow.scripts.dose_table --overhead {input.cells} --replicates {input.replicates}"
        " --out {output.points} --fit {output.fit} > {log} 2>&1"


rule prediction:
    """What the plans predict beside what was measured."""
    input:
        cells="results/overhead.csv",
        plans=[f"results/traced/{w}/{p}.plan.json" for w, tracer, p in CELLS if tracer == "xtrace"],
        maps=[f"results/traced/{w}/{p}.cubin.map.json" for w, tracer, p in CELLS if tracer == "xtrace"],
        corpus=expand("results/corpus/{workload}/meta.json", workload=WORKLOADS),
        raw=raw_samples,
    output:
        "results/prediction.csv",
    log:
        "results/logs/prediction.log",
    conda:
        ENV
    message:
        "prediction: {output}"
    shell:
        "python -m workflow.scripts.prediction_table --results results --overhead {input.cells} --out {output}"
        " --raw {input.raw} > {log} 2>&1"


rule trend:
    """The cells of this run beside those of earlier revisions."""
    input:
        cells="results/overhead.csv",
        history=sorted(str(path) for path in Path(config["recorded"], "history").glob("*.csv")),
    output:
        "results/trend.csv",
    log:
        "results/logs/trend.log",
    conda:
        ENV
    message:
        "trend: {output}"
    shell:
        "python -m workflow.scripts.trend_table --overhead {input.cells} --history {input.history} --out {output}"
        " > {log} 2>&1"


rule architectures:
    """How far each tracer got on each architecture."""
    input:
        tables=[
            "results/certificates.csv",
            "results/preservation.csv",
            "results/overhead.csv",
        ],
        corpus=expand("results/corpus/{workload}/meta.json", workload=WORKLOADS),
    output:
        "results/architectures.csv",
    log:
        "results/logs/architectures.log",
    conda:
        ENV
    params:
        tracers=TRACERS,
    message:
        "architectures: {output}"
    shell:
        "python -m workflow.scripts.architecture_table --results results --corpus {input.corpus}"
        " --tracers {params.tracers} --out {output} > {log} 2>&1"


rule tables:
    """The tables of the report as Markdown, CSV and LaTeX."""
    input:
        [
            "results/ablation.csv",
            "results/prediction.csv",
            "results/architectures.csv",
            "results/certificates.csv",
            "results/coverage.csv",
            "results/overhead.csv",
            "results/preservation.csv",
            "results/refusals.csv",
            "results/trend.csv",
        ],
    output:
        report(
            directory("results/tables"),
            patterns=["{name}.csv"],
            caption="../report/captions/tables.rst",
            category="Tables",
            labels={"figure": "{name}", "probe set": "all"},
        ),
    log:
        "results/logs/tables.log",
    conda:
        ENV
    message:
        "tables: {output}"
    shell:
        "python -m workflow.scripts.export_tables --results results --out {output} > {log} 2>&1"
