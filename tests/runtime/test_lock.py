import multiprocessing
import os

import pytest

from xtrace.errors import BadInput, XtraceError
from xtrace.runtime.lock import gpu_lock

UUID = "GPU-00000000-0000-0000-0000-000000000001"


def _hold(directory, ready, release) -> None:
    with gpu_lock(UUID, directory=directory):
        ready.set()
        release.wait(10)


def test_a_second_process_is_told_who_holds_the_gpu(tmp_path) -> None:
    context = multiprocessing.get_context("fork")
    ready, release = context.Event(), context.Event()
    child = context.Process(target=_hold, args=(tmp_path, ready, release))
    child.start()
    assert ready.wait(10)
    with pytest.raises(XtraceError) as info, gpu_lock(UUID, directory=tmp_path, timeout_s=0.05, poll_s=0.01):
        pass
    assert info.value.code == "XT5020"
    assert f"pid {child.pid}" in str(info.value)
    release.set()
    child.join(10)
    with gpu_lock(UUID, directory=tmp_path, timeout_s=1) as path:
        assert f"pid {os.getpid()}" in path.read_text()


def test_another_gpu_is_free(tmp_path) -> None:
    with gpu_lock(UUID, directory=tmp_path), gpu_lock(UUID[:-1] + "2", directory=tmp_path, timeout_s=0):
        pass


def test_a_uuid_cannot_name_a_path(tmp_path) -> None:
    with pytest.raises(BadInput), gpu_lock("../../x", directory=tmp_path):
        pass
