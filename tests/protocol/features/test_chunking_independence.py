"""The same row, at every offset and in slices of every length, contributes the same grid steps.

Exact sums do not depend on how rows are cut only while no row's features do. NumPy's vector loops end in
masked or scalar remainders, BLAS picks its code by a product's shape, and layouts differ: here every map,
and what the maps are made of, is put through all of them and compared bit by bit."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from definitions import Matrix, Rows, random_rows

from tacit_protocol.domain import CategoricalColumn, Column, Domain, EncodedChunk, NumericColumn
from tacit_protocol.features import moments as feature_sums
from tacit_protocol.features.aligned_sums import RowProjections
from tacit_protocol.features.brownian import BrownianColumns, BrownianFeatures, random_directions
from tacit_protocol.features.kernels import (
    PRODUCT_ROWS,
    DistanceKernel,
    FeatureMap,
    ProductKernel,
    RandomFourier,
    row_products,
)
from tacit_protocol.features.mean_embedding import (
    Locations,
    RawMeanEmbedding,
    SmoothCharacteristic,
    WhitenedMeanEmbedding,
)
from tacit_protocol.features.moments import (
    AdditiveFeatures,
    AdditiveRelease,
    ColumnWise,
    DirectSum,
    Pairwise,
    default_choice,
    sum_features,
)
from tacit_protocol.features.sketches import BucketDesign, SketchRelease

NUMERIC, CATEGORIES = 7, (3, 4)
CYCLES, WEIGHTS = (0.8125, 1.625, 3.25), (1.0, 1.0, 0.4)
LANES = 35
"""Offsets tried, more than four vectors of eight lanes; lengths go from 1 to twice that."""

RANDOM = np.random.default_rng(0)
LOCATIONS = Locations(RANDOM.random((11, NUMERIC)), np.zeros((11, 2), dtype=np.int32))


def embedding(kernel: ProductKernel) -> WhitenedMeanEmbedding:
    return WhitenedMeanEmbedding(kernel, LOCATIONS)


MAPS: dict[str, FeatureMap] = {
    "ME Gaussian": embedding(ProductKernel("gaussian", 1.0, 0.2)),
    "ME Gaussian, narrow": embedding(ProductKernel("gaussian", 0.2, 0.2)),
    "ME Laplacian": embedding(ProductKernel("laplacian", 1.0)),
    "raw ME": RawMeanEmbedding(ProductKernel("gaussian", 0.7), LOCATIONS),
    "SCF": SmoothCharacteristic(9 * RANDOM.standard_normal((6, NUMERIC)), 0.7),
    "random Fourier": RandomFourier.draw(
        ProductKernel("laplacian", 0.3, 0.2), NUMERIC, CATEGORIES, 21, np.random.default_rng(1)
    ),
    "column-wise": ColumnWise(NUMERIC, CATEGORIES, CYCLES, WEIGHTS),
    "pairwise": Pairwise(NUMERIC, CATEGORIES, CYCLES[1:2], (1.0,)),
    "default": AdditiveFeatures(NUMERIC, CATEGORIES, default_choice(NUMERIC, CATEGORIES, 0.3)),
    "direct sum": DirectSum(
        (ColumnWise(NUMERIC, CATEGORIES, CYCLES, WEIGHTS), embedding(ProductKernel("gaussian", 1.0))),
        (0.6, 0.4),
    ),
    "Brownian, all columns": BrownianFeatures(
        random_directions(NUMERIC, 9, np.random.default_rng(2)), 3, CATEGORIES
    ),
    "Brownian, crowded": BrownianFeatures(
        random_directions(NUMERIC, 9, np.random.default_rng(2)), 3, CATEGORIES, 0.3
    ),
    "Brownian, each column": BrownianColumns(NUMERIC, 4, CATEGORIES),
    "row projections": RowProjections(random_directions(NUMERIC, 9, np.random.default_rng(3))),
}
ROWS = 3 * LANES
TABLE = random_rows(np.random.default_rng(4), ROWS, NUMERIC, CATEGORIES)
WHOLE = {name: features(TABLE) for name, features in MAPS.items()}


def layouts(rows: Rows) -> Iterator[Rows]:
    """The same rows: by row, by column, within longer columns, stored in reverse, and off any alignment."""
    yield Rows(np.ascontiguousarray(rows.numeric), np.ascontiguousarray(rows.categorical))
    yield Rows(np.asfortranarray(rows.numeric), np.asfortranarray(rows.categorical))
    longer = np.asfortranarray(np.vstack([TABLE.numeric[:3], rows.numeric, TABLE.numeric[:1]]))
    yield Rows(longer[3:-1], rows.categorical)
    # NumPy's exp takes other code, with other last bits, where it walks backwards through an array.
    yield Rows(rows.numeric[::-1].copy()[::-1], rows.categorical[::-1].copy()[::-1])
    packed = np.frombuffer(b"12345" + rows.numeric.tobytes(), np.uint8)[5:].view(np.float64)
    yield Rows(packed.reshape(rows.numeric.shape), rows.categorical)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", MAPS)
def test_a_row_is_the_same_bits_at_every_offset_and_in_slices_of_every_length(name: str) -> None:
    features = MAPS[name]
    alone = np.vstack(
        [features(Rows(TABLE.numeric[i : i + 1], TABLE.categorical[i : i + 1])) for i in range(8)]
    )
    np.testing.assert_array_equal(alone, WHOLE[name][:8])
    for offset in range(LANES):
        # Every remainder at every offset, without trying all pairs.
        for length in (1 + offset, 2 * LANES - offset, 1 + (7 * offset) % LANES):
            part = slice(offset, offset + length)
            found = features(Rows(TABLE.numeric[part], TABLE.categorical[part]))
            np.testing.assert_array_equal(found, WHOLE[name][part], err_msg=f"{offset}, {length}")


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", MAPS)
def test_layouts_alignment_and_rows_at_the_ends_of_the_domain_change_no_bit(name: str) -> None:
    for rows in layouts(TABLE):
        np.testing.assert_array_equal(MAPS[name](rows), WHOLE[name])
    corners = np.where(np.arange(ROWS)[:, None] % 2, 0.0, 1.0) * np.ones(NUMERIC)
    corners[::3] = TABLE.numeric[::3]
    np.testing.assert_array_equal(MAPS[name](Rows(corners, TABLE.categorical))[::3], WHOLE[name][::3])


@pytest.mark.parametrize(
    "kernel", [ProductKernel("gaussian", 1.0, 0.2), ProductKernel("laplacian", 0.5), DistanceKernel()]
)
def test_kernel_values_do_not_depend_on_the_rows_beside_them(kernel: ProductKernel | DistanceKernel) -> None:
    whole = kernel.gram(TABLE, LOCATIONS)
    for offset in range(LANES):
        part = slice(offset, 3 * offset + 1)
        found = kernel.gram(Rows(TABLE.numeric[part], TABLE.categorical[part]), LOCATIONS)
        np.testing.assert_array_equal(found, whole[part])


@pytest.mark.sweep(4)
@pytest.mark.parametrize(("inner", "columns"), [(1, 1), (3, 1), (7, 11), (20, 40), (33, 17), (128, 5)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_products_are_the_same_bits_at_every_place_of_a_block(inner: int, columns: int, order: str) -> None:
    rng = np.random.default_rng(inner)
    matrix = np.array(rng.standard_normal((inner, columns)), order="C" if order == "C" else "F")
    row = rng.standard_normal(inner)
    everywhere = row_products(np.tile(row, (PRODUCT_ROWS, 1)), matrix)
    np.testing.assert_array_equal(everywhere, np.tile(everywhere[0], (PRODUCT_ROWS, 1)))
    beside = 1e6 * rng.standard_normal((PRODUCT_ROWS + 9, inner))
    beside[::5] = row
    np.testing.assert_array_equal(row_products(beside, matrix)[::5][:100], everywhere[:100])


UNIT = np.sort(np.random.default_rng(6).integers(0, 40, ROWS))
UNIT = np.unique(UNIT, return_inverse=True)[1]
DOMAIN_COLUMNS: tuple[Column, ...] = (
    *(NumericColumn(name=f"x{i}", lower=0.0, upper=1.0) for i in range(NUMERIC)),
    *(
        CategoricalColumn(name=f"c{i}", levels=tuple(str(level) for level in range(count - 2)))
        for i, count in enumerate(CATEGORIES)
    ),
)


@dataclass(frozen=True)
class CutTable:
    """The table in chunks of so many rows, or of so many whole units."""

    size: int
    by_unit: bool
    domain: Domain = Domain(columns=DOMAIN_COLUMNS)  # noqa: RUF009 (frozen)

    @property
    def units(self) -> int:
        return int(UNIT[-1]) + 1 if self.by_unit else ROWS

    def chunks(self) -> Iterator[EncodedChunk]:
        for start in range(0, self.units, self.size):
            stop = min(start + self.size, self.units)
            first, last = np.searchsorted(UNIT, [start, stop]) if self.by_unit else (start, stop)
            numeric = np.asfortranarray(TABLE.numeric[first:last])
            unit = UNIT[first:last].astype(np.int64) - start if self.by_unit else None
            yield EncodedChunk(numeric, TABLE.categorical[first:last], unit, stop - start)


@pytest.mark.parametrize("by_unit", [False, True])
def test_releases_sum_alike_however_the_table_is_cut(by_unit: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    additive = AdditiveRelease(
        AdditiveFeatures(NUMERIC, CATEGORIES, default_choice(NUMERIC, CATEGORIES, 0.3))
    )
    sketched = SketchRelease(MAPS["Brownian, all columns"])
    units = CutTable(1, by_unit).units
    design = BucketDesign(units, units // 4, 4)
    codes = design.assign(np.random.default_rng(8))
    found = []
    for size, slice_bytes in ((1000, 2**22), (1, 2**22), (9, 2**12), (1000, 2**10)):
        monkeypatch.setattr(feature_sums, "SLICE_BYTES", slice_bytes)
        table = CutTable(size, by_unit)
        sums, sketch = additive.sum(table), sketched.sum(table, design, codes)
        means = sum_features(MAPS["ME Gaussian"], table, products=True)
        assert means.second is not None
        found.append((sums.columns, sums.pairs, sketch.sketch, means.total, means.second))
    for others in found[1:]:
        for first, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(first, other)


def test_a_map_that_depends_on_where_a_row_stands_is_caught() -> None:
    """As a loop would whose remainder rounds otherwise: the last rows of a slice differ in their last bit."""
    features = MAPS["column-wise"]

    def with_remainder(rows: Rows) -> Matrix:
        values = features(rows).copy()
        tail = len(values) - len(values) % 8
        values[tail:] = np.nextafter(values[tail:], 2.0)
        return values

    part = slice(3, 14)
    found = with_remainder(Rows(TABLE.numeric[part], TABLE.categorical[part]))
    assert not np.array_equal(found, with_remainder(TABLE)[part])


@pytest.mark.parametrize("count", [0, 1, PRODUCT_ROWS - 1, PRODUCT_ROWS, PRODUCT_ROWS + 1])
def test_row_products_are_products(count: int) -> None:
    rng = np.random.default_rng(count)
    x, matrix = rng.standard_normal((count, 6)), rng.standard_normal((6, 4))
    products = row_products(x, matrix)
    assert products.shape == (count, 4)
    np.testing.assert_allclose(products, np.einsum("ij,jk->ik", x, matrix), rtol=0, atol=1e-13)
