rule verify:
    """Certificate of one traced image. Written also when a promise fails: see enforce."""
    input:
        original="results/corpus/{workload}/original.cubin",
        traced="results/traced/{workload}/{probes}.cubin",
        map="results/traced/{workload}/{probes}.cubin.map.json",
    output:
        "results/traced/{workload}/{probes}.cubin.certificate.json",
    log:
        "results/logs/verify/{workload}.{probes}.log",
    retries: 2
    conda:
        ENV
    resources:
        mem_mb=memory(2000),
        runtime=30,
    params:
        code=VERIFIER,
    message:
        "verify: {wildcards.workload}, {wildcards.probes}"
    shell:
        "python -m workflow.scripts.verify --original {input.original} --traced {input.traced}"
        " --out {output} > {log} 2>&1"


rule certificates:
    """Every promise of every traced image in one table."""
    input:
        cells("results/traced/{workload}/{probes}.cubin.certificate.json", TRACED),
    output:
        "results/certificates.csv",
    log:
        "results/logs/certificates.log",
    conda:
        ENV
    message:
        "certificates: {output}"
    shell:
        "python -m workflow.scripts.certificate_table --out {output} {input} > {log} 2>&1"


rule enforce:
    """Fails the run, after the report exists, when a promise does not hold."""
    input:
        table="results/certificates.csv",
        report="results/report.html",
    output:
        "results/verified.txt",
    log:
        "results/logs/enforce.log",
    conda:
        ENV
    message:
        "enforce: every promise of every traced image holds"
    shell:
        "python -m workflow.scripts.certificate_table --enforce {input.table} --out {output} > {log} 2>&1"
