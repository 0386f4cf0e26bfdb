"""Faults in a prologue of two parts: the second one at another place, and words of either that do not fit theirs.

Islands are moved as they are: taken out of a traced image, and inserted into the original again.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable

from tests.verify import handmade as h
from tests.verify.fields import DESTINATION, WAIT, A, put
from tests.verify.subject import Mutant, Mutator, Subject
from xtrace.isa.model import Flow

__all__ = ["PROLOGUE_MUTATORS", "first_record", "moved"]


def _rest(s: Subject) -> tuple[int, range]:
    """The second part: original index of its place, traced indices of its words."""
    place = next(i["pc"] // 16 for i in s.claim["islands"] if i["kind"] == "prologue rest")
    return next((i, island) for i, island in s.islands if i == place)


def moved(s: Subject, place: int, what: str) -> Mutant:
    """The second part before original instruction ``place``; in front of an island there, if there is one."""
    origin, _ = _rest(s)
    words = {16 * i: [s.traced[j].word for j in island] for i, island in s.islands}
    at = {j: (16 * i, k) for i, island in s.islands for k, j in enumerate(island)}
    taken = words.pop(16 * origin)
    words[16 * place] = [*taken, *words.get(16 * place, [])]
    patches = {}
    for patch in s.claim["patches"]:
        pc, k = at[(patch["offset"] - 4 - s.new.offset) // 16]
        patches[16 * place if pc == 16 * origin else pc, k] = patch["value"]
    made = h.insert(
        s.original,
        words,
        kernel=s.new.name,
        registers=s.new.registers,
        probe_registers=s.claim["probe_registers"],
        patches=patches,
        sites=s.claim["sites"],
        packets=s.claim["packets"],
    )
    again = copy.deepcopy(made.map)
    again["kernels"][0]["slot"] = s.claim["slot"]
    return Mutant(made.data, again, f"{s.label}: {what}, at {s.code[place].text}", ("effects",))


def _another(s: Subject, rng: random.Random, places: Iterable[int], what: str) -> Mutant | None:
    found = [i for i in places if i != _rest(s)[0]]
    return moved(s, rng.choice(found), what) if found else None


def rest_in_a_loop(s: Subject, rng: random.Random) -> Mutant | None:
    """It runs again and again."""
    backward = [(ins.target // 16, ins.index) for ins in s.code if ins.target is not None and ins.target <= ins.pc]
    heads = [head for head, last in backward if head < last]
    return _another(s, rng, heads, "the rest of the prologue in a loop")


def first_record(s: Subject) -> int:
    sites = [x.get("at", x["pc"]) // 16 for x in s.claim["sites"] if x["kind"] in ("record", "exit")]
    return min(sites)


def rest_behind_a_record(s: Subject, rng: random.Random) -> Mutant | None:
    """Something that a probe does comes first."""
    first = first_record(s)
    behind = [i for i in range(first + 1, min(first + 40, len(s.code))) if s.code[i].flow is Flow.FALL]
    return _another(s, rng, behind, "the rest of the prologue behind another island")


def rest_on_one_side(s: Subject, rng: random.Random) -> Mutant | None:
    """Some warps never come there."""
    branches = [ins for ins in s.code if ins.flow is Flow.BRANCH and ins.conditional and ins.target is not None]
    sides = [ins.index + 1 for ins in branches if ins.target != ins.pc + 16]
    return _another(s, rng, sides, "the rest of the prologue on one side of a branch")


def rest_behind_an_exit(s: Subject, rng: random.Random) -> Mutant | None:
    """Warps that end before have no header to write."""
    exits = [ins.index + 1 for ins in s.code if ins.flow is Flow.EXIT and ins.conditional]
    return _another(s, rng, exits, "the rest of the prologue behind an exit")


def scratch_of_the_rest_is_live(s: Subject, rng: random.Random) -> Mutant | None:
    """One of its special registers is read into a register that the kernel needs there."""
    i, island = _rest(s)
    reads = [j for j in island if s.traced[j].base == "S2R"]
    soon = _read_first(s, i)
    if not reads or not soon:
        return None
    j, r, words = rng.choice(reads), rng.choice(soon), s.words()
    words[j] = put(words[j], DESTINATION, r)
    return s.mutant(words, f"`{s.traced[j].text}` in the rest writes R{r}", "liveness")


def _read_first(s: Subject, i: int) -> list[int]:
    """General registers that the kernel reads behind instruction ``i``, in straight line, before it writes them."""
    layout, found, written = s.model.layout, 0, 0
    for ins in s.code[i:]:
        found |= ins.reads & layout["R"].mask & ~written
        written |= ins.writes
        if ins.flow is not Flow.FALL:
            break
    return list(layout.numbers("R", found))


def head_clobbers_a_live_register(s: Subject, rng: random.Random) -> Mutant | None:
    """A time is read into a register that the kernel reads first, as it is."""
    _, head = s.islands[0]
    soon = _read_first(s, 0)
    if not soon:
        return None
    j, r, words = rng.choice([j for j in head if s.traced[j].base == "CS2R"]), rng.choice(soon), s.words()
    words[j] = put(words[j], DESTINATION, r)
    return s.mutant(words, f"`{s.traced[j].text}` in the head writes R{r}", "liveness")


def time_does_not_last(s: Subject, rng: random.Random) -> Mutant | None:
    """A time stays in a register that the kernel writes before the rest of the prologue."""
    i, island = _rest(s)
    _, head = s.islands[0]
    written = 0
    for ins in s.code[:i]:
        written |= ins.writes & s.model.layout["R"].mask
    lost = list(s.model.layout.numbers("R", written))
    times = [j for j in head if s.traced[j].base == "CS2R"]
    if not lost or len(head) != len(times):
        return None
    j, r, words = rng.choice(times), rng.choice(lost), s.words()
    words[j] = put(words[j], DESTINATION, r)
    for k in island:
        if s.traced[k].base == "R2UR" and s.traced[k].reads & s.traced[j].writes:
            words[k] = put(words[k], A, r)
    return s.mutant(words, f"a time stays in R{r}, which the kernel writes", "liveness", "hazards")


def rest_does_not_wait(s: Subject, rng: random.Random) -> Mutant | None:
    """Nothing tells it that its special registers have arrived."""
    _, island = _rest(s)
    words = s.words()
    for j in island:
        words[j] = put(words[j], WAIT, 0)
    return s.mutant(words, "no wait in the rest of the prologue", "hazards")


PROLOGUE_MUTATORS: tuple[Mutator, ...] = (
    rest_in_a_loop,
    rest_behind_a_record,
    rest_on_one_side,
    rest_behind_an_exit,
    scratch_of_the_rest_is_live,
    head_clobbers_a_live_register,
    time_does_not_last,
    rest_does_not_wait,
)
