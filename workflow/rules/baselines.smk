rule baseline:
    """Original and instrumented image of a baseline tracer, or the reason why there is none."""
    input:
        image="results/corpus/{workload}/original.cubin",
        meta="results/corpus/{workload}/meta.json",
        sites=config["matched_sites"],
    output:
        "results/baselines/{tracer}/{workload}/{probes}/result.json",
    log:
        "results/logs/baseline/{tracer}.{workload}.{probes}.log",
    retries: 2
    conda:
        ENV
    resources:
        mem_mb=memory(4000),
        runtime=30,
    params:
        corpus=lambda wildcards, input: Path(input.image).parent,
        folder=lambda wildcards, output: Path(output[0]).parent,
    message:
        "baseline: {wildcards.tracer} on {wildcards.workload}, {wildcards.probes}"
    shell:
        "python workflow/scripts/build_baseline.py --tracer {wildcards.tracer} --workload-dir {params.corpus}"
        " --probes {wildcards.probes} --out {params.folder} > {log} 2>&1"
