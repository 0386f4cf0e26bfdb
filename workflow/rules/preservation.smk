rule diff_xtrace:
    """Preservation of the original in Xtrace's image, paired by the trace map."""
    input:
        original="results/corpus/{workload}/original.cubin",
        traced="results/traced/{workload}/{probes}.cubin",
        map="results/traced/{workload}/{probes}.cubin.map.json",
    output:
        "results/preservation/xtrace/{workload}/{probes}.json",
    log:
        "results/logs/diff/xtrace.{workload}.{probes}.log",
    conda:
        ENV
    params:
        code=COMPARER,
    message:
        "diff: xtrace on {wildcards.workload}, {wildcards.probes}"
    shell:
        "python -m workflow.scripts.diff --original {input.original} --other {input.traced} --out {output} > {log} 2>&1"


rule diff_baseline:
    """Preservation of the original in a baseline's image, paired by a longest common subsequence."""
    input:
        "results/baselines/{tracer}/{workload}/{probes}/result.json",
    output:
        "results/preservation/{tracer}/{workload}/{probes}.json",
    log:
        "results/logs/diff/{tracer}.{workload}.{probes}.log",
    wildcard_constraints:
        tracer="|".join(TRACERS) or "none",
    conda:
        ENV
    params:
        folder=lambda wildcards, input: Path(input[0]).parent,
        code=COMPARER,
    message:
        "diff: {wildcards.tracer} on {wildcards.workload}, {wildcards.probes}"
    shell:
        "python -m workflow.scripts.diff --baseline {params.folder} --out {output} > {log} 2>&1"


rule preservation:
    """Preservation of every cell in one table."""
    input:
        cells("results/preservation/xtrace/{workload}/{probes}.json", TRACED),
        cells("results/preservation/{tracer}/{workload}/{probes}.json", GROUPS, tracer=TRACERS),
    output:
        "results/preservation.csv",
    log:
        "results/logs/preservation.log",
    conda:
        ENV
    message:
        "preservation: {output}"
    shell:
        "python -m workflow.scripts.preservation_table --out {output} {input} > {log} 2>&1"


rule coverage:
    """Sites placed and refused, and every refusal with its reason."""
    input:
        cells("results/traced/{workload}/{probes}.plan.json", TRACED),
    output:
        table="results/coverage.csv",
        refusals="results/refusals.csv",
    log:
        "results/logs/coverage.log",
    conda:
        ENV
    message:
        "coverage: {output.table}"
    shell:
        "python -m workflow.scripts.coverage_table --out {output.table} --refusals {output.refusals} {input} > {log} 2>&1"
