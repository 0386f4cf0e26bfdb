# Measurement only. Analysis lives in statistics.smk, so that no plot or table ever makes a timed run out of date.
# There is no `retries` here on purpose: repeating a measurement until it looks good is optional stopping.


rule measure:
    """Raw samples of all cells of one workload. Each replicate is a fresh process that holds a lock on its GPU."""
    input:
        original="results/corpus/{workload}/original.cubin",
        meta="results/corpus/{workload}/meta.json",
        instrumented=lambda wildcards: [instrumented(*cell) for cell in CELLS if cell[0] == wildcards.workload],
    output:
        directory("results/overhead/raw/{workload}"),
    log:
        "results/logs/measure/{workload}.log",
    conda:
        ENV
    resources:
        gpu=1,
    params:
        cells=lambda wildcards: [
            f"{tracer}:{probes}" for workload, tracer, probes in CELLS if workload == wildcards.workload
        ],
        processes=config["measurement"]["processes"],
        blocks=config["measurement"]["blocks"],
        control=config["measurement"]["control_blocks"],
        seed=config["measurement"]["seed"],
    message:
        "measure: {wildcards.workload}, {params.processes} processes, {params.cells}"
    shell:
        "python -m workflow.scripts.measure_workload --workload {wildcards.workload} --cells {params.cells}"
        " --processes {params.processes} --blocks {params.blocks} --control-blocks {params.control} --seed {params.seed}"
        " --input-cache .cache/inputs --out {output} 2>&1 | tee {log}"


rule trace:
    """One checked run of a traced kernel: outputs compared, records counted, the trace of its first thread blocks."""
    input:
        traced="results/traced/{workload}/{probes}.cubin",
        meta="results/corpus/{workload}/meta.json",
    output:
        "results/traces/{workload}.{probes}.xtrace",
    log:
        "results/logs/trace/{workload}.{probes}.log",
    conda:
        ENV
    resources:
        gpu=1,
    params:
        folder=lambda wildcards, output: Path(output[0]).parent,
    message:
        "trace: {wildcards.workload}, {wildcards.probes}"
    shell:
        "python workflow/scripts/trace_workload.py {wildcards.workload} --probes {wildcards.probes}"
        " --input-cache .cache/inputs --out {params.folder} > {log} 2>&1"
