"""The two-sample tests that docs/benchmarks/curator.md compares, on encoded tables in memory."""

import functools
import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from benchmarks.data_sets import PROBLEMS
from benchmarks.two_sample import SimulatedNoise
from tacit.planning.locations import optimise_locations
from tacit_protocol.domain.columns import CategoricalColumn, Column, Domain, NumericColumn
from tacit_protocol.domain.table import EncodedChunk, PooledTable
from tacit_protocol.features.choice import FeatureParameters, kernel_features
from tacit_protocol.messages.study import Owner, Party, Study
from tacit_protocol.numerics.quadratic_forms import survival
from tacit_protocol.privacy.accounting import gaussian_mu
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.procedures.curated_two_sample import CuratedTwoSample
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample

DELTA = 1e-5
LEVELS = (0.05, 0.01)
PUBLIC_ROWS = 2000
"""Rows of each public sample on which frequencies are optimised; none of them is tested."""

NARROW = ("SG5", "Unequal")
"""Problems of 5 standard normal columns."""

FloatMatrix = npt.NDArray[np.float64]
NO_PRIVACY = "none"
"""In the place of an epsilon."""


@dataclass(frozen=True)
class MemoryTable:
    """An encoded table in memory."""

    domain: Domain
    numeric: FloatMatrix
    categorical: npt.NDArray[np.int32]

    @property
    def units(self) -> int:
        """Every row is a unit."""
        return len(self.numeric)

    def chunks(self) -> Iterator[EncodedChunk]:
        """Yield all rows."""
        yield EncodedChunk(self.numeric, self.categorical, None, self.units)


def domain_of(problem: str) -> Domain:
    """Return the public domain of a problem."""
    columns: list[Column] = []
    if problem == "Ties":
        columns = [NumericColumn(name=f"c{i}", lower=0.0, upper=4.0) for i in range(3)]
        columns += [CategoricalColumn(name=f"l{i}", levels=("a", "b", "c")) for i in range(2)]
    else:
        kind = PROBLEMS["SG" if problem in NARROW else problem]
        count = 5 if problem in NARROW else kind.columns
        low, high = kind.bounds
        columns = [NumericColumn(name=f"c{i}", lower=low, upper=high) for i in range(count)]
    return Domain(columns=tuple(columns))


def draw(problem: str, n: int, second: bool, rng: np.random.Generator) -> MemoryTable:
    """Draw n rows of one side of a problem; of the second side of Unequal, ten times as many."""
    domain = domain_of(problem)
    if problem == "Unequal" and second:
        n = 10 * n
    if problem == "Ties":
        counts = np.minimum(rng.poisson(1.0, (n, 3)), 4) / 4
        return MemoryTable(domain, counts, rng.choice(3, (n, 2), p=(0.7, 0.2, 0.1)).astype(np.int32))
    kind = PROBLEMS["SG" if problem in NARROW else problem]
    values = rng.standard_normal((n, 5)) if problem in NARROW else kind.draw(n, second, rng)
    low, high = kind.bounds
    scaled = np.clip((values - low) / (high - low), 0.0, 1.0)
    return MemoryTable(domain, scaled, np.zeros((n, 0), dtype=np.int32))


def study_of(
    domain: Domain, parameters: Mapping[str, Any], *, curated: bool, epsilon: float, run: int
) -> Study:
    """Build the study of one run; its public seed is the run's number."""
    owners = tuple(
        Owner(name=name, key=digit * 64, data_set="rows") for name, digit in (("x", "0"), ("y", "1"))
    )
    return Study(
        title="benchmark",
        procedure="curated_two_sample" if curated else "kernel_two_sample",
        parameters=dict(parameters),
        domain=domain,
        owners=owners,
        curator=Party(name="curator", key="4" * 64) if curated else None,
        tester=Party(name="tester", key="2" * 64),
        analyst=Party(name="analyst", key="3" * 64),
        budget=Budget.of(epsilon, DELTA),
        level=min(LEVELS),
        created_at=0,
        deadline=1,
        seed=f"{run:032x}",
    )


Setting = Literal["owners", "curator", "published statistic"]


@dataclass(frozen=True)
class Method:
    """A test by name, setting and parameters. ``optimised`` adds frequencies found on public rows."""

    name: str
    setting: Setting
    parameters: Mapping[str, Any] = field(default_factory=dict)
    optimised: bool = False
    epsilons: tuple[float, ...] | None = None
    """The epsilons at which it runs; None: at all."""

    def answers(
        self, problem: str, tables: Mapping[str, MemoryTable], epsilons: Sequence[float], run: int
    ) -> dict[str, bool]:
        """Return whether the test rejects, by ``question``; statistics are computed once for all epsilons."""
        rng = np.random.default_rng([run, tables["x"].units, zlib.crc32(f"{problem} {self.name}".encode())])
        parameters = dict(self.parameters)
        if self.optimised:
            parameters |= optimised(problem, tables["x"].units)
        epsilons = [e for e in epsilons if self.epsilons is None or e in self.epsilons]
        if self.setting == "published statistic":
            return self._published(parameters, tables, epsilons, rng, run)
        if self.setting == "owners":
            return self._owners(parameters, tables, epsilons, rng, run)
        return self._curator(parameters, tables, epsilons, rng, run)

    def _owners(self, parameters: Any, tables: Any, epsilons: Any, rng: Any, run: int) -> dict[str, bool]:
        procedure, noise = KernelTwoSample(), SimulatedNoise(int(rng.integers(2**63)))
        found, summaries = {}, {}
        for epsilon in epsilons:
            study = study_of(tables["x"].domain, parameters, curated=False, epsilon=epsilon, run=run)
            if not summaries:
                summaries = {name: procedure.summarise(study, table) for name, table in tables.items()}
            releases = {name: procedure.privatise(study, s, noise) for name, s in summaries.items()}
            pvalue = procedure.assemble(study, releases).pvalue
            found |= {question(self.name, epsilon, level): pvalue <= level for level in LEVELS}
        return found

    def _curator(self, parameters: Any, tables: Any, epsilons: Any, rng: Any, run: int) -> dict[str, bool]:
        procedure, noise = CuratedTwoSample(), SimulatedNoise(int(rng.integers(2**63)))
        found: dict[str, bool] = {}
        summary = None
        for epsilon in epsilons:
            study = study_of(tables["x"].domain, parameters, curated=True, epsilon=epsilon, run=run)
            if summary is None:
                pooled = PooledTable(study.domain, tables)
                summary = procedure.summarise(study, pooled, order=rng)
                if parameters.get("release") == "permutation":
                    statistics = np.asarray(summary.exact)
                    rank = 1 + int(np.sum(statistics[1:] >= statistics[0]))
                    pvalue = rank / len(statistics)
                    found |= {question(self.name, NO_PRIVACY, a): pvalue <= a for a in LEVELS}
            for level in LEVELS:
                decided = study.model_copy(update={"level": level})
                release = procedure.privatise(decided, summary, noise)
                if release.decision is not None:
                    found[question(self.name, epsilon, level)] = release.decision
            if release.decision is None:
                tested = procedure.assemble(study, {"curator": release}).pvalue
                assert tested is not None
                found |= {question(self.name, epsilon, level): tested <= level for level in LEVELS}
        return found

    def _published(self, parameters: Any, tables: Any, epsilons: Any, rng: Any, run: int) -> dict[str, bool]:
        """P0's statistic (TCS) with its own bound, which is false: no guarantee, synthetic data alone.

        s = n w'(Sigma + gamma I)^-1 w of paired differences of raw features, plus Gaussian noise calibrated
        to 4 kappa^2 sqrt J / (n gamma) (1 + kappa^2 J / (n - 1)), against chi-squared (J) plus that noise.
        """
        study = study_of(tables["x"].domain, {}, curated=False, epsilon=1.0, run=run)
        choices = {name: value for name, value in parameters.items() if name != "features"}
        chosen = FeatureParameters.model_validate_json(json.dumps(choices))
        features = kernel_features(
            study.domain, chosen, parameters["features"], np.random.default_rng(run), raw=True
        )
        x, y = (features(next(table.chunks())) for table in tables.values())
        z = x - y
        n, dimension = z.shape
        gamma, mean = 1e-3, z.mean(axis=0)
        covariance = np.cov(z.T, bias=True).reshape(dimension, dimension) + gamma * np.eye(dimension)
        statistic = float(n * mean @ np.linalg.solve(covariance, mean))
        bound = 4 * math.sqrt(dimension) / (n * gamma) * (1 + dimension / (n - 1))
        found = {}
        for epsilon in epsilons:
            sigma = bound / gaussian_mu(epsilon, DELTA)
            noisy = statistic + sigma * rng.standard_normal()
            pvalue = survival(noisy, np.ones(1), sigma, np.array([dimension]))
            found |= {question(self.name, epsilon, level): pvalue <= level for level in LEVELS}
        return found


def question(method: str, epsilon: float | str, level: float) -> str:
    """Name what one run of one method answers."""
    shown = epsilon if isinstance(epsilon, str) else f"{epsilon:g}"
    return f"{method} | {shown} | {level:g}"


@functools.lru_cache(maxsize=64)
def _optimised(problem: str, n: int) -> dict[str, Any]:
    rng = np.random.default_rng([99, n])
    kind = PROBLEMS[problem]
    public = [kind.draw(PUBLIC_ROWS, second, rng) for second in (False, True)]
    found = optimise_locations(
        *public, epsilon=1.0, delta=DELTA, n=n, bounds=kind.bounds, features="scf", alpha=min(LEVELS), seed=n
    )
    return dict(found.parameters)


def optimised(problem: str, n: int) -> dict[str, Any]:
    """Return SCF frequencies for that problem and n at epsilon 1, from a public sample of its own."""
    return dict(_optimised(problem, n))
