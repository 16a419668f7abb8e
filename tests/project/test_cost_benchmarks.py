"""The model of N workers is that of its derivation, and its simulation schedules as the agent does."""

import importlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
from benchmarks.cost_study import QUESTIONS, Parties, Point, levels_of
from benchmarks.costs import slope
from benchmarks.harness import PAGES, PART, Counts, fill
from benchmarks.thousand_owners import LARGE, study_bytes
from benchmarks.worker_model import Overhead, Reduce, largest_normal, makespan, straggler_s

from tacit_protocol.messages.encoding import MESSAGE_BYTES_MAX
from tacit_protocol.procedures.base import check_study
from tacit_protocol.procedures.discovery import PROCEDURES, procedure_named
from tacit_protocol.workers import in_order

NOTHING = Overhead()


def test_tasks_are_handed_out_by_hand() -> None:
    # Two workers: tasks of 3 and 1, then 1 at the free one, then 1; all are done after 3.
    assert makespan([3.0, 1.0, 1.0, 1.0], 2, NOTHING, ahead=2) == 3.0
    # At most one ahead for each: the third waits until the first, of 3, has come back.
    assert makespan([3.0, 1.0, 1.0, 1.0], 2, NOTHING, ahead=1) == 4.0
    # Handing out takes .5 each, taking in .25: the second task starts at 1, and ends at 2.
    assert makespan([1.0, 1.0], 2, Overhead(0.5, 0.25)) == pytest.approx(2.25)
    assert makespan([1.0] * 5, 1, Overhead(0.0, 0.0)) == 5.0


def test_no_more_tasks_are_under_way_than_the_simulation_hands_out() -> None:
    """What ``makespan`` takes for the window is what ``in_order`` keeps."""
    handed, held = 0, list[int]()

    def futures(pool: ThreadPoolExecutor) -> Iterator[Future[int]]:
        nonlocal handed
        for number in range(20):
            handed += 1
            yield pool.submit(lambda n: n, number)

    with ThreadPoolExecutor(2) as pool:
        for taken, result in enumerate(in_order(futures(pool), ahead=4), start=1):
            assert result == taken - 1
            held.append(handed - taken)
    assert max(held) == 4


@pytest.mark.parametrize("seed", range(20))
def test_the_last_result_comes_within_grahams_bounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    workers, count = int(rng.integers(1, 9)), int(rng.integers(1, 60))
    times = rng.exponential(size=count)
    found = makespan(times, workers, NOTHING, ahead=count)
    least = max(times.sum() / workers, times.max())
    assert least <= found + 1e-12
    assert found <= times.sum() / workers + (1 - 1 / workers) * times.max() + 1e-12


@pytest.mark.parametrize("count", [2, 16, 256])
def test_the_largest_of_normal_numbers_is_that_of_a_simulation(count: int) -> None:
    # 20 000 maxima of standard deviation below .83: six standard errors are .035; 1e-8 of a false alarm.
    largest = np.random.default_rng(count).standard_normal((20_000, count)).max(axis=1).mean()
    assert largest_normal(count) == pytest.approx(largest, abs=0.035 + 0.01)
    assert largest_normal(1) == 0.0


@pytest.mark.parametrize("workers", [1, 2, 16, 64])
@pytest.mark.parametrize("deviation", [0.0, 0.05, 0.3])
def test_formula_and_simulation_agree(workers: int, deviation: float) -> None:
    """Within 7 %, the normal law of sums being an approximation; a factor of two is far outside."""
    model = Reduce(600, 0.1, 0.1 * deviation, part_s=0.01, start_s=0.2, overhead=Overhead(1e-4, 1e-4))
    rng = np.random.default_rng(workers)
    groups = np.clip(rng.normal(0.1, 0.1 * deviation, 400), 0.0, None)
    simulated = np.mean([model.simulated(workers, groups, rng) for _ in range(30)])
    assert model.predicted(workers) == pytest.approx(simulated, rel=0.07)


def test_one_worker_does_everything_and_many_wait_for_what_is_serial() -> None:
    model = Reduce(1000, 1.0, 0.0, start_s=5.0, overhead=Overhead(0.01, 0.02), cut=False)
    assert model.predicted(1) == pytest.approx(5 + 1000 + 0.03)
    # With a thousand workers, handing out and taking in a thousand results takes 30 s.
    assert model.predicted(1000) == pytest.approx(5 + 30 + 1)
    assert model.predicted(1000) == pytest.approx(
        model.simulated(1000, np.ones(1), np.random.default_rng(0)), 0.05
    )


def test_a_straggler_costs_no_more_than_its_own_part() -> None:
    # Of large deviations, what a slow one would do is done by others.
    assert straggler_s(4, 64, 16, 1.0, 5.0) <= (1 + 5.0 * largest_normal(64))
    assert straggler_s(4, 4, 1, 1.0, 0.5) == 0.0


def test_a_slope_is_the_exponent_of_a_power_law() -> None:
    sizes = [10.0, 100.0, 1000.0]
    assert slope(sizes, [3 * size**1.5 for size in sizes]) == pytest.approx(1.5)
    with pytest.raises(ValueError, match="two or more positive"):
        slope(sizes, [1.0, 0.0, 1.0])


def test_every_procedure_has_its_costs() -> None:
    assert {question.procedure for question in QUESTIONS.values()} == set(PROCEDURES)


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_study_whose_cost_is_measured_is_one_that_owners_take(name: str) -> None:
    question = QUESTIONS[name]
    extremes = [point for varied, point in question.points() if varied != "owners" or point.owners <= 100]
    for point in extremes[:: max(1, len(extremes) // 4)]:
        study = question.study(point, Parties.of(point.owners), seed=1)
        check_study(procedure_named(study.procedure), study)


def test_levels_make_the_cells_that_are_asked_for() -> None:
    assert [levels_of(Point(1, columns, 1000, 1)) for columns in (1, 2, 3)] == [1000, 32, 10]


def test_the_largest_studies_fit_one_message() -> None:
    sizes = {name: study_bytes(study) for name, study in LARGE.items()}
    assert max(sizes.values()) <= MESSAGE_BYTES_MAX
    assert min(sizes.values()) > 200_000


MODULES = (
    "categorical",
    "costs",
    "coverage",
    "database_errors",
    "database_queries",
    "database_release",
    "distance_correlation",
    "identity",
    "joint_independence",
    "p4",
    "planning",
    "scale",
    "screening",
    "thousand_owners",
    "two_sample",
    "worker_model",
)
"""Benchmarks with counts beside the pages that they write."""


@pytest.mark.parametrize("module", MODULES)
def test_pages_are_made_of_the_rows_that_were_measured(module: str) -> None:
    for benchmark in importlib.import_module(f"benchmarks.{module}").BENCHMARKS:
        page, counts = (PAGES / f"{benchmark.page}.{end}" for end in ("md", "jsonl"))
        if counts.exists():
            text, parts = page.read_text(), benchmark.parts(Counts(counts))
            if "machine" in parts:
                parts["machine"] = {match["name"]: match["old"] for match in PART.finditer(text)}["machine"]
            assert fill(text, parts) == text
