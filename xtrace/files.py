"""Writing results: whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from xtrace.errors import BadInput

__all__ = ["write_atomic"]


def write_atomic(path: str | Path, data: bytes | str) -> Path:
    """Write ``data`` to ``path`` so that no reader ever sees half of it.

    The bytes go to a temporary file in the same folder, which then replaces ``path`` in one step. On any failure the
    temporary file is removed and an existing file at ``path`` is untouched. Text is written as UTF-8.

    Raises
    ------
    BadInput
        XT7001 when ``path`` is a symbolic link (it could point out of the folder the user meant) or not a plain file,
        XT7002 when the system does not let us write there.
    """
    target = Path(path)
    if target.is_symlink():
        raise BadInput(
            "XT7001", "output is a symbolic link", where=str(target), hint="name a plain file or remove the link"
        )
    if target.exists() and not target.is_file():
        raise BadInput("XT7001", "output is not a plain file", where=str(target), hint="name a file to write to")
    raw = data.encode("utf-8") if isinstance(data, str) else data
    temporary = target.with_name(f".{target.name[:64]}.{secrets.token_hex(6)}.tmp")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with os.fdopen(handle, "wb") as stream:
            stream.write(raw)
        os.replace(temporary, target)
    except OSError as error:
        raise _not_written(target, error) from error
    finally:
        with contextlib.suppress(OSError):  # gone when it replaced the target
            temporary.unlink()
    return target


def _not_written(target: Path, error: OSError) -> BadInput:
    return BadInput(
        "XT7002",
        f"cannot write the output: {error.strerror or error}",
        where=str(target),
        hint="check that the folder exists, is writable and has room",
    )
