# The gate: does tracing stay within its budgets, and, with `base`, is it as cheap as it was in an older revision?
# The rule always leaves a verdict; whether one is good enough is asked afterwards, with `xtrace gate results/gate.json`
# (0 PASS, 1 FAIL, 2 INCONCLUSIVE, 3 INVALID-ENV): a rule that failed would take its verdict with it.

from workflow.scripts.base_images import resolve
from workflow.scripts.devices import listed_gpus
from workflow.scripts.protocol import derived
from xtrace.errors import MissingTool

BUDGETS = config.get("budgets", "configs/budgets.yaml")

try:
    if CALIBRATION:
        derived(Path(CALIBRATION))
    BASE = resolve(config["base"]) if config.get("base") else ""
    if BASE and not MEASURE:
        raise MissingTool(
            "XT7416",
            "nothing to compare with an older revision: both have to run in the same processes on a GPU, and this run "
            "does not measure",
            where=f"base={config['base']}",
            hint="run it where an NVIDIA GPU answers, or leave base out to gate the recorded samples",
        )
except XtraceError as error:
    stop(error)

GATED = [f"{workload}:{tracer}:{probes}" for workload, tracer, probes in CELLS if tracer == "xtrace"]
RECORDED = Path(config["recorded"], "overhead", "raw")
THIS_GPU = next((uuid for _, uuid in listed_gpus()), "this-gpu")


wildcard_constraints:
    revision="[0-9a-f]{40,64}",


rule base_images:
    """Traced images as an older revision makes them, from the same originals."""
    input:
        expand("results/corpus/{workload}/original.cubin", workload=WORKLOADS),
    output:
        directory("results/base/{revision}"),
    log:
        "results/logs/base/{revision}.log",
    conda:
        ENV
    resources:
        mem_mb=memory(2000),
        runtime=60,
    params:
        cells=[f"{workload}:{probes}" for workload, tracer, probes in CELLS if tracer == "xtrace"],
        sites=config["matched_sites"],
    message:
        "base: traced images of {wildcards.revision}"
    shell:
        "python -m workflow.scripts.base_images --revision {wildcards.revision} --corpus results/corpus"
        " --matched-sites {params.sites} --cells {params.cells} --out {output} > {log} 2>&1"


rule measure_gate:
    """Raw samples of all of Xtrace's cells: all of them in every process, an older revision beside the new one."""
    input:
        originals=expand("results/corpus/{workload}/{file}", workload=WORKLOADS, file=["original.cubin", "meta.json"]),
        traced=[instrumented(*cell) for cell in CELLS if cell[1] == "xtrace"],
        budgets=BUDGETS,
        base=[f"results/base/{BASE}"] if BASE else [],
    output:
        directory("results/gate/raw"),
    log:
        "results/logs/gate/measure.log",
    retries: 0
    conda:
        ENV
    resources:
        gpu=1,
        mem_mb=memory(16000),
        runtime=60,
    params:
        cells=GATED,
        base=f"--base results/base/{BASE}/traced --base-revision {BASE}" if BASE else "",
        repeats=BLOCKS,  # how many processes, the budgets say
        shape=config["measurement"].get("shape", "default"),
        seconds=config["measurement"].get("seconds", 1200),
    message:
        "measure for the gate: {params.cells}"
    shell:
        "python -m workflow.scripts.measure_gate --cells {params.cells} --budgets {input.budgets} {params.base}"
        " {params.repeats} --shape {params.shape} --budget {params.seconds}"
        " --input-cache .cache/inputs --out {output} 2>&1 | tee {log}"


rule gate:
    """The verdict on all cells: of this machine if it measures, otherwise of the recorded samples."""
    input:
        raw=["results/gate/raw"] if MEASURE else [str(p) for p in sorted(RECORDED.rglob("*.json"))],
        budgets=BUDGETS,
    output:
        verdict="results/gate.json",
        markdown="results/gate.md",
        junit="results/gate.junit.xml",
    log:
        "results/logs/gate/gate.log",
    conda:
        ENV
    params:
        folder=lambda wildcards, input: input.raw if MEASURE else RECORDED,
        kind="measured here" if MEASURE else "recorded earlier, because this run does not measure",
    message:
        "gate: samples in {params.folder}, {params.kind}"
    shell:
        "code=0; python -m xtrace gate {params.folder} --budgets {input.budgets} --out {output.verdict}"
        " --markdown {output.markdown} --junit {output.junit} > {log} 2>&1 || code=$?;"
        ' cat {log}; echo "samples in {params.folder}: {params.kind}"; test $code -le 3'


rule pad_control:
    """The traced images with NOPs for probes, for cells that ran faster traced: was it only that their code moved?"""
    input:
        verdict="results/gate.json",
        traced=[instrumented(*cell) for cell in CELLS if cell[1] == "xtrace"],
    output:
        directory("results/gate/pad"),
    log:
        "results/logs/gate/pad.log",
    retries: 0
    conda:
        ENV
    resources:
        gpu=1,
        mem_mb=memory(16000),
        runtime=60,
    params:
        cells=GATED,
        repeats=BLOCKS,
        shape=config["measurement"].get("shape", "default"),
    message:
        "pad control of the cells that {input.verdict} flags"
    shell:
        "mkdir -p {output}; python workflow/scripts/measure_overhead.py --cells {params.cells}"
        " --pad-flagged {input.verdict} {params.repeats} --shape {params.shape}"
        " --input-cache .cache/inputs --out {output} 2>&1 | tee {log}"


rule calibrate:
    """How noisy this machine is, and how many repeats follow from it (`measurement: calibration:` uses the file)."""
    input:
        expand("results/corpus/{workload}/{file}", workload=WORKLOADS, file=["original.cubin", "meta.json"]),
    output:
        f"results/calibration/{THIS_GPU}.json",
    log:
        "results/logs/calibrate.log",
    retries: 0
    conda:
        ENV
    resources:
        gpu=1,
        mem_mb=memory(16000),
        runtime=30,
    params:
        workloads=[w for w in WORKLOADS if SUITE[w]["kind"] == "triton"],
        shape=config["measurement"].get("shape", "default"),
        seed=config["measurement"]["seed"],
    message:
        "calibrate: {output}"
    shell:
        "python workflow/scripts/calibrate.py --workloads {params.workloads} --flush-workload {params.workloads[0]}"
        " --shape {params.shape} --seed {params.seed} --input-cache .cache/inputs --out {output} 2>&1 | tee {log}"
