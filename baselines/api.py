"""The interface of a baseline tracer, and the record that it leaves behind (``result.json``).

A baseline turns one compiled workload into a pair of images, *original* (probes off) and *instrumented*, and says
where its probes are and how the instrumented image is launched. Building needs no GPU. Whatever happens, a
``result.json`` is written: ``unsupported`` and ``failed`` carry a reason, so that a missing cell of a table is never
mistaken for a preservation of zero.

``result.json`` (schema ``xtrace/baseline/1``)::

    {"schema", "tracer", "title", "workload", "kernel", "probes",
     "status": "ok" | "unsupported" | "failed", "reason": "",
     "files": {"original": "original.cubin", "instrumented": "instrumented.cubin", "reference": "ref.cubin" | null},
     "sites": [{"id", "place": "before|after|entry|exit", "phase", "op", "line", "exact"}],
     "site_counts": {"source": probes in the tool's own input, "closing": of these, records that only close a scope,
                     "sass_original", "sass_instrumented": clock reads in the machine code, "sass": the difference},
     "record": {"bytes", "fields", "per": "warp"},
     "resources": {"registers": {"before", "after"}, "static_shared": {..}, "dynamic_shared": {..}, "stack": {..}},
     "launch": see :class:`Launch`, "toolchain": {name: version}, "controls": {name: true | false | null}, "notes": []}

``original.cubin`` is the image that the tool's instrumented one must be compared and timed against. For Proton and
PTX-probe this is the workload's shipped cubin; ``ref.cubin`` is the same source put through the same tool without
probes, and ``controls.reference_equals_shipped`` says whether its machine code equals the shipped one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from xtrace.errors import BadInput

__all__ = [
    "Availability",
    "Baseline",
    "Buffer",
    "BuildResult",
    "Launch",
    "Resource",
    "SiteCounts",
    "SiteRecord",
    "Workload",
    "create",
    "tracers",
    "write_result",
]

SCHEMA = "xtrace/baseline/1"
Status = Literal["ok", "unsupported", "failed"]


@dataclass(frozen=True)
class Availability:
    """Whether the tool can be used here; ``reason`` says what is missing, ``versions`` what was found."""

    ok: bool
    reason: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SiteRecord:
    """One probe in the tool's own input (TTGIR or PTX)."""

    id: int
    place: Literal["before", "after", "entry", "exit"]
    phase: str
    op: str
    line: int  # 1-based line of the tool's input at which the probed instruction begins; 0: whole kernel
    exact: bool = True  # False: nearest place that the tool's language can name
    closing: bool = False  # only closes a scope: has no counterpart among the matched sites


@dataclass(frozen=True)
class SiteCounts:
    """How many probes went in, and how many clock reads came out in the machine code."""

    source: int = 0
    closing: int = 0
    sass_original: int = 0
    sass_instrumented: int = 0

    @property
    def sass(self) -> int:
        return self.sass_instrumented - self.sass_original


@dataclass(frozen=True)
class Buffer:
    """Device memory that the instrumented kernel needs beyond the original's arguments.

    ``parameter`` is the index in the kernel's parameter list that takes the buffer's device address;
    ``appended`` says whether that parameter exists only in the instrumented kernel. The size is
    ``bytes_per_unit`` times the number of CTAs or of warps (``unit``) of the launch plus ``slack`` bytes.
    ``max_units``: with more of them the tool's own offset arithmetic overflows (None: no such limit).
    """

    name: str
    parameter: int
    appended: bool
    unit: Literal["cta", "warp"]
    bytes_per_unit: int
    align: int
    zero: bool  # must be zeroed before each launch for the trace to be readable
    slack: int = 0
    max_units: int | None = None

    def units(self, ctas: int, warps_per_cta: int) -> int:
        """How many pieces of ``bytes_per_unit`` a launch uses."""
        return ctas * (warps_per_cta if self.unit == "warp" else 1)

    def size(self, ctas: int, warps_per_cta: int) -> int:
        """Bytes to allocate for a launch of ``ctas`` thread blocks of ``warps_per_cta`` warps each."""
        return self.units(ctas, warps_per_cta) * self.bytes_per_unit + self.slack


@dataclass(frozen=True)
class Launch:
    """How to launch the instrumented image through the CUDA driver API.

    Load ``instrumented.cubin`` with cuModuleLoadData, get ``function``, set
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES to ``dynamic_shared`` when it is above 48 KiB, allocate every
    buffer, and call cuLaunchKernel(Ex) with the original grid, block, cluster and arguments, the buffers' addresses
    put in at their parameter indices. ``dynamic_shared`` is None when the workload does not record its own: then the
    original's value is right.
    """

    function: str
    parameters: int  # length of the parameter list
    buffers: tuple[Buffer, ...] = ()
    block: tuple[int, int, int] | None = None
    dynamic_shared: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Resource:
    """One resource of the kernel before and after; None: not known."""

    before: int | None = None
    after: int | None = None


@dataclass
class BuildResult:
    """What :meth:`Baseline.build` did. Fields as in the module's schema."""

    tracer: str
    title: str
    workload: str
    probes: str
    status: Status
    reason: str = ""
    kernel: str = ""
    original_cubin: Path | None = None
    instrumented_cubin: Path | None = None
    reference_cubin: Path | None = None
    sites: list[SiteRecord] = field(default_factory=list)
    counts: SiteCounts = field(default_factory=SiteCounts)
    record: dict[str, Any] = field(default_factory=dict)
    resources: dict[str, Resource] = field(default_factory=dict)
    launch: Launch | None = None
    toolchain: dict[str, str] = field(default_factory=dict)
    controls: dict[str, bool | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.status != "ok" and not self.reason:
            raise ValueError("a result that is not ok needs a reason")

    def to_json(self) -> dict[str, Any]:
        """The ``result.json`` document: file names only, no machine paths."""

        def name(path: Path | None) -> str | None:
            return path.name if path else None

        return {
            "schema": SCHEMA,
            "tracer": self.tracer,
            "title": self.title,
            "workload": self.workload,
            "kernel": self.kernel,
            "probes": self.probes,
            "status": self.status,
            "reason": self.reason,
            "files": {
                "original": name(self.original_cubin),
                "instrumented": name(self.instrumented_cubin),
                "reference": name(self.reference_cubin),
            },
            "sites": [asdict(s) for s in self.sites],
            "site_counts": {**asdict(self.counts), "sass": self.counts.sass},
            "record": self.record,
            "resources": {k: asdict(v) for k, v in self.resources.items()},
            "launch": asdict(self.launch) if self.launch else None,
            "toolchain": self.toolchain,
            "controls": self.controls,
            "notes": self.notes,
        }


@dataclass(frozen=True)
class Workload:
    """The files of one workload as the corpus rule leaves them; absent ones are None."""

    name: str
    directory: Path
    cubin: Path | None
    ptx: Path | None
    ttgir: Path | None
    meta: Mapping[str, Any]

    @classmethod
    def open(cls, directory: Path) -> Workload:
        """Read ``directory`` (``results/corpus/<workload>``).

        Raises
        ------
        BadInput
            XT7301 no such directory, XT7302 ``meta.json`` is not a JSON object.
        """
        if not directory.is_dir():
            raise BadInput(
                "XT7301", "no such workload directory", where=str(directory), hint="run the corpus rule first"
            )
        meta: Any = {}
        path = directory / "meta.json"
        if path.is_file():
            try:
                meta = json.loads(path.read_text(encoding="utf-8"))
            except (ValueError, UnicodeDecodeError) as error:
                raise BadInput("XT7302", f"not a JSON document: {error}", where=str(path)) from error
            if not isinstance(meta, dict):
                raise BadInput("XT7302", "must be a JSON object", where=str(path))

        def found(name: str) -> Path | None:
            return directory / name if (directory / name).is_file() else None

        return cls(
            name=str(meta.get("workload", directory.name)),
            directory=directory,
            cubin=found("original.cubin"),
            ptx=found("kernel.ptx"),
            ttgir=found("kernel.ttgir"),
            meta=meta,
        )


class Baseline(Protocol):
    """A tracer that Xtrace is compared with."""

    name: str
    title: str

    def available(self) -> Availability:
        """Can it build here? Never raises."""
        ...

    def build(self, workload: Workload, probes: str, out_dir: Path) -> BuildResult:
        """Build the pair for site group ``probes`` into ``out_dir``. Never raises for what the tool cannot do."""
        ...

    def count_sites(self, image: Path) -> int:
        """Clock reads in the machine code of ``image``."""
        ...


def _registry() -> dict[str, Callable[[int | None], Baseline]]:
    from baselines.proton.build import Proton
    from baselines.ptx_probe.build import DEFAULT_CAPACITY, PtxProbe

    return {
        "proton": lambda _: Proton("shared"),
        "proton-global": lambda _: Proton("global"),
        "ptx-probe": lambda capacity: PtxProbe("exact", capacity or DEFAULT_CAPACITY),
        "ptx-probe-charitable": lambda capacity: PtxProbe("charitable", capacity or DEFAULT_CAPACITY),
    }


def tracers() -> list[str]:
    """Names that :func:`create` takes."""
    return list(_registry())


def create(name: str, capacity: int | None = None) -> Baseline:
    """The baseline called ``name``; ``capacity`` is the number of events per warp for tools that fix it when building.

    Raises
    ------
    BadInput
        XT7303 with the known names.
    """
    known = _registry()
    if name not in known:
        raise BadInput("XT7303", f"unknown tracer {name!r}", hint="one of " + ", ".join(known))
    return known[name](capacity)


def write_result(result: BuildResult, out_dir: Path) -> Path:
    """Write ``result.json`` into ``out_dir`` in one step and return its path."""
    out_dir.mkdir(parents=True, exist_ok=True)
    path = out_dir / "result.json"
    temporary = path.with_suffix(".json.tmp")
    temporary.write_text(json.dumps(result.to_json(), indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)
    return path
