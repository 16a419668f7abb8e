"""What takes an owner's time: every hot path beside the plainest NumPy form of it, in one run.

    python -m benchmarks.hot_paths

Times are processor time of one thread, the least of ``--repeats``, so that they hold on a machine that does
something else too. A plain form computes the same numbers, as one would write it first in NumPy; it rounds
where ours does. ``--sizes`` varies the slices that features are computed in. ``--peers`` takes turns with
other libraries (dcor, where installed) and times the start of commands. Tables are printed.
"""

import importlib
import importlib.util
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import opendp.prelude as dp

from benchmarks.harness import Floats, options
from benchmarks.problems import MemoryTable, chunk_of, locations_of, numeric_domain
from tacit_protocol.domain import EncodedChunk, NumericColumn, Table, encode_numeric
from tacit_protocol.features import moments as feature_sums
from tacit_protocol.features.brownian import BrownianFeatures, random_directions
from tacit_protocol.features.kernels import ProductKernel, RandomFourier
from tacit_protocol.features.mean_embedding import WhitenedMeanEmbedding
from tacit_protocol.features.moments import AdditiveFeatures, AdditiveRelease, default_choice, sum_features
from tacit_protocol.features.sketches import add_signed
from tacit_protocol.numerics.distance_covariance import distance_covariance_sqr
from tacit_protocol.numerics.sincos import wave
from tacit_protocol.privacy.exact_sums import ExactSum, unit_averages, whole_steps
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_services.agent.data.reader import CHUNK_BYTES
from tacit_services.shared.compute import prepare_to_compute

ROWS = 2_000
"""Rows of a slice: what features are computed of at once (SLICE_BYTES)."""

COLUMNS, BITS = 20, 20
BOUNDS = (-5.0, 5.0)
SIZES = [2**exponent for exponent in range(17, 24)]
"""Slices of 128 KiB to 8 MiB."""

Timed = Callable[[], object]


@dataclass(frozen=True)
class HotPath:
    """``values`` numbers are computed by ``ours``, and by ``plain``."""

    name: str
    values: int
    ours: Timed
    plain: Timed


def least_ns(function: Timed, values: int, repeats: int) -> float:
    """Return the least processor time of a call, in nanoseconds a value."""
    function()
    found = []
    for _ in range(repeats):
        started = time.thread_time()
        function()
        found.append(time.thread_time() - started)
    return min(found) / values * 1e9


def columns_chunk(values: Floats) -> EncodedChunk:
    """Return rows as a chunk, stored by column as encoded ones are."""
    return chunk_of(np.asfortranarray(values))


def map_paths(rng: np.random.Generator) -> list[HotPath]:
    """Map rows of 20 columns to features, of 3 to the Brownian ones."""
    chunk = columns_chunk(rng.random((ROWS, COLUMNS)))
    x, few = chunk.numeric, columns_chunk(chunk.numeric[:, :3])
    additive = AdditiveFeatures(COLUMNS, (), default_choice(COLUMNS, (), 0.3))
    turns = 2 * np.pi * np.array(additive.choice.cycles)
    kernel = ProductKernel("gaussian", 1.5)
    locations = locations_of(rng.random((40, COLUMNS)))
    embedding, t = WhitenedMeanEmbedding(kernel, locations), locations.numeric
    whitener = embedding(columns_chunk(t)).T @ embedding(columns_chunk(t))
    fourier = RandomFourier.draw(kernel, COLUMNS, (), 100, rng)
    brownian = BrownianFeatures(random_directions(3, 9, rng), 4)
    odd = np.pi * (np.arange(4) + 0.5)

    def waves_of(angles: Floats) -> Floats:
        return np.concatenate([np.cos(angles), np.sin(angles)], axis=-1)

    def embedded() -> Floats:
        distances = (x**2).sum(axis=1)[:, None] + (t**2).sum(axis=1) - 2 * x @ t.T
        return np.asarray(np.exp(distances / (-2 * 1.5**2)) @ whitener)

    def projected() -> Floats:
        places = (1 + (2 * few.numeric - 1) @ brownian.directions.T / np.sqrt(3)) / 2
        return np.asarray(np.sin(places[:, :, None] * odd) / odd)

    return [
        HotPath("waves: a cosine and a sine", 2 * x.size, lambda: wave(x), lambda: waves_of(x * 2 * np.pi)),
        HotPath(
            "column-wise features, 3 cycles",
            6 * x.size,
            lambda: additive.column_wise(chunk),
            lambda: waves_of(x[:, :, None] * turns).reshape(ROWS, -1),
        ),
        HotPath("mean embedding, J = 40", 40 * ROWS, lambda: embedding(chunk), embedded),
        HotPath(
            "random Fourier features, F = 100",
            200 * ROWS,
            lambda: fourier(chunk),
            lambda: waves_of(x @ fourier.frequencies.T),
        ),
        HotPath("Brownian features, 9 directions x 4", 36 * ROWS, lambda: brownian(few), projected),
        HotPath(
            "Gram block, 40 locations",
            40 * ROWS,
            lambda: kernel.gram(chunk, locations),
            lambda: np.exp(-((x[:, None] - t) ** 2).sum(axis=2) / (2 * 1.5**2)),
        ),
    ]


def sum_paths(rng: np.random.Generator) -> list[HotPath]:
    """Round to the grid and sum exactly, features as the default map lays them out."""
    width, units = 120, ROWS // 5
    rows = np.asfortranarray(2 * rng.random((ROWS, width)) - 1)
    unit = np.sort(rng.integers(0, units, ROWS))
    unit = np.unique(unit, return_inverse=True)[1].astype(np.int64)
    units = int(unit[-1]) + 1
    few, buckets = np.ascontiguousarray(rows[:, :12]), ROWS // 57
    codes = rng.integers(0, 2 * buckets, ROWS)
    steps = whole_steps(few, BITS)

    def rounded(x: Floats) -> npt.NDArray[np.int64]:
        return np.rint(x * 2.0**BITS).astype(np.int64)

    def averaged() -> Floats:
        sums = np.zeros((units, width), dtype=np.int64)
        np.add.at(sums, unit, rounded(rows))
        return np.asarray(sums / np.bincount(unit)[:, None])

    def signed() -> None:
        sketch = np.zeros((buckets, few.shape[1]))
        np.add.at(sketch, codes >> 1, steps * (2.0 * (codes & 1) - 1)[:, None])

    return [
        HotPath(
            "rounding and sums",
            rows.size,
            lambda: ExactSum(width, BITS, products=False).add(rows),
            lambda: rounded(rows).sum(axis=0),
        ),
        HotPath(
            "rounding, sums and products",
            rows.size,
            lambda: ExactSum(width, BITS, products=True).add(rows),
            lambda: (rounded(rows).sum(axis=0), rows.T @ rows),
        ),
        HotPath(
            "averages of units of 5 rows", rows.size, lambda: unit_averages(rows, unit, units, BITS), averaged
        ),
        HotPath(
            "signed sums by bucket",
            few.size,
            lambda: add_signed(np.zeros((buckets, few.shape[1]), dtype=np.int64), steps, codes),
            signed,
        ),
    ]


def other_paths(rng: np.random.Generator) -> list[HotPath]:
    """Encode, and find a distance covariance, whose plain form takes the square of the units."""
    column = NumericColumn(name="c", lower=-5.0, upper=5.0)
    raw, first = rng.standard_normal(50_000), rng.random(2000)
    second = first + rng.random(2000)

    def centred(values: Floats) -> Floats:
        distances = np.abs(values[:, None] - values)
        return np.asarray(distances - distances.mean(axis=0) - distances.mean(axis=1)[:, None])

    return [
        HotPath(
            "encoding a number",
            len(raw),
            lambda: encode_numeric(column, raw),
            lambda: (np.clip(np.nan_to_num(raw), -5.0, 5.0) + 5.0) / 10.0,
        ),
        HotPath(
            "distance covariance, n = 2000",
            2000,
            lambda: distance_covariance_sqr(first, second),
            lambda: np.mean(centred(first) * centred(second)),
        ),
    ]


def show_kernels(repeats: int) -> None:
    """Print every hot path's time a value, beside the plain form's."""
    rng = np.random.default_rng(0)
    print("| hot path | ours, ns a value | plain, ns a value | plain / ours |\n|---|---|---|---|")
    for path in [*map_paths(rng), *sum_paths(rng), *other_paths(rng)]:
        ours = least_ns(path.ours, path.values, repeats)
        plain = least_ns(path.plain, path.values, max(2, repeats // 4))
        print(f"| {path.name} | {ours:.2f} | {plain:.2f} | {plain / ours:.1f} |", flush=True)


def peer_paths(rng: np.random.Generator) -> list[HotPath]:
    """Distance covariance beside dcor's, compiled by numba; noise beside OpenDP's without our checks."""
    found = []
    if importlib.util.find_spec("dcor") is not None:
        dcor = importlib.import_module("dcor")
        for units in (10**5, 10**6):
            x = rng.standard_normal(units)
            y = 0.1 * x + rng.standard_normal(units)
            found.append(
                HotPath(
                    f"distance covariance, n = {units}, dcor",
                    units,
                    partial(distance_covariance_sqr, x, y),
                    partial(dcor.u_distance_covariance_sqr, x, y, method="mergesort"),
                )
            )
    noise, scale = OpenDPNoise(), 2.0**20
    for size in (1000, 10**5):
        values = np.zeros(size, dtype=np.int64)
        domain = dp.vector_domain(dp.atom_domain(T="i64"))
        gaussian = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale)
        found.append(
            HotPath(
                f"Gaussian noise of {size} numbers, OpenDP alone",
                size,
                partial(noise.gaussian, values, scale),
                partial(gaussian, values.tolist()),
            )
        )
    return found


def show_peers(repeats: int) -> None:
    """Print ours and the peer's times a value, the least of calls in turns; then the commands' starts."""
    print("| hot path, peer | ours, ns a value | peer, ns a value | peer / ours |\n|---|---|---|---|")
    for path in peer_paths(np.random.default_rng(0)):
        turns = [
            (least_ns(path.ours, path.values, 1), least_ns(path.plain, path.values, 1))
            for _ in range(repeats)
        ]
        ours, peer = (min(times) for times in zip(*turns, strict=True))
        print(f"| {path.name} | {ours:.0f} | {peer:.0f} | {peer / ours:.2f} |", flush=True)
    starts: dict[str, list[float]] = {name: [] for name in STARTS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(repeats):
            for name, arguments in STARTS.items():
                starts[name].append(start_s(arguments, folder))
    print("\n| start of | processor time, s |\n|---|---|")
    for name, seconds in starts.items():
        print(f"| {name} | {min(seconds):.2f} |", flush=True)


COMMAND = "from tacit.command import main; main()"
STARTS = {
    "`tacit --help`": ("-c", COMMAND, "--help"),
    "`tacit study list`, up to reading party.toml": ("-c", COMMAND, "study", "list"),
    "python, and typer": ("-c", "import typer"),
    "python, with typer, httpx, pydantic and Ed25519 keys": (
        "-c",
        "import typer, httpx; from pydantic import BaseModel;"
        "from cryptography.hazmat.primitives.asymmetric import ed25519",
    ),
}


def start_s(arguments: Sequence[str], folder: str) -> float:
    """Seconds of processor time that a Python process takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def sums_of_tables(rng: np.random.Generator) -> dict[str, Callable[[], object]]:
    """Whole sums over a chunk of 50 000 rows, by features."""
    rows = CHUNK_BYTES // (8 * COLUMNS + 8)
    domain = numeric_domain(COLUMNS, BOUNDS)
    table: Table = MemoryTable(domain, columns_chunk(rng.random((rows, COLUMNS))))
    few: Table = MemoryTable(domain, columns_chunk(rng.random((rows, 3))))
    kernel = ProductKernel("gaussian", 1.5)
    locations = locations_of(rng.random((40, COLUMNS)))
    embedding = WhitenedMeanEmbedding(kernel, locations)
    fourier = RandomFourier.draw(kernel, COLUMNS, (), 100, rng)
    wide = AdditiveRelease(AdditiveFeatures(COLUMNS, (), default_choice(COLUMNS, (), 0.3)))
    narrow = AdditiveRelease(AdditiveFeatures(3, (), default_choice(3, (), 0.3)))
    return {
        "default, 20 columns": lambda: wide.sum(table),
        "default, 3 columns": lambda: narrow.sum(few),
        "mean embedding, J = 40, products": lambda: sum_features(embedding, table, products=True),
        "random Fourier, F = 100": lambda: sum_features(fourier, table, products=False),
    }


def show_sizes(repeats: int) -> None:
    """Print the time a row of whole sums, by the size of the slices."""
    sums, kept = sums_of_tables(np.random.default_rng(0)), feature_sums.SLICE_BYTES
    rows = CHUNK_BYTES // (8 * COLUMNS + 8)
    print("| ns a row, by slices of KiB | " + " | ".join(str(size >> 10) for size in SIZES) + " |")
    print("|---" * (1 + len(SIZES)) + "|")
    for name, function in sums.items():
        found = []
        for size in SIZES:
            feature_sums.SLICE_BYTES = size
            found.append(f"{least_ns(function, rows, repeats):.0f}")
        print(f"| {name} | " + " | ".join(found) + " |", flush=True)
    feature_sums.SLICE_BYTES = kept


def main() -> None:
    """Measure, with the threads and the memory of an agent's process."""
    chosen = options(__doc__, repeats=20, sizes=False, peers=False)
    prepare_to_compute()
    show = show_sizes if chosen.sizes else show_peers if chosen.peers else show_kernels
    show(chosen.repeats)


if __name__ == "__main__":
    main()
