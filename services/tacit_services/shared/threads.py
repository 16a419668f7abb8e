"""How many threads matrix products use in a service."""

from threadpoolctl import threadpool_limits

BLAS_THREADS = 1
"""The products here are many and small: handing each to several threads costs more than it saves, most of all
on a machine that does something else too. An agent reads in one thread while it computes in another."""


def limit_blas_threads() -> None:
    """Keep BLAS to BLAS_THREADS threads, for the life of the process."""
    threadpool_limits(limits=BLAS_THREADS, user_api="blas")
