"""Studies of made-up columns, of which a table states what is asked and what differs from row to row."""

from collections.abc import Mapping
from typing import Any

from made_studies import domain_of, made_study

from tacit_protocol.messages.study import Study

Fields = Mapping[str, Any]


def asked(procedure: str, parameters: Fields, given: Fields) -> Study:
    """Return a study of columns n0, n1, ... and c0, c1, ...; a parameter of None is left out."""
    fields = {"numeric": 0, "sizes": ()} | dict(given)
    chosen = {name: value for name, value in parameters.items() if value is not None}
    domain = fields.pop("domain", None) or domain_of(fields.pop("numeric"), fields.pop("sizes"))
    fields = {name: value for name, value in fields.items() if name not in {"numeric", "sizes"}}
    budget = {"budget": fields.pop("budget")} if "budget" in fields else {}
    return made_study(procedure, domain, chosen, **fields).model_copy(update=budget)
