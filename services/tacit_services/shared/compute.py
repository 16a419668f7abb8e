"""Settings of what computes exact sums and permutation replicates, shared by agents and curators.

In the environment their names begin with ``TACIT_`` alone (``TACIT_WORKERS``); in a service's TOML file they
are the table ``[compute]``. docs/how-to/dask.md.
"""

import hashlib
import os
import platform
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from pydantic import Field, field_validator, model_validator
from pydantic_settings import SettingsConfigDict
from threadpoolctl import threadpool_info, threadpool_limits

from tacit_services.shared.settings import ServiceSettings

MEMORY_BYTES = 2**30
"""Most memory for what is held of one data set while it is read, unless told otherwise."""

MEMORY_BYTES_MIN = 2**26
"""Less than this does not hold one chunk of every worker."""

WORKERS_MAX = 1024
"""Most threads of the in-process pool."""

LOOPBACK = ("127.0.0.1", "[::1]", "localhost")

_SCHEDULER = re.compile(r"(?P<scheme>tls|tcp)://(?P<host>\[[0-9a-fA-F:]+\]|[\w.-]+):(?P<port>\d{1,5})")

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")


@cache
def cores() -> int:
    """Return how many processor cores this process may use: by affinity and, on Linux, its control group."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_cores(_CGROUPS, _OWN_CGROUP)
    return usable if quota is None else max(1, min(usable, int(quota)))


def cgroup_cores(root: Path, own: Path) -> float | None:
    """Return the smallest processor quota of this process's control groups (version 2), in cores, if any.

    Args:
        root: where the control groups are mounted.
        own: the file that tells which of them is this process's.
    """
    try:
        named = own.read_text("ascii")
    except (OSError, UnicodeDecodeError):
        return None
    line = next((line for line in named.splitlines() if line.startswith("0::/")), None)
    if line is None:
        return None
    group = root / line.removeprefix("0::/")
    quotas = [
        quota
        for folder in (group, *group.parents)
        if folder.is_relative_to(root) and (quota := _quota(folder / "cpu.max")) is not None
    ]
    return min(quotas, default=None)


def _quota(path: Path) -> float | None:
    try:
        allowed, period = path.read_text("ascii").split()
        return None if allowed == "max" else int(allowed) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


class ComputeSettings(ServiceSettings):
    """Threads of this process or a Dask cluster inside the institution, and the memory that reading takes."""

    model_config = SettingsConfigDict(env_prefix="TACIT_", env_ignore_empty=True)

    workers: Annotated[int, Field(ge=1, le=WORKERS_MAX)] = Field(default_factory=cores)
    """Threads that compute at once, where there is no Dask cluster."""
    memory_bytes: Annotated[int, Field(ge=MEMORY_BYTES_MIN)] = MEMORY_BYTES
    """Bound on what is held of one data set while it is read."""
    dask_scheduler: str | None = None
    """``tls://host:port`` of the scheduler; ``tcp://`` on this machine alone."""
    dask_ca_file: Path | None = None
    """The authority of the cluster's certificates, PEM: one of its own."""
    dask_certificate_file: Path | None = None
    """This service's certificate by that authority, PEM."""
    dask_key_file: Path | None = None
    """The certificate's private key, PEM."""

    @field_validator("dask_scheduler")
    @classmethod
    def _is_encrypted(cls, value: str | None) -> str | None:
        if value is None:
            return None
        found = _SCHEDULER.fullmatch(value)
        if found is None:
            raise ValueError("must be tls://host:port, the port mostly 8786")
        if found["scheme"] == "tcp" and found["host"] not in LOOPBACK:
            raise ValueError(
                "tcp:// is for this machine alone, since rows go to the workers: start scheduler and workers "
                "with certificates and use tls:// (docs/how-to/dask.md)"
            )
        return value

    @model_validator(mode="after")
    def _tls_has_its_files(self) -> Self:
        needed = ("dask_ca_file", "dask_certificate_file", "dask_key_file")
        given = [name for name in needed if getattr(self, name) is not None]
        if str(self.dask_scheduler).startswith("tls://") and len(given) < len(needed):
            missing = ", ".join(name for name in needed if name not in given)
            raise ValueError(f"tls:// needs {missing} (docs/how-to/dask.md)")
        return self


PROBED = 4096
"""Numbers that each function is applied to; products are of blocks of 512 rows, as those of features are."""


@cache
def arithmetic() -> dict[str, str]:
    """Return what must be the same wherever contributions are computed, by name."""
    # NumPy has no public name for what it chose by.
    features: dict[str, bool] = import_module("numpy._core._multiarray_umath").__cpu_features__
    return {
        "processor": platform.machine(),
        "C library": " ".join(platform.libc_ver()),
        "instructions of NumPy": " ".join(sorted(name for name, present in features.items() if present)),
        "linear algebra": _linear_algebra(),
        "rounding probe": probe(),
    }


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
    threadpool_limits(limits=BLAS_THREADS, user_api="blas")
    # glibc hands larger blocks back when they are freed, and the kernel clears their pages anew, which took
    # up to two thirds of the time of features. A block that is freed raises the size from which it does so.
    np.empty(KEPT_BYTES, dtype=np.uint8)
