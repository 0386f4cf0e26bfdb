rule corpus:
    """Original image of one workload: compiled here, or taken from a pinned and checksummed package."""
    input:
        suite=config["suite"],
        sources=sorted(str(p) for p in Path("workflow/kernels").glob("*.py")),
    output:
        image="results/corpus/{workload}/original.cubin",
        meta="results/corpus/{workload}/meta.json",
    log:
        "results/logs/corpus/{workload}.log",
    retries: 2
    conda:
        ENV
    resources:
        mem_mb=memory(4000),
        runtime=30,
    params:
        folder=lambda wildcards, output: Path(output.image).parent,
    message:
        "corpus: {wildcards.workload}"
    shell:
        "python workflow/scripts/build_corpus.py {wildcards.workload}"
        " --suite {input.suite} --out {params.folder} > {log} 2>&1"
