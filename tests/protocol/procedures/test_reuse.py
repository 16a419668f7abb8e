"""Releases in other studies: read again where they are the very release that is asked for, and else refused.

One table for all procedures; what is made of noisy counts by tests on other cells stands with those.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from asked_studies import Fields, asked
from made_studies import Drawing, domain_of, release_of, uniform

from tacit_protocol.domain import Domain, Encoder, Projection, VectorColumn
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.base import StudyError, reread
from tacit_protocol.procedures.discovery import PROCEDURES, procedure_named

Row = tuple[str, Study, Study]


def of(procedure: str, parameters: Fields, given: Fields, *rows: tuple[Any, ...]) -> Iterator[Row]:
    """Yield what is said, the later study, and the earlier one: how it differs in parameters and fields."""
    later = asked(procedure, parameters, given)
    for words, *changes in rows:
        changed, fields = [*changes, {}, {}][:2]
        earlier = asked(
            fields.get("procedure", procedure), {**parameters, **changed}, {**given, **without(fields)}
        )
        yield words, later, earlier


def without(fields: Fields) -> Fields:
    return {name: value for name, value in fields.items() if name != "procedure"}


SAME = ""
"""What is said of a release that is read again."""

TWO = {"numeric": 2}
GROUPS = {"numeric": 1, "sizes": (4, 4)}
PURE = {"delta": 0.0}
OTHER_SEED = {"seed": 9}
SWAPPED = Domain(columns=domain_of(2).columns[::-1])
OTHER_LEVELS = Domain(
    columns=(
        domain_of(0, (4,)).columns[0].model_copy(update={"levels": ("l0", "x")}),
        domain_of(0, (4, 5)).columns[1],
    )
)
ENCODER = Encoder(
    inputs=(VectorColumn(name="v", length=9, norm=1.0),),
    projection=Projection(seed="0" * 32),
    outputs=("n0", "n1"),
)
ME: dict[str, Any] = {"features": "me", "n_features": 12, "bandwidth": 0.4}
POINTS: dict[str, Any] = {"n_points": 12, "placement": "middle", "bandwidth": 0.4}
K_NORM: dict[str, Any] = {"noise": "k-norm", "features": "columns"}
DATABASE = {"numeric": 2, "sizes": (4,)}


def of_other_procedures() -> Iterator[Row]:
    """Yield tests that read databases, databases that read tests' releases, and tests of noisy counts."""
    for words, of_database, of_test in (
        ("features me", {}, {"features": "auto", "n_features": None, "bandwidth": None}),
        ("has no second moment", {}, {"statistic": "noise-aware"}),
        ("has no second moment", {}, {"null": "weighted"}),
        ("other points", {"placement": "uniform"}, {}),
        ("state points", {"placement": "histograms"}, {}),
        ("another bandwidth", {"bandwidth": 0.3}, {}),
        ("another noise", {"noise": "laplace"}, {}),
        ("another method", {"method": "random-features", "n_points": None, "placement": None}, {}),
    ):
        test = asked("kernel_two_sample", ME | of_test, {**TWO, "owners": 2})
        yield words, test, asked("embedding_release", POINTS | of_database, TWO)
    for words, of_test, of_database in (
        ("features me", dict.fromkeys(ME), {}),
        ("other points", {}, {"placement": "uniform"}),
        ("other points", {}, {"n_points": 13}),
        ("another bandwidth", {}, {"bandwidth": 0.5}),
        ("another category_similarity", {"category_similarity": 0.1}, {}),
    ):
        test = asked("kernel_two_sample", ME | of_test, {**DATABASE, "owners": 2})
        yield words, asked("embedding_release", POINTS | of_database, DATABASE), test
    cells = {"sizes": (4, 5), "owners": 2, **PURE}
    homogeneity = asked("homogeneity", {}, cells)
    for coarser in ({**cells, "sizes": (4,)}, {**cells, "domain": OTHER_LEVELS}):
        yield "same columns", homogeneity, asked("noisy_counts", {}, coarser)
    known = {"sizes": (6,), "epsilon": 2.0, "delta": 1e-6}
    for words, of_identity, of_counts in (
        ("unlisted", {"unlisted": "cells"}, {"unlisted": "last"}),
        ("unlisted", {"unlisted": "last"}, {"unlisted": "cells"}),
        ("use mcgof", {"method": "privit-laplace"}, {}),
        ("Gaussian counts", {"method": "zcdp-gof"}, {"noise": "laplace"}),
    ):
        identity = asked("identity", {"probabilities": [0.25] * 4, **of_identity}, known)
        yield words, identity, asked("noisy_counts", of_counts, known)


CASES = [
    *of_other_procedures(),
    *of(
        "association",
        {},
        TWO,
        (SAME, {}, {"level": 0.01}),
        ("other columns", {}, {"domain": SWAPPED}),
        ("another noise", {"noise": "laplace"}),
    ),
    *of(
        "group_comparison",
        {"group": "c0"},
        GROUPS,
        (SAME, {}, {"level": 0.01}),
        ("other groups", {"group": "c1"}),
        ("other columns", {}, {"sizes": (4,)}),
        ("no others", {"group": None}, {"procedure": "kernel_two_sample", "owners": 2}),
        ("another noise", {"noise": "laplace"}),
    ),
    *of(
        "group_comparison",
        {"group": "c0", "noise": "laplace"},
        {**GROUPS, **PURE, "epsilon": 0.3, "units": 300},
        ("other numbers of units", {}, {"units": 10**6}),
    ),
    *of(
        "kernel_two_sample",
        {},
        {**TWO, "owners": 2},
        (SAME, {}, {"title": "Else", "level": 0.2, "created_at": 5, "deadline": 9, **OTHER_SEED}),
        ("columns, bounds or levels", {}, {"numeric": 3}),
        ("same epsilon and delta", {}, {"epsilon": 2.0}),
        ("same epsilon and delta", {}, {"delta": 1e-6}),
        ("another features", {"features": "columns"}),
        ("another pair_share", {"pair_share": 0.2}),
        ("another cycles", {"cycles": [1, 2]}),
        ("made by other encoders", {}, {"encoders": (ENCODER,)}),
        ("of kernel_two_sample and embedding_release, no others", {}, {"procedure": "another"}),
    ),
    *of(
        "kernel_two_sample",
        {"features": "me"},
        {**TWO, "owners": 2},
        (SAME, {"statistic": "noise-aware", "replicates": 99}),
        ("another bandwidth", {"bandwidth": 0.3}),
        ("another mean_share", {"mean_share": 0.5}),
        ("same seed", {}, OTHER_SEED),
    ),
    *of(
        "kernel_two_sample",
        {"features": "me", "locations": [[0.1, 0.2]]},
        {**TWO, "owners": 2},
        (SAME, {}, OTHER_SEED),
    ),
    *of("kernel_two_sample", {"features": "scf"}, {**TWO, "owners": 2}, ("same seed", {}, OTHER_SEED)),
    *of(
        "kernel_two_sample",
        K_NORM,
        {**TWO, **PURE, "owners": 2},
        ("another resolution", {"resolution": 8}),
        ("another fine_cells", {"fine_cells": True}),
    ),
    *of(
        "embedding_release",
        {"n_points": 20, "n_bins": 5},
        DATABASE,
        (SAME,),
        ("seed", {}, OTHER_SEED),
        ("another n_bins", {"n_bins": 6}),
        ("state points", {"n_bins": None, "placement": "uniform"}),
    ),
    *of(
        "embedding_release",
        {"method": "random-features", "n_frequencies": 30},
        DATABASE,
        (SAME,),
        ("seed", {}, OTHER_SEED),
        ("another noise", {"noise": "laplace"}),
    ),
    *of(
        "embedding_release",
        {"method": "exponential", "candidate_rows": 2, "n_points": 6},
        DATABASE,
        (SAME,),
        ("seed", {}, OTHER_SEED),
        ("another candidate_rows", {"candidate_rows": 3}),
    ),
]


@pytest.mark.parametrize(
    ("words", "later", "earlier"),
    CASES,
    ids=[f"{later.procedure}-{words or 'same'}" for words, later, _ in CASES],
)
def test_a_release_is_read_again_where_it_is_the_one_that_is_asked_for(
    words: str, later: Study, earlier: Study
) -> None:
    again = later.owners[0].model_copy(update={"reuses": "c" * 64})
    later = later.model_copy(update={"owners": (again, *later.owners[1:])})
    maker = earlier if earlier.procedure in PROCEDURES else later
    made = release_of(procedure_named(maker.procedure), maker, uniform(maker.domain, 500, 1), Drawing())
    lender = PROCEDURES.get(earlier.procedure) if earlier.procedure in PROCEDURES else None
    if words == SAME:
        found = reread(procedure_named(later.procedure), later, again, earlier, made, lender=lender)
        assert (found.vectors, found.choice) == (made.vectors, made.choice)
        return
    with pytest.raises(StudyError, match=words):
        reread(procedure_named(later.procedure), later, again, earlier, made, lender=lender)
