rule statistics:
    """Raw samples to one row a cell; cells without samples are rows that say so."""
    input:
        raw=raw_samples,
        baselines=cells(
            "results/baselines/{tracer}/{workload}/{probes}/result.json",
            [p for p in TIMED if p in GROUPS],
            tracer=TRACERS,
        ),
    output:
        "results/overhead.csv",
    log:
        "results/logs/statistics.log",
    conda:
        ENV
    params:
        source="measured" if MEASURE else "recorded",
        cells=[":".join(cell) for cell in CELLS],
    message:
        "statistics: {output} ({params.source} samples)"
    shell:
        "python -m workflow.scripts.overhead_table --source {params.source} --expect {params.cells}"
        " --baseline-results {input.baselines} --out {output} --raw {input.raw} > {log} 2>&1"
