"""The G-Watch baseline: shipped machine code -> (original, instrumented) images, probes at Xtrace's own places.

G-Watch has no selectors: it takes instruction indices. It gets the places that Xtrace's selector of the group names
(before the planner moves or refuses any), so both tools are asked for the same. Its warp-level records are used: one
elected lane stores, as in Xtrace.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from baselines import resources
from baselines.api import Availability, Buffer, BuildResult, Launch, Resource, SiteCounts, SiteRecord, Workload
from baselines.gwatch.tool import Tool, ToolError
from baselines.sites import Group, find_group
from xtrace.analysis import KernelAnalysis, analyse
from xtrace.errors import BadInput, MissingTool, Unsupported, XtraceError
from xtrace.image import load
from xtrace.isa import for_arch
from xtrace.probe import select
from xtrace.runtime.device import LaunchConfig

__all__ = ["MAX_SITES", "GWatch", "launch_shape", "places"]

MAX_SITES = {"anchor": 63, "sm": 63, "gpu": 31}  # what the number field of a warp-level record holds
ALIGNMENT = 256
SLACK = 1 << 20  # bytes behind the last block: its records are written without a bounds check
SCHE_RECORDS = 32  # entry and one exit per warp, with room for guarded exits


class GWatch:
    """G-Watch, warp-level records. ``clock``: ``anchor`` gives entry and exit times of a warp besides its records.
    ``schedule``: how it orders the instructions of a probe, ``first_feasible`` (its default) or ``least_makespan``.

    ``timeout_s`` bounds one kernel: a site that cannot be placed costs the tool a whole new attempt.
    """

    name = "gwatch"
    title = "G-Watch"

    def __init__(
        self,
        tool: Tool,
        clock: str = "anchor",
        records: int | None = None,
        timeout_s: float = 240.0,
        schedule: str = "first_feasible",
    ) -> None:
        if clock not in MAX_SITES:
            raise BadInput("XT7364", f"no clock {clock!r}", hint=f"one of {', '.join(MAX_SITES)}")
        self.tool = tool
        self.clock = clock
        self.records = records
        self.timeout_s = timeout_s
        self.schedule = schedule
        self.log = ""  # end of what the tool printed when it failed

    def available(self) -> Availability:
        try:
            self.tool.check()
        except MissingTool as error:
            return Availability(False, str(error))
        return Availability(True)

    def count_sites(self, image: Path) -> int:
        """Clock reads in the machine code of ``image``; reads of the device-wide timer where there are none."""
        loaded = load(image)
        codes = for_arch(loaded.arch, where=loaded.name).decode_many([k.text for k in loaded.kernels])
        texts = [ins.text for code in codes for ins in code]
        clocks = sum("SR_CLOCKLO" in text for text in texts)
        return clocks or sum("SR_GLOBALTIMERLO" in text for text in texts)

    def build(self, workload: Workload, probes: str, out_dir: Path) -> BuildResult:
        """See :meth:`baselines.api.Baseline.build`."""
        return self.build_at(workload, probes, None, out_dir)

    def build_at(self, workload: Workload, probes: str, wanted: Mapping[int, str] | None, out_dir: Path) -> BuildResult:
        """The same with probes at ``wanted`` (instruction index -> phase) instead of all places of the group."""
        result = BuildResult(self.name, self.title, workload.name, probes, "failed", "not built")
        self.log = ""
        try:
            result.status, result.reason = "ok", ""
            self._build(workload, find_group(probes), wanted, out_dir, result)
        except (Unsupported, MissingTool) as error:
            result.status, result.reason = "unsupported", str(error)
        except XtraceError as error:
            result.status, result.reason = "failed", str(error)
            self.log = error.log if isinstance(error, ToolError) else ""
        return result

    def _build(
        self,
        workload: Workload,
        group: Group,
        wanted: Mapping[int, str] | None,
        out_dir: Path,
        result: BuildResult,
    ) -> None:
        if workload.cubin is None:
            raise BadInput("XT7306", "original.cubin is missing", where=workload.name)
        loaded = load(workload.cubin)
        kernel = loaded.kernel(str(workload.meta.get("kernel") or loaded.kernels[0].name))
        result.kernel = kernel.name
        analysis = analyse(loaded, kernel)
        wanted = places(analysis, group) if wanted is None else wanted
        if not wanted:
            raise Unsupported("XT7322", f"no instruction of this kernel is a site of group {group.name!r}")
        # Entry and exit alone: records with the device-wide timer. Otherwise the anchors tell both times.
        clock = "gpu" if group.whole_kernel else self.clock
        if len(wanted) > MAX_SITES[clock]:
            raise Unsupported("XT7365", f"{len(wanted)} sites, its records tell at most {MAX_SITES[clock]} apart")
        config = launch_shape(workload.meta)
        out_dir.mkdir(parents=True, exist_ok=True)
        made = self.tool.run(
            "instrument.py",
            {
                "cubin": str(workload.cubin.resolve()),
                "kernel": kernel.name,
                "sites": sorted(wanted),
                "clock": clock,
                "schedule": self.schedule,
                "records": SCHE_RECORDS if group.whole_kernel else self.records or 4096,
                "grid": config.grid,
                "block": config.block,
                "output": str((out_dir / "instrumented.cubin").resolve()),
            },
            self.timeout_s,
        )
        shutil.copyfile(workload.cubin, out_dir / "original.cubin")
        result.original_cubin = out_dir / "original.cubin"
        result.instrumented_cubin = out_dir / "instrumented.cubin"
        result.toolchain = {"gwatch": str(made["version"])}
        self._describe(workload.meta, analysis, wanted, clock, made, out_dir, result)

    def _describe(
        self,
        meta: Mapping[str, Any],
        analysis: KernelAnalysis,
        wanted: Mapping[int, str],
        clock: str,
        made: Mapping[str, Any],
        out_dir: Path,
        result: BuildResult,
    ) -> None:
        step = analysis.isa.word_bytes
        refused = {int(r["index"]): str(r["reason"]) for r in made["refused"]}
        for site in made["sites"]:
            op = _op(analysis, int(site["index"]))
            result.sites.append(SiteRecord(int(site["id"]), "before", wanted[int(site["index"])], op, 0))
        before = resources.facts(out_dir / "original.cubin", result.kernel)
        after = resources.facts(out_dir / "instrumented.cubin", result.kernel)
        shared = meta.get("launch", {}).get("shared")
        result.resources = {
            "registers": Resource(before.registers, after.registers),
            "static_shared": Resource(before.static_shared, after.static_shared),
            "dynamic_shared": Resource(shared, shared),
        }
        result.counts = SiteCounts(
            source=len(result.sites),
            sass_original=self.count_sites(out_dir / "original.cubin"),
            sass_instrumented=self.count_sites(out_dir / "instrumented.cubin"),
        )
        result.record = {
            "bytes": int(made["record_bytes"]),
            "fields": ["clock and site number u32"],
            "per": "warp",
            "clock": clock,
            "schedule": self.schedule,
            "capacity": int(made["records"]),
            "bounds_check": False,
            "block_bytes": int(made["block_bytes"]),
            "header_bytes": int(made["header_bytes"]),
            "id_bits": int(made["id_bits"]),
            "pcs": {int(s["id"]): step * int(s["index"]) for s in made["sites"]},
            "words": {"entry": made["entry_words"], "exit": made["exit_words"], "site": made["sites"][0]["words"]},
            "refused": [
                {"pc": step * i, "op": _op(analysis, i), "phase": wanted[i], "reason": why}
                for i, why in sorted(refused.items())
            ],
            "seconds": made["seconds"],
        }
        result.launch = Launch(
            function=result.kernel,
            parameters=int(made["parameters"]),
            dynamic_shared=shared,
            buffers=(
                Buffer(
                    name="trace",
                    parameter=int(made["parameters"]) - 1,
                    appended=True,
                    unit="warp",
                    bytes_per_unit=int(made["block_bytes"]),
                    align=ALIGNMENT,
                    zero=True,
                    slack=SLACK,
                ),
            ),
            notes=("no bounds check: a warp with more records than its block holds writes into the next one",),
        )


def _op(analysis: KernelAnalysis, index: int) -> str:
    return analysis.instructions[index].opcode


def places(analysis: KernelAnalysis, group: Group) -> dict[int, str]:
    """Instruction indices of a group, with the phase that begins there. G-Watch's first possible index is 1."""
    out: dict[int, str] = {}
    for site in select(analysis, group.xtrace):
        if site.kind == "entry":
            out[1] = "entry"
        elif site.kind == "exit" and not group.whole_kernel:
            continue  # written by the exit anchor
        else:
            out.setdefault(site.index, site.phase if site.kind == "record" else "exit")
    if not group.whole_kernel:
        out.pop(1, None)
    return out


def launch_shape(meta: Mapping[str, Any], shape: str = "default") -> LaunchConfig:
    """Grid and block of a workload; one CTA where they are only known at run time (they do not change the code)."""
    launch = meta.get("launch", {})
    sizes = launch.get("shapes", {}).get(shape, {})
    grid, block = sizes.get("grid") or (1, 1, 1), launch.get("block") or (32, 1, 1)
    return LaunchConfig(tuple(map(int, grid)), tuple(map(int, block)), int(launch.get("shared") or 0))
