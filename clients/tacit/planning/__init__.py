"""Plans: how much budget and how many rows a question needs, by simulation. Spends nothing, sends nothing.

Everything here draws from public or synthetic rows. A sample that is passed as public gets no protection.
"""

from tacit.planning.choices import ChoicePlan
from tacit.planning.curve import CurvePoint, PowerCurve
from tacit.planning.draft import power_of_draft
from tacit.planning.sdk import plan_choice, plan_curve, plan_error, plan_power, plan_smallest
from tacit.planning.simulation import ErrorPlan, Plan, PowerPlan
from tacit.planning.smallest import SmallestPlan
from tacit_protocol.procedures.populations import Effect

__all__ = [
    "ChoicePlan",
    "CurvePoint",
    "Effect",
    "ErrorPlan",
    "Plan",
    "PowerCurve",
    "PowerPlan",
    "SmallestPlan",
    "plan_choice",
    "plan_curve",
    "plan_error",
    "plan_power",
    "plan_smallest",
    "power_of_draft",
]
