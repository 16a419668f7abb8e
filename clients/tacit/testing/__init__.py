"""The audit of a procedure: what its maker would be asked by whoever is to run it beside their data.

:func:`audit` attacks a procedure of one's own as the project attacks its own ones: it searches for neighbours
whose releases lie farther apart than their noise is made for, compares the noise that is drawn with the law
that releases state, and counts how often studies without any effect are called significant.
"""

from tacit.testing.procedure_audit import Audit, audit

__all__ = ["Audit", "audit"]
