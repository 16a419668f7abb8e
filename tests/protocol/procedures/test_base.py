"""Reading parameters, and the registry."""

from typing import Any

import pytest
from two_sample_cases import domain_of, study_of

from tacit_protocol.procedures.base import StudyError, parse_parameters
from tacit_protocol.procedures.kernel_two_sample_plan import KernelTwoSampleParameters
from tacit_protocol.procedures.registry import PROCEDURES, procedure_named


def parse(parameters: dict[str, Any]) -> KernelTwoSampleParameters:
    return parse_parameters(KernelTwoSampleParameters, study_of(domain_of(2), parameters))


def test_lists_of_json_are_tuples_of_the_model() -> None:
    assert parse({"cycles": [1, 2.5]}).cycles == (1.0, 2.5)
    assert parse({}) == KernelTwoSampleParameters()


@pytest.mark.parametrize(
    "parameters",
    [
        {"secret": 1},
        {"features": "secret"},
        {"n_features": "secret"},
        {"n_features": 5.5},
        {"n_features": True},
        {"n_features": 0},
        {"n_features": 201},
        {"bandwidth": float("nan")},
        {"bandwidth": float("inf")},
        {"bandwidth": 0},
        {"mean_share": 1.0},
        {"pair_share": -0.1},
        {"cycles": []},
        {"cycles": [0.0]},
        {"replicates": 98},
        {"replicates": 10**9},
        {"category_similarity": 1.0},
        {"locations": []},
        {"locations": [[]]},
        {"locations": [["secret", {"secret": 1}]]},
        {"bandwidth": {1, 2}},
        {"level": object()},
        {"regularisation": 0},
        {"kernel": "secret"},
    ],
)
def test_wrong_parameters_are_refused_without_quoting_them(parameters: dict[str, Any]) -> None:
    with pytest.raises(StudyError) as refused:
        parse(parameters)
    assert "secret" not in str(refused.value)
    assert "201" not in str(refused.value)


def test_a_refusal_names_the_parameter_and_an_unknown_one_is_answered_with_those_known() -> None:
    with pytest.raises(StudyError, match="parameter n_features: "):
        parse({"n_features": "x"})
    with pytest.raises(StudyError, match=r"unknown parameter; known: .*n_features"):
        parse({"n_featurs": 5})


def test_every_procedure_is_registered_under_its_own_name() -> None:
    assert set(PROCEDURES) == {procedure.name for procedure in PROCEDURES.values()}
    assert procedure_named("kernel_two_sample").title


def test_an_unknown_procedure_is_refused_without_quoting_it() -> None:
    with pytest.raises(StudyError, match=r"known: .*kernel_two_sample") as refused:
        procedure_named("secret")
    assert "secret" not in str(refused.value)
