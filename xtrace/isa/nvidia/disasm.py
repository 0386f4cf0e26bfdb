"""Raw instruction words to text, by the vendor's disassembler in a limited subprocess.

The disassembler sees only the words, never the image around them, so a hostile image cannot reach its ELF reader.
"""

from __future__ import annotations

import importlib.util
import os
import re
import resource
import shutil
import subprocess
import tempfile
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from pathlib import Path

from xtrace.errors import BadInput, MissingTool, Unsupported
from xtrace.isa.nvidia import textcache

__all__ = ["WORD_BYTES", "disassemble", "find_nvdisasm"]

WORD_BYTES = 16
_TOOL = "nvdisasm"
_ENVIRONMENT = "XTRACE_NVDISASM"
_PACKAGE = "nvidia-cuda-nvdisasm"
_MAX_CODE = 64 << 20  # bytes of text per run; the largest known kernels have about 1 MiB
_MEMORY = 4 << 30  # address space of the tool, bytes
_TEXT_PER_WORD = 400  # bytes of output per instruction, generously; bounds the output file
_MOST_REFUSED = 256  # pieces of code
_SECONDS = 20.0  # start-up and slack, plus:
_SECONDS_PER_WORD = 0.001
_LINE = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;\s*$", re.MULTILINE)
_ERROR_ADDRESS = re.compile(r"at address 0x([0-9a-f]+)")


def _packaged() -> Path | None:
    """The executable inside the pip package's namespace directory (``nvidia/<release>/bin``)."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return None
    for location in (spec.submodule_search_locations or []) if spec else []:
        for candidate in sorted(Path(location).glob(f"*/bin/{_TOOL}"), reverse=True):
            if os.access(candidate, os.X_OK):
                return candidate
    return None


def find_nvdisasm() -> Path:
    """The disassembler: ``$XTRACE_NVDISASM``, else the pip package's, else the one on PATH.

    Raises :class:`~xtrace.errors.MissingTool` XT6001.
    """
    named = os.environ.get(_ENVIRONMENT)
    if named:
        if os.path.isfile(named) and os.access(named, os.X_OK):
            return Path(named)
        raise MissingTool("XT6001", f"{_ENVIRONMENT} is no executable file", where=named, hint=f"unset {_ENVIRONMENT}")
    found = _packaged() or shutil.which(_TOOL)
    if not found:
        raise MissingTool("XT6001", f"{_TOOL} not found", hint=f"pip install {_PACKAGE}, or set {_ENVIRONMENT}")
    return Path(found)


@lru_cache(maxsize=8)
def _identity(tool: str, size: int, modified: int) -> str:
    """Names one build of the tool, for the cache key."""
    return f"{Path(tool).resolve()}|{size}|{modified}"


def _limit(pid: int, words: int) -> None:
    """Limits a started child; the parent sets them, which is safe in threaded programs."""
    limits = ((resource.RLIMIT_AS, _MEMORY), (resource.RLIMIT_FSIZE, (words + 64) * _TEXT_PER_WORD))
    for kind, value in (*limits, (resource.RLIMIT_CORE, 0)):
        try:
            resource.prlimit(pid, kind, (value, value))
        except (ProcessLookupError, PermissionError, AttributeError):
            return  # already finished, or no such facility: the time limit still holds


def _run(tool: Path, arch: str, code: bytes, where: str) -> str:
    words = len(code) // WORD_BYTES
    with tempfile.TemporaryDirectory(prefix="xtrace-") as folder:
        binary, listing = Path(folder, "code.bin"), Path(folder, "listing.txt")
        binary.write_bytes(code)
        with listing.open("wb") as out:
            command = [str(tool), "--print-code", "--binary", arch, str(binary)]
            try:
                child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE)
            except OSError as error:
                raise MissingTool("XT6002", f"{_TOOL} cannot be started: {error.strerror}", where=str(tool)) from error
            _limit(child.pid, words)
            try:
                _, complaint = child.communicate(timeout=_SECONDS + words * _SECONDS_PER_WORD)
            except subprocess.TimeoutExpired as error:
                child.kill()
                child.communicate()
                raise Unsupported("XT2302", f"{_TOOL} did not finish in time", where=where) from error
        if child.returncode:
            raise _rejection(complaint[-4096:].decode(errors="replace"), child.returncode, where)
        return listing.read_text(encoding="ascii", errors="replace")


class _Rejected(BadInput):
    """Bytes that are no instruction, at ``address`` bytes into what the tool was given."""

    def __init__(self, address: int, reason: str, where: str) -> None:
        super().__init__("XT2301", f"no valid instruction at {address:#x}: {reason}", where=where)
        self.address, self.reason = address, reason

    def within(self, piece: int) -> _Rejected:
        """The same about the piece of code that started at byte ``piece``."""
        address = self.address - piece
        return _Rejected(address, _ERROR_ADDRESS.sub(f"at address 0x{address:08x}", self.reason), self.where)


def _rejection(complaint: str, status: int, where: str) -> BadInput | Unsupported:
    first = next((line for line in complaint.splitlines() if "error" in line or "fatal" in line), "")
    reason = first.split(":", 1)[-1].strip()
    if match := _ERROR_ADDRESS.search(reason):
        return _Rejected(int(match[1], 16), reason, where)
    if status < 0:
        return Unsupported("XT2302", f"{_TOOL} was ended by signal {-status}", where=where)
    return BadInput("XT2301", f"{_TOOL} rejects the code: {reason or f'exit status {status}'}", where=where)


def _parse(listing: str, base: int, count: int, where: str) -> list[str]:
    """Instruction texts at ``base``, ``base + 16``, ..; verifies every address."""
    texts: list[str] = []
    for address, text in _LINE.findall(listing):
        if int(address, 16) != base + len(texts) * WORD_BYTES:
            raise BadInput("XT2303", f"unexpected address {address} in the listing", where=where)
        texts.append(text)
    if len(texts) != count:
        raise BadInput("XT2303", f"{len(texts)} instructions listed for {count} words", where=where)
    return texts


_refused: dict[str, _Rejected] = {}  # by key: who was refused several pieces asks again for each of them


def disassemble(codes: Sequence[bytes], arch: str, *, where: str = "") -> list[list[str]]:
    """Instruction texts (without the trailing semicolon) of several pieces of code, by at most one run of the tool.

    ``arch`` is the image's architecture name, ``"sm_90a"``. Pieces are put one behind the other: code addresses are
    relative, so the words decode the same anywhere, but code addresses *in the texts* count from the start of the run
    (callers take targets from the words). Texts are cached on disk, see :mod:`xtrace.isa.nvidia.textcache`.

    Raises BadInput XT2301 with the address of bytes that are no instruction, MissingTool XT6001/XT6002,
    Unsupported XT2302 if the tool crashes or does not finish.
    """
    for code in codes:
        if len(code) % WORD_BYTES:
            raise BadInput("XT2304", f"code of {len(code)} bytes is not a whole number of instructions", where=where)
    if sum(map(len, codes)) > _MAX_CODE:
        raise Unsupported("XT2305", f"more than {_MAX_CODE >> 20} MiB of code", where=where)
    tool = find_nvdisasm()
    status = tool.stat()
    identity = _identity(str(tool), status.st_size, int(status.st_mtime))
    keys = [textcache.key(identity, arch, code) for code in codes]
    if known := next((_refused[key] for key in keys if key in _refused), None):
        raise _Rejected(known.address, known.reason, where)
    results: list[list[str] | None] = []
    for code, key in zip(codes, keys, strict=True):
        cached = textcache.load(key)
        fits = cached is not None and len(cached) == len(code) // WORD_BYTES
        results.append([] if not code else cached if fits else None)
    missing = [i for i, texts in enumerate(results) if texts is None]
    if missing:
        try:
            listing = _disassemble_together([codes[i] for i in missing], arch, tool, where)
        except _Rejected as error:
            starts = list(accumulate((len(codes[i]) for i in missing), initial=0))
            guilty = bisect_right(starts[:-1], error.address) - 1
            own = error.within(starts[guilty])
            if len(_refused) >= _MOST_REFUSED:
                _refused.clear()
            _refused[keys[missing[guilty]]] = own
            raise own from None
        for i, texts in zip(missing, listing, strict=True):
            results[i] = texts
            textcache.store(keys[i], texts)
    return [texts or [] for texts in results]


def _disassemble_together(codes: Sequence[bytes], arch: str, tool: Path, where: str) -> list[list[str]]:
    starts = list(accumulate(map(len, codes), initial=0))
    listing = _run(tool, arch.replace("sm_", "SM"), b"".join(codes), where)
    texts = _parse(listing, 0, starts[-1] // WORD_BYTES, where)
    return [texts[a // WORD_BYTES : b // WORD_BYTES] for a, b in pairwise(starts)]
