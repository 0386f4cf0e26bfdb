"""Two processes never hold one GPU, whatever files they see; the next one is told who has it."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid as uuids
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from xtrace.errors import BadInput, XtraceError
from xtrace.runtime import lock
from xtrace.runtime.lock import default_lock_dir, gpu_lock

HOLDER = """
import pathlib, sys
from xtrace.runtime import lock
lock.COMMON_DIRS = (pathlib.Path(sys.argv[2]),)
with lock.gpu_lock(sys.argv[1], timeout_s=float(sys.argv[3])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A UUID of our own: the claim is for the whole machine."""
    monkeypatch.delenv("XTRACE_LOCK_DIR", raising=False)
    monkeypatch.setattr(lock, "COMMON_DIRS", (tmp_path,))
    return f"GPU-{uuids.uuid4()}"


@contextmanager
def holder(uuid: str, folder: Path, timeout_s: float = 5.0, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the GPU; ``folder`` is its directory for all users."""
    command = [sys.executable, "-c", HOLDER, uuid, str(folder), str(timeout_s)]
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), **os.environ, **environment}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n", child.communicate()[1]
        try:
            yield child
        finally:
            child.stdin.close()


def refused(uuid: str, directory: Path | None = None) -> str:
    with pytest.raises(XtraceError) as caught, gpu_lock(uuid, directory=directory, timeout_s=0.02, poll_s=0.01):
        pass
    assert caught.value.code == "XT5020"
    return str(caught.value)


def test_a_second_process_is_told_who_holds_the_gpu(gpu: str, tmp_path: Path) -> None:
    with holder(gpu, tmp_path) as child:
        assert f"pid {child.pid}" in refused(gpu)
    with gpu_lock(gpu, timeout_s=5) as path:
        assert f"pid {os.getpid()}" in path.read_text()


def test_jobs_that_see_different_directories_are_kept_apart(gpu: str, tmp_path: Path) -> None:
    other = tmp_path / "private"
    other.mkdir()
    with holder(gpu, other, TMPDIR=str(other)) as child:
        assert f"pid {child.pid} of user {os.getuid()}" in refused(gpu)


def test_jobs_that_share_only_the_directory_are_kept_apart(
    gpu: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers of their own network do not see each other's sockets."""
    with holder(gpu, tmp_path) as child:
        monkeypatch.setattr(lock, "_claim_socket", lambda name, held: True)
        assert f"pid {child.pid} since" in refused(gpu)


def test_the_death_of_the_holder_frees_the_gpu(gpu: str, tmp_path: Path) -> None:
    with holder(gpu, tmp_path) as child:
        child.kill()
        child.wait(5)
        with gpu_lock(gpu, timeout_s=5):
            pass


def test_a_given_directory_is_the_only_place(gpu: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XTRACE_LOCK_DIR", str(tmp_path / "mounted"))
    with holder(gpu, tmp_path, XTRACE_LOCK_DIR=str(tmp_path / "mounted")) as child:
        assert f"pid {child.pid}" in refused(gpu)
        with gpu_lock(gpu, directory=tmp_path / "elsewhere", timeout_s=0):
            pass


def test_another_gpu_is_free(gpu: str) -> None:
    with gpu_lock(gpu, timeout_s=0), gpu_lock(f"GPU-{uuids.uuid4()}", timeout_s=0):
        pass


def test_the_directory_does_not_depend_on_the_jobs_own(
    gpu: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", "/nowhere")
    assert default_lock_dir() == tmp_path / "xtrace-gpu-locks"


def test_other_users_may_use_the_files_that_the_first_one_makes(gpu: str) -> None:
    old = os.umask(0o077)
    try:
        with gpu_lock(gpu, timeout_s=0) as path:
            assert path.stat().st_mode & 0o777 == 0o666
            assert path.parent.stat().st_mode & 0o7777 == 0o1777
    finally:
        os.umask(old)


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path, gpu: str) -> None:
    target = tmp_path / "precious"
    target.write_text("data")
    folder = tmp_path / "locks"
    folder.mkdir()
    (folder / f"{gpu}.lock").symlink_to(target)
    with pytest.raises(XtraceError) as caught, gpu_lock(gpu, directory=folder, timeout_s=0):
        pass
    assert caught.value.code == "XT5021"
    assert "XTRACE_LOCK_DIR" in str(caught.value)
    assert target.read_text() == "data"


def test_a_file_system_without_locks_is_an_error(gpu: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", no_locks)
    with pytest.raises(XtraceError, match="no lock possible: No locks available"), gpu_lock(gpu, directory=tmp_path):
        pass


def test_a_uuid_cannot_name_a_path(tmp_path: Path) -> None:
    with pytest.raises(BadInput), gpu_lock("../../x", directory=tmp_path):
        pass
