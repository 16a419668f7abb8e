"""Reading parameters, and the registry."""

from typing import Any

import pytest
from two_sample_cases import domain_of, study_of

from tacit_protocol.messages.encoding import MESSAGE_BYTES_MAX, digest, encode, encode_json
from tacit_protocol.messages.study import TRANSCRIPT_BYTES_MAX, Release, ReleaseMessage, Study, numbers_max
from tacit_protocol.privacy.guarantee import NoisyVector
from tacit_protocol.procedures.base import (
    StudyError,
    canonical,
    parse_parameters,
    require_canonical,
)
from tacit_protocol.procedures.discovery import PROCEDURES, procedure_named
from tacit_protocol.procedures.two_sample.release import KernelTwoSampleParameters
from tacit_protocol.signing import RELEASE_TYPE, PrivateKey, sign_envelope


def parse(parameters: dict[str, Any]) -> KernelTwoSampleParameters:
    return parse_parameters(KernelTwoSampleParameters, study_of(domain_of(2), parameters))


def test_a_refusal_names_the_parameter_and_an_unknown_one_is_answered_with_those_known() -> None:
    with pytest.raises(StudyError, match="parameter n_features: "):
        parse({"n_features": "x"})
    with pytest.raises(StudyError, match=r"unknown parameter; known: .*n_features"):
        parse({"n_featurs": 5})


@pytest.mark.parametrize("name", sorted(PROCEDURES))
def test_every_procedures_studies_have_one_canonical_form(name: str) -> None:
    """Defaults spelled out or left out, whole numbers or fractions: one form, which stays as it is."""
    procedure = PROCEDURES[name]
    fields = procedure.Parameters.model_fields
    needed: dict[str, Any] = {"probabilities": [0.25, 0.75]} if name == "identity" else {}
    study = study_of(domain_of(2), needed).model_copy(update={"procedure": name})
    try:
        form = canonical(procedure, study)
    except StudyError:
        pytest.skip("it has parameters without a default")
    assert set(form.parameters) == set(fields)
    assert canonical(procedure, form) == form
    assert encode(canonical(procedure, Study.model_validate_json(encode(form)))) == encode(form)
    for left_out in (field for field, shape in fields.items() if not shape.is_required()):
        parameters = {key: value for key, value in form.parameters.items() if key != left_out}
        assert canonical(procedure, form.model_copy(update={"parameters": parameters})) == form
    whole = {
        key: int(value) if isinstance(value, float) and value.is_integer() else value
        for key, value in form.parameters.items()
    }
    other = form.model_copy(update={"parameters": whole})
    assert encode(canonical(procedure, other)) == encode(form)
    require_canonical(procedure, form, digest(encode(form)))
    if encode(other) != encode(form):
        with pytest.raises(StudyError, match="canonical"):
            require_canonical(procedure, other, digest(encode(other)))


def test_a_title_that_nfc_makes_too_long_is_refused() -> None:
    study = study_of(domain_of(2), {}).model_copy(update={"title": "\ufb2c" * 200})
    with pytest.raises(StudyError, match="too long"):
        canonical(procedure_named("kernel_two_sample"), study)


def test_an_unknown_procedure_is_refused_without_quoting_it() -> None:
    with pytest.raises(StudyError, match=r"known: .*kernel_two_sample") as refused:
        procedure_named("secret")
    assert "secret" not in str(refused.value)


def test_a_transcript_holds_what_a_thousand_owners_may_release() -> None:
    numbers = numbers_max(1000)
    vector = NoisyVector(values=(-(2**63),) * numbers, exponent=-62, noise="gaussian", scale=1 / 3)
    guarantee = procedure_named("kernel_two_sample").cost(study_of(domain_of(2), {}))
    release = Release(units=2**40, guarantee=guarantee, vectors={"x" * 63: vector})
    message = ReleaseMessage(study="f" * 64, party="x" * 63, release=release)
    envelope = sign_envelope(encode(message), RELEASE_TYPE, PrivateKey.generate())
    entry = len(encode_json({"x" * 63: envelope.decode()}))
    assert 0.9 * TRANSCRIPT_BYTES_MAX < 1000 * entry <= TRANSCRIPT_BYTES_MAX - 2 * MESSAGE_BYTES_MAX
