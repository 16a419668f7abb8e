"""The clock, passed in wherever time matters."""

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Returns Unix time in seconds."""

system_clock: Clock = time.time
