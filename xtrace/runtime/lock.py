"""One timed job per GPU: an exclusive file lock named after the GPU's UUID, held for a whole process replicate."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from xtrace.errors import BadInput, XtraceError

__all__ = ["default_lock_dir", "gpu_lock"]


def default_lock_dir() -> Path:
    """``$XTRACE_LOCK_DIR``, else a directory in the machine's temporary directory that all users share."""
    return Path(os.environ.get("XTRACE_LOCK_DIR") or Path(tempfile.gettempdir()) / "xtrace-gpu-locks")


@contextlib.contextmanager
def gpu_lock(
    uuid: str, *, directory: Path | None = None, timeout_s: float = 600.0, poll_s: float = 0.2
) -> Iterator[Path]:
    """Hold the GPU with this UUID; the kernel releases the lock when the process ends, however it ends.

    Raises ``XtraceError`` XT5020 naming the holder when the lock is not free within ``timeout_s`` seconds.
    """
    if not re.fullmatch(r"[A-Za-z0-9-]{1,80}", uuid):
        raise BadInput("XT5020", f"not a GPU UUID: {uuid[:80]!r}")
    folder = directory or default_lock_dir()
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):
        folder.chmod(0o1777)
    path = folder / f"{uuid}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, 0o666)
        _acquire(descriptor, path, uuid, timeout_s, poll_s)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"pid {os.getpid()} since {time.strftime('%Y-%m-%dT%H:%M:%S')}".encode(), 0)
        yield path
    finally:
        os.close(descriptor)  # releases the lock; the file stays, removing it would race with a waiter


def _acquire(descriptor: int, path: Path, uuid: str, timeout_s: float, poll_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                holder = os.pread(descriptor, 200, 0).decode(errors="replace") or "an unknown process"
                raise XtraceError(
                    "XT5020",
                    f"GPU {uuid} is being timed by {holder}; waited {timeout_s:.0f} s",
                    where=str(path),
                    hint="wait for that job, or end it; two timed jobs on one GPU disturb each other",
                ) from None
            time.sleep(poll_s)
