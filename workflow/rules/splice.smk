rule plan:
    """Dry run: sites placed and refused, with reasons."""
    input:
        "results/corpus/{workload}/original.cubin",
    output:
        "results/traced/{workload}/{probes}.plan.json",
    log:
        "results/logs/plan/{workload}.{probes}.log",
    retries: 2
    conda:
        ENV
    resources:
        mem_mb=memory(2000),
        runtime=30,
    params:
        spec=specification,
        layout=layout,
        code=SPLICER,
    message:
        "plan: {wildcards.workload}, {wildcards.probes}"
    shell:
        "python -m xtrace plan {input} --kernel '*' {params.spec} --layout {params.layout} --json > {output} 2> {log}"


rule splice:
    """The traced image and its trace map."""
    input:
        "results/corpus/{workload}/original.cubin",
    output:
        image="results/traced/{workload}/{probes}.cubin",
        map="results/traced/{workload}/{probes}.cubin.map.json",
    log:
        "results/logs/splice/{workload}.{probes}.log",
    retries: 2
    conda:
        ENV
    resources:
        mem_mb=memory(2000),
        runtime=30,
    params:
        spec=specification,
        layout=layout,
        code=SPLICER,
    message:
        "splice: {wildcards.workload}, {wildcards.probes}"
    shell:
        "python -m xtrace splice {input} --kernel '*' {params.spec} --layout {params.layout} -o {output.image} > {log} 2>&1"
