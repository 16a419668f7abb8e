"""Studies that cannot be run are refused before anything is spent, with words that say what to change.

One table for all procedures. That no parameter is quoted, test_every_procedure.py says; what numbers of units
alone refuse, test_public_rules.py.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from asked_studies import Fields, asked
from made_studies import domain_of

from tacit_protocol.domain import Domain
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.gaussian_mechanism import SensitivityError
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.procedures.base import StudyError, check_study
from tacit_protocol.procedures.discovery import procedure_named

Row = tuple[str, Study]


def of(procedure: str, parameters: Fields, given: Fields, *rows: tuple[Any, ...]) -> Iterator[Row]:
    """Yield what is said of each row: its words, what it changes in the parameters, and in the study."""
    for words, *changes in rows:
        changed, fields = [*changes, {}, {}][:2]
        yield words, asked(procedure, {**parameters, **changed}, {**given, **fields})


TWO = {"numeric": 2}
MIXED = {"numeric": 2, "sizes": (4, 3)}
CELL = {"sizes": (4,)}
PURE = {"delta": 0.0}
HELD_APART = {"numeric": 2, "owners": ("a", "b"), "held": (("n0",), ("n1",))}
THREE_TO_ONE = {"numeric": 4, "owners": ("a", "b"), "held": (("n0", "n1", "n2"), ("n3",))}
THREE_APART = {"numeric": 3, "owners": ("a", "b", "c"), "held": (("n0",), ("n1",), ("n2",))}
MASKS = {"aggregation": "masked", "colluders": 0}
AVERAGED = {"unit_column": "person"}
CUT = {"cuts": {"n0": [0.2, 0.5]}}
UNEVEN = Domain(columns=(domain_of(2).columns[0], domain_of(2).columns[1].model_copy(update={"upper": 9.0})))
GROUPS = {"numeric": 1, "sizes": (4,), "owners": 2}
MASKED_GROUPS = {"numeric": 1, "sizes": (4, 5), "owners": 3}
BESIDE_GROUPS = {"numeric": 1, "sizes": (4, 4), "owners": ("a", "b"), "held": (("c0",), ("n0", "c1")), **PURE}
BESIDE_COUNTS = {"sizes": (4, 4, 5), "owners": ("a", "b"), "held": (("c0",), ("c1", "c2")), **PURE}
BESIDE_TIMES = {"numeric": 1, "sizes": (4, 4), "owners": ("a", "b"), "held": (("c0",), ("n0", "c1")), **PURE}
UNIFORM = {"probabilities": [0.25] * 4}
KNOWN = {"sizes": (6,), "epsilon": 2.0, "delta": 1e-6}
CURATED = {"numeric": 2, "owners": ("o0", "o1"), "curated": True, "level": 0.01}
ME = {"features": "me"}
EFFECTLESS = "has no effect"
RIGHT = {"n1": ["n0"]}
POINT = {"points": [[0.1, 0.2, "l0"]]}
CHOSEN = {"method": "exponential", "candidate_rows": 2}
DATABASE = {"numeric": 2, "sizes": (4,)}
COUNTED = {"sizes": (4,), "owners": 5, "epsilon": 0.5, "delta": 1e-6}
FINE = {"noise": "k-norm", "features": "columns", "fine_cells": True}


def cannot_be_masked() -> Iterator[Row]:
    """Yield what is refused alike wherever owners mask, and what one procedure alone refuses."""
    votes = {"numeric": 2, "owners": 3}
    counts = {"sizes": (4,), "owners": 3}
    kinds: list[tuple[str, Fields, Fields]] = [
        ("noisy_counts", {"noise": "gaussian"}, COUNTED),
        ("association", {}, {"numeric": 2, "sizes": (4,), "owners": 3}),
        ("group_comparison", {"group": "c0"}, MASKED_GROUPS),
        ("embedding_release", {"placement": "uniform", "n_points": 8}, {**counts, "numeric": 1}),
        ("identity", {"method": "zcdp-gof", "probabilities": [0.7, 0.3]}, counts),
        ("aggregated_test", {"test": "pearson"}, votes),
        ("joint_independence", {"method": "aggregate"}, votes),
    ]
    for procedure, parameters, given in kinds:
        yield from of(
            procedure,
            {**parameters, **MASKS},
            given,
            ("needs colluders", {"colluders": None}),
            ("at least one owner", {"colluders": 5}),
            ("between 2", {}, {"owners": 1}),
        )
        if procedure != "identity":  # which asks for one owner first
            yield from of(procedure, {**parameters, **MASKS}, given, ("leave it out", {"aggregation": None}))
        if "method" not in parameters and procedure != "aggregated_test":
            yield from of(procedure, {**parameters, **MASKS}, given, ("Gaussian", {"noise": "laplace"}))
        if procedure in {"association", "group_comparison"}:
            yield from of(procedure, {**parameters, **MASKS}, given, ('unit_rows "one"', {}, AVERAGED))
    yield from of(
        "noisy_counts",
        {"noise": "gaussian", **MASKS},
        COUNTED,
        ("smaller epsilon", {}, {"budget": Budget.of("90", "1e-6")}),
    )
    yield from of("group_comparison", MASKS, MASKED_GROUPS, ("two groups", {"group": "c1"}))
    yield from of(
        "embedding_release",
        {"placement": "uniform", "n_points": 8, **MASKS},
        {**counts, "numeric": 1},
        ("all owners have in common", {"placement": "histograms", "n_points": None}),
        ("all owners have in common", {**CHOSEN, "n_points": 4}),
    )
    yield from of(
        "identity",
        {"method": "zcdp-gof", "probabilities": [0.7, 0.3], **MASKS},
        counts,
        ("Gaussian", {"method": "mcgof"}),
        ("masked sums are of counts", {"method": "privit"}),
        ("name one owner", {"aggregation": "separate", "colluders": None}),
    )
    for procedure, parameters in (
        ("aggregated_test", {"test": "pearson"}),
        ("joint_independence", {"method": "aggregate"}),
    ):
        yield from of(procedure, {**parameters, **MASKS}, votes, ("give a delta above 0", {}, PURE))
    yield from of(
        "joint_independence",
        MASKS,
        votes,
        ('method "aggregate"', {"method": "table"}),
        ("no curator", {"method": "aggregate"}, {"curated": True}),
    )


REFUSED = [
    *cannot_be_masked(),
    *of(
        "aggregated_test",
        {"test": "mann_whitney"},
        {"numeric": 1, "sizes": (4,), **PURE},
        ("test", {"test": "secret"}),
        ("parameter group must name", {"group": "secret"}),
        ("of log_rank", {"event": "c0"}),
        ("compares no groups", {"test": "pearson", "group": "n0"}, TWO | {"sizes": ()}),
        ("takes 1 numeric and 1 categorical", {}, TWO | {"sizes": ()}),
        ("event_level must be a level", {"test": "log_rank", "event_level": "secret"}, {"sizes": (4, 4)}),
        ("event must name", {"test": "log_rank", "event": "n0"}, {"sizes": (4, 4)}),
        ("takes two columns", {"test": "conditional_independence"}, TWO | {"sizes": ()}),
        ("block_level", {"block_level": 0.6}),
        ("regression", {"test": "conditional_independence", "regression": "secret"}, {"numeric": 3}),
        ("leave the curator out", {}, {"owners": 2, "curated": True}),
        ("at least 10 units", {}, {"units": 9}),
        (
            "at least 40 units",
            {"test": "conditional_independence"},
            {"numeric": 3, "sizes": (5,), "units": 39},
        ),
        ("ask for more blocks", {"blocks": 20}, {"units": 3_000_000}),
        ("same bounds", {"test": "wilcoxon"}, {"domain": UNEVEN}),
    ),
    *of(
        "association",
        {},
        {"owners": 2},
        ("two to 20 columns", {}, {"numeric": 1}),
        ("two to 16 levels", {}, {"numeric": 1, "sizes": (3,)}),
    ),
    *of(
        "group_comparison",
        {},
        GROUPS,
        ("must name a categorical column", {}, {"sizes": ()}),
        ("must name a categorical column", {"group": "n0"}),
        ("one to 100 columns besides", {}, {"numeric": 0}),
        ("two to 8 levels", {}, {"sizes": (3,)}),
        ("two to 8 levels", {}, {"sizes": (11,)}),
        ("needs two levels", {}, {"numeric": 0, "sizes": (4, 3)}),
    ),
    *of(
        "group_comparison",
        {},
        BESIDE_GROUPS,
        ("a single categorical", {"group": "c0"}, {"held": (("c0", "n0"), ("c1",))}),
        ("a single categorical column", {"group": "n0"}),
        ("every column belongs to one owner", {}, {"held": (("c0",), ("n0",))}),
        ("between two owners", {}, {"owners": ("a", "b", "c"), "held": (("c0",), ("n0",), ("c1",))}),
        ("their numbers must agree", {}, {"units": (4000, 3000)}),
    ),
    *of(
        "stratified_table",
        {},
        {"sizes": (4, 4), "owners": 2, **PURE},
        ("two columns or more", {}, CELL),
        ("categorical columns with two levels", CUT, {"numeric": 1, "sizes": (4,)}),
        ("must name two columns", {"group": "nobody"}),
        ("must name two columns", {"group": "c0", "outcome": "c0"}),
        ("must be a level of the outcome", {"event": "perhaps"}),
    ),
    *of(
        "survival",
        CUT,
        {"numeric": 1, "sizes": (4,), "owners": 2, **PURE},
        ("parameter time must name", {"cuts": None}, {"numeric": 0, "sizes": (4, 4)}),
        ("event must name", {"cuts": {"n0": [0.2], "n1": [0.5]}}, {"numeric": 2, "sizes": ()}),
        ("must be a level", {"event_level": "perhaps"}),
        ("parameter group must name", {"group": "nobody"}, {"sizes": (4, 4)}),
        ("event must name", {"group": "c0"}),
        ("event must name", {"event": "n0"}),
    ),
    *of(
        "noisy_counts",
        {},
        {"sizes": (4, 5), **PURE},
        ("no effect with Laplace", {"rho": 0.1}),
        ("rho costs more", {"noise": "gaussian", "rho": 4.0}, {"delta": 1e-5}),
        ("needs cuts", {}, {"numeric": 1, "sizes": ()}),
        ("increase strictly", {"cuts": {"n0": [0.5, 0.4]}}, {"numeric": 1, "sizes": ()}),
        ("numeric columns", {"cuts": {"c0": [0.5]}}),
        ("leave the curator out", {}, {"curated": True}),
        ("every owner holds all columns", {}, {"owners": ("a", "b"), "held": (("c0",), ("c1",))}),
    ),
    *of(
        "homogeneity",
        {},
        {"sizes": (4, 5), **PURE},
        ("two or more owners",),
        ("take too long", {"replicates": 100_000}, {"owners": 500, "sizes": (1002,)}),
        ("every owner holds all columns", {}, {"owners": ("a", "b"), "held": (("c0",), ("c1",))}),
    ),
    *of("independence_table", {}, {**CELL, **PURE}, ("2 to 6 columns",)),
    *of(
        "independence_table",
        {},
        BESIDE_COUNTS,
        ("between two", {}, {"owners": ("a", "b", "c"), "held": (("c0",), ("c1",), ("c2",))}),
        ("every column belongs to one owner", {}, {"held": (("c0",), ("c1",))}),
    ),
    *of(
        "stratified_table",
        {"group": "c0", "outcome": "c1"},
        BESIDE_COUNTS,
        ("list the group's owner first", {"group": "c1", "outcome": "c2"}),
        ("noise is Laplace", {"noise": "gaussian"}, {"delta": 1e-5}),
    ),
    *of("survival", CUT | {"event": "c1"}, BESIDE_TIMES, ("list the group's owner first",)),
    *of(
        "identity",
        UNIFORM,
        KNOWN,
        ("give 4", {"probabilities": [0.5, 0.5]}),
        ("add up to 1", {"probabilities": [0.3] * 4}),
        ("Gaussian counts alone", {"rho": 0.1}),
        ("Gaussian noise", {"method": "zcdp-gof", "noise": "laplace"}),
        ("weights of its own", {"method": "zcdp-gof", "weights": "published"}),
        ("rho costs more", {"method": "zcdp-gof", "rho": 5.0}),
        ("delta above 0", {"method": "zcdp-gof"}, PURE),
        ("mcgof and zcdp-gof alone", {"method": "privit", "noise": "laplace"}),
        ("odd number", {"method": "privit", "blocks": 4}),
        ("draws rows", {"method": "privit"}, AVERAGED),
        ("would not be private", {"method": "privit"}, {"units": 300}),
        ("more replicates", {}, {"level": 0.0005}),
        ("cuts", {}, {"numeric": 1, "sizes": ()}),
        ("one owner", {}, {"owners": 2}),
        ("its own agent", {}, {"curated": True}),
        # Half of the level is the coin's, so that it takes twice as many simulations as of other methods.
        ("ask for 1997 replicates", {"method": "repetition"}, {"level": 0.001}),
        ("ask for 1997 replicates", {"method": "repetition", "replicates": 1996}, {"level": 0.001}),
        (
            "a larger level, or use another method",
            {"method": "repetition", "replicates": 99_999},
            {"level": 1e-6},
        ),
    ),
    *of(
        "kernel_two_sample",
        {},
        {"numeric": 2, "owners": 2, "level": 0.01},
        ("needs features", {"calibration": "paper"}),
        ("needs features", {"features": "columns", "calibration": "paper"}),
        ("max form alone", {"statistic": "mmd"}),
        ("max form alone", {"null": "weighted"}),
        ("max form needs", ME | {"statistic": "max"}),
        ("two owners and statistic", ME | {"statistic": "mmd", "null": "weighted"}),
        ("exact null", ME | {"statistic": "mmd", "null": "noise-aware"}),
        ("numeric columns alone", {"features": "scf"}, MIXED),
        ("one value per column", ME | {"locations": [[0.1]]}),
        ("must be a number", ME | {"locations": [[0.1, "x"]]}),
        (f"n_features {EFFECTLESS}", {"n_features": 5}),
        (f"bandwidth {EFFECTLESS}", {"bandwidth": 0.5}),
        (f"kernel {EFFECTLESS}", {"features": "scf", "kernel": "laplacian"}),
        (f"locations {EFFECTLESS}", {"features": "scf", "locations": [[0.1, 0.2]]}),
        (f"cycles {EFFECTLESS}", ME | {"cycles": [1.0]}),
        (f"window {EFFECTLESS}", ME | {"window": 0.5}),
        (f"pair_share {EFFECTLESS}", {"features": "columns", "pair_share": 0.5}),
        (f"replicates {EFFECTLESS}", ME | {"replicates": 500}),
        (f"regularisation {EFFECTLESS}", ME | {"regularisation": 0.1}),
        (f"mean_share {EFFECTLESS}", ME | {"calibration": "paper", "mean_share": 0.5}),
        ("cells of columns", ME | {"noise": "k-norm"}),
        (f"cycles {EFFECTLESS}", {"noise": "k-norm", "cycles": [1.0]}),
        (f"pair_share {EFFECTLESS}", {"noise": "k-norm", "pair_share": 0.2}),
        (f"resolution {EFFECTLESS}", {"noise": "gaussian", "resolution": 2}),
        (f"fine_cells {EFFECTLESS}", {"noise": "gaussian", "fine_cells": True}),
        ("two numbers", {"noise": "k-norm"}, {"numeric": 0, "sizes": (3,), **PURE}),
        ("too small for fine cells", FINE, {"budget": Budget(epsilon_micro=4, delta_pico=0)}),
        ("the study has none", FINE, {"numeric": 0, "sizes": (3, 4), **PURE}),
        ("curated_two_sample", {}, {"curated": True}),
        ("all columns", {}, HELD_APART),
        (
            "each may release 9219 numbers",
            ME | {"n_features": 200},
            {"owners": 1000},
        ),
    ),
    *of(
        "curated_two_sample",
        {"release": "mean-covariance"},
        CURATED,
        ("exactly one sample", {"samples": [["o0"], ["o0"]]}),
        ("exactly one sample", {"samples": [["o0"], ["o1", "o2"]]}),
        ("samples", {"samples": [["o0", "o1"], []]}),
        ("samples", {"samples": [["o0"]]}),
        ("needs features", {"calibration": "paper"}),
        ("errata", {"release": "statistic", "calibration": "paper"}),
        ("release 'permutation'", {"features": "kernel"}),
        ("release 'permutation'", {"release": "statistic", "features": "kernel"}),
        ("max form alone", {"statistic": "mmd"}),
        ("max form needs", ME | {"statistic": "max"}),
        ("numeric columns alone", {"features": "scf"}, MIXED),
        (f"n_features {EFFECTLESS}", {"n_features": 5}),
        (f"permutations {EFFECTLESS}", {"permutations": 500}),
        (f"mean_share {EFFECTLESS}", {"release": "permutation", "mean_share": 0.5}),
        (f"statistic {EFFECTLESS}", {"release": "permutation", "statistic": "max"}),
        (f"calibration {EFFECTLESS}", {"release": "permutation", "calibration": "paper"}),
        (f"statistic {EFFECTLESS}", ME | {"calibration": "paper", "statistic": "mmd"}),
        (f"replicates {EFFECTLESS}", ME | {"replicates": 500}),
        (f"regularisation {EFFECTLESS}", ME | {"regularisation": 0.1}),
        (f"n_features {EFFECTLESS}", {"release": "permutation", "features": "kernel", "n_features": 5}),
        ("has no features", ME | {"release": "table"}),
        (f"pair_share {EFFECTLESS}", {"release": "aggregate", "pair_share": 0.4}),
        (f"categories {EFFECTLESS}", {"release": "aggregate", "categories": 3}),
        (f"blocks {EFFECTLESS}", {"blocks": 3}),
        ("more permutations", {"release": "permutation", "permutations": 99}, {"level": 0.001}),
        ("needs a curator", {}, {"curated": False}),
        ("all columns", {}, HELD_APART),
    ),
    *of(
        "joint_independence",
        {"method": "permutation"},
        {"numeric": 2, **PURE},
        ("parameter groups", {"groups": [["n0", "n1"]]}, {"numeric": 3}),
        ("parameter groups", {"groups": [["n0"], []]}, {"numeric": 3}),
        ("one group only", {"groups": [["n0"], ["n0", "n1"], ["n2"]]}, {"numeric": 3}),
        ("all of them", {"groups": [["n0"], ["n1"]]}, {"numeric": 3}),
        ("more permutations", {"permutations": 99}, {"level": 0.009}),
        ("one place", {}, {"owners": 2}),
        ("2 to 32 variables", {}, {"numeric": 1}),
        ("2 to 32 variables", {}, {"numeric": 33}),
        (
            r"too many units.*141421.*fewer permutations",
            {},
            {"owners": 2, "curated": True, "units": 75_000},
        ),
        (r"16384 units at most.*one row a unit", {}, {"units": 20_000, **AVERAGED}),
        ("of method aggregate", {"blocks": 9}),
        ("of method aggregate", {"graph": RIGHT}),
        ("of method table", {"categories": 2}),
        ("all columns", {}, HELD_APART),
    ),
    *of(
        "joint_independence",
        {"method": "aggregate"},
        {"numeric": 2, **PURE},
        ("circle", {"graph": {"n1": ["n0"], "n0": ["n1"]}}),
        ("children", {"graph": {"secret": ["n0"]}}),
        ("parents", {"graph": {"n1": ["secret"]}}),
        ("groups", {"graph": RIGHT, "groups": [["n0", "n1"], ["n2"]]}, {"numeric": 3}),
        ("bandwidth", {"kernel": "linear", "bandwidth": 0.1}),
        ("at least 5 units", {}, {"units": 4}),
    ),
    *of(
        "joint_independence",
        {"method": "table", "permutations": 199},
        {"numeric": 2, **PURE},
        ("at most 8 columns", {}, {"numeric": 9}),
        ("too large a table", {"categories": 4}, {"numeric": 8}),
        (
            "kernel",
            {"groups": [["n0", "n1", "n2"], ["n3"]], "categories": 4, "kernel": "linear"},
            {"numeric": 4},
        ),
        ("kernel, bandwidth", {"bandwidth": 0.1}),
        ("leave them out", {"blocks": 5}),
        ("parameter categories", {"categories": 5}),
        ("at least 20 units", {}, {"units": 19}),
    ),
    *of(
        "distance_correlation",
        {},
        HELD_APART,
        ("peer mode is for pnc", {"mode": "peer"}, THREE_TO_ONE),
        ("parameter receiver", {"mode": "peer", "method": "pnc"}, THREE_TO_ONE),
        ("belong to peer mode", {"receiver": "north"}, THREE_TO_ONE),
        ("belong to peer mode", {"publish": True}, THREE_TO_ONE),
        ("at least as many directions", {"n_projections": 2}, THREE_TO_ONE),
        ("too many numbers", {"n_projections": 1000, "n_features": 64}, THREE_TO_ONE),
        ("no effect", {"method": "pnc", "n_features": 2}, THREE_TO_ONE),
        ("between two owners", {}, {"owners": ("a",)}),
        ("which columns", {}, {"held": (("n0",), None)}),
        ("its own columns", {}, {"held": (("n0",), ("n0",))}),
        ("curator", {}, {"curated": True}),
        ("alignment", {}, AVERAGED),
        ("must agree", {}, {"units": (40, 50)}),
        ("at least 32", {}, {"units": (31, 31)}),
        ("ask for the sketch", {"method": "pnc"}, {"units": (40_000, 40_000)}),
        (
            "numeric columns alone",
            {"method": "pnc"},
            {"numeric": 1, "sizes": (3,), "held": (("n0",), ("c0",))},
        ),
        ("leave receiver out", {"method": "one-round", "receiver": "a"}, PURE),
    ),
    *of(
        "curated_distance_correlation",
        {},
        TWO,
        ("share them out", {}, {"numeric": 3}),
        ("one group only", {"groups": [["n0"], ["n0"]]}),
        ("all of them", {"groups": [["n0"], ["n1"]]}, {"numeric": 3}),
        ("delta above 0", {}, PURE),
        ("more permutations", {"permutations": 99}, {"level": 0.001}),
        ("in one place", {}, {"owners": 2}),
        ("at least two units", {}, {"units": 1}),
        ("pairs of units", {"groups": [["n0"], ["n1", "n2"]]}, {"numeric": 3, "units": 2**15 + 1}),
        ("pairs of units", {}, {"units": 2**15 + 1, **AVERAGED}),
        ("of method permutation", {"method": "table", "test": False}),
        ("of method permutation", {"method": "aggregate", "test_share": 0.7}),
        ("of methods aggregate and table", {"categories": 3}),
        ("of method table", {"method": "aggregate", "categories": 3}),
        ("of method aggregate", {"method": "table", "blocks": 3}),
    ),
    *of(
        "mutual_independence",
        {},
        THREE_APART | PURE,
        ("of two ask distance_correlation", {}, HELD_APART),
        ("one column of its own", {}, {"held": (("n0",), ("n1",), ("n0",))}),
        ("leave receiver out", {"method": "one-round", "receiver": "a"}),
        ("which of the owners counts", {"receiver": "z"}),
        (
            "combinations of cells",
            {"categories": 4},
            {"numeric": 6, "owners": tuple("abcdef"), "held": [(f"n{place}",) for place in range(6)]},
        ),
        ("at most 4 with dealt cuts", {"categories": 5}),
    ),
    *of(
        "screening",
        {"matrix": True},
        THREE_TO_ONE | {"epsilon": 4.0},
        ("between two owners", {}, {"owners": ("a",)}),
        ("curator", {}, {"curated": True}),
        ("alignment", {}, AVERAGED),
        ("one of the two owners", {"outcome": "nobody"}),
        ("must agree", {}, {"units": (40, 50)}),
        ("at least 32", {}, {"units": (31, 31)}),
        (
            "at most 1000 pairs",
            {},
            {"numeric": 70, "held": [[f"n{n}" for n in range(40)], [f"n{n}" for n in range(40, 70)]]},
        ),
        ("at most 128 columns", {}, {"numeric": 131, "held": [[f"n{n}" for n in range(130)], ["n130"]]}),
        ("leave parameters method and categories", {"method": "one-round"}),
        ("leave parameters method and categories", {"categories": 2}),
        ("needs a delta above 0", {}, PURE),
    ),
    *of(
        "screening",
        {},
        THREE_TO_ONE | PURE,
        ("categories", {"categories": 5}),
        (
            "at most 400 cells: use fewer categories",
            {},
            {"numeric": 0, "sizes": (30, 30), "held": (("c0",), ("c1",))},
        ),
        (
            "use fewer columns or categories",
            {},
            {
                "numeric": 0,
                "sizes": (20,) * 130 + (16,),
                "held": ([f"c{place}" for place in range(130)], ["c130"]),
            },
        ),
    ),
    *of(
        "embedding_release",
        {},
        DATABASE,
        ("neither counted nor placed", POINT | {"n_points": 5}),
        ("one value per column", {"points": [[0.1, 0.2]]}),
        (f"parameter n_frequencies {EFFECTLESS}", {"n_frequencies": 5}),
        (f"parameter candidate_rows {EFFECTLESS}", {"candidate_rows": 2}),
        (f"parameter n_points {EFFECTLESS}", {"method": "random-features", "n_points": 5}),
        ("needs candidates, or candidate_rows", {"method": "exponential"}),
        (f"parameter noise {EFFECTLESS}", CHOSEN | {"noise": "laplace"}),
        ("drawn exactly", CHOSEN | {"candidate_rows": 9, "n_points": 30}),
        ("two or more", CHOSEN | {"candidate_rows": 1, "n_points": 1}),
        ("candidates", {"method": "exponential", "candidates": [[[0.1, 0.2, "l0"]]]}),
        ("one value per column", {"method": "exponential", "candidates": [[[0.1]], [[0.2]]]}),
        (f"n_bins {EFFECTLESS}", {"placement": "uniform", "n_bins": 5}),
        (f"histogram_share {EFFECTLESS}", POINT | {"histogram_share": 0.5}),
        ("neither counted nor placed", POINT | {"placement": "histograms"}),
        ("method subspace alone", {"method": "random-features", "placement": "histograms"}),
        ("method subspace alone", CHOSEN | {"placement": "histograms"}),
        ("more than 20000 values", {"n_points": 201}, {"numeric": 100, "sizes": ()}),
        ("fewer points or bins", {"n_bins": 1000}, {"numeric": 40, "sizes": ()}),
    ),
]

TAKEN = [
    *of("identity", UNIFORM, KNOWN, ("", {}, {"level": 0.001}), ("", {"method": "privit"})),
    *of("identity", UNIFORM, KNOWN, ("", {"method": "repetition", "replicates": 1997}, {"level": 0.001})),
    *of(
        "joint_independence",
        {"method": "permutation"},
        {"numeric": 2, **PURE},
        ("", {"permutations": 99}, {"level": 0.01}),
        ("", {"permutations": 99}, {"owners": 2, "curated": True, "units": 75_000}),
        ("", {}, {"units": 20_000}),
        ("", {"method": "table"}, {"owners": 3}),
    ),
    *of("distance_correlation", {}, HELD_APART, ("", {}, {**AVERAGED, "alignment": "d" * 64})),
    *of(
        "kernel_two_sample",
        ME,
        {"numeric": 2},
        ("", {"n_features": 200}, {"owners": 200}),
        ("", {"n_features": 100}, {"owners": 1000}),
    ),
]
"""Studies just within the bounds."""


@pytest.mark.parametrize(
    ("words", "study"), REFUSED, ids=[f"{own.procedure}-{said}" for said, own in REFUSED]
)
def test_a_study_that_cannot_be_run_is_refused_with_what_to_change(words: str, study: Study) -> None:
    with pytest.raises((StudyError, SensitivityError), match=words) as refused:
        check_study(procedure_named(study.procedure), study)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("study", [study for _, study in TAKEN])
def test_a_study_just_within_the_bounds_is_taken(study: Study) -> None:
    check_study(procedure_named(study.procedure), study)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"unit_column": None}, "needs the unit column"),
        ({"alignment": "d" * 63}, "alignment"),
        ({"alignment": "D" * 64}, "alignment"),
        ({"owners": ("a", "b", "c"), "held": (("n0",), ("n1",), ("n0",))}, "between two owners"),
        ({"owners": ("a",)}, "between two owners"),
        ({"held": (None, None)}, "between two owners"),
        ({"curated": True}, "between two owners"),
    ],
)
def test_an_alignment_is_of_units_of_two_owners_of_different_columns(changes: Fields, words: str) -> None:
    aligned = {**HELD_APART, **AVERAGED, "alignment": "d" * 64, **changes}
    with pytest.raises(ValueError, match=words):
        asked("distance_correlation", {}, aligned)
