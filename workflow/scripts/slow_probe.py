"""A deliberately slowed probe, to see whether the gate notices: every record in a loop waits for a load first.

    python -m workflow.scripts.slow_probe results/traced/softmax_triton/pp.cubin -o slow.cubin [--loads 1]
    python -m workflow.scripts.slow_probe results/traced -o results/slow [--probes pp]

Takes a traced image with its trace map and inserts, in front of every clock capture in a loop (in kernels without a
loop: of every one), a load of the warp's own header and a wait for it. The header is in the trace buffer, nothing
writes it before the exit, and the load goes past the first-level cache, so it costs the latency of the second level.
The loaded value lands in the register that the captured clock overwrites. Outputs and records stay as they are.
``xtrace verify`` fails for the result, rightly: a probe has no business loading. Where the original is at hand, all its
other promises are checked (see ``check``). A tool for testing the gate, not a probe that anybody wants.
"""

from __future__ import annotations

import argparse
import bisect
import copy
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workflow.scripts.common import run, write_json
from workflow.scripts.gpu_files import read_bytes, read_json
from xtrace.analysis import KernelAnalysis, analyse_all
from xtrace.errors import BadInput, Refused, XtraceError
from xtrace.files import write_atomic
from xtrace.image import CodeEdit, Image, parse, rewrite
from xtrace.isa.model import Control
from xtrace.isa.nvidia import control
from xtrace.splice.pad import inserted_islands
from xtrace.verify import verify

__all__ = ["Slowed", "check", "slow"]

WORD = 16
NOP = 0x7918
LOAD = 0x7981 | 255 << 24 | 0x081EE900 << 64  # LDG.E.STRONG.GPU R0, [UR0]: register in bits 16-23, address in 32-37
ALIGNMENT = 128
ORIGINAL = "original.cubin"
AT_ONCE = Control(1, False, None, None, 0, 0)


@dataclass(frozen=True)
class Slowed:
    data: bytes
    map: dict[str, Any]
    sites: dict[str, int]  # kernel -> records that wait for a load now


def slow(
    traced: bytes, trace_map: Mapping[str, Any], loads: int = 1, name: str = "traced image", *, harmless: bool = False
) -> Slowed:
    """Slow the records of every traced kernel. Refused XT7450 if there is not one record that can be slowed, or where
    a kernel is sampled: its second copy would have to move along.

    ``harmless`` puts a clock read where the load would stand: the same registers, nothing that a probe may not do.
    """
    image = parse(traced, name)
    entries = {e["name"]: e for e in trace_map["kernels"] if e["patches"]}
    if any(e.get("copy") for e in entries.values()):
        raise Refused("XT7450", "a sampled kernel cannot be slowed", where=name, hint="take the image without --sample")
    mine = _record_words(image, trace_map)
    edits, moved, sites = [], {}, {}
    for a in analyse_all(image, [image.kernel(n) for n in entries]):
        kernel = a.kernel.name
        header = _header_register(a, entries[kernel], image.kernel(kernel).offset)
        places = _captures(a, mine[kernel], None if harmless else header, loads)
        sites[kernel] = len(places)
        if places:
            edits.append(_insert(a, places, _length(entries[kernel])))
            moved[kernel] = _offsets(places)
    if not edits:
        raise Refused("XT7450", "no record can be slowed", where=name, hint="it needs record probes, e.g. pp")
    data = rewrite(image, edits)
    return Slowed(data, _moved_map(trace_map, image, parse(data, name), moved, data), sites)


def _record_words(image: Image, trace_map: Mapping[str, Any]) -> dict[str, set[int]]:
    """Indices of the words in record islands, by kernel; raises what :func:`inserted_islands` does.

    Not in the entry island: there the header's address is only being computed.
    """
    recorded = {
        e["name"]: {int(s["pc"]) for s in e["sites"] if s["id"] is not None} - {0} for e in trace_map["kernels"]
    }
    out: dict[str, set[int]] = {name: set() for name in recorded}
    for kernel, pc, island in inserted_islands(image, trace_map):
        if pc in recorded[kernel]:
            out[kernel].update((at - image.kernel(kernel).offset) // WORD for at in island)
    return out


def _header_register(a: KernelAnalysis, entry: Mapping[str, Any], offset: int) -> int:
    """First of the two uniform registers with the address of the warp's header: what the patch is loaded into."""
    at = next(int(p["offset"]) for p in entry["patches"] if p["value"] == "header_lo")
    ins = a.instructions[(at - offset) // WORD]
    if ins.base != "UMOV":
        raise Refused("XT7450", f"the header's address is loaded by {ins.opcode}", where=a.where)
    return ins.word >> 16 & 0xFF


def _captures(a: KernelAnalysis, inserted: set[int], header: int | None, loads: int) -> dict[int, list[int]]:
    """Instruction index of a clock capture -> words to insert in front of it; without ``header``, harmless ones."""
    places: dict[int, list[int]] = {}
    found = [i for i in sorted(inserted) if a.instructions[i].base == "CS2R" and "SR_CLOCKLO" in a.instructions[i].text]
    inside = [i for i in found if a.loop_of(i) is not None]
    for i in inside or found:
        ins = a.instructions[i]
        register = ins.word >> 16 & 0xFF
        busy = a.liveness.before[i] | a.inflight.busy[i] | a.recently_used(i)
        free = [k for k in range(a.isa.scoreboards) if not a.inflight.claimed[i] >> k & 1]
        if ins.guard or not free or busy & (1 << register) or not a.reachable(i):
            continue
        if header is None:
            wait_first = Control(2, False, None, None, ins.control.wait_mask, 0)
            places[i] = [control.replace(ins.word, wait_first), control.replace(NOP, AT_ONCE)] * loads
            continue
        load = Control(2, False, free[0], None, ins.control.wait_mask, 0)
        wait = Control(1, False, None, None, 1 << free[0], 0)
        word = LOAD | register << 16 | header << 32
        places[i] = [control.replace(word, load), control.replace(NOP, wait)] * loads
    return places


def _offsets(places: Mapping[int, Sequence[int]]) -> tuple[list[int], list[int]]:
    """Old byte offsets of the insertions, and bytes inserted up to each of them."""
    starts, sums = [], [0]
    for i in sorted(places):
        starts.append(i * WORD)
        sums.append(sums[-1] + len(places[i]) * WORD)
    return starts, sums


def _length(entry: Mapping[str, Any]) -> int:
    """Words of the kernel and its islands, without the padding behind them."""
    return int(entry["instructions"]["before"]) + sum(int(x["words"]) for x in entry["islands"])


def _insert(a: KernelAnalysis, places: Mapping[int, Sequence[int]], length: int) -> CodeEdit:
    starts, sums = _offsets(places)

    def target_off(old: int) -> int:
        return old + sums[bisect.bisect_left(starts, old)]

    def instr_off(old: int) -> int:
        return old + sums[bisect.bisect_right(starts, old)]

    words: list[int] = []
    for ins in a.instructions[:length]:
        words += places.get(ins.index, ())
        word = ins.word
        if a.isa.code_field_mask(word):
            target = None if ins.target is None else target_off(ins.target)
            word = a.isa.retarget(word, ins.pc, instr_off(ins.pc), target)
        words.append(word)
    while len(words) * WORD % ALIGNMENT:
        words.append(NOP)
    text = b"".join(w.to_bytes(WORD, "little") for w in words)
    return CodeEdit(a.kernel.name, text, a.kernel.registers, instr_off, target_off)


def _moved_map(
    trace_map: Mapping[str, Any], before: Any, after: Any, moved: Mapping[str, tuple[list[int], list[int]]], data: bytes
) -> dict[str, Any]:
    out = copy.deepcopy(dict(trace_map))
    out["output"] = {"sha256": hashlib.sha256(data).hexdigest()}
    out["probes"] = f"{trace_map.get('probes', '')}, slowed"
    for entry in out["kernels"]:
        old, new = before.kernel(entry["name"]), after.kernel(entry["name"])
        starts, sums = moved.get(entry["name"], ([], [0]))
        for patch in entry["patches"]:
            at = patch["offset"] - old.offset
            patch["offset"] = new.offset + at + sums[bisect.bisect_right(starts, at // WORD * WORD)]
        inserted = 0
        for island in sorted(entry["islands"], key=lambda x: int(x["pc"])):
            first = island["pc"] + inserted * WORD
            inserted += island["words"]
            last = first + island["words"] * WORD
            own = bisect.bisect_left(starts, last), bisect.bisect_left(starts, first)
            island["words"] += (sums[own[0]] - sums[own[1]]) // WORD
        entry["instructions"]["after"] = len(new.text) // WORD
    return out


def check(original: bytes, traced: bytes, trace_map: Mapping[str, Any], loads: int, where: str) -> Slowed:
    """The slowed image, if it is sound; else Refused XT7450 with the promises that it would break.

    A load is forbidden to a probe, and what the verifier cannot follow it does not vouch for. So every promise is
    checked on the harmless twin, and on the slowed image itself all that do not depend on what a probe does.
    """
    twin = slow(traced, trace_map, loads, where, harmless=True)
    broken = {p for p, status in verify(original, twin.data, twin.map).promises.items() if status == "FAIL"}
    slowed = slow(traced, trace_map, loads, where)
    itself = verify(original, slowed.data, slowed.map).promises
    broken |= {p for p, status in itself.items() if status == "FAIL"} - {"effects", "liveness"}
    if broken:
        raise Refused("XT7450", f"would break {', '.join(sorted(broken))}", where=where)
    return slowed


def _write(source: Path, target: Path, loads: int, original: Path) -> str:
    traced, trace_map = read_bytes(source), read_json(source.with_name(source.name + ".map.json"))
    if checked := original.is_file():
        slowed = check(read_bytes(original), traced, trace_map, loads, str(source))
    else:
        slowed = slow(traced, trace_map, loads, str(source))
    target.parent.mkdir(parents=True, exist_ok=True)
    write_json(target.with_name(target.name + ".map.json"), slowed.map)
    write_atomic(target, slowed.data)
    promises = "sound but for the loads" if checked else f"promises not checked, there is no {original}"
    return f"{target}: {sum(slowed.sites.values())} records wait for {loads} load{'s' * (loads != 1)} more; {promises}"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="slow_probe", description=__doc__.split("\n", 1)[0])
    parser.add_argument("traced", type=Path, help="traced image, or a folder of them (<workload>/<probes>.cubin)")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--loads", type=int, default=1, help="loads in front of every record, one after the other")
    parser.add_argument("--probes", default="*", help="in a folder: only images of this probe set")
    parser.add_argument("--corpus", type=Path, default=Path("results/corpus"), help="originals, to check promises")
    given = parser.parse_args(arguments)
    if not 1 <= given.loads <= 64:
        raise BadInput("XT7450", f"--loads {given.loads}", hint="1 to 64")
    if not given.traced.is_dir():
        print(_write(given.traced, given.output, given.loads, given.corpus / given.traced.parent.name / ORIGINAL))
        return
    images = sorted(given.traced.glob(f"*/{given.probes}.cubin"))
    if not images:
        raise BadInput("XT7450", "no traced image", where=str(given.traced))
    for source in images:
        try:
            workload = source.parent.name
            target, original = given.output / workload / source.name, given.corpus / workload / ORIGINAL
            print(_write(source, target, given.loads, original), flush=True)
        except XtraceError as error:
            print(f"unsupported {source}: {error}", flush=True)


if __name__ == "__main__":
    run(main)
