"""The layout of a release of means and second moments."""

import numpy as np
import pytest

from tacit_protocol.features.additive import ColumnWise
from tacit_protocol.features.moments import (
    DIAGONAL,
    OFF_DIAGONAL,
    MomentShares,
    moment_parts,
    read_second_moment,
    second_moment_sensitivity,
    sum_sensitivity,
)
from tacit_protocol.privacy.guarantee import NoisyVector

FEATURES = ColumnWise(1, (3,), (1.0,), (1.0,))
BOTH = MomentShares(0.8, 0.2)


def test_parts_have_their_shapes_grids_sensitivities_and_shares() -> None:
    mean, diagonal, off = moment_parts(FEATURES, BOTH, 12)
    assert [len(part.sums) for part in (mean, diagonal, off)] == [5, 5, 10]
    assert [part.exponent for part in (mean, diagonal, off)] == [-12, -24, -24]
    assert mean.sensitivity == sum_sensitivity(FEATURES, 12)
    assert diagonal.sensitivity == off.sensitivity == second_moment_sensitivity(FEATURES, 12)
    assert (mean.share, diagonal.share, off.share) == (0.8, 0.2, 0.2)
    assert diagonal.scale(1.0) / off.scale(1.0) == pytest.approx(np.sqrt(2))


def test_the_second_moment_is_read_back_symmetric_in_the_right_places() -> None:
    vectors = {
        DIAGONAL: NoisyVector(values=(10, 20, 30), exponent=-1, noise="gaussian", scale=1.0),
        OFF_DIAGONAL: NoisyVector(values=(1, 2, 3), exponent=-1, noise="gaussian", scale=1.0),
    }
    expected = np.array([[10, 1, 2], [1, 20, 3], [2, 3, 30]]) / 2 / 5
    np.testing.assert_array_equal(read_second_moment(vectors, 5), expected)
