"""What a planned study should find: how large it is, in the terms of the procedure, and in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tacit.errors import InputError

Kind = Literal["difference", "dependence", "cells", "release"]
Shape = Literal["linear", "quadratic"]
Amounts = float | Mapping[str, float]

KINDS: Mapping[str, Kind] = {
    "kernel_two_sample": "difference",
    "curated_two_sample": "difference",
    "joint_independence": "dependence",
    "distance_correlation": "dependence",
    "curated_distance_correlation": "dependence",
    "screening": "dependence",
    "noisy_counts": "release",
    "embedding_release": "release",
    "homogeneity": "cells",
    "independence_table": "cells",
    "identity": "cells",
}
"""What each procedure looks for; a release looks for nothing, and is planned by its error."""

MEDIUM: Mapping[Kind, float] = {"difference": 0.5, "dependence": 0.3, "cells": 0.15, "release": 0.0}
"""Cohen's medium effects (*A power primer*, 1992): half a standard deviation; a correlation of .3; and, of
equally likely cells, w = .3, which is a total variation distance of .15."""


@dataclass(frozen=True)
class Effect:
    """What a study should find.

    Attributes:
        size: standard deviations by which the last owner's first column is shifted; the correlation of the
            dependent pair; or a total variation distance. None for the medium effect of the procedure.
        shift: amount added to the last owner's numeric columns, in their own units, in the place of ``size``;
            one number or by column.
        scale: factor of their spread about the public mean; one number or by column.
        shape: of a dependence: "linear", a bivariate normal's; or "quadratic", without any correlation.
        other: what cells' probabilities are in truth, in the place of a distance: of the last owner, or of
            the table.
    """

    size: float | None = None
    shift: Amounts | None = None
    scale: Amounts | None = None
    shape: Shape = "linear"
    other: Any = None

    def sized(self, kind: Kind) -> float:
        """Return the size, the medium one by default.

        Raises:
            InputError: there is no effect of such a size.
        """
        size = MEDIUM[kind] if self.size is None else self.size
        if isinstance(size, bool) or not isinstance(size, int | float) or not abs(size) < float("inf"):
            raise InputError("an effect must be a finite number")
        if kind == "dependence" and not 0 <= abs(size) <= 1:
            raise InputError("a correlation lies between -1 and 1")
        if kind == "cells" and not 0 <= size <= 1:
            raise InputError("a distance lies between 0 and 1")
        return float(size)

    def require_fits(self, kind: Kind) -> None:
        """Raise InputError where something is said that has no meaning for the procedure."""
        moved = self.shift is not None or self.scale is not None
        if moved and kind != "difference":
            raise InputError("shift and scale are of two-sample tests: give effect instead")
        if moved and self.size is not None:
            raise InputError("give effect, in standard deviations, or shift and scale; not both")
        if self.shape not in ("linear", "quadratic"):
            raise InputError('shape must be "linear" or "quadratic"')
        if self.shape != "linear" and kind != "dependence":
            raise InputError("shape is of dependences alone")
        if self.other is not None and kind != "cells":
            raise InputError("other is of tests on counts alone")
        if kind == "release" and self.size is not None:
            raise InputError("this procedure tests nothing: it is planned by its error, without an effect")
