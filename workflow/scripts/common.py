"""What the pipeline's scripts share: one error boundary, JSON and CSV in and out."""

from __future__ import annotations

import json
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from xtrace.errors import BadInput, XtraceError
from xtrace.files import write_atomic

__all__ = ["read_json", "read_table", "run", "write_json", "write_table", "xtrace"]

MAX_JSON = 256 << 20


def run(main: Callable[[Sequence[str]], int | None]) -> None:
    """Call ``main(arguments)`` and exit: user errors as one line and code 2, bugs with their traceback and code 2."""
    try:
        sys.exit(main(sys.argv[1:]) or 0)
    except XtraceError as error:
        print(error, file=sys.stderr)
    except OSError as error:
        print(XtraceError("XT6001", error.strerror or str(error), where=str(error.filename or "")), file=sys.stderr)
    except Exception as error:
        traceback.print_exc()
        print(XtraceError("XT0001", f"internal error: {type(error).__name__}: {error}"), file=sys.stderr)
    sys.exit(2)


def xtrace(*arguments: object, codes: Sequence[int] = (0,)) -> str:
    """Standard output of ``xtrace ARGUMENTS``. BadInput XT7407, with its message, for an exit code not in ``codes``."""
    command = [sys.executable, "-m", "xtrace", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        raise BadInput("XT7407", f"xtrace {arguments[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def read_json(path: str | Path) -> dict[str, Any]:
    """A JSON object. BadInput XT7403: missing, too large, not JSON, or not an object."""
    file = Path(path)
    try:
        if file.stat().st_size > MAX_JSON:
            raise BadInput("XT7403", f"larger than {MAX_JSON} bytes", where=str(path))
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput("XT7403", f"cannot be read: {error.strerror}", where=str(path)) from error
    except (ValueError, RecursionError) as error:
        raise BadInput("XT7403", f"is not JSON: {error}", where=str(path)) from error
    if not isinstance(document, dict):
        raise BadInput("XT7403", "must be a JSON object", where=str(path))
    return document


def write_json(path: str | Path, document: object) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def read_table(path: str | Path, columns: Sequence[str]) -> pd.DataFrame:
    """A CSV table that has at least ``columns``. BadInput XT7404 otherwise; text stays text, never a date or NaN."""
    try:
        table = pd.read_csv(path, keep_default_na=False, na_values={}, dtype=str)
    except OSError as error:
        raise BadInput("XT7404", f"cannot be read: {error.strerror}", where=str(path)) from error
    except (ValueError, UnicodeDecodeError) as error:
        raise BadInput("XT7404", f"is not a CSV table: {error}", where=str(path)) from error
    if missing := [c for c in columns if c not in table.columns]:
        raise BadInput("XT7404", f"lacks the columns {', '.join(missing)}", where=str(path))
    return table


def write_table(path: str | Path, rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> None:
    """Write rows as CSV with exactly ``columns``; a value that is None becomes an empty field, an int stays an int."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, pd.DataFrame(rows, columns=list(columns), dtype=object).to_csv(index=False, lineterminator="\n"))
