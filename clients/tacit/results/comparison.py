"""One of several hypotheses that were tested together: two owners, a column, or a test location."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit.results.common import optional_number


@dataclass(frozen=True)
class Comparison:
    """One of several hypotheses tested together: which, its adjusted p-value, and the decision.

    ``names`` holds the two owners, or the columns: one, or two whose dependence is compared. ``pvalue`` is
    adjusted after Holm, so that it may be compared with the level as it is. For owners ``estimate`` is their
    squared MMD, 0 where ``estimate_unbiased`` is negative, and ``interval`` contains it.
    """

    names: tuple[str, ...]
    pvalue: float
    reject: bool
    estimate: float | None = None
    interval: tuple[float, float] | None = None
    estimate_unbiased: float | None = None

    def __str__(self) -> str:
        verb = "differ" if self.reject else "no difference shown"
        return f"{' and '.join(self.names)}: {verb} (p = {self.pvalue:.3g})"


@dataclass(frozen=True)
class LocationComparison:
    """A test location at which two owners differ most, in the columns' own units.

    ``values`` is the location, by column; ``difference`` the witness there, above 0 where the first of
    ``names`` has more records near it; ``pvalue`` is adjusted after Holm.
    """

    names: tuple[str, str]
    values: Mapping[str, float | str | None]
    difference: float
    standard_error: float
    pvalue: float
    reject: bool

    def __str__(self) -> str:
        place = ", ".join(f"{name} {_value_text(value)}" for name, value in self.values.items())
        more = self.names[0] if self.difference > 0 else self.names[1]
        return f"near {place}: more of {more} (p = {self.pvalue:.3g})"


def compared_owners(pair: Mapping[str, Any]) -> Comparison:
    """Read two owners' comparison from a verdict."""
    return Comparison(
        names=(str(pair["first"]), str(pair["second"])),
        pvalue=float(pair["pvalue"]),
        reject=bool(pair["reject"]),
        estimate=float(pair["squared_mmd"]),
        interval=(float(pair["lower"]), float(pair["upper"])),
        estimate_unbiased=optional_number(pair.get("squared_mmd_unbiased")),
    )


def compared_columns(group: Mapping[str, Any]) -> Comparison:
    """Read the comparison of a column, or of a pair of columns, from a verdict."""
    return Comparison(tuple(map(str, group["columns"])), float(group["pvalue"]), bool(group["reject"]))


def compared_location(location: Mapping[str, Any]) -> LocationComparison:
    """Read a test location's comparison from a verdict."""
    return LocationComparison(
        names=(str(location["first"]), str(location["second"])),
        values={str(name): _value(value) for name, value in location["values"].items()},
        difference=float(location["difference"]),
        standard_error=float(location["standard_error"]),
        pvalue=float(location["pvalue"]),
        reject=bool(location["reject"]),
    )


def _value(value: Any) -> float | str | None:
    return value if value is None or isinstance(value, str) else float(value)


def _value_text(value: float | str | None) -> str:
    if value is None:
        return "missing"
    return value if isinstance(value, str) else f"{value:.4g}"
