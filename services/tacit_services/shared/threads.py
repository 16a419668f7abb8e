"""How a service's process computes: the threads of its matrix products, and the memory it keeps."""

import numpy as np
from threadpoolctl import threadpool_limits

BLAS_THREADS = 1
"""The products here are many and small: handing each to several threads costs more than it saves, most of all
on a machine that does something else too. An agent reads in one thread while it computes in another."""

KEPT_BYTES = 2**25 - 2**16
"""Arrays up to here come from memory that the process keeps: as far as glibc's own rule goes, 32 MiB."""


def prepare_to_compute() -> None:
    """Make a process fit for sums over slices of rows, for its life."""
    limit_blas_threads()
    keep_freed_memory()


def limit_blas_threads() -> None:
    """Keep BLAS to BLAS_THREADS threads."""
    threadpool_limits(limits=BLAS_THREADS, user_api="blas")


def keep_freed_memory() -> None:
    """Let arrays of a slice be made again and again without asking the system for memory each time.

    glibc hands larger blocks back when they are freed, and the kernel clears their pages anew, which took up
    to two thirds of the time of features. A block that is freed raises the size from which it does so.
    """
    np.empty(KEPT_BYTES, dtype=np.uint8)
