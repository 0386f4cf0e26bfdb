"""The PTX-probe baseline: shipped PTX -> (reference, probed) cubins."""

from __future__ import annotations

import shutil
from pathlib import Path

from baselines import resources, toolchain
from baselines.api import Availability, Buffer, BuildResult, Launch, Resource, SiteCounts, SiteRecord, Workload
from baselines.ptx_probe.module import Entry, parse_entry
from baselines.ptx_probe.rewrite import EVENT_BYTES, SCHED_BYTES, Mode, Probed, rewrite
from baselines.ptx_probe.select import PtxSite, exit_sites, mark_sites
from baselines.sites import Group, find_group
from xtrace.errors import BadInput, MissingTool, Unsupported, XtraceError

__all__ = ["DEFAULT_CAPACITY", "PtxProbe"]

DEFAULT_CAPACITY = 4096  # events per warp; the slot is a constant in the code, so it is fixed when building


class PtxProbe:
    """PTX-probe (re-implementation), in ``exact`` or ``charitable`` mode (see :mod:`baselines.ptx_probe.rewrite`)."""

    def __init__(self, mode: Mode = "exact", capacity: int = DEFAULT_CAPACITY, bounds_check: bool = False) -> None:
        self.mode: Mode = mode
        self.capacity = capacity
        self.bounds_check = bounds_check
        self.name = "ptx-probe" if mode == "exact" else "ptx-probe-charitable"
        self.title = "PTX-probe (re-implementation)" + ("" if mode == "exact" else ", charitable")

    def available(self) -> Availability:
        """ptxas must be there; it comes with the Triton package."""
        try:
            toolchain.tool("ptxas")
        except MissingTool as error:
            return Availability(False, str(error))
        return Availability(True, versions=toolchain.versions())

    def count_sites(self, image: Path) -> int:
        """Clock reads in the machine code of ``image``."""
        return toolchain.clock_reads(image)

    def build(self, workload: Workload, probes: str, out_dir: Path) -> BuildResult:
        """See :meth:`baselines.api.Baseline.build`. The reason of ``unsupported`` names what the input lacks."""
        result = BuildResult(self.name, self.title, workload.name, probes, "failed", "not built")
        try:
            result.status, result.reason = "ok", ""
            self._build(workload, probes, out_dir, result)
        except (Unsupported, MissingTool) as error:
            result.status, result.reason = "unsupported", str(error)
        except XtraceError as error:
            result.status, result.reason = "failed", str(error)
        return result

    def _build(self, workload: Workload, probes: str, out_dir: Path, result: BuildResult) -> None:
        group = find_group(probes)
        if workload.cubin is None:
            raise BadInput("XT7306", "original.cubin is missing", where=workload.name)
        if workload.ptx is None:
            raise Unsupported("XT7321", "the shipped binary carries no PTX for this kernel", where=workload.name)
        result.toolchain = toolchain.versions()
        source = workload.ptx.read_text(encoding="utf-8")
        entry = parse_entry(source, _kernel_name(workload), workload.ptx.name)
        result.kernel = entry.name
        sites = self._sites(entry, group)
        probed = rewrite(
            entry,
            sites,
            mode=self.mode,
            sched=group.whole_kernel,
            capacity=self.capacity,
            bounds_check=self.bounds_check,
        )
        arch = str(workload.meta.get("arch", "sm_90a"))
        flags = ("-lineinfo",)
        out_dir.mkdir(parents=True, exist_ok=True)
        after = _assemble(probed.text, arch, flags, out_dir / "instrumented.cubin", result, "probed text")
        before = _assemble(source, arch, flags, out_dir / "ref.cubin", result, "text without probes")
        shutil.copyfile(workload.cubin, out_dir / "original.cubin")
        (out_dir / "probed.ptx").write_text(probed.text, encoding="utf-8")
        result.original_cubin = out_dir / "original.cubin"
        result.instrumented_cubin = out_dir / "instrumented.cubin"
        result.reference_cubin = out_dir / "ref.cubin"
        result.sites = _records(entry, sites, group)
        self._describe(workload, entry, probed, group, before, after, out_dir, result)

    def _sites(self, entry: Entry, group: Group) -> list[PtxSite]:
        sites = exit_sites(entry) if group.whole_kernel else mark_sites(entry, group.marks)
        if not sites:
            raise Unsupported("XT7322", f"no instruction of this kernel is a site of group {group.name!r}")
        return sites

    def _describe(
        self,
        workload: Workload,
        entry: Entry,
        probed: Probed,
        group: Group,
        before: toolchain.Assembly,
        after: toolchain.Assembly,
        out_dir: Path,
        result: BuildResult,
    ) -> None:
        original_cubin, instrumented_cubin = out_dir / "original.cubin", out_dir / "instrumented.cubin"
        original = resources.facts(original_cubin, entry.name)
        instrumented = resources.facts(instrumented_cubin, entry.name)
        result.counts = SiteCounts(
            source=len(result.sites),
            sass_original=self.count_sites(original_cubin),
            sass_instrumented=self.count_sites(instrumented_cubin),
        )
        launch = workload.meta.get("launch", {})
        shared = launch.get("shared")
        result.resources = {
            "registers": Resource(original.registers, instrumented.registers),
            "static_shared": Resource(original.static_shared, instrumented.static_shared),
            "dynamic_shared": Resource(shared, shared),
            "stack": Resource(before.stack, after.stack),
            "spill": Resource(before.spill, after.spill),
        }
        result.controls["reference_equals_shipped"] = resources.same_code(original_cubin, out_dir / "ref.cubin")
        whole = group.whole_kernel
        result.record = {
            "bytes": SCHED_BYTES if whole else EVENT_BYTES,
            "fields": ["start u64", "elapsed u32", "smid u32"] if whole else ["clock u64"],
            "per": "warp",
            "capacity": 1 if whole else self.capacity,
            "bounds_check": self.bounds_check,
        }
        result.launch = Launch(
            function=entry.name,
            parameters=entry.parameters + 1,
            block=tuple(launch["block"]) if "block" in launch else None,
            dynamic_shared=shared,
            buffers=(
                Buffer(
                    name="map",
                    parameter=probed.parameter,
                    appended=True,
                    unit="warp",
                    bytes_per_unit=probed.bytes_per_warp,
                    align=16,
                    zero=True,
                    slack=0 if whole else probed.bytes_per_warp,
                ),
            ),
            notes=() if self.bounds_check or whole else (_NO_BOUNDS.format(self.capacity),),
        )
        if group.whole_kernel:
            result.notes.append("the entry clock is read behind the declarations, before the first instruction")
        for label, assembly in (("reference", before), ("probed", after)):
            result.notes += [f"ptxas, {label}: {w}" for w in assembly.warnings]


_NO_BOUNDS = (
    "the probes do not check bounds, as in the published technique: no warp may meet more than {} events, "
    "or it writes into the next warp's slot"
)


def _kernel_name(workload: Workload) -> str | None:
    name = workload.meta.get("kernel")
    return str(name) if name else None


def _assemble(
    text: str, arch: str, flags: tuple[str, ...], path: Path, result: BuildResult, what: str
) -> toolchain.Assembly:
    done = toolchain.assemble(text, arch, flags)
    if done.cubin is None:
        result.status = "failed"
        raise BadInput("XT7323", f"ptxas refuses the {what}: {done.first_error}")
    path.write_bytes(done.cubin)
    return done


def _records(entry: Entry, sites: list[PtxSite], group: Group) -> list[SiteRecord]:
    records = []
    if group.whole_kernel:
        records.append(SiteRecord(1, "entry", "kernel", "", entry.line))
    for site in sites:
        statement = entry.statements[site.statement]
        records.append(
            SiteRecord(len(records) + 1, site.place, site.phase, statement.opcode, statement.line, site.exact)
        )
    return records
