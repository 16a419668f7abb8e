"""How plans of sample sizes are shown."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from tacit.command.output import lines, print_json

if TYPE_CHECKING:
    from tacit.planning.sizes import SampleSizePlan


def show_plans(plans: "Sequence[SampleSizePlan]", as_json: bool) -> None:
    """Print the best plan, which comes first, and what other methods would need."""
    best, *others = plans
    if as_json:
        print_json(asdict(best) | ({"others": [asdict(plan) for plan in others]} if others else {}))
        return
    lines(
        f"{best.units} units (power {best.power:.2f}, standard error {best.standard_error:.2f}, "
        f"{best.runs} simulated studies)",
        f"  {best.method}, {best.cells} cells, distance {best.distance:.3g}; epsilon {best.epsilon:g}, "
        f"delta {best.delta:g}, level {best.alpha:g}",
    )
    if others:
        lines("  " + "; ".join(f"{plan.method} would need {plan.units}" for plan in others))
