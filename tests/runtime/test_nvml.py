"""Machine facts: read through a stand-in for the driver's library, and what they become in a document."""

import shutil
import subprocess
from pathlib import Path

import pytest

from xtrace.runtime.device import MachineState
from xtrace.runtime.nvml import Nvml, others
from xtrace.runtime.replicate import machine_facts

LIBRARY = r"""
#include <stdlib.h>
#include <unistd.h>
typedef struct { unsigned pid; unsigned long long bytes; unsigned gi, ci; } P;
typedef struct { void *d; unsigned long long kind, data; unsigned gi, ci; } E;
static int events = 2;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *u, void **h) { *h = (void *)7; return 0; }
int nvmlDeviceGetPersistenceMode(void *h, unsigned *v) { *v = 1; return 0; }
int nvmlDeviceGetAPIRestriction(void *h, unsigned what, unsigned *v) { *v = what == 0; return 0; }
int nvmlDeviceGetTotalEccErrors(void *h, unsigned e, unsigned c, unsigned long long *v) { *v = 10 * e + c; return 0; }
int nvmlDeviceGetApplicationsClock(void *h, unsigned c, unsigned *v) { *v = 1700 + c; return 0; }
int nvmlDeviceGetMaxClockInfo(void *h, unsigned c, unsigned *v) { *v = 1979 + c; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *n, P *p) {
  if (*n < 2) return 7;
  p[0].pid = getpid(); p[1].pid = 1; *n = 2;
  return 0;
}
int nvmlEventSetCreate(void **s) { *s = (void *)9; return 0; }
int nvmlDeviceRegisterEvents(void *h, unsigned long long k, void *s) { return k == 8 && s == (void *)9 ? 0 : 2; }
int nvmlEventSetWait_v2(void *s, E *e, unsigned ms) {
  if (!events) return 10;
  e->data = 76 + events--;
  return 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("nvml")
    source = folder / "nvml.c"
    source.write_text(LIBRARY)
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", folder / "nvml.so", source], check=True)
    return folder / "nvml.so"


def test_the_state_of_the_machine_is_read(library: Path) -> None:
    nvml = Nvml("GPU-0", str(library))
    assert nvml.machine() == MachineState(
        other_processes=1,
        ecc_errors=10,  # uncorrected (1), volatile (0)
        xids=(78, 77),
        persistence=True,
        application_mhz=1701,
        default_application_mhz=None,  # this library has no such query
        max_mhz=1980,
        clocks_restricted=True,
    )
    assert nvml.machine().xids == ()  # told once


def test_without_a_library_nothing_is_claimed() -> None:
    assert Nvml("GPU-0", "no-such-library.so").machine() == MachineState()


@pytest.mark.parametrize(
    ("pids", "expected"),
    [([5], 0), ([5, 6, 7], 2), ([], None), ([80], 0), ([80, 81], 1)],
)
def test_other_processes(pids: list[int], expected: int | None) -> None:
    """Pids of another namespace: one of them is ours. No pids at all: the list is hidden."""
    assert others(pids, 5) == expected


def test_facts_of_a_document() -> None:
    before, after = (
        MachineState(other_processes=0, ecc_errors=3),
        MachineState(other_processes=2, ecc_errors=4, xids=()),
    )
    facts = machine_facts(before, after, "locked to 1500 MHz by the operator")
    assert facts["other_processes"] == 2
    assert (facts["other_processes_before"], facts["other_processes_after"]) == (0, 2)
    assert facts["ecc_errors"] == 1
    assert facts["xid"] == []
    assert facts["clocks"]["policy"] == "locked to 1500 MHz by the operator"
    unknown = machine_facts(MachineState(), MachineState(), "unlocked")
    assert (unknown["other_processes"], unknown["ecc_errors"], unknown["xid"]) == (None, None, None)
