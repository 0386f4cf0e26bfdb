"""``verify``: two files, and perhaps a map that says what the second one claims to be, to a certificate."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from importlib import resources
from typing import Any

from xtrace import __version__, isa
from xtrace.errors import BadInput, XtraceError
from xtrace.image import Image, Kernel, parse
from xtrace.isa import Isa
from xtrace.isa.model import Instruction
from xtrace.verify import (
    copies,
    debug,
    distances,
    effects,
    groups,
    instructions,
    liveness,
    metadata,
    pending,
    scoreboards,
    targets,
    wellformed,
)
from xtrace.verify import resources as launch
from xtrace.verify.align import Alignment, derive, from_islands, subsequence
from xtrace.verify.certificate import PROMISES, Certificate, Findings, KernelCounts, Promise
from xtrace.verify.claims import kernel_claims
from xtrace.verify.pair import Pair, code_words, literal_keys, masked_word, return_literals
from xtrace.verify.program import build
from xtrace.verify.second import printed_distances

__all__ = ["verify"]

_CODE_PROMISES = (Promise.INSTRUCTIONS, Promise.TARGETS, Promise.LIVENESS, Promise.HAZARDS, Promise.EFFECTS)


def verify(
    original: bytes,
    traced: bytes,
    map: dict[str, Any] | None = None,
    *,
    original_name: str = "original",
    traced_name: str = "traced",
) -> Certificate:
    """Check that ``traced`` is ``original`` plus probes that keep every promise.

    Parameters
    ----------
    original, traced
        Bytes of the two images.
    map
        The trace map as a parsed JSON document. Without it the alignment is found from the code itself, and what only
        the map tells (where stores go, what is patched at load) is NOT-CHECKED.

    Raises
    ------
    BadInput
        Either file is no image (XT1xxx), they are for different architectures (XT4003), the original's code does not
        decode (XT2xxx), the map is no map (XT4001).
    Unsupported
        The architecture of either is not modelled (XT2001, XT2002).
    MissingTool
        No disassembler.
    """
    before, after = parse(original, original_name), parse(traced, traced_name)
    model = isa.for_arch(before.arch, where=before.arch_place)
    isa.for_arch(after.arch, where=after.arch_place)
    if before.arch != after.arch:
        what = f"the traced image is for {after.arch}, the original for {before.arch}"
        hint = "verify needs two images for one architecture"
        raise BadInput("XT4003", what, where=after.arch_place, hint=hint)
    findings = Findings()
    claims = None if map is None else kernel_claims(map)
    if map is not None:
        _identity(map, before, after, findings)
    wellformed.check_layout(after, findings)
    changed = [(k, other) for k in before.kernels if (other := _same_kernel(k, after)) and other.text != k.text]
    addressed = (w for _, k in changed for w in code_words(k.text, model.word_bytes) if model.code_field_mask(w))
    printed = printed_distances(addressed, before.arch, [k.text for pair in changed for k in pair])
    counts, pairs = _kernels(before, after, claims, model, findings)
    for pair in pairs.values():
        _check_pair(pair, before, after, printed)
    wellformed.check_contents(before, after, {k.section for k, _ in changed}, findings)
    metadata.check_global(before, after, findings)
    metadata.check_symbols(pairs, before, after, findings)
    debug.check(pairs, before, after, findings)
    return _certificate(before, after, map, counts, findings)


def _identity(document: dict[str, Any], before: Image, after: Image, findings: Findings) -> None:
    for side, image in (("input", before), ("output", after)):
        if document[side]["sha256"] != image.sha256:
            findings.fail(Promise.INSTRUCTIONS, "", f"the map is about another {side} file (sha256 differs)")


def _same_kernel(kernel: Kernel, after: Image) -> Kernel | None:
    return next((k for k in after.kernels if k.name == kernel.name), None)


def _kernels(
    before: Image, after: Image, claims: dict[str, dict[str, Any]] | None, model: Isa, findings: Findings
) -> tuple[list[KernelCounts], dict[int, Pair]]:
    """Pair up the kernels. Those whose code did not change need no decoding."""
    counts: list[KernelCounts] = []
    wanted: list[tuple[Kernel, Kernel, KernelCounts]] = []
    if [k.name for k in before.kernels] != [k.name for k in after.kernels]:
        findings.fail(Promise.INSTRUCTIONS, "", "the images hold different kernels, or in another order")
    for name in sorted(set(claims or ()) - {k.name for k in before.kernels}):
        findings.fail(Promise.INSTRUCTIONS, name, "the map describes a kernel that the original does not have")
    for kernel in before.kernels:
        other = _same_kernel(kernel, after)
        count = KernelCounts(kernel.name, instructions=kernel.instructions)
        counts.append(count)
        if other is None:
            findings.fail(Promise.INSTRUCTIONS, kernel.name, "kernel is missing in the traced image")
        elif other.text != kernel.text or (claims or {}).get(kernel.name, {}).get("islands"):
            wanted.append((kernel, other, count))
        else:
            count.identical = count.instructions
            _untouched(kernel, other, findings)
    pairs: dict[int, Pair] = {}
    for (kernel, other, count), (code, traced) in zip(wanted, _decode(wanted, model, before, after), strict=True):
        claim = None if claims is None else claims.get(kernel.name)
        if claims is not None and claim is None:
            findings.fail(Promise.INSTRUCTIONS, kernel.name, "code changed, but the map does not mention this kernel")
        pair = _pair(kernel, other, code, traced, claim, model, findings, count)
        if pair is not None:
            pairs[kernel.section] = pair
    return counts, pairs


def _untouched(kernel: Kernel, other: Kernel, findings: Findings) -> None:
    if kernel.registers != other.registers:
        why = f"register count changed from {kernel.registers} to {other.registers}, but no code did"
        findings.fail(Promise.RESOURCES, kernel.name, why)


def _decode(
    wanted: list[tuple[Kernel, Kernel, KernelCounts]], model: Isa, before: Image, after: Image
) -> list[tuple[tuple[Instruction, ...], tuple[Instruction, ...] | XtraceError]]:
    """Both sides of every kernel, by one run of the disassembler unless something in it is no code."""
    try:
        both = model.decode_many([text for k, o, _ in wanted for text in (k.text, o.text)], where=before.name)
        return list(zip(both[0::2], both[1::2], strict=True))
    except BadInput:
        pass
    decoded: list[tuple[tuple[Instruction, ...], tuple[Instruction, ...] | XtraceError]] = []
    for kernel, other, _ in wanted:
        code = model.decode(kernel.text, where=before.name)  # the original must be sound: its error is the user's
        try:
            decoded.append((code, model.decode(other.text, where=after.name)))
        except BadInput as error:
            decoded.append((code, error))
    return decoded


def _pair(
    kernel: Kernel,
    other: Kernel,
    code: tuple[Instruction, ...],
    traced: tuple[Instruction, ...] | XtraceError,
    claim: dict[str, Any] | None,
    model: Isa,
    findings: Findings,
    count: KernelCounts,
) -> Pair | None:
    def lost(why: str) -> None:
        findings.fail(Promise.INSTRUCTIONS, kernel.name, why)
        for promise in _CODE_PROMISES[1:]:
            findings.skip(promise, kernel.name, "the code could not be matched with the original's")

    if kernel.has_text_relocations or other.has_text_relocations:
        for promise in (Promise.TARGETS, Promise.LIVENESS):
            findings.skip(promise, kernel.name, "the code has link-time relocations")
    if isinstance(traced, XtraceError):
        lost(f"the traced code does not decode: {traced.what}")
        return None
    literals = return_literals(code)
    align = _alignment(kernel, other, code, claim, model, literal_keys(code, literals), findings)
    if align is None:
        lost("original instructions are missing or out of order")
        return None
    origin = align.origin()
    size = model.word_bytes
    probe = [o < 0 and j not in align.padding and j not in align.copy for j, o in enumerate(origin)]
    original = build(code, model.layout, entry_pcs=[0, *(f[1] for f in kernel.functions)], tables=_tables(kernel))
    entries = [0, *(align.target_index(f[1] // size) * size for f in kernel.functions)]
    output = build(traced, model.layout, entry_pcs=entries, tables=_tables(other), probe=probe)
    return Pair(kernel, other, model, original, output, align, claim, findings, count, literals)


def _tables(kernel: Kernel) -> dict[int, list[int]]:
    return metadata.branch_tables(kernel.info)


def _alignment(
    kernel: Kernel,
    other: Kernel,
    code: tuple[Instruction, ...],
    claim: dict[str, Any] | None,
    model: Isa,
    keys: frozenset[int],
    findings: Findings,
) -> Alignment | None:
    """As the map says; without a map, or with an impossible one, from the words alone."""
    size = model.word_bytes
    copy = copies.find(kernel.text, other.text, claim, size, kernel.name, findings)
    if claim is not None:
        islands = [(i["pc"] / size, i["words"]) for i in claim.get("islands") or () if i["words"]]
        made = from_islands(len(code), len(other.text) // size, [(int(a), n) for a, n in islands], copy)
        if isinstance(made, Alignment) and all(a == int(a) for a, _ in islands):
            return made
        why = made if isinstance(made, str) else "an island does not stand before an instruction"
        findings.fail(Promise.INSTRUCTIONS, kernel.name, why)
    needle = [masked_word(ins.word, model, keys) for ins in code]
    hay = [masked_word(word, model, keys) for word in code_words(other.text, size)]
    align = derive(needle, hay, copy)
    if align is None:
        n = subsequence(needle, hay[copy.stop :])
        why = f"not in the traced kernel at its place in the order ({n} of {len(needle)} found before it)"
        findings.fail(Promise.INSTRUCTIONS, kernel.name, why, code[n].pc, code[n].text, "original")
    return align


def _check_pair(pair: Pair, before: Image, after: Image, printed: dict[int, int] | None) -> None:
    instructions.check(pair)
    targets.check(pair, printed)
    copies.check(pair)
    metadata.check_kernel(pair, before, after)
    launch.check(pair)
    filler = effects.check(pair)
    outstanding = pending.simulate(pair.output)
    liveness.check(pair, outstanding, filler)
    if pair.align.islands():
        if pair.output.unknown:
            pair.skip(Promise.HAZARDS, "the kernel jumps through a register; its paths are unknown")
        else:
            scoreboards.check(pair, outstanding)
            groups.check(pair, filler)
        distances.check(pair, filler)


@lru_cache(maxsize=1)
def _isa_digest() -> str | None:
    """SHA-256 over the instruction set room as installed: which tables this verdict rests on."""
    digest = hashlib.sha256()
    try:
        folders = [resources.files("xtrace.isa")]
        while folders:
            for item in sorted(folders.pop().iterdir(), key=lambda x: x.name):
                if item.is_dir() and item.name != "__pycache__":
                    folders.append(item)
                elif item.name.endswith((".py", ".json", ".csv")):
                    digest.update(item.name.encode() + b"\0" + item.read_bytes())
    except OSError:
        return None
    return digest.hexdigest()


def _certificate(
    before: Image, after: Image, document: dict[str, Any] | None, counts: list[KernelCounts], findings: Findings
) -> Certificate:
    kernels: list[dict[str, Any]] = []
    for count in counts:
        entry = count.to_dict()
        entry["promises"] = {str(p): str(findings.status(p, count.name)) for p in PROMISES}
        entry["failures"] = [w.to_dict() for w in findings.failures if w.kernel == count.name]
        kernels.append(entry)
    totals = {key: sum(k[key] for k in kernels) for key in KernelCounts("").to_dict() if key != "name"}
    map_digest = None
    if document is not None:
        canonical = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
        map_digest = hashlib.sha256(canonical).hexdigest()
    per_promise = {str(p): sum(n for (_, q), n in findings.counts.items() if q is p) for p in PROMISES}
    return Certificate(
        input_sha256=before.sha256,
        output_sha256=after.sha256,
        xtrace=__version__,
        map_sha256=map_digest,
        isa_sha256=_isa_digest(),
        promises={str(p): str(findings.status(p)) for p in PROMISES},
        kernels=tuple(kernels),
        totals=totals,
        failures=tuple(findings.failures),
        not_checked=tuple(findings.skipped),
        failure_counts={k: n for k, n in per_promise.items() if n},
    )
