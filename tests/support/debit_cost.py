"""What one small debit costs: such costs add up, so that tests know what may be granted in all."""

from tacit_protocol.privacy.guarantee import EPSILON_UNITS, ApproximateEvent, Budget, Guarantee

DEBIT_MICRO = 10_000
COST = Guarantee(
    budget=Budget(epsilon_micro=DEBIT_MICRO, delta_pico=0),
    events=(ApproximateEvent(epsilon=DEBIT_MICRO / EPSILON_UNITS, delta=0.0),),
)
