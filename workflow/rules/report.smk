rule report:
    """One offline page with every table and figure. Missing parts are shown as missing."""
    input:
        tables=[
            "results/certificates.csv",
            "results/preservation.csv",
            "results/coverage.csv",
            "results/refusals.csv",
            "results/overhead.csv",
        ],
        corpus=expand("results/corpus/{workload}/meta.json", workload=WORKLOADS),
        plots=[
            *expand(
                "results/plots/preservation-{probes}.svg",
                probes=GROUPS or config["probes"],
            ),
            "results/plots/coverage.svg",
            "results/plots/overhead.svg",
            *expand("results/plots/timeline-{workload}.svg", workload=TIMELINES),
        ],
        template="workflow/report/report.html.j2",
        style="workflow/report/style.css",
    output:
        "results/report.html",
    log:
        "results/logs/report.log",
    conda:
        ENV
    params:
        config=CONFIG_FILE,
        arch=config["arch"],
        workloads=WORKLOADS,
        groups=GROUPS or config["probes"],
        timelines=TIMELINES,
    message:
        "report: {output}"
    shell:
        "python -m workflow.scripts.report --results results --config-name {params.config} --arch {params.arch}"
        " --workloads {params.workloads} --groups {params.groups}"
        " --timelines {params.timelines} --out {output} > {log} 2>&1"
