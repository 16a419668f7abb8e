"""An estimate that a released database gives: a number, and how far it may be off."""

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Estimate(float):
    """A number with its standard errors; it is a float, and cannot be changed.

    Attributes:
        noise: standard error from the privacy noise. Exact for raw weights on public points, which are linear
            in the release (``exact``); for the others the root mean square of what fresh noise of the same
            law does to weights that are fitted again, smoothing included. Points that were drawn from noisy
            histograms moved with the same noise, which no weights undo: never exact.
        projection: how far the public points themselves may lead astray, estimated: how wrong two thirds of
            them are about the population on the others, on (root mean square) average; and, where they are
            farther from the release than noise explains, what noise of that size would do.
            Of a database that was drawn half the function's range: nothing released says how near it is.
            None where there are too few points to tell.
        resolution: what the records' places within their points' cells leave open. Of a probability, the
            most that may be on the other side of the event than the points that stand for them: all of it
            where values gather at whole numbers. Of an expectation, the root mean square over places that are
            even in each cell, and of a function of several columns what mass the noise may hide, times the
            function's range. Of a correlation, what all places of a column together may do unseen; 1.96
            errors then cover .70 at least, where columns are skewed and units few. Known of what is given as
            a function; None otherwise, and for expectations of one column of fitted points.
        sampling: standard error of the records as a sample of a larger population; of no concern where the
            question is about these records.
        clamped: whether the number was moved into [0, 1], as a probability of weights below 0 may have to be.
    """

    __slots__ = ("_clamped", "_exact", "_noise", "_projection", "_resolution", "_sampling")

    _noise: float
    _projection: float | None
    _resolution: float | None
    _sampling: float
    _exact: bool
    _clamped: bool

    def __new__(
        cls,
        value: float,
        *,
        noise: float,
        projection: float | None,
        sampling: float,
        exact: bool = False,
        clamped: bool = False,
        resolution: float | None = None,
    ) -> "Estimate":
        """Make an estimate; see the class."""
        made = super().__new__(cls, value)
        fields = {"noise": noise, "projection": projection, "sampling": sampling, "exact": exact}
        for name, field in (fields | {"clamped": clamped, "resolution": resolution}).items():
            object.__setattr__(made, f"_{name}", field)
        return made

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("an estimate cannot be changed")

    def __getnewargs_ex__(self) -> tuple[tuple[float], dict[str, Any]]:
        return (float(self),), {
            "noise": self.noise,
            "projection": self.projection,
            "sampling": self.sampling,
            "exact": self.exact,
            "clamped": self.clamped,
            "resolution": self.resolution,
        }

    def __reduce_ex__(self, protocol: Any) -> Any:
        arguments, named = self.__getnewargs_ex__()
        return _restored, (*arguments, named)

    @property
    def noise(self) -> float:
        """Standard error from the privacy noise."""
        return self._noise

    @property
    def projection(self) -> float | None:
        """Estimated error from the public points, or None."""
        return self._projection

    @property
    def resolution(self) -> float | None:
        """Most mass that may lie on the other side of the event than its points, or None."""
        return self._resolution

    @property
    def sampling(self) -> float:
        """Standard error of the records as a sample."""
        return self._sampling

    @property
    def exact(self) -> bool:
        """Whether ``noise`` is exact."""
        return self._exact

    @property
    def clamped(self) -> bool:
        """Whether the number was moved into [0, 1]."""
        return self._clamped

    @property
    def error(self) -> float:
        """Noise, projection and resolution together, root of the sum of squares: about these records."""
        return float(np.hypot(np.hypot(self._noise, self._projection or 0.0), self._resolution or 0.0))

    def __repr__(self) -> str:
        return f"{float(self):.6g} ± {self.error:.2g}"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return float.__format__(self, spec) if spec else repr(self)


def _restored(value: float, named: dict[str, Any]) -> Estimate:
    return Estimate(value, **named)


MISFIT_FACTOR, MISFIT_MAX = 3.0, 0.5
"""By how much a misfit of 1 is taken to lead a probability astray, and the most.

Chosen so that stated errors cover on four data sets (docs/benchmarks/database-errors.md): no bound exists.
"""


@dataclass(frozen=True)
class Uncertainty:
    """What a database knows of its weights' errors, as linear maps of a function's values f at the points.

    ``noise`` is (J, parts): the standard error of u'f is |noise' f|; ``exact`` where that is no estimate.
    ``projection`` (J, splits) does the same for the points' own part, or is None. ``units`` counts the
    records. ``misfit`` is how much farther the points are from the release than noise explains: records that
    they cannot follow may lie anywhere, so that every probability is in doubt by it. Infinite where nothing
    is known of it: every mean is then in doubt by half its function's range.
    """

    noise: Floats
    exact: bool
    projection: Floats | None
    units: float
    misfit: float = 0.0

    def noise_of(self, values: Floats) -> float:
        """Return the standard error from noise of the expectation of ``values``, (J,)."""
        return float(np.linalg.norm(values @ self.noise))

    def projection_of(self, values: Floats) -> float | None:
        """Return the error from the points of the expectation of ``values``, (J,)."""
        if self.projection is None:
            return None
        found = float(np.linalg.norm(values @ self.projection))
        if len(np.unique(values)) > 2 and np.isfinite(self.misfit):
            return found
        # Two values are those of an event.
        astray = min(MISFIT_MAX, MISFIT_FACTOR * self.misfit) * float(values.max() - values.min())
        return float(np.hypot(found, astray))

    def sampling_of(self, values: Floats, weights: Floats) -> float:
        """Return the standard error of sampling, from the weights' own variance of ``values``."""
        mean = float(weights @ values)
        return float(np.sqrt(max(0.0, float(weights @ (values - mean) ** 2)) / self.units))
