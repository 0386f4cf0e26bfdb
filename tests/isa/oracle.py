"""The disassembler's own life ranges, as a second opinion on reads and writes.

``nvdisasm -plr`` prints, per instruction and register, ``^`` written here, ``v`` last read, ``x`` both, ``:`` live
through. It needs a whole image of the tool's own ELF flavour (abi8). What it cannot tell, and what is therefore not
compared: P2R and R2P (it does not see the predicates they move) and direct calls (it adds the callee's registers).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from xtrace import image
from xtrace.isa.model import Instruction
from xtrace.isa.nvidia.decode import NvidiaIsa
from xtrace.isa.nvidia.disasm import find_nvdisasm

_COLUMNS = {"GPR": "R", "PRED": "P", "UGPR": "UR", "UPRED": "UP"}
_ROW = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/")
_SECTION = re.compile(r"\s*\.section\s+([^,\s]+)")
_BLIND = ("P2R", "R2P", "CALL")

Marks = dict[tuple[str, int], str]


def life_ranges(path: Path) -> Iterator[tuple[str, int, Marks]]:
    """(section, pc, marks) of every instruction of an image."""
    command = [str(find_nvdisasm()), "-plr", str(path)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    section, names, columns = "", [], []
    for line in listing.splitlines():
        if match := _SECTION.match(line):
            section, columns = match[1], []
        at = line.find("// |")
        if at < 0:
            continue
        table = line[at + 3 :]
        row = _ROW.match(line[:at])
        if row is None:
            if "GPR" in table:
                names = [part.strip() for part in table.split("|")]
            elif "#" in table:
                columns = _header(table, names)
        elif columns:
            marks = {key: mark for key, first, last in columns if (mark := table[first:last].strip())}
            yield section, int(row[1], 16), marks


def _header(table: str, names: list[str]) -> list[tuple[tuple[str, int], int, int]]:
    columns = []
    start = 0
    for part, name in zip(table.split("|"), names, strict=False):
        for match in re.finditer(r"\d+", part):
            columns.append(((_COLUMNS[name], int(match[0])), start + match.start(), start + match.end()))
        start += len(part) + 1
    return columns


def disagreements(path: Path, isa: NvidiaIsa) -> tuple[list[str], int]:
    """Every contradiction between the model and the life ranges of an image, and how many marks were compared."""
    kernels = {f".text.{k.name}": k for k in image.load(path).kernels}
    decoded = dict(zip(kernels, isa.decode_many([k.text for k in kernels.values()]), strict=True))
    found: list[str] = []
    compared = 0
    for section, pc, marks in life_ranges(path):
        ins = decoded[section][pc // 16]
        if ins.base not in _BLIND:
            compared += len(marks)
            found += [f"{section}+{pc:#x} {ins.text}: {problem}" for problem in _compare(ins, marks, isa)]
    return found, compared


def _compare(ins: Instruction, marks: Marks, isa: NvidiaIsa) -> Iterator[str]:
    if ins.opaque:
        yield "opaque"
        return
    known = 0
    for (file, number), mark in marks.items():
        bit = isa.layout[file].bit(number)
        known |= bit
        reads, writes = bool(ins.reads & bit), bool(ins.writes & bit)
        if (mark in "^x") > writes:
            yield f"writes {file}{number}"
        if (mark in "vx") > reads:
            yield f"reads {file}{number}"
        if mark == "^" and reads:
            yield f"does not read {file}{number}"
        if mark == "v" and writes:
            yield f"does not write {file}{number}"
        if mark == ":" and writes and not reads and not ins.guard:
            yield f"does not kill {file}{number}"
    visible = isa.layout.everything & ~isa.layout["B"].mask & ~known
    for what, bits in (("read", ins.reads & visible), ("write", ins.writes & visible)):
        if bits:
            yield f"does not {what} {isa.layout.names(bits)}"
