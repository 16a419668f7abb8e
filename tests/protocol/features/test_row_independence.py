"""A row's features are the same bits whatever rows stand beside it, and wherever it stands.

Sums on a grid need this: were a feature to change in its last bit because another unit has more rows, it
could round to another grid step, and replacing one unit would move the contributions of all.
"""

import numpy as np
import pytest

from tacit_protocol.features.base import PRODUCT_ROWS, row_products


@pytest.mark.parametrize("count", [0, 1, PRODUCT_ROWS - 1, PRODUCT_ROWS, PRODUCT_ROWS + 1])
def test_row_products_are_products(count: int) -> None:
    rng = np.random.default_rng(count)
    x, matrix = rng.standard_normal((count, 6)), rng.standard_normal((6, 4))
    products = row_products(x, matrix)
    assert products.shape == (count, 4)
    np.testing.assert_allclose(products, np.einsum("ij,jk->ik", x, matrix), rtol=0, atol=1e-13)
