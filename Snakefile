"""From finished kernels to verified traced kernels, preservation, overhead and one report. See README.md."""

from snakemake.utils import min_version

min_version("9.0")


configfile: "configs/default.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/corpus.smk"
include: "workflow/rules/splice.smk"
include: "workflow/rules/verify.smk"
include: "workflow/rules/baselines.smk"
include: "workflow/rules/preservation.smk"
include: "workflow/rules/overhead.smk"
include: "workflow/rules/gate.smk"
include: "workflow/rules/statistics.smk"
include: "workflow/rules/plots.smk"
include: "workflow/rules/ablation.smk"
include: "workflow/rules/report.smk"


rule all:
    default_target: True
    input:
        "results/report.html",
        "results/verified.txt",
