"""What a service's process is set to before it computes."""

import os
import platform
import subprocess
import sys

import pytest
from threadpoolctl import threadpool_info

CHILD = """
import ctypes, resource, sys
import numpy as np
from tacit_services.shared.compute import prepare_to_compute
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # no huge pages, each of which is one fault
if sys.argv[1] == "prepared":
    prepare_to_compute()
def slices():
    for _ in range(50):
        np.ones(2**18)  # 2 MiB, as a slice of features
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    slices()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
slices()
print(min(faults() for _ in range(5)))  # the kernel may have faults of its own now and then
"""


def faults(state: str, **environment: str) -> int:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", CHILD, state]
    run = subprocess.run(command, env=kept | environment, check=True, capture_output=True, text=True)
    return int(run.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the rule is glibc's")
def test_slices_are_made_again_from_memory_that_the_process_has() -> None:
    assert faults("prepared") < 100
    # What it would be where every slice's 512 pages came from the kernel: the same child, with that set.
    assert faults("not", MALLOC_MMAP_THRESHOLD_="131072") > 50 * 500


def test_linear_algebra_has_one_thread() -> None:
    code = "from tacit_services.shared.compute import prepare_to_compute; prepare_to_compute();"
    code += "from threadpoolctl import threadpool_info;"
    code += "print({i['num_threads'] for i in threadpool_info() if i['user_api'] == 'blas'})"
    assert any(pool["user_api"] == "blas" for pool in threadpool_info()), "there is something to limit"
    environment = {name: value for name, value in os.environ.items() if not name.endswith("NUM_THREADS")}
    run = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)
    assert run.stdout.decode().strip() == "{1}"
