"""Arithmetic that must be alike wherever features are computed: the machine's instructions and libraries.

The sensitivity of a sum assumes that replacing one unit leaves every other unit's contribution as it is, to
the bit (docs/mathematics/features.md, Other units' contributions). One process computes a row's features
alike wherever the row stands. Two machines may not: NumPy and linear algebra libraries choose their code by
the processor. Which worker gets a row depends on who is idle, so that all of them must compute alike.
"""

import hashlib
import platform
from functools import cache
from importlib import import_module

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

PROBED = 4096
"""Numbers that each function is applied to; products are of blocks of 512 rows, as those of features are."""


@cache
def arithmetic() -> dict[str, str]:
    """Return what must be the same wherever contributions are computed, by name."""
    return {
        "processor": platform.machine(),
        "C library": " ".join(platform.libc_ver()),
        "instructions of NumPy": _instructions(),
        "linear algebra": _linear_algebra(),
        "rounding probe": probe(),
    }


def _instructions() -> str:
    # NumPy has no public name for what it chose by.
    features: dict[str, bool] = import_module("numpy._core._multiarray_umath").__cpu_features__
    return " ".join(sorted(name for name, present in features.items() if present))


def _linear_algebra() -> str:
    import_module("scipy.linalg")  # which may bring a library of its own, loaded at its first use
    found = {
        f"{library['internal_api']} {library['version']} {library.get('architecture', '')}".strip()
        for library in threadpool_info()
        if library["user_api"] == "blas"
    }
    return ", ".join(sorted(found))


def probe() -> str:
    """Return a digest of the bits of what features are made of, at fixed numbers."""
    rng = np.random.default_rng(0)
    angles, places = rng.uniform(-40, 40, PROBED), rng.random(PROBED)
    rows, columns = rng.standard_normal((512, 23)), rng.standard_normal((23, 41))
    found = (
        np.cos(angles),
        np.sin(angles),
        np.exp(-places * 30),
        np.log1p(places),
        np.sqrt(places),
        (places - 0.25) / 0.7,
        rows @ columns,
    )
    digest = hashlib.sha256()
    for values in found:
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()[:16]


BLAS_THREADS = 1
"""The products here are many and small: handing each to several threads costs more than it saves, most of all
on a machine that does something else too. An agent reads in one thread while it computes in another."""

KEPT_BYTES = 2**25 - 2**16
"""Arrays up to here come from memory that the process keeps: as far as glibc's own rule goes, 32 MiB."""


def prepare_to_compute() -> None:
    """Make a process fit for sums over slices of rows, for its life."""
    limit_blas_threads()
    # glibc hands larger blocks back when they are freed, and the kernel clears their pages anew, which took
    # up to two thirds of the time of features. A block that is freed raises the size from which it does so.
    np.empty(KEPT_BYTES, dtype=np.uint8)


def limit_blas_threads() -> None:
    """Keep BLAS to BLAS_THREADS threads."""
    threadpool_limits(limits=BLAS_THREADS, user_api="blas")
