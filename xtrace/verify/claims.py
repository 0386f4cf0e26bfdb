"""Reading a trace map that nobody vouches for: only its shape is checked here, what it says is checked elsewhere."""

from __future__ import annotations

from typing import Any

from xtrace.errors import BadInput

__all__ = ["SCHEMA", "kernel_claims"]

SCHEMA = "xtrace/map/2"
SCHEMAS = (SCHEMA, "xtrace/map/3", "xtrace/map/4", "xtrace/map/5", "xtrace/map/6")
_MAX_ITEMS = 1 << 20
_MAX_EVENTS = 15  # of one packet
_SITE_LISTS = ("addresses", "clocks", "uncleared")  # of a packet
_HINT = "give the .map.json that was written together with the traced image"


def _bad(what: str) -> BadInput:
    return BadInput("XT4001", f"trace map: {what}", hint=_HINT)


def _number(value: object, what: str) -> int:
    if type(value) is not int or not 0 <= value < 1 << 48:
        raise _bad(f"{what} is not a sensible number")
    return value


def _list(entry: dict[str, Any], key: str, what: str) -> list[Any]:
    value = entry.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > _MAX_ITEMS:
        raise _bad(f"{key} of {what} is not a list of sensible length")
    return value


def _dict(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _bad(f"{what} is not an object")
    return value


def _packets(entry: dict[str, Any], label: str) -> None:
    for packet in _list(entry, "packets", label):
        if not 1 <= _number(_dict(packet, "a packet").get("tag"), "tag of a packet") < 1 << 16:
            raise _bad(f"tag of a packet of {label} is not a number of 1 to 65535")
        sites = _list(packet, "sites", "a packet")
        if not 1 <= len(sites) <= _MAX_EVENTS:
            raise _bad(f"a packet of {label} does not have 1 to {_MAX_EVENTS} sites")
        for site in (*sites, *(n for key in _SITE_LISTS for n in _list(packet, key, "a packet"))):
            _number(site, "site of a packet")


def _derived(entry: dict[str, Any], label: str) -> None:
    for site in _list(entry, "derived", label):
        for key in ("id", "pc", "at", "from"):
            _number(_dict(site, "a derived access").get(key), f"{key} of a derived access")
        for term in _list(site, "terms", "a derived access"):
            _number(_dict(term, "a term").get("site"), "site of a term")
            if term.get("part") not in ("pair", "low", "high") or type(term.get("signed")) is not bool:
                raise _bad(f"a term of {label} has no part or sign")
        for number in (site.get("offset"), *(term.get("times") for term in site.get("terms") or ())):
            if type(number) is not int or not -(1 << 63) <= number < 1 << 63:
                raise _bad(f"a derived access of {label} has a number of more than 64 bits")


def kernel_claims(document: object) -> dict[str, dict[str, Any]]:
    """Entries of a map by mangled kernel name, with the types that the checks rely on.

    Raises ``BadInput`` XT4001 when the document is not a trace map.
    """
    top = _dict(document, "the document")
    if top.get("schema") not in SCHEMAS:
        raise _bad(f"schema is {str(top.get('schema'))[:40]!r}, expected {SCHEMA!r}")
    for side in ("input", "output"):
        if not isinstance(_dict(top.get(side), side).get("sha256"), str):
            raise _bad(f"{side} has no sha256")
    claims: dict[str, dict[str, Any]] = {}
    for item in _list(top, "kernels", "the map"):
        entry = _dict(item, "a kernel")
        name = entry.get("name")
        if not isinstance(name, str) or name in claims:
            raise _bad("a kernel has no name, or the name of another one")
        label = f"kernel {name[:60]!r}"
        for island in _list(entry, "islands", label):
            for key in ("pc", "words"):
                _number(_dict(island, "an island").get(key), f"{key} of an island")
        for site in _list(entry, "sites", label):
            _number(_dict(site, "a site").get("pc"), "pc of a site")
            if site.get("probe") == "value":
                registers = _list(_dict(site.get("value"), "a value"), "registers", "a value")
                if len(registers) not in (1, 2) or not all(isinstance(r, str) for r in registers):
                    raise _bad("a value has not one or two registers")
        for patch in _list(entry, "patches", label):
            _number(_dict(patch, "a patch").get("offset"), "offset of a patch")
        _packets(entry, label)
        _derived(entry, label)
        if entry.get("copy") is not None:
            for key in ("pc", "words"):
                _number(_dict(entry["copy"], f"copy of {label}").get(key), f"{key} of the copy")
        for key in ("registers", "instructions", "slot", "sample"):
            if entry.get(key) is not None:
                _dict(entry[key], f"{key} of {label}")
        if any(not isinstance(r, str) for r in _list(entry, "probe_registers", label)):
            raise _bad(f"probe_registers of {label} are not names")
        claims[name] = entry
    return claims
