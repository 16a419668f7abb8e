"""Seeded noise under ``tacit.local``, for tests of what is made of a result rather than of its noise."""

import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

import numpy as np
import pytest

from tacit import local
from tacit.in_process import runner
from tacit.planning.simulation import SimulatedNoise


@contextmanager
def seeded_noise(seed: int) -> Iterator[None]:
    """Have studies in this process draw noise of OpenDP's laws from a seed: every run of them is the same.

    Their public choices need ``seed`` in the call; a curator's permutations and pairs stay secret.
    """
    rng = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        names = [f"{local.__name__}.{module.name}" for module in pkgutil.iter_modules(local.__path__)]
        for found in (runner, *map(import_module, names)):
            if hasattr(found, "OpenDPNoise"):
                patch.setattr(found, "OpenDPNoise", lambda: SimulatedNoise(rng))
        yield
