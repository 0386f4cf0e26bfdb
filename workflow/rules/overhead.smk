# Measurement only. Analysis lives in statistics.smk, so that no plot or table ever makes a timed run out of date.
# There is no `retries` here on purpose: repeating a measurement until it looks good is optional stopping.


rule measure:
    """Raw samples of one process replicate of one cell. The process holds an exclusive lock on its GPU."""
    input:
        original="results/corpus/{workload}/original.cubin",
        meta="results/corpus/{workload}/meta.json",
        instrumented=instrumented,
    output:
        "results/overhead/raw/{workload}.{tracer}.{probes}.{process}.json",
    log:
        "results/logs/measure/{workload}.{tracer}.{probes}.{process}.log",
    conda:
        ENV
    resources:
        gpu=1,
    params:
        blocks=config["measurement"]["blocks"],
        control=config["measurement"]["control_blocks"],
        seed=config["measurement"]["seed"],
    message:
        "measure: {wildcards.tracer} on {wildcards.workload}, {wildcards.probes}, process {wildcards.process}"
    shell:
        "python workflow/scripts/measure_overhead.py --workload {wildcards.workload} --tracer {wildcards.tracer}"
        " --probes {wildcards.probes} --process {wildcards.process} --blocks {params.blocks}"
        " --control-blocks {params.control} --seed {params.seed} --input-cache .cache/inputs --out {output} > {log} 2>&1"


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
