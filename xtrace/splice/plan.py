"""The planner: every site becomes placed, with its resources, or refused, with a reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xtrace.analysis import KernelAnalysis, analyse_all
from xtrace.errors import BadInput, Refused
from xtrace.image import Image, Kernel
from xtrace.isa.model import Flow
from xtrace.isa.nvidia.emit import UniformState
from xtrace.isa.nvidia.prologue import PrologueRegisters
from xtrace.probe import Site, select, validate

from .accesses import place_accesses
from .chains import chains, reached, single, split
from .derive import Derivation, derive, settled
from .exits import place_exits, with_descriptor
from .model import (
    FILLINGS,
    LAYOUTS,
    SMALLEST_RING,
    Form,
    KernelPlan,
    Options,
    PlacedSite,
    Placement,
    Plan,
    RefusedSite,
    SlotLayout,
)
from .packets import form_packet
from .resources import FreeFinder
from .rotate import rotated_packet
from .sample import image_rule, refusal
from .sink import sunk_prologue
from .stripes import short_words, stripe, striped, wants_stripes, with_base
from .tags import place_tags
from .waits import place_waits

__all__ = ["plan", "plan_kernel"]

_MAX_RECORDS = 1 << 20
_MOST_PLANS = 8  # each leaves out what the one before had no room for


def plan(image: Image, kernels: Sequence[Kernel], probes: str, options: Options | None = None) -> Plan:
    """Plan probes for several kernels of one image.

    Raises
    ------
    BadInput
        Bad selection or options.
    Unsupported, MissingTool
        The architecture or its disassembler is not available.
    """
    options = options or Options()
    if not 16 <= options.records <= _MAX_RECORDS:
        raise BadInput("XT3020", f"a ring keeps 16 to {_MAX_RECORDS} records, not {options.records}", where="--records")
    if not 0 <= options.layout < LAYOUTS:
        raise BadInput("XT3021", f"layouts go from 0 to {LAYOUTS - 1}, not {options.layout}", where="--layout")
    if options.layout and options.form is not Form.SCHEDULED:
        raise BadInput("XT3021", f"only scheduled probes have layouts, not {options.form.name.lower()} ones")
    validate(probes)
    image_rule(options.sample)
    plans = [plan_kernel(a, probes, options) for a in analyse_all(image, kernels)]
    return Plan(image, probes, options, plans)


def plan_kernel(a: KernelAnalysis, probes: str, options: Options) -> KernelPlan:
    """Plan one kernel. A kernel that cannot be traced at all has every site refused for the same reason."""
    banned: set[object] | None = set() if options.form is Form.SCHEDULED else None
    for _ in range(_MOST_PLANS):
        result, missing = _plan_kernel(a, probes, options, banned)
        if not missing or banned is None:
            return result
        banned |= missing
    return _plan_kernel(a, probes, options, None)[0]


def _plan_kernel(
    a: KernelAnalysis, probes: str, options: Options, banned: set[object] | None
) -> tuple[KernelPlan, set[object]]:
    """A plan, and what must be ``banned`` from derivations next time; None: derive no address."""
    rule = image_rule(options.sample)
    result = KernelPlan(a, registers=a.kernel.registers, layout=options.layout, form=options.form, sample=rule)
    try:
        sites = select(a, probes)
    except Refused as why:  # control flow cannot be known
        result.refused.append(RefusedSite(Site(0, "entry", "entry"), why.what))
        return result, set()
    reason = _kernel_refusal(a) or (refusal(a, rule) if rule else None)
    state = _uniform_state(a)
    if reason is None and state is None:
        reason = "the trace state needs eight uniform registers, two pairs among them, that the kernel never uses"
    if reason is not None or state is None:
        result.refused += [RefusedSite(s, str(reason)) for s in sites]
        return result, set()
    result.state = with_descriptor(a, state) if result.form is Form.SCHEDULED else state
    probed = (
        i for s in sites if s.kind == "record" for i in (s.index, *(s.alternatives if s.access is not None else ()))
    )
    result.analysis = a = a.probing(probed)
    free = FreeFinder(a)
    _place_entry(result, sites, free)
    if not result.placed:
        result.state = None
        result.refused += [RefusedSite(s, result.refused[0].reason) for s in sites if s.kind != "entry"]
        return result, set()
    place_exits(result, sites, free)
    records, derivation = _candidates(result, sites, free, banned)
    base = with_base(a, result.state) if wants_stripes(a, options) else None
    _form_packets(result, records, free, options, (base or result.state).bits)
    missing = _number_derived(result, derivation)
    place_tags(result, free)
    place_waits(result, free)
    for p in result.islands:
        p.shared_waits = free.shared_waits(p.site.index, p.writes, p.scoreboard)
    result.slot = _slot(result, options)
    size = stripe(result.packets, options) if base is not None and result.slot.stride > result.slot.ring else None
    if size is not None:  # where no packet comes twice, slots are neighbours already
        result.state, result.slot = base, striped(result.packets, _slot(result, options, size), size)
    result.emits = bool(result.packets)
    _sink_prologue(result, free)
    top = max((r for p in result.islands for r in p.general), default=0)
    top = max([top, *(packet.registers.bit_length() - 1 for packet in result.packets)])
    top = max([top, *(result.sunk.registers.general if result.sunk else ())])
    if not a.moves_registers:
        result.registers = max(a.kernel.registers, top + 1 + a.isa.reserved_registers)
    result.placed.sort(key=lambda p: p.site.index)
    return result, missing


def _number_derived(result: KernelPlan, derivation: Derivation) -> set[object]:
    """Derived accesses are numbered behind the records. What they lack is returned."""
    result.derived, missing = settled(result.analysis, derivation, result.records)
    number = len(result.records)
    for derived in result.derived:
        number += 1
        derived.id = number
    return missing


def _kernel_refusal(a: KernelAnalysis) -> str | None:
    if a.kernel.has_text_relocations:
        return "the image still has link-time relocations in this kernel's code"
    if not a.instructions:
        return "the kernel has no code"
    for ins in a.instructions:
        at = f"{ins.text} at pc 0x{ins.pc:x}"
        if ins.opaque:
            return f"the instruction set model does not know {at}, so what it reads and writes is uncertain"
        if ins.flow in (Flow.CALL, Flow.RETURN):
            return f"calls keep return addresses in registers, which this version does not relocate ({at})"
        if "pinned" in ins.tags or ins.base == "LEPC":
            return f"the program counter itself is used as data ({at})"
    if a.cfg.predecessors[0]:
        ins = a.instructions[a.cfg.predecessors[0][0]]
        return f"the kernel branches back to its first instruction ({ins.text} at pc 0x{ins.pc:x})"
    return None


def _uniform_state(a: KernelAnalysis) -> UniformState | None:
    free = set(a.free_uniform)
    pairs = [n for n in sorted(free, reverse=True) if n % 2 == 0 and n + 1 in free][:2]
    if len(pairs) < 2 or len(free) < UniformState.COUNT:
        return None
    address, header = pairs
    offset, timer, clock, smid = sorted(free - {address, address + 1, header, header + 1}, reverse=True)[:4]
    return UniformState(address, offset, header, timer, clock, smid)


def _place_entry(result: KernelPlan, sites: Sequence[Site], free: FreeFinder) -> None:
    here = free.at(0)
    entry = next(s for s in sites if s.kind == "entry")
    needed = 2 + PrologueRegisters.needed(result.analysis.kernel.required_threads)
    scratch = tuple(r for r in (here.take(1) for _ in range(needed)) if r is not None)
    if len(scratch) < needed or not here.scoreboards:
        result.refused.append(RefusedSite(entry, f"fewer than {needed} registers are dead at the kernel's entry"))
        return
    predicate = None
    if result.sample is not None:
        if not here.predicates:
            result.refused.append(RefusedSite(entry, "no predicate is dead at the kernel's entry to decide by"))
            return
        predicate = here.predicates[0]
    result.placed.append(PlacedSite(entry, scoreboard=here.scoreboards[0], scratch=scratch, predicate=predicate))


def _sink_prologue(result: KernelPlan, free: FreeFinder) -> None:
    """Most of the prologue to a better place, if there is one. The entry keeps what the times need."""
    result.sunk = sunk_prologue(result, free)
    if result.sunk is not None:
        entry = next(p for p in result.placed if p.site.kind == "entry")
        entry.scratch, entry.scoreboard = result.sunk.registers.times, None


def _candidates(
    result: KernelPlan, sites: Sequence[Site], free: FreeFinder, banned: set[object] | None
) -> tuple[list[PlacedSite], Derivation]:
    """Records whose clock can be captured, in address order, and what need not be recorded; the others are refused."""
    records = []
    taken = {site.index for site in sites if site.access is None}
    for site in sites:
        if site.kind != "record" or site.access is not None or site.refusal:
            continue
        if not result.analysis.reachable(site.index):
            result.refused.append(RefusedSite(site, "control never gets here"))
            continue
        possible = [site.index, *(i for i in site.alternatives if i not in taken)]
        places = [i for i in possible if free.at(i).any]
        if not places:  # rather behind a wait of the kernel's, if it has one right here
            places = [i for i in possible if free.wait_along(i) and free.at(i).any][:1]
        # A scoreboard is needed where the record is stored, most often near: rather a place that has one.
        places.sort(key=lambda i: not free.at(i).scoreboards)
        if places:
            taken.add(places[0])
            records.append(PlacedSite(replace(site, index=places[0]), moved=places[0] - site.index))
        else:
            result.refused.append(RefusedSite(site, _why_not(site, free)))
    wanted = [site for site in sites if site.access is not None or site.refusal]
    if result.form < Form.LANE:
        why = "in this form of probes all lanes store, and each lane has an address of its own"
        result.refused += [RefusedSite(site, site.refusal or why) for site in wanted]
        wanted = []
    derivation = Derivation() if banned is None else derive(result.analysis, wanted, taken, banned)
    wanted = [*(site for site in wanted if site.access not in derivation.accesses), *derivation.values]
    accesses, refused = place_accesses(result.analysis, wanted, free, taken)
    records += accesses
    result.refused += refused
    return sorted(records, key=lambda p: p.site.index), derivation


def _form_packets(result: KernelPlan, records: list[PlacedSite], free: FreeFinder, options: Options, own: int) -> None:
    """Packets as long as registers allow. Inner loops choose first. ``own``: registers with the state of the trace."""
    a = result.analysis
    islands = {p.site.index for p in (*records, *result.placed)}
    claimed = 0
    exits = sum(1 << n for n in {n for p in result.placed for n in p.general if p.site.kind == "exit"})
    placement = Placement(result.layout // FILLINGS)
    uniform = [n for n in a.free_uniform if not own & a.isa.layout["UR"].bit(n)]
    found = chains(a, records, islands) if result.form >= Form.PACKED else [single(p) for p in records]
    left = sorted(found, key=lambda c: -_depth(a, c.sites[0]))
    while left:
        chain = left.pop(0)
        packet = None
        if result.form is Form.SCHEDULED and placement is Placement.BY_COST:
            packet = rotated_packet(a, chain, free, islands, claimed | exits)
        if packet is not None:
            free.reserve(packet.registers)
        else:
            short = short_words(a, chain, options)
            packet = form_packet(a, chain, free, islands, claimed, uniform, placement, result.form, short)
        if packet is not None:
            result.packets.append(packet)
            claimed |= packet.registers
        elif len(chain.events) > 1:
            left[:0] = split(chain)
        elif free.wait_along(chain.places[0]):
            left.insert(0, chain)
        else:
            result.refused.append(RefusedSite(chain.sites[0].site, _why_not(chain.sites[0].site, free)))
    result.packets.sort(key=lambda packet: min(p.site.index for p in packet.records))
    number = 0
    for tag, packet in enumerate(result.packets, 1):
        packet.tag = tag
        in_order = packet.records if packet.flush is None else sorted(packet.records, key=lambda p: p.site.index)
        for p in in_order:
            number += 1
            p.id = number
            result.placed.append(p)


def _depth(a: KernelAnalysis, p: PlacedSite) -> int:
    loop = a.loop_of(p.site.index)
    return 0 if loop is None else loop.depth


def _slot(result: KernelPlan, options: Options, size: int = 0) -> SlotLayout:
    """A ring no larger than needed where no packet can be emitted twice, one warp's behind the other's without a gap.

    Scattered slots cost a memory-bound kernel more than the packets themselves (decision 0002). ``size``: bytes that
    every packet will have at least.
    """
    once = sum(max(packet.size, size) * (1 if packet.flush is None else 2) for packet in result.packets)
    ring = max(SMALLEST_RING, 1 << max(once - 1, 0).bit_length())
    slot = options.slot(once)
    if ring >= slot.ring or any(_repeats(result.analysis, p.site.index) for p in result.records):
        return slot
    return SlotLayout(stride=ring, ring=ring)


def _repeats(a: KernelAnalysis, index: int) -> bool:
    """Whether a warp may come here twice: in a cycle of any shape, or one lane group after the other."""
    block = a.cfg.block_of[index]
    return a.divergent[index] or block in reached(a, block)


def _why_not(site: Site, free: FreeFinder) -> str:
    here = free.at(site.index)
    last = free.limit(site.index) - 1
    if not here.any:
        return (
            f"every general register up to R{last} is live here, or used by an operation under way; a clock needs one"
        )
    if site.access is not None and here.scoreboards:
        if not here.predicates:
            return "no predicate is dead to choose one lane with, and each lane has an address of its own"
        return f"too few general registers up to R{last} are dead: an address and its clock need four, in aligned pairs"
    return "the kernel may have claims outstanding on all six scoreboards, and a store needs one"
