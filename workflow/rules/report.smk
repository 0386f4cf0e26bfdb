FIGURES = ["coverage", "overhead", "replicates", "blocks", "dose", "trend", "architectures", "ablation", "prediction"]


rule report:
    """One offline page with every table and figure. Missing parts are shown as missing."""
    input:
        tables=[
            "results/certificates.csv",
            "results/preservation.csv",
            "results/coverage.csv",
            "results/refusals.csv",
            "results/overhead.csv",
            "results/architectures.csv",
            "results/trend.csv",
            "results/ablation.csv",
            "results/prediction.csv",
        ],
        files="results/tables",
        corpus=expand("results/corpus/{workload}/meta.json", workload=WORKLOADS),
        plots=[
            *expand(
                "results/plots/preservation-{probes}.svg",
                probes=GROUPS or config["probes"],
            ),
            *expand("results/plots/{figure}.svg", figure=FIGURES),
            *expand("results/plots/timeline-{workload}.svg", workload=TIMELINES),
        ],
        template="workflow/report/report.html.j2",
        style="workflow/report/style.css",
    output:
        report(
            "results/report.html",
            caption="../report/captions/report.rst",
            category="Report",
            labels={"figure": "the whole report", "probe set": "all"},
        ),
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
