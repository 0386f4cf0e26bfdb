"""One timed job per GPU, whoever runs it: an exclusive claim on the GPU's UUID, held for a whole process replicate.

A GPU belongs to one machine, so the claim has to hold on this machine only, and a lock file on a shared file system
would be the wrong place: whether its locks reach other machines, or work at all, depends on how it is mounted. Jobs of
one machine need not see the same files either: a scheduler may give each its own ``/tmp`` and ``TMPDIR``, a container
its own root. Therefore two claims are made, and any one of them is enough to keep a second job away:

* a Unix socket in the abstract name space: no file, no permissions; common to all users, jobs and containers that share
  the machine's network name space (Slurm and Apptainer do);
* a locked file in a directory that is common to all users (``/run/lock``, else ``/dev/shm``, else ``/tmp``).

Both end with the process, however it ends. ``XTRACE_LOCK_DIR`` names another directory, e.g. one that is mounted into
containers of their own network; it may lie on any file system with ``flock``. Jobs that share neither are not kept
apart; the measurement's record of other processes on the device shows them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from xtrace.errors import BadInput, XtraceError

__all__ = ["default_lock_dir", "gpu_lock"]

COMMON_DIRS = (Path("/run/lock"), Path("/dev/shm"), Path("/tmp"))
_PEER = struct.Struct("3i")  # pid, uid, gid


def default_lock_dir() -> Path:
    """``$XTRACE_LOCK_DIR``, else a directory of all users of this machine. Not ``TMPDIR``: that is one job's."""
    if given := os.environ.get("XTRACE_LOCK_DIR"):
        return Path(given)
    base = next((d for d in COMMON_DIRS if d.is_dir() and os.access(d, os.W_OK | os.X_OK)), COMMON_DIRS[-1])
    return base / "xtrace-gpu-locks"


@contextlib.contextmanager
def gpu_lock(
    uuid: str, *, directory: Path | None = None, timeout_s: float = 600.0, poll_s: float = 0.2
) -> Iterator[Path]:
    """Hold the GPU with this UUID; the kernel releases it when the process ends, however it ends.

    ``directory`` (or ``XTRACE_LOCK_DIR``) replaces both claims by a locked file in that directory.

    Raises
    ------
    XtraceError
        XT5020 naming the holder when the GPU is not free within ``timeout_s`` seconds; XT5021 when the directory of the
        lock files cannot be used.
    """
    if not re.fullmatch(r"[A-Za-z0-9-]{1,80}", uuid):
        raise BadInput("XT5020", f"not a GPU UUID: {uuid[:80]!r}")
    folder = directory or default_lock_dir()
    path = folder / f"{uuid}.lock"
    deadline = time.monotonic() + timeout_s
    with contextlib.ExitStack() as held:
        if directory is None and "XTRACE_LOCK_DIR" not in os.environ:
            name = f"\0xtrace-gpu-{uuid}"
            _wait(lambda: _claim_socket(name, held), lambda: _listener(name), uuid, deadline, timeout_s, poll_s)
        descriptor = _open(folder, path)
        held.callback(os.close, descriptor)  # releases the lock; the file stays, removing it would race with a waiter
        _wait(lambda: _claim_file(descriptor, path), lambda: _holder(path), uuid, deadline, timeout_s, poll_s)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"pid {os.getpid()} since {time.strftime('%Y-%m-%dT%H:%M:%S')}".encode(), 0)
        yield path


def _wait(
    claim: Callable[[], bool], holder: Callable[[], str], uuid: str, deadline: float, timeout_s: float, poll_s: float
) -> None:
    while not claim():
        if time.monotonic() >= deadline:
            raise XtraceError(
                "XT5020",
                f"GPU {uuid} is being timed by {holder()}; waited {timeout_s:.0f} s",
                hint="wait for that job, or end it; two timed jobs on one GPU disturb each other",
            )
        time.sleep(poll_s)


def _claim_socket(name: str, held: contextlib.ExitStack) -> bool:
    """Whether the name is ours now. Where there are no abstract sockets the file has to do."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        claim.bind(name)
        claim.listen(8)  # so that a waiting job can ask who we are
    except OSError as error:
        claim.close()
        return error.errno != errno.EADDRINUSE  # in use: somebody else has it
    held.callback(claim.close)
    return True


def _listener(name: str) -> str:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(1.0)
        asking.connect(name)
        pid, uid, _ = _PEER.unpack(asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        return f"pid {pid} of user {uid}"
    return "an unknown process"


def _open(folder: Path, path: Path) -> int:
    """The lock file, made if need be.

    One that exists is not opened for creation: Linux refuses that for files of others (``fs.protected_regular``).
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # not ours: its maker did it
            folder.chmod(0o1777)
        for _ in range(2):
            with contextlib.suppress(FileNotFoundError):
                return os.open(path, flags)
            with contextlib.suppress(FileExistsError):  # another job was faster
                descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
                os.fchmod(descriptor, 0o666)  # whatever the umask
                return descriptor
        return os.open(path, flags)
    except OSError as error:
        raise _unusable(path, error) from error


def _claim_file(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # e.g. a network file system without a lock service
        raise _unusable(path, error) from error
    return True


def _unusable(path: Path, error: OSError) -> XtraceError:
    hint = "set XTRACE_LOCK_DIR to a directory of this machine that all its users may write to"
    return XtraceError("XT5021", f"no lock possible: {error.strerror or error}", where=str(path), hint=hint)


def _holder(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_bytes()[:200].decode(errors="replace") or "an unknown process"
    return "an unknown process"
