"""Files that people write: read safely, checked against a schema, one readable line for every mistake."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from xtrace.errors import BadInput

if TYPE_CHECKING:
    import jsonschema

__all__ = ["bad_value", "check_schema", "load_yaml"]

MAX_BYTES = 1 << 20
_LONGEST = 300  # characters of a value or name in a message


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


def check_schema(document: Mapping[str, Any], schema: Mapping[str, Any], file: str) -> None:
    """Raises ``BadInput`` XT7402 for the first violation, naming file, key, value found and values allowed."""
    import jsonschema  # here: measuring jobs read YAML and need no schema

    validator = jsonschema.Draft202012Validator(schema)
    # A misspelt key before the missing one that it should have been.
    errors = sorted(
        validator.iter_errors(dict(document)),
        key=lambda e: (len(e.absolute_path), e.validator == "required", str(e.absolute_path)),
    )
    if errors:
        raise _explain(errors[0], file)


_LIMITS = {
    "minimum": "at least",
    "exclusiveMinimum": "greater than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
    "minItems": "at least this many entries:",
}


def _explain(error: jsonschema.ValidationError, file: str) -> BadInput:
    key = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.absolute_path).lstrip(".")
    schema: Any = error.schema
    value: Any = error.instance
    shown = reprlib.repr(value)
    rule: Any = error.validator_value
    if error.validator == "additionalProperties":
        known = list(schema.get("properties", {}))
        unknown = next(k for k in value if k not in known)
        return bad_value(file, f"{key}.{unknown}".lstrip("."), "unknown key", unknown, known)
    if error.validator == "required":
        missing = next(k for k in rule if k not in value)
        return bad_value(file, f"{key}.{missing}".lstrip("."), "missing", None, [])
    if error.validator == "enum":
        return bad_value(file, key, f"{shown} is not allowed", value, rule)
    if error.validator == "const":
        return bad_value(file, key, f"{shown} is not allowed", value, [rule])
    if error.validator == "type":
        return bad_value(file, key, f"{shown} is not of type {rule}", None, [])
    if limit := _LIMITS.get(str(error.validator)):
        return bad_value(file, key, f"{shown} is not allowed, must be {limit} {rule}", None, [])
    return bad_value(file, key, _clip(error.message), None, [])


def _clip(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def bad_value(file: str, key: str, what: str, value: object, allowed: Iterable[object]) -> BadInput:
    """The error for ``value`` under ``key`` of ``file``; ``value`` None: do not guess what was meant."""
    names = [str(a) for a in allowed]
    close = difflib.get_close_matches(_clip(str(value)), names, 1) if value is not None else []
    hint = f"did you mean {close[0]!r}? " if close else ""
    hint += f"allowed: {', '.join(names)}" if names else ""
    return BadInput("XT7402", what, where=f"{file}: {_clip(key) or '(top)'}", hint=hint.strip())
