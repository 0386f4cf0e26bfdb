"""Reads and checks a pipeline configuration: one readable line for every mistake a user can make in it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from xtrace.errors import BadInput

__all__ = ["SCHEMA", "check", "load_yaml", "probe_specs"]

SCHEMA = Path(__file__).parents[1] / "schemas" / "config.schema.yaml"
MAX_BYTES = 1 << 20


def load_yaml(path: str | Path) -> dict[str, Any]:
    """A YAML mapping. XT7401: not readable, too large, not YAML, or not a mapping at the top."""
    file = Path(path)
    try:
        if file.stat().st_size > MAX_BYTES:
            raise BadInput("XT7401", f"larger than {MAX_BYTES} bytes", where=str(path))
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput("XT7401", f"cannot be read: {error.strerror}", where=str(path)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput("XT7401", f"is not YAML: {error}", where=str(path)) from error
    if not isinstance(document, dict):
        raise BadInput("XT7401", "must be a mapping of keys to values", where=str(path))
    return document


def check(config: Mapping[str, Any], file: str) -> None:
    """Check ``config`` against the schema and the files that it names.

    Raises
    ------
    BadInput
        XT7402 with the file, the key path, the value found and the values allowed.
    """
    schema = load_yaml(SCHEMA)
    validator = jsonschema.Draft202012Validator(schema)
    errors = sorted(validator.iter_errors(dict(config)), key=lambda e: (len(e.absolute_path), str(e.absolute_path)))
    if errors:
        raise _explain(errors[0], file)
    groups = _names(load_yaml(config["matched_sites"]).get("groups"))
    workloads = _names(load_yaml(config["suite"]).get("workloads"))
    _known(config["workloads"], workloads, "workloads", file, f"in {config['suite']}")
    _known(config["timelines"], config["workloads"], "timelines", file, "among workloads")
    _known(config["probes"], groups, "probes", file, f"in {config['matched_sites']}")
    _known(config["baselines"]["groups"], groups, "baselines.groups", file, f"in {config['matched_sites']}")


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
            raise _bad(file, f"{key}[{index}]", f"{value!r} is not defined {place}", value, allowed)


def _explain(error: jsonschema.ValidationError, file: str) -> BadInput:
    key = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.absolute_path).lstrip(".")
    if error.validator == "additionalProperties":
        known = list(error.schema.get("properties", {}))
        unknown = next(k for k in error.instance if k not in known)
        return _bad(file, f"{key}.{unknown}".lstrip("."), "unknown key", unknown, known)
    if error.validator == "required":
        missing = next(k for k in error.validator_value if k not in error.instance)
        return _bad(file, f"{key}.{missing}".lstrip("."), "missing", None, [])
    if error.validator == "enum":
        return _bad(file, key, f"{error.instance!r} is not allowed", error.instance, error.validator_value)
    if error.validator == "type":
        return _bad(file, key, f"{error.instance!r} is not of type {error.validator_value}", None, [])
    rule = {"minimum": "at least", "maximum": "at most", "minItems": "at least this many entries:"}.get(
        str(error.validator)
    )
    if rule:
        return _bad(file, key, f"{error.instance!r} is not allowed, must be {rule} {error.validator_value}", None, [])
    return _bad(file, key, error.message, None, [])


def _bad(file: str, key: str, what: str, value: object, allowed: Iterable[object]) -> BadInput:
    names = [str(a) for a in allowed]
    close = difflib.get_close_matches(str(value), names, 1) if value is not None else []
    hint = f"did you mean {close[0]!r}? " if close else ""
    hint += f"allowed: {', '.join(names)}" if names else ""
    return BadInput("XT7402", what, where=f"{file}: {key or '(top)'}", hint=hint.strip())
