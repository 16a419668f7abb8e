"""P0's figure 4: its tests as its code has them, and Tacit's, on its data sets against n and epsilon.

    python -m benchmarks.p0                        # continues where it stopped
    python -m benchmarks.p0 --page p0-images       # its experiment on faces, in shape
    python -m benchmarks.p0 --runs 0.05 --folder /tmp/glance

P0 is Raj, Law, Sejdinovic and Park, *A differentially private kernel two-sample test*. Its tests run here on
synthetic data alone: their level, and of TCS the privacy, is not what the paper claims (docs/errata.md).
"""

import functools
import hashlib
import math
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from scipy.stats import chi2

from benchmarks.harness import (
    Answers,
    Benchmark,
    Cell,
    Counts,
    Floats,
    cells_of,
    curves,
    grid,
    main,
    question,
)
from benchmarks.problems import DELTA, LEVEL, PROBLEMS, MemoryTable, chunk_of, locations_of
from benchmarks.two_sample import NO_PRIVACY, PERMUTATION, Method
from tacit.planning.locations import optimise_locations
from tacit_protocol.domain import Domain, Encoder, EncoderModel, ImageColumn, Projection
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import RawMeanEmbedding, encode_locations, median_distance
from tacit_protocol.numerics.quadratic_forms import survival
from tacit_protocol.privacy.accounting import gaussian_mu
from tacit_services.agent.data.encoders import EncoderFolders, RowEncoders
from tacit_services.agent.data.parquet_source import ParquetSource
from tacit_services.agent.data.table import SourceTable

RUNS = 100
LOCATIONS = 5
REGULARISATION = 1e-3
"""P0's gamma, of TCS alone. Its code's "auto" is 1e-5, with a hundred times this noise."""

TRAINING = 0.25
"""Rows for locations and bandwidth, for each row that is tested: 20 % of all, as in P0."""

BANDWIDTH_ROWS = 1000
FLOOR = 1e-4
"""What P0's code puts in the place of eigenvalues that are not positive, or the least positive one."""

SIZES = (500, 1000, 3000, 6000, 12000)
EPSILONS = (0.5, 1.0, 2.5, 5.0)
EPSILON, SIZE = 2.5, 3000
"""Where the paper's curves against n, and ours against epsilon, are taken."""

OURS = (
    Method("owners, default", "owners"),
    Method("owners, columns", "owners", {"features": "columns"}),
    Method("owners, ME J=40, MMD", "owners", {"features": "me", "n_features": 40}),
    Method("curator, means, columns", "curator", {"features": "columns"}),
    Method("curator, permutation, columns", "curator", {**PERMUTATION, "features": "columns"}),
)
WITHOUT = "P0 without privacy"
OPTIMISED = ", optimised"
NULLS = ("sampled", "asymptotic")
PUBLISHED = (
    *(f"P0 {setting}, {null} null" for setting in ("TCMC", "TCS", "NTE") for null in NULLS),
    WITHOUT,
    *(f"P0 {setting}, {null} null{OPTIMISED}" for setting in ("TCMC", "TCS") for null in NULLS),
    f"{WITHOUT}{OPTIMISED}",
)
NAMES = (*PUBLISHED, *(method.name for method in OURS))
DRAWN = (*(name for name in PUBLISHED if "asymptotic" not in name), *(method.name for method in OURS[::3]))
"""In the picture, which has ten colours: an asymptotic null under noise rejects whatever it sees."""


def positive(matrix: Floats) -> Floats:
    """Raise the eigenvalues that are not positive as P0's code does."""
    values, vectors = np.linalg.eigh(matrix)
    above = values[values > 0]
    values[values <= 0] = min(FLOOR, above.min()) if above.size else FLOOR
    return np.asarray((vectors * values) @ vectors.T)


@dataclass(frozen=True)
class Noisy:
    """P0's private mean and covariance of features, (n, J): half of the budget each."""

    mean: Floats
    covariance: Floats
    noise: float
    """Of a coordinate of the mean."""

    @classmethod
    def of(cls, features: Floats, epsilon: float, rng: np.random.Generator) -> "Noisy":
        """Add the noise of sensitivities sqrt J / n and J / (n - 1), kappa = 1."""
        n, count = features.shape
        mu = gaussian_mu(epsilon / 2, DELTA / 2)
        noise = math.sqrt(count) / n / mu
        mean = features.mean(axis=0) + noise * rng.standard_normal(count)
        upper = np.triu(count / (n - 1) / mu * rng.standard_normal((count, count)))
        moment = features.T @ features / n + upper + np.triu(upper, 1).T
        return cls(mean, positive(positive(moment) - np.outer(mean, mean)), noise)


def weighted(mean: Floats, covariance: Floats, n: float, variance: float) -> dict[str, float]:
    """Return the p-value of n mean' covariance^-1 mean under each null; ``variance`` is n times the noise's.

    P0 draws its weighted chi-squared values; the law is inverted exactly here.
    """
    values, vectors = np.linalg.eigh(covariance)
    statistic = n * float(np.sum((mean @ vectors) ** 2 / values))
    sampled = survival(statistic, (values + variance) / values)
    return {"sampled": sampled, "asymptotic": float(chi2.sf(statistic, len(values)))}


def published(x: Floats, y: Floats, epsilons: Sequence[float], rng: np.random.Generator) -> Answers:
    """Ask P0's tests, by name, of raw features, (n, J) of each sample."""
    z, (n, count) = x - y, x.shape
    mean, moment = z.mean(axis=0), z.T @ z / n
    covariance = moment - np.outer(mean, mean)
    pvalue = weighted(mean, positive(covariance), n, 0.0)["asymptotic"]
    answers = {question(WITHOUT, NO_PRIVACY, LEVEL): pvalue <= LEVEL}
    statistic = n * float(mean @ np.linalg.solve(covariance + REGULARISATION * np.eye(count), mean))
    bound = 4 * count**1.5 / (n * REGULARISATION) * (1 + count / n)
    for epsilon in epsilons:
        pairs = Noisy.of(z, epsilon, rng)
        owners = [Noisy.of(features, epsilon, rng) for features in (x, y)]
        difference = owners[0].mean - owners[1].mean
        pooled = (owners[0].covariance + owners[1].covariance) / 2
        sigma = bound / gaussian_mu(epsilon, DELTA)
        noisy = statistic + sigma * rng.standard_normal()
        found = {
            "TCMC": weighted(pairs.mean, pairs.covariance, n, n * pairs.noise**2),
            "TCS": {
                "sampled": survival(noisy, np.ones(1), sigma, np.array([count])),
                "asymptotic": float(chi2.sf(noisy, count)),
            },
            "NTE": weighted(difference, pooled, n / 2, n * owners[0].noise ** 2),
        }
        answers |= {
            question(f"P0 {setting}, {null} null", epsilon, LEVEL): pvalues[null] <= LEVEL
            for setting, pvalues in found.items()
            for null in NULLS
        }
    return answers


@functools.lru_cache(maxsize=64)
def optimised(problem: str, n: int) -> RawMeanEmbedding:
    """Return features at locations and a bandwidth found on a public sample of its own, for a curator."""
    rng, kind = np.random.default_rng([99, n]), PROBLEMS[problem]
    public = [kind.draw(round(TRAINING * n), second, rng) for second in (False, True)]
    found = optimise_locations(
        *public,
        epsilon=EPSILON,
        delta=DELTA,
        n=n,
        bounds=kind.bounds,
        n_features=LOCATIONS,
        setting="curator",
        alpha=LEVEL,
        seed=n,
    ).parameters
    locations = encode_locations(kind.domain, found["locations"])
    return RawMeanEmbedding(ProductKernel("gaussian", found["bandwidth"]), locations)


def run(problem: str, n: int, number: int) -> Answers:
    """Draw both samples once, and P0's rows for training, and ask every test at every epsilon."""
    rng = np.random.default_rng([number, n, zlib.crc32(problem.encode())])
    kind, samples = PROBLEMS[problem], {"x": False, "y": True}
    tables = {name: kind.table(n, second, rng) for name, second in samples.items()}
    training = [kind.table(round(TRAINING * n), second, rng).chunk.numeric for second in samples.values()]
    rows = rng.permutation(np.concatenate(training))
    # Its bandwidth is half of the median squared distance, in exp(-d^2 / bandwidth).
    kernel = ProductKernel("gaussian", median_distance(rows[:BANDWIDTH_ROWS]) / 2)
    answers: dict[str, float] = {}
    for features, name in (
        (RawMeanEmbedding(kernel, locations_of(rows[:LOCATIONS])), ""),
        (optimised(problem, n), OPTIMISED),
    ):
        x, y = (features(table.chunk) for table in tables.values())
        found = published(x, y, EPSILONS, rng)
        answers |= {asked.replace(" |", f"{name} |", 1): rejected for asked, rejected in found.items()}
    for method in OURS:
        answers |= method.answers(problem, tables, EPSILONS, number)
    return answers


LAWS: Mapping[str, str] = {
    "SG": "SG, 50 columns: type I error",
    "SG100": "SG, 100 columns: type I error",
    "GMD100": "GMD, 100 columns: power",
    "GVD": "GVD, 50 columns: power",
    "Blobs": "Blobs: power",
}


def cells() -> list[Cell]:
    """List the cells."""
    return [Cell(f"{problem} n={n}", RUNS, partial(run, problem, n)) for problem in LAWS for n in SIZES]


def parts(counts: Counts) -> dict[str, str]:
    """Write a table of each data set against n, and one against epsilon."""
    return rejections(counts, LAWS, NAMES, SIZES, SIZE)


def rejections(
    counts: Counts, titles: Mapping[str, str], names: Sequence[str], sizes: Sequence[int], size: int
) -> dict[str, str]:
    """Write rates of every test, a table of each of the titles' cells: against ``sizes``; against epsilon."""

    def tables(columns: Sequence[tuple[str, tuple[float, int]]]) -> str:
        def shown(problem: str, name: str, place: tuple[float, int]) -> str:
            epsilon = NO_PRIVACY if name.startswith(WITHOUT) else place[0]
            return counts.shown(f"{problem} n={place[1]}", question(name, epsilon, LEVEL), ".2f")

        return "\n".join(
            f"### {title[0].upper()}{title[1:]}\n\n"
            + grid("test", [(name, name) for name in names], columns, lambda m, c, p=problem: shown(p, m, c))
            for problem, title in titles.items()
        )

    return {
        "runs": counts.runs_of(""),
        "sizes": tables([(f"n={n}", (EPSILON, n)) for n in sizes]),
        "epsilons": tables([(f"ε={epsilon:g}", (epsilon, size)) for epsilon in EPSILONS]),
    }


def draw(counts: Counts, folder: Path) -> None:
    """Draw rates of rejection against n and against epsilon."""

    def line(problem: str, name: str, places: Sequence[tuple[float, int]]) -> list[float | None]:
        return [
            counts.rate(
                f"{problem} n={n}",
                question(name, NO_PRIVACY if name.startswith(WITHOUT) else epsilon, LEVEL),
            )
            for epsilon, n in places
        ]

    shown = [problem for problem in LAWS if problem != "SG"]
    sizes = [(EPSILON, n) for n in SIZES]
    budgets = [(epsilon, SIZE) for epsilon in EPSILONS]
    for path, axis, places, label in (
        ("p0-n.svg", [float(n) for n in SIZES], sizes, "n, rows of each sample (ε = 2.5)"),
        ("p0-epsilon.svg", list(EPSILONS), budgets, f"ε (n = {SIZE})"),
    ):
        panels = {
            LAWS[problem]: {name: [(axis, line(problem, name, places))] for name in DRAWN}
            for problem in shown
        }
        curves(folder / path, panels, label, "rejected at level .01", yscale="linear")


# The experiment on faces, in shape: images at two owners, through a public network, and the tests.

DIGITS = (3, 8)
"""Whose images the owners hold; the network is trained on public images of the eight other digits alone."""

HIDDEN, PROJECTED = 32, 10
"""Numbers of the network's last hidden layer, and columns that a public projection makes of them."""

SHARES: Mapping[str, tuple[float, str]] = {
    "none": (0.0, "threes at both owners: type I error"),
    "tenth": (0.1, "threes, against threes of which a tenth are eights: power"),
    "quarter": (0.25, "threes, against threes of which a quarter are eights: power"),
    "all": (1.0, "threes against eights: power"),
}
"""What share of the second owner's images are of the second digit."""

IMAGE_SIZES = (100, 300, 1000, 3000)
IMAGE_SIZE = 1000
IMAGE_RUNS = 120


def network(weights: Sequence[Floats]) -> bytes:
    """Return the ONNX model of one hidden layer, (64, HIDDEN) and (HIDDEN,), of images of 8 x 8 pixels."""
    from onnx import TensorProto, helper, numpy_helper  # noqa: PLC0415 (of this page alone)

    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["image"], ["pixels"]),
            helper.make_node("Gemm", ["pixels", "w", "b"], ["sums"]),
            helper.make_node("Relu", ["sums"], ["features"]),
        ],
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, [1, HIDDEN])],
        [
            numpy_helper.from_array(values.astype(np.float32), name)
            for name, values in zip("wb", weights, strict=True)
        ],
    )
    versions = [helper.make_opsetid("", 17)]
    return bytes(helper.make_model(graph, opset_imports=versions, ir_version=8).SerializeToString())


@functools.cache
def encoded_images() -> tuple[Domain, dict[int, Floats]]:
    """Return the study's columns, and of each digit all images as an agent encodes them, in [0, 1].

    The images are scikit-learn's; the network is trained, and its norm taken, on those of the other digits.
    """
    import pyarrow as pa  # noqa: PLC0415 (of this page alone)
    import pyarrow.parquet as pq  # noqa: PLC0415
    from PIL import Image  # noqa: PLC0415
    from sklearn.datasets import load_digits  # noqa: PLC0415
    from sklearn.neural_network import MLPClassifier  # noqa: PLC0415

    digits = load_digits()
    public = ~np.isin(digits.target, DIGITS)
    pixels = digits.data / 16
    trained = MLPClassifier((HIDDEN,), max_iter=400, random_state=0).fit(
        pixels[public], digits.target[public]
    )
    weights = trained.coefs_[0], trained.intercepts_[0]
    features = np.maximum(pixels[public] @ weights[0] + weights[1], 0)
    model = network(weights)
    encoder = Encoder(
        inputs=(ImageColumn(name="photo", width=8, height=8, channels="grey"),),
        model=EncoderModel(
            sha256=hashlib.sha256(model).hexdigest(),
            licence="CC0-1.0",
            length=HIDDEN,
            norm=float(np.quantile(np.linalg.norm(features, axis=1), 0.95)),
        ),
        projection=Projection(seed="0" * 32),
        outputs=tuple(f"f{place}" for place in range(PROJECTED)),
    )
    domain, found = Domain(columns=encoder.columns()), {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / encoder.files[0][0]).write_bytes(model)
        encoders = RowEncoders((encoder,), EncoderFolders(folder, folder))
        for digit in DIGITS:
            held = digits.images[digits.target == digit]
            for place, image in enumerate(held):
                pixels = np.round(image * 255 / 16).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{digit}-{place}.png")
            paths = [f"{digit}-{place}.png" for place in range(len(held))]
            pq.write_table(pa.table({"photo": paths}), folder / f"{digit}.parquet")
            table = SourceTable(ParquetSource(folder / f"{digit}.parquet"), domain, encoders=encoders)
            found[digit] = np.concatenate([chunk.numeric for chunk in table.chunks()])
    return domain, found


def images_of(share: float, n: int, rng: np.random.Generator) -> MemoryTable:
    """Draw n encoded images, with replacement, of which about such a share is of the second digit."""
    domain, held = encoded_images()
    second = rng.random(n) < share
    rows = [held[DIGITS[of]][rng.integers(len(held[DIGITS[of]]))] for of in second.astype(int)]
    return MemoryTable(domain, chunk_of(np.array(rows)))


def run_images(kind: str, n: int, number: int) -> Answers:
    """Draw both owners' images once, and P0's rows for training, and ask every test at every epsilon."""
    rng = np.random.default_rng([number, n, zlib.crc32(kind.encode())])
    shares = {"x": 0.0, "y": SHARES[kind][0]}
    tables = {name: images_of(share, n, rng) for name, share in shares.items()}
    training = [images_of(share, round(TRAINING * n), rng).chunk.numeric for share in shares.values()]
    rows = rng.permutation(np.concatenate(training))
    kernel = ProductKernel("gaussian", median_distance(rows[:BANDWIDTH_ROWS]) / 2)
    features = RawMeanEmbedding(kernel, locations_of(rows[:LOCATIONS]))
    x, y = (features(table.chunk) for table in tables.values())
    answers = dict(published(x, y, EPSILONS, rng))
    for method in IMAGE_OURS:
        answers |= method.answers(f"images {kind}", tables, EPSILONS, number)
    return answers


IMAGE_OURS = OURS[:4]
IMAGE_NAMES = (
    *(name for name in PUBLISHED if OPTIMISED not in name),
    *(method.name for method in IMAGE_OURS),
)


def image_cells() -> list[Cell]:
    """List the cells."""
    return cells_of("{} n={}", IMAGE_RUNS, run_images, SHARES, IMAGE_SIZES)


def image_parts(counts: Counts) -> dict[str, str]:
    """Write a table of each share against n, and one against epsilon."""
    titles = {kind: title for kind, (_, title) in SHARES.items()}
    return rejections(counts, titles, IMAGE_NAMES, IMAGE_SIZES, IMAGE_SIZE)


BENCHMARKS = (
    Benchmark("p0", cells, parts, draw),
    Benchmark("p0-images", image_cells, image_parts),
)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
