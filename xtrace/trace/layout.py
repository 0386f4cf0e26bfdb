"""What a trace map says about one kernel's buffer, checked before any byte is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from xtrace.errors import BadInput, Unsupported
from xtrace.sampling import EVERYTHING, Sampling
from xtrace.trace.mapped_packets import malformed, packets
from xtrace.trace.tags import QUAD, Packet, Tags
from xtrace.trace.terms import Derived, Term

__all__ = [
    "HEADER_BYTES",
    "STRIPES",
    "KernelLayout",
    "KernelSites",
    "Site",
    "cta_shape",
    "kernel_layout",
    "kernel_sites",
]

SCHEMA = "xtrace/map/2"
SCHEMA_WITH_ADDRESSES = "xtrace/map/3"
SCHEMA_WITH_DERIVED = "xtrace/map/4"
SCHEMA_WITH_STRIPES = "xtrace/map/5"
SCHEMA_WITH_UNCLEARED = "xtrace/map/6"
SCHEMAS = (SCHEMA, SCHEMA_WITH_ADDRESSES, SCHEMA_WITH_DERIVED, SCHEMA_WITH_STRIPES, SCHEMA_WITH_UNCLEARED)
STORED_SCHEMAS = (*SCHEMAS, "xtrace/map/1")  # of maps inside trace files
MAX_SITES = 1 << 20
MAX_TERMS = 64  # of a derived address
MAX_SLACK_BYTES = 512
MIN_RING_BYTES = 32
CLOCK_BYTES = 4  # of one event in a packet
HEADER_BYTES = 32  # per slot, in the table behind the rings
STRIPES = (16, 32, 64)  # bytes


@dataclass(frozen=True, slots=True)
class Site:
    """One probe site as the trace map lists it; ``pc`` is the byte offset in the original kernel."""

    id: int
    phase: str
    op: str
    pc: int
    access: bool = False  # records the address of the instruction at ``pc``
    value: bool = False  # records registers that addresses are derived from: not shown


@dataclass(frozen=True)
class KernelSites:
    """What a table of decoded events needs of the map: the kernel's names, record sites and block size."""

    name: str
    demangled: str
    sites: tuple[Site, ...]  # record sites
    block: tuple[int, int, int] | None
    derived: tuple[Derived, ...] = field(default=(), kw_only=True)
    derived_sites: tuple[Site, ...] = field(default=(), kw_only=True)

    @property
    def shown(self) -> list[Site]:
        """Sites that rows of a trace may have."""
        sites = (site for site in (*self.sites, *self.derived_sites) if not site.value)
        return sorted(sites, key=lambda site: site.id)

    @property
    def values(self) -> frozenset[int]:
        return frozenset(site.id for site in self.sites if site.value)

    @property
    def accesses(self) -> list[int]:
        """Sites with an address, recorded or derived."""
        return [site.id for site in self.shown if site.access]


@dataclass(frozen=True)
class KernelLayout(KernelSites):
    """Geometry of one warp's slot, in bytes, and the packets that may stand in it.

    ``ring`` bytes in which packets start, then some slack for one that runs past the ring's end. The headers form a
    table of their own behind all slots. ``sample`` says which warps leave a trace. With a ``stripe`` every packet has
    that many bytes, and the slots interleave packet by packet.
    """

    stride: int
    ring: int
    packets: tuple[Packet, ...]
    sample: Sampling = EVERYTHING
    stripe: int | None = None

    @property
    def tags(self) -> Tags:
        """How its packets are read."""
        return Tags.of(self.packets, self.stripe)

    @property
    def slack(self) -> int:
        """Bytes behind the ring's end that packets may fill."""
        return min(self.stride - self.ring, MAX_SLACK_BYTES)


def kernel_sites(trace_map: Mapping[str, Any], kernel: str) -> KernelSites:
    """The sites of ``kernel`` (mangled or demangled name); also from the maps of older versions in trace files.

    Raises
    ------
    BadInput
        XT8101 malformed map, XT8102 the map has no such kernel, XT8105 the kernel was not traced.
    """
    return _kernel_sites(_entry(trace_map, kernel))


def kernel_layout(trace_map: Mapping[str, Any], kernel: str) -> KernelLayout:
    """The layout of ``kernel`` (mangled or demangled name) in a trace map.

    Raises
    ------
    BadInput
        XT8101 malformed map, XT3063 malformed sampling rule, XT8102 the map has no such kernel, XT8105 the kernel was
        not traced.
    Unsupported
        XT8103 a map or a record size of an older version.
    """
    entry = _entry(trace_map, kernel)
    known = _kernel_sites(entry)
    slot, name = entry["slot"], known.name
    stride, ring = _number(slot, "stride", name), _number(slot, "ring", name)
    header_bytes, record = _number(slot, "header_bytes", name), _number(slot, "record", name)
    if trace_map["schema"] not in SCHEMAS or record != CLOCK_BYTES:
        raise Unsupported(
            "XT8103",
            f"buffers with records of {record} bytes, by a map of schema {trace_map['schema']}",
            where=name,
            hint="splice the kernel again with this version and trace it again",
        )
    if ring < MIN_RING_BYTES or ring & (ring - 1):
        raise malformed(f"kernel {name}: a ring must be a power of two of at least {MIN_RING_BYTES} bytes")
    if stride % QUAD or ring > stride:
        raise malformed(f"kernel {name}: the stride of a slot must be a multiple of {QUAD} and hold the ring")
    if header_bytes != HEADER_BYTES:
        raise malformed(f"kernel {name}: headers of {header_bytes} bytes instead of {HEADER_BYTES}")
    stripe = slot.get("stripe")
    if stripe is not None and (type(stripe) is not int or stripe not in STRIPES or stride != ring or ring < stripe):
        raise malformed(f"kernel {name}: stripes are of {', '.join(map(str, STRIPES))} bytes, in slots of just a ring")
    return KernelLayout(
        name=name,
        demangled=known.demangled,
        sites=known.sites,
        block=known.block,
        stride=stride,
        ring=ring,
        packets=packets(entry, [site.id for site in known.sites]),
        sample=Sampling.of_kernel(entry),
        derived=known.derived,
        derived_sites=known.derived_sites,
        stripe=stripe,
    )


def _entry(trace_map: Mapping[str, Any], kernel: str) -> Mapping[str, Any]:
    if not isinstance(trace_map, Mapping) or trace_map.get("schema") not in STORED_SCHEMAS:
        raise malformed(f"no trace map of schema {SCHEMA}")
    kernels = trace_map.get("kernels")
    if not isinstance(kernels, list) or not all(isinstance(k, Mapping) for k in kernels):
        raise malformed("'kernels' is not a list of objects")
    for key in ("name", "demangled"):
        for entry in kernels:
            if entry.get(key) == kernel and isinstance(kernel, str):
                found: Mapping[str, Any] = entry
                return found
    names = ", ".join(str(k.get("name")) for k in kernels[:8]) or "none"
    raise BadInput("XT8102", f"the trace map has no kernel {str(kernel)[:200]}", hint=f"kernels in the map: {names}")


def cta_shape(value: object, what: str, limit: int) -> tuple[int, int, int]:
    """One to three positive sizes as ``(x, y, z)``; BadInput XT8104 if they are not."""
    sizes = [value] if isinstance(value, int) else value
    if not isinstance(sizes, Sequence) or isinstance(sizes, str | bytes) or not 1 <= len(sizes) <= 3:
        raise BadInput("XT8104", f"{what} must be one to three sizes")
    numbers = [*sizes, 1, 1][:3]
    if any(type(n) is not int or n < 1 for n in numbers):
        raise BadInput("XT8104", f"{what} must hold positive whole numbers")
    x, y, z = numbers
    if x * y * z > limit:
        raise BadInput("XT8104", f"{what} {x} x {y} x {z} is larger than {limit}")
    return x, y, z


def _kernel_sites(entry: Mapping[str, Any]) -> KernelSites:
    name, demangled = entry.get("name"), entry.get("demangled", "")
    if not isinstance(name, str) or not isinstance(demangled, str):
        raise malformed("a kernel's name is not text")
    slot = entry.get("slot")
    if slot is None:
        raise BadInput(
            "XT8105",
            "the map gives this kernel no trace buffer: it was not traced",
            where=name,
            hint="splice this kernel, or choose another one",
        )
    if not isinstance(slot, Mapping):
        raise malformed(f"kernel {name}: no 'slot'")
    block = entry.get("block")
    sites = _sites(entry, name)
    derived, derived_sites = _derived(entry, sites, name)
    return KernelSites(
        name=name,
        demangled=demangled or name,
        sites=sites,
        block=None if block is None else cta_shape(block, "the map's block", 1024),
        derived=derived,
        derived_sites=derived_sites,
    )


def _derived(
    entry: Mapping[str, Any], sites: tuple[Site, ...], name: str
) -> tuple[tuple[Derived, ...], tuple[Site, ...]]:
    raw = entry.get("derived", [])
    if not isinstance(raw, list) or len(raw) > MAX_SITES:
        raise malformed(f"kernel {name}: 'derived' is not a list of at most {MAX_SITES}")
    leaders, values = {s.id for s in sites if s.access}, {s.id for s in sites if s.value}
    shown = _sites({"sites": raw}, name)
    if {s.id for s in shown} & {s.id for s in sites}:
        raise malformed(f"kernel {name}: a derived access has the number of a record site")
    found = []
    for item in raw:
        terms, offset = item.get("terms"), item.get("offset")
        if item.get("from") not in leaders or not isinstance(terms, list) or len(terms) > MAX_TERMS:
            raise malformed(f"kernel {name}: derived access {item.get('id')} follows from no recorded one")
        if not all(isinstance(t, Mapping) and t.get("site") in values for t in terms):
            raise malformed(f"kernel {name}: derived access {item['id']} needs what no site records")
        numbers = (offset, *(t.get("times") for t in terms))
        if not all(type(n) is int and -(1 << 63) <= n < 1 << 63 for n in numbers):
            raise malformed(f"kernel {name}: derived access {item['id']} has a number of more than 64 bits")
        if not all(t.get("part") in ("pair", "low", "high") and type(t.get("signed")) is bool for t in terms):
            raise malformed(f"kernel {name}: a term of derived access {item['id']} has no part or sign")
        parts = tuple(Term(t["site"], t["part"], t["signed"], t["times"]) for t in terms)
        found.append(Derived(item["id"], item["from"], item["offset"], parts))
    return tuple(found), tuple(replace(site, access=True) for site in shown)


def _sites(entry: Mapping[str, Any], name: str) -> tuple[Site, ...]:
    raw = entry.get("sites")
    if not isinstance(raw, list) or len(raw) > MAX_SITES:
        raise malformed(f"kernel {name}: 'sites' is not a list of at most {MAX_SITES}")
    sites: dict[int, Site] = {}
    for item in raw:
        if not isinstance(item, Mapping):
            raise malformed(f"kernel {name}: a site is not an object")
        if item.get("id") is None and item.get("kind") in ("entry", "exit"):
            continue  # kept in the warp's header, not in records
        number, pc = item.get("id"), item.get("pc")
        op, phase = item.get("op"), item.get("phase")
        if type(number) is not int or not 1 <= number < 1 << 32 or number in sites:
            raise malformed(f"kernel {name}: site ids must be distinct and between 1 and 2**32 - 1")
        if type(pc) is not int or not 0 <= pc < 1 << 31:
            raise malformed(f"kernel {name}: site {number} has no valid 'pc'")
        if not isinstance(op, str) or not isinstance(phase, str):
            raise malformed(f"kernel {name}: site {number} needs texts 'op' and 'phase'")
        probe = item.get("probe")
        sites[number] = Site(number, phase, op, pc, probe == "address", probe == "value")
    return tuple(sites[number] for number in sorted(sites))


def _number(slot: Mapping[str, Any], key: str, name: str) -> int:
    value = slot.get(key)
    if type(value) is not int or not 0 <= value <= 1 << 40:
        raise malformed(f"kernel {name}: slot '{key}' is not a size in bytes")
    return value
