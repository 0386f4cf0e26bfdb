"""Faults to plant in a traced image. Each must be caught: this is the evidence that the verifier verifies."""

from __future__ import annotations

import random

from tests.verify.fields import DESTINATION, ELECTED, OFFSET, STALL, WAIT, put
from tests.verify.file_mutations import FILE_MUTATORS
from tests.verify.subject import CODE, Mutant, Mutator, Subject
from xtrace.isa.model import Flow, Latency

# --- the kernel's own instructions ------------------------------------------------------------------------------------


def flip_bit(s: Subject, rng: random.Random) -> Mutant:
    words, i, bit = s.words(), rng.randrange(len(s.code)), rng.randrange(128)
    words[s.position[i]] ^= 1 << bit
    return s.mutant(words, f"bit {bit} of `{s.code[i].text}`", "instructions", "targets")


def flip_control_bit(s: Subject, rng: random.Random) -> Mutant:
    words, i, bit = s.words(), rng.randrange(len(s.code)), rng.randrange(105, 125)
    words[s.position[i]] ^= 1 << bit
    return s.mutant(words, f"control bit {bit} of `{s.code[i].text}`", "instructions")


def edit_wait_mask(s: Subject, rng: random.Random) -> Mutant | None:
    waiting = [i for i, ins in enumerate(s.code) if ins.control.wait_mask]
    if not waiting:
        return None
    i = rng.choice(waiting)
    words = s.words()
    words[s.position[i]] = put(words[s.position[i]], WAIT, rng.choice([0, 63, s.code[i].control.wait_mask ^ 1]))
    return s.mutant(words, f"wait mask of `{s.code[i].text}`", "instructions")


def drop_instruction(s: Subject, rng: random.Random) -> Mutant:
    words, i = s.words(), rng.randrange(len(s.code))
    gone = words.pop(s.position[i])
    words.append(words[-1])
    if words == s.words():  # one of several equal padding words at the end
        return flip_bit(s, rng)
    return s.mutant(words, f"dropped `{s.code[i].text}` {gone:#x}", *CODE)


def swap_instructions(s: Subject, rng: random.Random) -> Mutant | None:
    for _ in range(20):
        i = rng.randrange(len(s.code) - 1)
        j = min(i + rng.choice((1, 1, 1, 2, 5)), len(s.code) - 1)
        a, b = s.position[i], s.position[j]
        words = s.words()
        if words[a] != words[b]:
            words[a], words[b] = words[b], words[a]
            return s.mutant(words, f"swapped `{s.code[i].text}` and `{s.code[j].text}`", "instructions", "targets")
    return None


def duplicate_instruction(s: Subject, rng: random.Random) -> Mutant | None:
    last = max(i for i, ins in enumerate(s.code) if ins.base != "NOP")  # one more filler word would be no fault
    i = rng.randrange(last)
    words = s.words()
    words.insert(s.position[i], words[s.position[i]])
    words.pop()
    return s.mutant(words, f"duplicated `{s.code[i].text}`", *CODE) if words != s.words() else None


def wrong_target(s: Subject, rng: random.Random) -> Mutant | None:
    jumps = [i for i, ins in enumerate(s.code) if ins.target is not None]
    if not jumps:
        return None
    i = rng.choice(jumps)
    new = s.traced[s.position[i]]
    assert new.target is not None
    words, goal = s.words(), new.target + rng.choice((16, -16))
    words[new.index] = s.model.retarget(new.word, new.pc, new.pc, goal)
    return s.mutant(words, f"`{new.text}` goes to {goal:#x}", "targets")


# --- probes -----------------------------------------------------------------------------------------------------------


def _read_soon(s: Subject, i: int, file: str) -> list[int]:
    """Registers certainly live before original instruction i: read ahead in straight line, not written before."""
    layout, written, found = s.model.layout, 0, 0
    for ins in s.code[i : i + 60]:
        if not ins.never:
            found |= ins.reads & ~written
            written |= ins.writes
        if ins.flow is not Flow.FALL:
            break
    return list(layout.numbers(file, found))


def live_register(s: Subject, rng: random.Random) -> Mutant | None:
    """A probe result goes to a register that the kernel still needs."""
    gpr, pred = s.model.layout["R"], s.model.layout["P"]
    for _ in range(60):
        j, i = rng.choice(s.probes)
        ins, words = s.traced[j], s.words()
        if ins.base == "ELECT" and (live := _read_soon(s, i, "P")):
            p = rng.choice(live)
            words[j] = put(words[j], ELECTED, p)
            if ins.writes & pred.mask != pred.bit(p):
                return s.mutant(words, f"`{ins.text}` writes P{p}, live at {s.code[i].text}", "liveness")
        elif ins.writes & gpr.mask and (live := _read_soon(s, i, "R")):
            r = rng.choice(live)
            words[j] = put(words[j], DESTINATION, r)
            return s.mutant(words, f"`{ins.text}` writes R{r}, live at {s.code[i].text}", "liveness")
    return None


def live_uniform_register(s: Subject, rng: random.Random) -> Mutant | None:
    """A probe result goes to a uniform register that the kernel uses."""
    uniform = s.model.layout["UR"]
    named = 0
    for ins in s.code:
        named |= (ins.reads | ins.writes) & uniform.mask
    numbers = [n for n in range(uniform.count) if named & uniform.bit(n)]
    later = [(j, i) for j, i in s.probes if i > 0 and s.traced[j].writes & uniform.mask]
    for _ in range(60):
        if not later or not numbers:
            return None
        j, i = rng.choice(later)
        if live := _read_soon(s, i, "UR"):
            u, words = rng.choice(live), s.words()
            words[j] = put(words[j], DESTINATION, u)
            return s.mutant(words, f"`{s.traced[j].text}` writes UR{u}", "liveness")
    return None


def _needed(s: Subject, j: int, sb: int) -> bool:
    """Whether the wait of traced word j for a scoreboard certainly protects something (some are repeated later)."""
    if not s.traced[j].control.wait_mask >> sb & 1:
        return False
    sources = results = 0
    probes = {k for k, _ in s.probes}
    for ins in reversed(s.traced[:j]):  # what a probe put on that scoreboard in straight line before
        if ins.flow is not Flow.FALL or ins.control.wait_mask >> sb & 1:
            break
        if ins.index in probes:
            sources |= ins.reads if ins.control.read_sb == sb else 0
            results |= ins.writes if ins.control.write_sb == sb else 0
    if not sources | results:
        return False
    for ins in s.traced[j:]:
        kernel = ins.index not in probes
        if ins.index > j and ins.control.wait_mask >> sb & 1:
            return kernel
        if (ins.writes & (sources | results)) or ins.reads & results:
            return True
        if kernel and sb in (ins.control.read_sb, ins.control.write_sb):
            return True
        if ins.flow is not Flow.FALL:
            return False
    return False


def delete_wait(s: Subject, rng: random.Random) -> Mutant | None:
    needed = [j for j, _ in s.probes if any(_needed(s, j, sb) for sb in range(6))]
    if not needed:
        return None
    j = rng.choice(needed)
    words = s.words()
    words[j] = put(words[j], WAIT, 0)
    return s.mutant(words, f"no wait at `{s.traced[j].text}` {s.traced[j].pc:#x}", "hazards", "liveness")


def lower_stall(s: Subject, rng: random.Random) -> Mutant | None:
    """Stall 1 instead of 4 or more: at least three cycles too few for the dependence that asked for them."""
    if not s.tight:
        return None
    long = [j for j, _ in s.probes if s.traced[j].control.stall >= 4]
    if not long:
        return None
    j = rng.choice(long)
    words = s.words()
    words[j] = put(words[j], STALL, 17)
    return s.mutant(words, f"stall 1 at `{s.traced[j].text}` {s.traced[j].pc:#x}", "hazards")


def illegal_stall(s: Subject, rng: random.Random) -> Mutant:
    j, _ = rng.choice(s.probes)
    words, code = s.words(), rng.choice((0, 16, 28, 29, 30, 31))
    words[j] = put(words[j], STALL, code)
    return s.mutant(words, f"stall code {code} at `{s.traced[j].text}`", "hazards", "instructions")


def _held(s: Subject, i: int) -> int:
    """Scoreboards that the kernel certainly holds before original instruction i (claimed in straight line before)."""
    held, k = 0, i - 1
    waited = 0
    starts = {ins.target for ins in s.code if ins.target is not None}
    while k >= 0 and s.code[k].flow is Flow.FALL and s.code[k].base != "DEPBAR":
        c = s.code[k].control
        for sb in {c.write_sb, c.read_sb} - {None}:
            held |= 0 if waited >> (sb or 0) & 1 else 1 << (sb or 0)
        waited |= c.wait_mask
        if s.code[k].pc in starts:
            break
        k -= 1
    return held


def reuse_scoreboard(s: Subject, rng: random.Random) -> Mutant | None:
    """A probe claims, and waits for, a scoreboard that the kernel holds."""
    places = []
    for i, island in s.islands:
        if not s.ends(i) and (held := _held(s, i)):
            places += [(j, held) for j in island if s.traced[j].control.read_sb is not None]
    if not places:
        return None
    j, held = rng.choice(places)
    sb = rng.choice([k for k in range(6) if held >> k & 1])
    words = s.words()
    words[j] = put(words[j], (113, 3), sb)
    return s.mutant(words, f"`{s.traced[j].text}` claims scoreboard {sb} of the kernel", "hazards")


def wait_for_kernel(s: Subject, rng: random.Random) -> Mutant | None:
    """A probe waits for a scoreboard that only the kernel holds."""
    places = []
    for i, island in s.islands:
        if not s.ends(i) and (held := _held(s, i)):
            places += [(j, held) for j in island]
    if not places:
        return None
    j, held = rng.choice(places)
    sb = rng.choice([k for k in range(6) if held >> k & 1])
    words = s.words()
    words[j] |= 1 << (116 + sb)
    return s.mutant(words, f"`{s.traced[j].text}` waits for scoreboard {sb} of the kernel", "hazards")


def unclaimed_store(s: Subject, rng: random.Random) -> Mutant | None:
    """A probe store or special-register read that no scoreboard tracks."""
    places = []
    for j, i in s.probes:
        late = s.traced[j].latency is Latency.VARIABLE or (s.traced[j].base == "STG" and not s.ends(i))
        if late:
            places.append(j)
    if not places:
        return None
    j = rng.choice(places)
    words = s.words()
    words[j] |= 0x3F << 110
    return s.mutant(words, f"`{s.traced[j].text}` claims no scoreboard", "hazards")


def forbidden_effect(s: Subject, rng: random.Random) -> Mutant:
    """A probe word becomes a barrier, a shared or local store, an atomic, a branch, an exit."""
    stall = 0x7E2 << 105  # no scoreboards, stall 2
    lo, hi = rng.choice(
        [
            (0x0000000000007B1D, 0x10000),  # BAR.SYNC 0
            (0x000000FFFF007388, 0x800),  # STS [RZ], RZ
            (0x000000FFFF007387, 0x100800),  # STL [RZ], RZ
            (0x000000000000794D, 0x3800000),  # EXIT
            (0xFFFFFFFC00F07947, 0x383FFFF),  # BRA
            (0x0000000000007992, 0x4000),  # MEMBAR
            (0x0000000000007948, 0x3800000),  # WARPSYNC.ALL
        ]
    )
    j, _ = rng.choice(s.probes)
    words = s.words()
    words[j] = lo | hi << 64 | stall
    return s.mutant(words, f"probe word {lo & 0xFFF:#x} at {16 * j:#x}", "effects", "instructions")


def stray_store(s: Subject, rng: random.Random) -> Mutant | None:
    """A probe store leaves the slot: another address register, or a far offset."""
    stores = [j for j, _ in s.probes if s.traced[j].base == "STG"]
    if not stores:
        return None
    j = rng.choice(stores)
    words = s.words()
    if rng.random() < 0.5:
        offset = rng.choice((1 << 20, -(1 << 20), s.claim["slot"]["stride"], -65536)) & 0xFFFFFF
        words[j] = put(words[j], OFFSET, offset)
    else:
        words[j] = put(words[j], (64, 6), rng.choice((4, 6, 8, 20)))
    return s.mutant(words, f"`{s.traced[j].text}` stores elsewhere", "effects", "liveness", "hazards")


def copied_store(s: Subject, rng: random.Random) -> Mutant | None:
    """A store of the kernel runs once more as part of a probe."""
    stores = [ins for ins in s.code if ins.tags & {"global_store", "shared_store", "atomic"}]
    if not stores:
        return None
    j, _ = rng.choice(s.probes)
    ins, words = rng.choice(stores), s.words()
    words[j] = ins.word
    return s.mutant(words, f"probe word is `{ins.text}`", "effects")


MUTATORS: tuple[Mutator, ...] = (
    flip_bit,
    flip_control_bit,
    edit_wait_mask,
    drop_instruction,
    swap_instructions,
    duplicate_instruction,
    wrong_target,
    live_register,
    live_uniform_register,
    delete_wait,
    lower_stall,
    illegal_stall,
    reuse_scoreboard,
    wait_for_kernel,
    unclaimed_store,
    forbidden_effect,
    stray_store,
    copied_store,
    *FILE_MUTATORS,
)
