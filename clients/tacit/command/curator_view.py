"""How a curator's data sets, and the studies that ask for them, are shown."""

from collections.abc import Iterable, Mapping
from typing import Any

from tacit.client.answers import HeldDataSet, Standing, parse_item
from tacit.command.output import epsilon_text, lines, table, time_text


def data_set_fields(data_set: HeldDataSet) -> dict[str, Any]:
    """Return a data set as plain values."""
    return data_set.model_dump()


def print_data_sets(data_sets: Iterable[HeldDataSet]) -> None:
    """Print data sets and what is left of their budgets."""
    table(
        ("Data set", "Rows", "Units", "Epsilon cap", "Epsilon spent", "Epsilon left", "Approval"),
        [
            (
                data_set.account,
                "are there" if data_set.ready else "not uploaded",
                data_set.units or "",
                epsilon_text(data_set.epsilon_cap_micro),
                data_set.spent_words,
                data_set.left_words,
                data_set.policy.get("approval", ""),
            )
            for data_set in data_sets
        ],
    )


def print_studies(studies: Iterable[Mapping[str, Any]]) -> None:
    """Print a line for each study, with who has approved."""
    table(
        ("Study", "Title", "State", "Approved by", "Waiting for", "Epsilon", "Deadline"),
        [
            (
                study["digest"][:12],
                study["title"] or "(cannot be read)",
                study["state"],
                _owners_who(study, "approved"),
                _owners_who(study, "waiting"),
                "" if study["epsilon_micro"] is None else epsilon_text(study["epsilon_micro"]),
                time_text(study["deadline"]),
            )
            for study in studies
        ],
    )


def print_study(study: Mapping[str, Any]) -> None:
    """Print one study: what it asks in plain words, what remains, and who has said what."""
    words = study.get("plain_words") or ()
    lines(*([words] if isinstance(words, str) else [str(line) for line in words]))
    lines(*(f"Warning: {warning}" for warning in study.get("warnings") or ()))
    for account in study.get("accounts") or ():
        standing = parse_item(Standing, account)
        payment = f"; this study {account['payment']}" if account.get("payment") else ""
        lines(f"{account['account']}: epsilon {standing.left_words} left{payment}")
    for owner in study.get("owners") or ():
        lines(f"{owner['owner']}: {_decision_text(owner)}")
    lines(f"State: {study['state']}")


def _owners_who(study: Mapping[str, Any], decision: str) -> str:
    return ", ".join(owner["owner"] for owner in study["owners"] if owner["decision"] == decision)


def _decision_text(owner: Mapping[str, Any]) -> str:
    by = " by its policy" if owner.get("decided_by") == "policy" else ""
    return f"{owner['decision']}{by}"
