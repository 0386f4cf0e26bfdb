"""Reads and checks a pipeline configuration: one readable line for every mistake a user can make in it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xtrace.cli._gate_input import read_budgets
from xtrace.config import bad_value, check_schema, load_yaml
from xtrace.errors import BadInput
from xtrace.sampling import probe_set, sampling

__all__ = ["SCHEMA", "check", "load_yaml", "probe_specs"]

SCHEMA = Path(__file__).parents[1] / "schemas" / "config.schema.yaml"
BUDGETS = "configs/budgets.yaml"


def check(config: Mapping[str, Any], file: str, command_line: Collection[str] = ()) -> None:
    """Check ``config`` against the schema and the files that it names.

    Keys in ``command_line`` were given there (``--config``) and not in ``file``.

    Raises
    ------
    BadInput
        XT7402 with the file, the key path, the value found and the values allowed.
    """
    try:
        _check(config, file)
    except BadInput as error:
        place = error.where.removeprefix(f"{file}: ")
        if place == error.where or re.split(r"[.\[]", place)[0] not in command_line:
            raise
        raise BadInput(error.code, error.what, where=f"--config: {place}", hint=error.hint) from error


def _check(config: Mapping[str, Any], file: str) -> None:
    check_schema(config, load_yaml(SCHEMA), file)
    groups = _names(load_yaml(config["matched_sites"]).get("groups"))
    workloads = _names(load_yaml(config["suite"]).get("workloads"))
    _known(config["workloads"], workloads, "workloads", file, f"in {config['suite']}")
    _known(config["timelines"], config["workloads"], "timelines", file, "among workloads")
    _known([probe_set(p) for p in config["probes"]], groups, "probes", file, f"in {config['matched_sites']}")
    for index, name in enumerate(config["probes"]):
        try:
            sampling(name)
        except BadInput as error:
            raise bad_value(file, f"probes[{index}]", f"{name!r}: {error.what}", name, []) from error
    _known(config["baselines"]["groups"], groups, "baselines.groups", file, f"in {config['matched_sites']}")
    matched = config["measurement"].get("matched", [])
    _known(matched, groups, "measurement.matched", file, f"in {config['matched_sites']}")
    _check_devices(config.get("devices", ()), str(config["arch"]), file)
    if Path(budgets := str(config.get("budgets", BUDGETS))).is_file() or "budgets" in config:
        read_budgets(Path(budgets), [])  # a measurement whose budgets turn out to be wrong would be lost


def _check_devices(devices: Sequence[Mapping[str, Any]], arch: str, file: str) -> None:
    """Names are distinct, and an architecture is one that the vendor makes."""
    for index, device in enumerate(devices):
        place = f"devices[{index}]"
        name, vendor, own = (str(device[key]) for key in ("name", "vendor", "arch"))
        if name in [str(d["name"]) for d in devices[:index]]:
            raise bad_value(file, f"{place}.name", f"{name!r} is there twice", None, [])
        if vendor == "simulated" and own != arch:
            raise bad_value(file, f"{place}.arch", f"a simulated device runs this run's images, not {own}", own, [arch])
        if vendor != "simulated" and (vendor == "amd") != own.startswith("gfx"):
            fitting = [a for a in _architectures() if (vendor == "amd") == a.startswith("gfx")]
            raise bad_value(file, f"{place}.arch", f"{vendor} makes no {own}", own, fitting)


def _architectures() -> list[str]:
    return [str(a) for a in load_yaml(SCHEMA)["$defs"]["device"]["properties"]["arch"]["enum"]]


def probe_specs(matched_sites: str | Path) -> dict[str, str]:
    """Probe specification (``xtrace splice --probes``) of every group of matched sites."""
    groups = load_yaml(matched_sites).get("groups")
    try:
        return {str(name): str(group["xtrace"]) for name, group in groups.items()}  # type: ignore[union-attr]
    except (AttributeError, KeyError, TypeError) as error:
        raise BadInput(
            "XT7401", "groups must map names to mappings with a key xtrace", where=str(matched_sites)
        ) from error


def _names(section: object) -> list[str]:
    """Names of a section that is a mapping by name or a list of mappings with a name."""
    if isinstance(section, Mapping):
        return [str(name) for name in section]
    if isinstance(section, list):
        return [str(item.get("name")) if isinstance(item, Mapping) else str(item) for item in section]
    return []


def _known(values: Iterable[str], allowed: list[str], key: str, file: str, place: str) -> None:
    for index, value in enumerate(values):
        if value not in allowed:
            raise bad_value(file, f"{key}[{index}]", f"{value!r} is not defined {place}", value, allowed)
