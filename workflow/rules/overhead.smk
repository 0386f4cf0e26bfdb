# Measurement only. Analysis lives in statistics.smk, so that no plot or table ever makes a timed run out of date.
# Every timed rule says `retries: 0`, so that not even a profile can change it: repeating a measurement until it looks
# good is optional stopping.

# Repeats as configured; with a calibration of the GPU, as it says.
CALIBRATION = config["measurement"].get("calibration", "")
BLOCKS = (
    f"--calibration {CALIBRATION}"
    if CALIBRATION
    else "--blocks {blocks} --control-blocks {control_blocks}".format(**config["measurement"])
) + f" --seed {config['measurement']['seed']}"
REPEATS = BLOCKS if CALIBRATION else f"--processes {config['measurement']['processes']} {BLOCKS}"


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
    retries: 0
    conda:
        ENV
    resources:
        gpu=1,
        mem_mb=memory(16000),
        runtime=120,
    params:
        device=lambda wildcards: TARGETS[wildcards.device].options if hasattr(wildcards, "device") else "",
        shape=config["measurement"].get("shape", "default"),
        cells=lambda wildcards: [
            f"{tracer}:{probes}" for workload, tracer, probes in CELLS if workload == wildcards.workload
        ],
        repeats=REPEATS,
    message:
        "measure: {wildcards.workload}, {params.repeats}, {params.cells}"
    shell:
        "python -m workflow.scripts.measure_workload --workload {wildcards.workload} --cells {params.cells}"
        " {params.repeats} --shape {params.shape} {params.device}"
        " --input-cache .cache/inputs --out {output} 2>&1 | tee {log}"


use rule measure as measure_on with:
    output:
        directory("results/overhead/devices/{device}/{workload}"),
    log:
        "results/logs/measure/{device}.{workload}.log",
    wildcard_constraints:
        device="|".join(RUNNABLE) or "-",
    resources:
        gpu=1,
        gpu_model=lambda wildcards: TARGETS[wildcards.device].gpu_model,
        mem_mb=memory(16000),
        runtime=120,
    message:
        "measure: {wildcards.workload} on {wildcards.device}, {params.repeats}, {params.cells}"


rule no_device:
    """Rows of a device that this run cannot measure: they say why."""
    output:
        directory("results/overhead/devices/{device}/{workload}"),
    log:
        "results/logs/measure/{device}.{workload}.log",
    wildcard_constraints:
        device="|".join(set(TARGETS) - set(RUNNABLE)) or "-",
    conda:
        ENV
    params:
        cells=lambda wildcards: [
            f"{tracer}:{probes}" for workload, tracer, probes in CELLS if workload == wildcards.workload
        ],
        reason=lambda wildcards: TARGETS[wildcards.device].reason,
    message:
        "no measurement: {wildcards.workload} on {wildcards.device}, {params.reason}"
    shell:
        "python -m workflow.scripts.empty_cells --workload {wildcards.workload} --device {wildcards.device}"
        " --reason {params.reason:q} --cells {params.cells} --out {output} > {log} 2>&1"


rule trace:
    """One checked run of a traced kernel: outputs compared, records counted, the trace of its first thread blocks."""
    input:
        traced="results/traced/{workload}/{probes}.cubin",
        meta="results/corpus/{workload}/meta.json",
    output:
        "results/traces/{workload}.{probes}.xtrace",
    log:
        "results/logs/trace/{workload}.{probes}.log",
    retries: 0
    conda:
        ENV
    resources:
        gpu=1,
        mem_mb=memory(16000),
        runtime=30,
    params:
        shape=config["measurement"].get("shape", "default"),
        folder=lambda wildcards, output: Path(output[0]).parent,
    message:
        "trace: {wildcards.workload}, {wildcards.probes}"
    shell:
        "python workflow/scripts/trace_workload.py {wildcards.workload} --probes {wildcards.probes}"
        " --shape {params.shape} --input-cache .cache/inputs --out {params.folder} > {log} 2>&1"
