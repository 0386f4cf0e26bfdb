"""Checked configuration and the cells of this run. No rules."""

import hashlib
import os
import re
import sys
from pathlib import Path

sys.path.insert(0, workflow.basedir)

from workflow.scripts.config import check, load_yaml, probe_specs
from workflow.scripts.devices import measures, targets
from xtrace.errors import XtraceError
from xtrace.sampling import probe_set, sampling

CONFIG_FILE = str(workflow.configfiles[0])  # the user's, if one was given: it comes before the default
ENV = "../envs/xtrace.yaml"

# Jobs run the interpreter that runs this workflow, whether or not its environment was activated.
os.environ.update(PATH=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]))


def code_of(*rooms):
    """Fingerprint of the sources of some rooms: a change of the splicer makes its images out of date."""
    digest = hashlib.sha256()
    for room in rooms:
        for path in sorted(Path(workflow.basedir, "xtrace", room).rglob("*")):
            if path.suffix in {
                ".py",
                ".json",
                ".yaml",
                ".toml",
                ".tsv",
                ".csv",
                ".txt",
            }:
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


SPLICER = code_of("image", "isa", "analysis", "probe", "splice")
VERIFIER = code_of("image", "isa", "verify")
COMPARER = code_of("image", "isa", "fidelity")


def stop(error):
    """End before any job starts, with the one line that the user needs."""
    print(error, file=sys.stderr)
    raise SystemExit(2)


try:
    check(config, CONFIG_FILE, command_line=workflow.config_settings.config or {})
    SPECS = probe_specs(config["matched_sites"])
except XtraceError as error:
    stop(error)

WORKLOADS = config["workloads"]
SUITE = load_yaml(config["suite"])["workloads"]
TRACED = list(dict.fromkeys(config["probes"] + config["baselines"]["groups"]))  # probe sets that Xtrace is spliced with
TRACERS = config["baselines"]["tracers"]
GROUPS = config["baselines"]["groups"]
TARGETS = targets(config)  # devices by name; none: whatever GPU this machine has
RUNNABLE = {name: target for name, target in TARGETS.items() if not target.reason}
try:
    MEASURE = measures(config, CONFIG_FILE, decide=workflow.is_main_process)
except XtraceError as error:
    stop(error)


def memory(megabytes):
    """Megabytes of the first attempt; a job that was killed for want of memory gets more in the next one."""
    return lambda wildcards, attempt: megabytes * attempt


def cells(pattern, probes, workloads=WORKLOADS, **more):
    """Files of all cells that exist: not every kernel has sites of every group (a softmax has no matrix unit)."""
    return [
        path
        for workload in workloads
        for group in probes
        if probe_set(group) in SUITE[workload]["groups"]
        for path in expand(pattern, workload=workload, probes=group, **more)
    ]


# Probe sets whose overhead is measured: the user's, and groups in which every tracer marks the same places.
TIMED = list(dict.fromkeys([*config["probes"], *config["measurement"].get("matched", [])]))
CELLS = [
    (workload, tracer, probes)
    for workload in WORKLOADS
    for tracer in ["xtrace", *TRACERS]
    for probes in TIMED
    if probe_set(probes) in SUITE[workload]["groups"] and (probes in config["probes"] or probes in GROUPS)
    if tracer == "xtrace" or probes in GROUPS
]


def layout(wildcards):
    """Which of the equivalent traced images is spliced: the fastest that was found by measurement."""
    return SUITE[wildcards.workload].get("layouts", {}).get(probe_set(wildcards.probes), 0)


def specification(wildcards):
    """What is traced, as the command line says it."""
    sampled = sampling(wildcards.probes)
    return f"--probes '{SPECS[probe_set(wildcards.probes)]}'" + (f" --sample {sampled}" if sampled else "")


def instrumented(workload, tracer, probes):
    """The image whose overhead is measured."""
    if tracer == "xtrace":
        return f"results/traced/{workload}/{probes}.cubin"
    return f"results/baselines/{tracer}/{workload}/{probes}/result.json"


def raw_samples(_wildcards):
    """Folders of fresh samples if this run measures, otherwise recorded files of the configured workloads."""
    if MEASURE and TARGETS:
        return expand("results/overhead/devices/{device}/{workload}", device=TARGETS, workload=WORKLOADS)
    if MEASURE:
        return [f"results/overhead/raw/{workload}" for workload in WORKLOADS]
    folder = Path(config["recorded"], "overhead", "raw")
    return sorted(str(p) for w in WORKLOADS for place in (folder, folder / w) for p in place.glob(f"{w}.*.json"))


ABLATION = [  # workloads whose probes are taken apart
    workload for workload in ("fa_fwd_hd128_causal_triton", "fa3_fwd_hd128_causal") if workload in WORKLOADS
]


def ablation_samples(_wildcards):
    """Recorded samples of the ablation, if there are any."""
    path = Path(config["recorded"], "ablation", "steps.json")
    return [str(path)] if path.is_file() else []


def trace_file(workload):
    """The trace whose timeline is shown: of this run if it measures on its own machine, otherwise recorded."""
    folder = "results/traces" if MEASURE and not TARGETS else f"{config['recorded']}/traces"
    return f"{folder}/{workload}.pp.xtrace"


TIMELINES = [w for w in config["timelines"] if (MEASURE and not TARGETS) or Path(trace_file(w)).is_file()]


wildcard_constraints:
    workload="|".join(WORKLOADS),
    tracer="|".join(["xtrace", *TRACERS]),
    probes="|".join(map(re.escape, TRACED)),
    device="|".join(TARGETS) or "-",


# Seconds of work on tables: under a scheduler these would wait longer than they run.
localrules:
    all,
    certificates,
    coverage,
    enforce,
    no_device,
    preservation,
    statistics,
