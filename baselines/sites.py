"""Matched sites: which program points a site group names, in the words of each tracer.

The data is ``configs/matched_sites.yaml``; this module reads and checks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from xtrace.errors import BadInput

__all__ = ["Group", "Mark", "Phase", "Words", "find_group", "load_groups"]

At = Literal["before", "after"]
DEFAULT_PATH = Path(__file__).resolve().parent.parent / "configs" / "matched_sites.yaml"
MAX_BYTES = 1 << 20
WHOLE_BLOCK = 1 << 30


@dataclass(frozen=True)
class Words:
    """Operations that mean a phase in one tracer's language; not ``exact``: only a place near it, ``why`` says so."""

    ops: tuple[str, ...]
    exact: bool
    why: str = ""


@dataclass(frozen=True)
class Phase:
    name: str
    xtrace: tuple[str, ...]
    ttgir: Words
    ptx: Words
    run_gap: int | None  # only the first of a run; instructions that may stand between two of a run; None: every one


@dataclass(frozen=True)
class Mark:
    """Probe ``phase`` at these sides of the instruction."""

    phase: Phase
    at: tuple[At, ...]


@dataclass(frozen=True)
class Group:
    """A named set of matched sites. ``whole_kernel``: one pair around the kernel instead of marks."""

    name: str
    about: str
    xtrace: str
    whole_kernel: bool
    marks: tuple[Mark, ...]


def _expect(condition: bool, what: str, where: str) -> None:
    if not condition:
        raise BadInput("XT7304", what, where=where, hint="see the comments in configs/matched_sites.yaml")


def _strings(value: Any, where: str) -> tuple[str, ...]:
    _expect(isinstance(value, list) and bool(value), "must be a non-empty list", where)
    _expect(all(isinstance(v, str) and v for v in value), "must hold non-empty strings", where)
    return tuple(value)


def _words(value: Any, where: str) -> Words:
    _expect(isinstance(value, Mapping), "must be a mapping", where)
    exact = value.get("exact")
    _expect(isinstance(exact, bool), "needs 'exact: true' or 'exact: false'", where)
    why = str(value.get("why", ""))
    _expect(bool(exact) or bool(why), "an inexact place needs 'why'", where)
    return Words(_strings(value.get("ops"), f"{where}.ops"), bool(exact), why)


def _run_gap(value: Any, where: str) -> int | None:
    if value == "block":
        return WHOLE_BLOCK
    ok = value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)
    _expect(ok, "takes a number of instructions or 'block'", where)
    return None if value is None else int(value)


def _phase(name: str, value: Any, where: str) -> Phase:
    _expect(isinstance(value, Mapping), "must be a mapping", where)
    return Phase(
        name=name,
        xtrace=_strings(value.get("xtrace"), f"{where}.xtrace"),
        ttgir=_words(value.get("ttgir"), f"{where}.ttgir"),
        ptx=_words(value.get("ptx"), f"{where}.ptx"),
        run_gap=_run_gap(value.get("run_gap"), f"{where}.run_gap"),
    )


def _mark(value: Any, phases: Mapping[str, Phase], where: str) -> Mark:
    _expect(isinstance(value, Mapping), "must be a mapping", where)
    name = value.get("phase")
    _expect(name in phases, f"unknown phase {name!r}", where)
    sides = _strings(value.get("at"), f"{where}.at")
    _expect(set(sides) <= {"before", "after"}, "'at' takes 'before' and 'after'", where)
    ordered: list[At] = []
    if "before" in sides:
        ordered.append("before")
    if "after" in sides:
        ordered.append("after")
    return Mark(phases[name], tuple(ordered))


def _group(name: str, value: Any, phases: Mapping[str, Phase], where: str) -> Group:
    _expect(isinstance(value, Mapping), "must be a mapping", where)
    _expect(isinstance(value.get("xtrace"), str), "needs the matching 'xtrace' selector", where)
    whole = bool(value.get("whole_kernel", False))
    marks = value.get("marks", [])
    _expect(isinstance(marks, list) and bool(marks) != whole, "needs either 'marks' or 'whole_kernel: true'", where)
    return Group(
        name=name,
        about=str(value.get("about", "")),
        xtrace=value["xtrace"],
        whole_kernel=whole,
        marks=tuple(_mark(m, phases, f"{where}.marks[{i}]") for i, m in enumerate(marks)),
    )


def find_group(name: str) -> Group:
    """The site group ``name``; ``BadInput`` XT7305 naming the known ones if there is none."""
    groups = load_groups()
    if name not in groups:
        raise BadInput("XT7305", f"unknown site group {name!r}", hint="one of " + ", ".join(groups))
    return groups[name]


def load_groups(path: Path = DEFAULT_PATH) -> dict[str, Group]:
    """Read the site groups.

    Raises
    ------
    BadInput
        XT7304 with the key at fault when the file does not follow its schema.
    """
    name = path.name
    try:
        text = path.read_bytes()
        _expect(len(text) <= MAX_BYTES, "file too large", name)
        data = yaml.safe_load(text)
    except (OSError, yaml.YAMLError) as error:
        raise BadInput("XT7304", f"cannot be read: {error}", where=name) from error
    _expect(isinstance(data, Mapping), "must be a mapping", name)
    _expect(data.get("schema") == "xtrace/matched-sites/1", "unknown schema", f"{name}: schema")
    for key in ("phases", "groups"):
        _expect(isinstance(data.get(key), Mapping), "must be a mapping", f"{name}: {key}")
    phases = {str(k): _phase(str(k), v, f"{name}: phases.{k}") for k, v in data["phases"].items()}
    return {str(k): _group(str(k), v, phases, f"{name}: groups.{k}") for k, v in data["groups"].items()}
