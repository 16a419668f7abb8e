"""`tacit plan`: how much budget and how many rows a question needs. Public inputs only; spends nothing."""

import typer

from tacit.command.plan_counts import homogeneity, independence
from tacit.command.plan_identity import identity
from tacit.command.plan_locations import locations
from tacit.command.plan_power import choice, curve, power, smallest
from tacit.command.plan_question import with_flags

app = typer.Typer(name="plan", help="Plan a study on public inputs.", no_args_is_help=True)


@app.callback()
def plan() -> None:
    """Plan a study on public or synthetic rows: nothing is spent and nothing is sent.

    A sample given with --public gets no protection: never give rows of the study itself.
    """


app.command("power")(with_flags(power))
app.command("curve")(with_flags(curve))
app.command("smallest")(with_flags(smallest))
app.command("choice")(with_flags(choice))
app.command("two-sample")(with_flags(power, source="kernel_two_sample"))
app.command("locations")(locations)
app.command("identity")(identity)
app.command("homogeneity")(homogeneity)
app.command("independence")(independence)
