"""How plans of sample sizes are shown."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from tacit.command.output import lines, print_json

if TYPE_CHECKING:
    from tacit.planning.sizes import SampleSizePlan


def show_plans(plans: "Sequence[SampleSizePlan]", as_json: bool) -> None:
    """Print the best plan, which comes first, and what other methods would need."""
    from tacit.planning.words import outcome_words  # noqa: PLC0415 (imports wait until a command runs)

    best, *others = plans
    if as_json:
        print_json(asdict(best) | ({"others": [asdict(plan) for plan in others]} if others else {}))
        return
    lines(
        f"About {best.units} units: found {outcome_words(best.found, best.runs)}",
        f"  {best.method}, {best.cells} cells, distance {best.distance:.3g}; epsilon {best.epsilon:g}, "
        f"delta {best.delta:g}, level {best.alpha:g}",
    )
    if others:
        lines("  " + "; ".join(f"{plan.method} would need about {plan.units}" for plan in others))
