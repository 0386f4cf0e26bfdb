"""results/architectures.csv: how far each tracer got on each architecture, from this run's tables.

    python -m workflow.scripts.architecture_table --results results --corpus META... --tracers proton --out OUT

The states, each implying those before it: modelled (Xtrace can decode it), built (images exist), verified (every
promise of every image holds), measured. ``unsupported`` is what Xtrace's instruction-set model says; ``failed``: a
promise is broken, or a baseline could not build a single image.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from workflow.scripts import certificate_table, overhead_table, preservation_table
from workflow.scripts.common import read_json, read_table, run, write_table
from workflow.scripts.values import number
from xtrace.errors import XtraceError
from xtrace.isa import for_arch

COLUMNS = ("arch", "tracer", "state", "detail")
KNOWN = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a", "gfx90a", "gfx942", "gfx950")


def rows(
    archs: Mapping[str, str],
    tracers: Sequence[str],
    certificates: pd.DataFrame,
    preservation: pd.DataFrame,
    overhead: pd.DataFrame,
) -> list[dict[str, Any]]:
    """One row a pair. ``archs``: workload -> architecture of its original image."""
    out = []
    for arch in dict.fromkeys([*archs.values(), *KNOWN]):
        own = {w for w, a in archs.items() if a == arch}
        part = [t[t["workload"].isin(own)] for t in (certificates, preservation, overhead)]
        out.append({"arch": arch, "tracer": "xtrace", **_xtrace(arch, own, *part)})
        out += [{"arch": arch, "tracer": t, **_baseline(t, own, part[1], part[2])} for t in tracers]
    return out


def _measured(overhead: pd.DataFrame, tracer: str) -> int:
    rows = overhead[overhead["tracer"] == tracer]
    return sum(number(v) is not None for v in rows["overhead_percent"])


def _xtrace(
    arch: str, own: set[str], certificates: pd.DataFrame, preservation: pd.DataFrame, overhead: pd.DataFrame
) -> dict[str, str]:
    try:
        for_arch(arch)
    except XtraceError:
        return {"state": "unsupported", "detail": ""}
    images = len(certificates[["workload", "probes"]].drop_duplicates())
    if not own or not images:
        return {"state": "built" if own and len(preservation) else "modelled", "detail": ""}
    if bad := int((certificates["status"] != "PASS").sum()):
        return {"state": "failed", "detail": f"{bad} of {len(certificates)}"}
    if cells := _measured(overhead, "xtrace"):
        return {"state": "measured", "detail": f"{cells} of {int((overhead['tracer'] == 'xtrace').sum())} cells"}
    return {"state": "verified", "detail": f"{images} images"}


def _baseline(tracer: str, own: set[str], preservation: pd.DataFrame, overhead: pd.DataFrame) -> dict[str, str]:
    tried = preservation[preservation["tracer"] == tracer].drop_duplicates(["workload", "probes"])
    if not own or tried.empty:
        return {"state": "no data", "detail": ""}
    if cells := _measured(overhead, tracer):
        return {"state": "measured", "detail": f"{cells} of {int((overhead['tracer'] == tracer).sum())} cells"}
    good = int((tried["status"] == "ok").sum())
    if not good:
        status = set(tried["status"])
        return {"state": "unsupported" if status == {"unsupported"} else "failed", "detail": f"0 of {len(tried)}"}
    return {"state": "built", "detail": f"{good} of {len(tried)}"}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="architecture_table", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--results", type=Path, required=True, help="folder of the tables")
    parser.add_argument("--corpus", type=Path, nargs="*", default=[], help="meta.json of each original image")
    parser.add_argument("--tracers", nargs="*", default=[], help="baselines of this run")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    metas = [read_json(path) for path in given.corpus]
    archs = {str(m.get("workload", "?")): str(m.get("arch", "?")) for m in metas}
    tables = (("certificates", certificate_table), ("preservation", preservation_table), ("overhead", overhead_table))
    read = [read_table(given.results / f"{name}.csv", module.COLUMNS) for name, module in tables]
    write_table(given.out, rows(archs, given.tracers, *read), COLUMNS)


if __name__ == "__main__":
    run(main)
