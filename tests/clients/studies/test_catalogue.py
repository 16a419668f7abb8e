"""What owners publish is read by analysts: drafts that a policy would refuse are told so beforehand."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from conftest import MemoryTester

from tacit.client.tester import Client
from tacit.errors import HopelessStudyError, InputError, VerificationFailedError
from tacit.studies.draft import StudyDraft
from tacit.studies.wizard import known_at
from tacit_protocol.domain import CategoricalColumn, Column, NumericColumn
from tacit_protocol.messages.catalogue import CatalogueMessage, PublishedDataSet, common_column, differences
from tacit_protocol.messages.encoding import encode
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.signing import CATALOGUE_TYPE, PrivateKey, sign_envelope

NORTH = PrivateKey.generate()


def publish(memory_tester: MemoryTester, key: PrivateKey = NORTH, **changes: Any) -> None:
    """Let north publish a data set that takes every study of ``draft``, with changes."""
    memory_tester.parties["north"] = (NORTH.public_hex, "owner")
    drafted = changes.pop("draft")
    columns = StudyDraft.from_dict(drafted).columns
    fields: dict[str, Any] = {
        "owner": "north",
        "tester": memory_tester.key.public_hex,
        "version": 1,
        "data_sets": (PublishedDataSet(name="patients", units=700, columns=columns),),
        "procedures": ("*",),
        "per_study_max": Budget.of(9.0, 0.1),
    }
    entry = CatalogueMessage(**{**fields, **changes})
    memory_tester.catalogue["north"] = sign_envelope(encode(entry), CATALOGUE_TYPE, key)


def data_set(**fields: Any) -> tuple[PublishedDataSet, ...]:
    return (PublishedDataSet(**{"name": "patients", **fields}),)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data_sets": data_set(name="heart")}, "publishes no data set patients: it has heart"),
        ({"data_sets": data_set(other_columns=("weight",))}, "lets no study use a column"),
        ({"data_sets": data_set(other_columns=("*",), unit_column="id")}, "is named by id"),
        ({"procedures": ("noisy_counts",)}, "it runs noisy_counts"),
        ({"per_study_max": Budget.of(0.001, 0.1)}, "epsilon 0.001 at most"),
        ({"per_study_max": Budget.of(9.0, 0.0)}, "delta 0 at most"),
        ({"respond_after_s_min": 500}, "after 500 s at the soonest"),
        ({"required_fields": ("purpose", "contact")}, "states purpose, contact"),
        ({"data_uses": ("DUO:0000006",)}, "data_use is DUO:0000006"),
    ],
)
def test_what_a_policy_would_refuse_is_said_before_anything_is_sent(
    memory_tester: MemoryTester,
    client: Client,
    draft: dict[str, Any],
    quick_procedure: None,
    changes: dict[str, Any],
    words: str,
) -> None:
    publish(memory_tester, draft=draft)
    assert not any("north" in warning for warning in client.prepare_study(draft).hopeless)
    publish(memory_tester, draft=draft, **({"procedures": ("quick", "*")} | changes))
    reasons = [warning for warning in client.prepare_study(draft).hopeless if "north" in warning]
    assert reasons
    assert all(words in reason for reason in reasons)
    with pytest.raises(HopelessStudyError, match="north"):
        client.create_study(draft)
    assert not memory_tester.envelopes
    assert client.create_study(draft, force=True) in memory_tester.envelopes


def test_bounds_outside_the_published_ones_are_refused(
    memory_tester: MemoryTester, client: Client, draft: dict[str, Any], quick_procedure: None
) -> None:
    narrow = tuple(
        column.model_copy(update={"lower": column.lower + 1e-3})
        if isinstance(column, NumericColumn)
        else CategoricalColumn(name=column.name, levels=column.levels[:1])
        for column in StudyDraft.from_dict(draft).columns
    )
    publish(memory_tester, draft=draft, data_sets=data_set(columns=narrow))
    found = [
        warning for warning in client.prepare_study(draft).hopeless if "other bounds or levels" in warning
    ]
    assert len(found) == len(narrow)


def test_a_forged_entry_is_not_believed(
    memory_tester: MemoryTester, client: Client, draft: dict[str, Any], quick_procedure: None
) -> None:
    publish(memory_tester, PrivateKey.generate(), draft=draft)
    with pytest.raises(VerificationFailedError, match="north"):
        client.prepare_study(draft)
    for changes in ({"owner": "south"}, {"tester": "0" * 64}):
        publish(memory_tester, draft=draft, **changes)
        with pytest.raises(VerificationFailedError, match="another catalogue"):
            client.catalogue("north")


def test_analysts_and_the_wizard_read_what_is_published(
    memory_tester: MemoryTester, client: Client, draft: dict[str, Any]
) -> None:
    assert client.catalogues() == []
    assert client.catalogue("south") is None
    with pytest.raises(InputError, match="nobody"):
        client.catalogue("nobody")
    publish(memory_tester, draft=draft)
    (entry,) = client.catalogues()
    assert entry.data_set("patients") is not None
    known = known_at(client).of("north", "patients")
    assert known.units == 700
    assert set(known.columns) == {column.name for column in StudyDraft.from_dict(draft).columns}
    publish(memory_tester, draft=draft, data_sets=(), procedures=())
    assert client.catalogues() == []


AGE = NumericColumn(name="age", lower=18, upper=100)
SEX = CategoricalColumn(name="sex", levels=("female", "male"))


def entry(owner: str, *columns: Column, **fields: Any) -> CatalogueMessage:
    found = data_set(columns=columns, **({"measures": {"age": "years"}} | fields))
    return CatalogueMessage(owner=owner, tester="0" * 64, version=1, data_sets=found)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (entry("south", AGE, SEX), None),
        (entry("south", AGE.model_copy(update={"upper": 110.0}), SEX), None),
        (entry("south", AGE, SEX, NumericColumn(name="bmi", lower=1, upper=9)), None),
        (entry("south", AGE, SEX, measures={"age": " years"}), None),
        (entry("south", AGE, SEX, measures={"age": "months"}), "age: in months at south/patients, in years"),
        (entry("south", AGE, SEX, measures={}), "age: in no stated unit at south/patients"),
        (entry("south", AGE.model_copy(update={"name": "Age"}), measures={"Age": "years"}), "calls it Age"),
        (entry("south", NumericColumn(name="age", lower=216, upper=1200)), "no value in common"),
        (entry("south", CategoricalColumn(name="age", levels=("old",))), "categorical at south/patients"),
        (entry("south", CategoricalColumn(name="sex", levels=("F", "male"))), "levels F that north/patients"),
        (entry("south", AGE, unit_column="person"), "a privacy unit is a row at north/patients; all rows"),
    ],
)
def test_where_owners_do_not_mean_the_same_by_a_column_is_said(
    other: CatalogueMessage, words: str | None
) -> None:
    found = differences([entry("north", AGE, SEX), other])
    assert len(found) == (words is not None), found
    assert words is None or words in found[0]


def test_a_column_that_an_owner_does_not_publish_is_said_where_it_is_asked_for() -> None:
    entries = [entry("north", AGE, SEX), entry("south", AGE)]
    assert differences(entries, ["age"]) == ()
    (found,) = differences(entries, ["sex"])
    assert found == "sex: south/patients publishes no bounds or levels of it"
    assert len(differences(entries, ["bmi"])) == 1


def test_columns_are_asked_for_by_name_as_their_owner_publishes_them(
    memory_tester: MemoryTester, client: Client, draft: dict[str, Any], tacit: Callable[..., Any]
) -> None:
    coded = CategoricalColumn(name="sex", levels=("0", "1"))
    publish(memory_tester, draft=draft, data_sets=data_set(columns=(AGE, coded), other_columns=("bmi",)))
    asked = (
        *("study", "create", "--title", "Alike?", "--procedure", "quick", "--epsilon", "1", "--delta", "0"),
        *("--owner", "north/patients:100", "--owner", "south/patients:100", "--column", "age", "--json"),
    )
    code, out, err = tacit(*asked, "--column", "sex")
    assert code == 0, err
    assert client.study_content(json.loads(out)["digest"]).domain.columns == (AGE, coded)
    code, _, err = tacit(*asked, "--column", "bmi")
    assert code != 0
    assert "--column bmi: the study's owners publish no bounds or levels of it" in " ".join(err.split())


def test_what_owners_declare_in_common_is_offered() -> None:
    wide = AGE.model_copy(update={"lower": 0.0, "upper": 90.0})
    assert common_column([AGE, wide]) == AGE.model_copy(update={"upper": 90.0})
    other = CategoricalColumn(name="sex", levels=("male", "x"))
    assert common_column([SEX, other]) == CategoricalColumn(name="sex", levels=("male",))
    assert common_column([]) is common_column([AGE, SEX]) is None
    assert common_column([AGE, AGE.model_copy(update={"lower": 200.0, "upper": 300.0})]) is None
