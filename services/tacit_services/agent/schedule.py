"""When an answer leaves: at a time that the study and the owner's decision fix, not when it is ready.

How long a release takes to compute may depend on the data. An answer, release or decline alike, therefore
waits for the first of these moments by which it is ready, counted from the decision to run the study::

    r, 2r, 4r, ..., 64r, 128r, 192r, 256r, ...        r = the study's respond_after_s

An answer that is ready within r says nothing by its time. A later one tells its moment and no more: two
computations differ in sight of the tester only where one of those moments lies between them.
"""

DOUBLINGS = 6
"""Moments double this often, then come every ``2**DOUBLINGS * r``: few of them, and never a wait that is
longer than the computation took, nor, after an agent was off for days, longer than that step."""

MARGIN_S = 0.25
"""An answer must be ready this long before its moment: storing and signing it take part of that."""


def send_time(decided_at: int, respond_after_s: int, now: float) -> int:
    """Return the Unix time at which an answer that is ready ``now`` is to be sent.

    Args:
        decided_at: when it was decided to run or to decline the study, Unix seconds.
        respond_after_s: the study's; with 0 the answer is due at once.
        now: Unix time, at or after ``decided_at``.
    """
    if respond_after_s == 0:
        return 0
    elapsed_s = now + MARGIN_S - decided_at
    moment_s, longest_s = respond_after_s, respond_after_s << DOUBLINGS
    while moment_s < min(elapsed_s, longest_s):
        moment_s *= 2
    if moment_s < elapsed_s:
        moment_s = longest_s * -int(-elapsed_s // longest_s)
    return decided_at + moment_s
