"""A linked NVIDIA image (cubin) as kernels: the one reader of the house."""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from xtrace.errors import BadInput, Unsupported
from xtrace.image import arch as arch_of
from xtrace.image import eiattr, elf
from xtrace.image.elf import Header, Section, Symbol, place
from xtrace.image.info import InfoRecord, find, read_info, u32s
from xtrace.image.names import demangle

__all__ = ["Image", "Kernel", "load", "parse"]

MAX_BYTES = 1 << 29  # the largest cubin seen in the wild is 9 MB
STO_CUDA_ENTRY = 0x10
WORD_BYTES = 16
TEXT = ".text."


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of an image. Offsets are bytes; ``offset`` is in the file, all others are relative to the text.

    ``functions`` are the local functions inside the kernel's own text section: (name, offset, size).
    ``max_threads`` is ``__launch_bounds__`` or the required block size multiplied out, None when not given.
    ``shared_static`` is the size of the kernel's shared-memory section in bytes; since sm_90 it includes the
    1 KiB that the system reserves in every block. ``param_base``/``param_size`` locate the parameters in
    constant bank 0.
    """

    name: str
    section: int
    symbol: int
    offset: int
    text: bytes = field(repr=False)
    registers: int
    info: tuple[InfoRecord, ...] = field(repr=False)
    functions: tuple[tuple[str, int, int], ...]
    has_text_relocations: bool
    max_threads: int | None
    required_threads: tuple[int, int, int] | None
    shared_static: int
    barriers: int
    param_base: int
    param_size: int

    @property
    def demangled(self) -> str:
        return demangle(self.name)

    @property
    def instructions(self) -> int:
        """Words in the text section, padding included."""
        return len(self.text) // WORD_BYTES


@dataclass(frozen=True, slots=True)
class Image:
    """A parsed cubin. ``name`` is what messages call it (usually the path); ``data`` are its bytes, unchanged."""

    name: str
    data: bytes = field(repr=False)
    sha256: str
    arch: str
    sm: int
    flavour: str
    header: Header = field(repr=False)
    sections: tuple[Section, ...] = field(repr=False)
    symbols: tuple[Symbol, ...] = field(repr=False)
    kernels: tuple[Kernel, ...]

    def kernel(self, name: str) -> Kernel:
        """The kernel of that exact mangled name. Raises ``BadInput`` XT1020 listing the names there are."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise self._no_kernel(name)

    def select(self, glob: str) -> list[Kernel]:
        """Kernels whose mangled or demangled name matches a shell glob. Raises ``BadInput`` XT1020 when none does."""
        found = [
            k
            for k in self.kernels
            if k.name == glob or fnmatch.fnmatchcase(k.name, glob) or fnmatch.fnmatchcase(k.demangled, glob)
        ]
        if not found:
            raise self._no_kernel(glob)
        return found

    @property
    def arch_place(self) -> str:
        """``where`` of an error about the architecture."""
        return place(self.name, "e_flags", 48)

    def section_named(self, name: str) -> Section | None:
        return next((s for s in self.sections if s.name == name), None)

    def content(self, section: Section) -> bytes:
        return self.data[section.offset : section.end]

    def _no_kernel(self, wanted: str) -> BadInput:
        shown = [k.demangled if len(k.demangled) <= 120 else k.demangled[:117] + "..." for k in self.kernels[:8]]
        more = len(self.kernels) - len(shown)
        names = "; ".join(shown) + (f"; and {more} more" if more else "")
        return BadInput(
            "XT1020", f"no kernel matches {wanted!r}", where=self.name, hint=f"kernels of this image: {names}"
        )


def load(path: str | Path) -> Image:
    """Read a cubin from a file.

    Raises
    ------
    BadInput
        XT1000 when the file cannot be read, and every error of :func:`parse`.
    """
    source = Path(path)
    try:
        if source.stat().st_size > MAX_BYTES:
            raise BadInput("XT1000", f"larger than {MAX_BYTES >> 20} MiB", where=str(path), hint="give one cubin")
        data = source.read_bytes()
    except OSError as error:
        what = f"cannot read the file: {error.strerror or error}"
        raise BadInput("XT1000", what, where=str(path), hint="check the path") from error
    except ValueError as error:  # a NUL inside the path
        raise BadInput("XT1000", f"not a file name: {error}", where=repr(path)) from error
    return parse(data, str(path))


def parse(data: bytes, name: str) -> Image:
    """Read a cubin from memory; ``name`` is used in messages.

    Raises
    ------
    BadInput
        XT1001-XT1010 not an ELF, truncated or malformed tables; XT1011 an ELF for another machine; XT1012 a relocatable
        object; XT1015 no kernels; XT1016 a kernel that contradicts itself.
    Unsupported
        XT1013 unknown flavour of cubin, XT1014 unknown architecture.
    """
    header = elf.read_header(data, name)
    _check_machine(header, name)
    flavour = arch_of.FLAVOURS.get((header.osabi, header.abiversion))
    if flavour is None:
        what = f"unknown cubin flavour (OS/ABI {header.osabi:#x}, version {header.abiversion})"
        raise Unsupported("XT1013", what, where=place(name, "ELF header", 7), hint="known: ptxas 11-13 output")
    sm = arch_of.sm_number(header.flags, flavour)
    if sm not in arch_of.KNOWN_SM:
        known = ", ".join(f"sm_{n}" for n in sorted(arch_of.KNOWN_SM))
        what = f"unknown architecture sm_{sm}"
        raise Unsupported("XT1014", what, where=place(name, "e_flags", 48), hint=f"known: {known}")
    sections = elf.read_sections(data, header, name)
    symbols = elf.read_symbols(data, sections, name)
    kernels = _kernels(data, sections, symbols, name)
    if not kernels:
        hint = "images that only hold device functions or PTX cannot be traced"
        raise BadInput("XT1015", "image holds no kernel", where=name, hint=hint)
    evidence = {s.name: data[s.offset : s.end] for s in sections if s.name in (".note.nv.tkinfo", ".nv_debug_ptx_txt")}
    arch = arch_of.decide(header.flags, flavour, evidence, (k.text for k in kernels))
    digest = hashlib.sha256(data).hexdigest()
    return Image(name, bytes(data), digest, arch, sm, flavour, header, sections, symbols, kernels)


def _check_machine(header: Header, name: str) -> None:
    here = place(name, "e_machine", 18)
    if header.machine == elf.EM_AMDGPU:
        hint = "this version of Xtrace traces NVIDIA cubins"
        raise BadInput("XT1011", "an AMD code object, not a cubin", where=here, hint=hint)
    if header.machine != elf.EM_CUDA:
        kind = "an x86-64 file" if header.machine == elf.EM_X86_64 else f"ELF for machine {header.machine}"
        hint = "if it is a CUDA library or program, take the images out with `xtrace extract`"
        raise BadInput("XT1011", f"{kind}, not a cubin", where=here, hint=hint)
    if header.type != elf.ET_EXEC:
        what = "a relocatable object" if header.type == elf.ET_REL else f"ELF type {header.type}"
        hint = "link it first (nvcc -dlink or nvlink); only linked cubins can be loaded and traced"
        raise BadInput("XT1012", f"{what}, not a linked cubin", where=place(name, "e_type", 16), hint=hint)


def _kernels(data: bytes, sections: tuple[Section, ...], symbols: tuple[Symbol, ...], name: str) -> tuple[Kernel, ...]:
    functions: dict[int, list[Symbol]] = {}
    for symbol in symbols:
        if symbol.type == elf.STT_FUNC:
            functions.setdefault(symbol.section, []).append(symbol)
    by_name: dict[str, Section] = {}
    for section in sections:
        if section.name.startswith((TEXT, ".nv.info", ".nv.shared.", ".rel")):
            if section.name in by_name:
                what = f"two sections named {section.name}"
                raise BadInput("XT1016", what, where=place(name, "section table"))
            by_name[section.name] = section
    registers = _register_counts(data, by_name.get(".nv.info"), symbols, name)
    for prefix in (TEXT, ".nv.info"):  # copied below: a hostile file may claim the same bytes thousands of times
        if sum(s.file_size for s in by_name.values() if s.name.startswith(prefix)) > len(data):
            raise BadInput("XT1016", f"{prefix} sections are larger than the file", where=place(name, "section table"))
    kernels = []
    for section in sections:
        if not section.name.startswith(TEXT) or section.type == elf.SHT_NOBITS:
            continue
        entry = next((f for f in functions.get(section.index, ()) if f.other & STO_CUDA_ENTRY and f.value == 0), None)
        if entry is not None and entry.name == section.name[len(TEXT) :]:
            kernels.append(_kernel(data, section, entry, functions[section.index], by_name, registers, name))
    return tuple(kernels)


def _register_counts(data: bytes, section: Section | None, symbols: tuple[Symbol, ...], name: str) -> dict[int, int]:
    counts: dict[int, int] = {}
    for record in read_info(data, section, name) if section else ():
        if record.attr == eiattr.REGCOUNT:
            words = u32s(record, place(name, ".nv.info"))
            if len(words) != 2 or words[0] >= len(symbols) or words[1] > 0xFFFF:
                raise BadInput("XT1010", "malformed register count", where=place(name, ".nv.info", record.offset))
            counts[words[0]] = words[1]
    return counts


def _kernel(
    data: bytes,
    section: Section,
    entry: Symbol,
    functions: list[Symbol],
    by_name: Mapping[str, Section],
    registers: Mapping[int, int],
    name: str,
) -> Kernel:
    here = place(name, section.name, section.offset)
    size = section.size
    if size == 0 or size % WORD_BYTES or section.offset % WORD_BYTES:
        raise BadInput("XT1016", "code is not a whole number of 16-byte instructions", where=here)
    if entry.size > size or any(f.value + f.size > size for f in functions):
        raise BadInput("XT1016", "a function reaches beyond its section", where=here)
    info_section = by_name.get(f".nv.info.{entry.name}")
    info = read_info(data, info_section, name) if info_section else ()
    info_place = place(name, info_section.name) if info_section else here
    required = _block(find(info, eiattr.REQNTID), info_place)
    bound = required or _block(find(info, eiattr.MAX_THREADS), info_place)
    shared = by_name.get(f".nv.shared.{entry.name}")
    bank = find(info, eiattr.PARAM_CBANK)
    base, parameters = (
        divmod(u32s(bank, info_place, 2)[1], 1 << 16)[::-1] if bank and len(bank.payload) == 8 else (0, 0)
    )
    barriers = find(info, eiattr.NUM_BARRIERS)
    relocations = (by_name.get(f".rela{section.name}"), by_name.get(f".rel{section.name}"))
    return Kernel(
        name=entry.name,
        section=section.index,
        symbol=entry.index,
        offset=section.offset,
        text=data[section.offset : section.end],
        registers=registers.get(entry.index, section.info >> 24),
        info=info,
        functions=tuple((f.name, f.value, f.size) for f in functions if f.value),
        has_text_relocations=any(r is not None and r.size > 0 for r in relocations),
        max_threads=bound[0] * bound[1] * bound[2] if bound else None,
        required_threads=required,
        shared_static=shared.size if shared else 0,
        barriers=barriers.payload[0] if barriers and barriers.payload else section.flags >> 20 & 0x7F,
        param_base=base,
        param_size=parameters,
    )


def _block(record: InfoRecord | None, where: str) -> tuple[int, int, int] | None:
    if record is None:
        return None
    words = u32s(record, where)
    if len(words) != 3:
        raise BadInput("XT1010", f"{eiattr.attribute_name(record.attr)} has a wrong size", where=where)
    return words[0], words[1], words[2]
