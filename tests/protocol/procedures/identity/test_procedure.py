"""Identity as a procedure: what is refused, what a release must look like, and that verdicts are right."""

import math
from typing import Any

import numpy as np
import pytest
from made_studies import made_study, release_of
from two_sample_cases import MemoryTable

from tacit_protocol.domain import CategoricalColumn, Domain
from tacit_protocol.messages.study import Owner, Release, Study
from tacit_protocol.privacy.accounting import epsilon_spent
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.base import ReleaseError, StudyError
from tacit_protocol.procedures.counts.noisy_counts import NoisyCounts
from tacit_protocol.procedures.identity import IdentityTest

COLUMN = CategoricalColumn(name="c", levels=("a", "b", "c", "d"))
UNIFORM = [0.25] * 4
IDENTITY = IdentityTest()
EVERY: dict[str, dict[str, Any]] = {
    "mcgof": {},
    "mcgof published": {"weights": "published"},
    "mcgof gaussian": {"noise": "gaussian"},
    "zcdp-gof": {},
    "zcdp-gof rho": {"rho": 0.02},
    "privit-laplace": {},
    "privit-laplace published": {"weights": "published"},
    "privit-laplace filter": {"clipping": "filter"},
    "repetition": {},
    "privit": {"distance": 0.9},
}


def table_of(codes: np.ndarray, domain: Domain | None = None) -> MemoryTable:
    """A table of categories, one row a unit."""
    held = codes.reshape(len(codes), -1).astype(np.int32)
    return MemoryTable(domain or Domain(columns=(COLUMN,)), np.zeros((len(codes), 0)), held)


def study(method: str = "mcgof", probabilities: Any = None, **changes: Any) -> Study:
    parameters = {"method": method, "probabilities": probabilities or UNIFORM} | changes.pop("parameters", {})
    given: dict[str, Any] = {"owners": ("owner",), "epsilon": 2.0, "delta": 1e-6}
    return made_study(
        "identity", changes.pop("domain", Domain(columns=(COLUMN,))), parameters, **given | changes
    )


def run(asked: Study, table: MemoryTable) -> tuple[Release, Any]:
    IDENTITY.check(asked)
    release = release_of(IDENTITY, asked, table, OpenDPNoise())
    return release, IDENTITY.assemble(asked, {"owner": release})


def of(name: str, **changes: Any) -> Study:
    return study(name.partition(" ")[0], parameters=EVERY[name], **changes)


@pytest.mark.parametrize("name", EVERY)
def test_every_method_sees_a_distribution_that_is_another(name: str) -> None:
    """One cell holds all of 20 000 units: decisions reject but for their blind coins, which are counted."""
    table = table_of(np.zeros(20_000, dtype=np.int64))
    release, verdict = run(of(name), table)
    assert verdict.units == {"owner": 20_000}
    if name in ("privit", "repetition"):
        # A blind coin would accept with probability .025 to .05 each time: 12 of 12 do below 1e-15.
        again = [run(of(name), table)[1].reject for _ in range(12)]
        assert any(again)
        assert set(release.vectors) == set()
        assert "statistic" not in verdict.model_dump()
        assert "pvalue" not in verdict.model_dump()
    else:
        assert verdict.reject
        assert 0 < verdict.pvalue <= 0.001
        assert release.decision is None


def test_many_releases_of_rho_compose_to_no_more_than_zcdp_says() -> None:
    """The ledger composes Gaussian events exactly; rho adds up, and its conversion bounds what is charged."""
    events = IDENTITY.cost(of("zcdp-gof rho")).events
    for number in (1, 5, 40):
        rho = 0.02 * number
        bound = rho + 2 * math.sqrt(rho * math.log(1 / 1e-5))
        assert epsilon_spent(events * number, 1e-5) <= bound
        assert epsilon_spent(events * number, 1e-5) > bound / 3


def test_privit_refuses_units_with_which_it_would_not_be_private() -> None:
    unplanned = study("privit")
    with pytest.raises(StudyError, match="would not be private"):
        IDENTITY.summarise(unplanned, table_of(np.arange(300) % 4))
    assert "Hopeless" in IDENTITY.warnings(unplanned, {"owner": 300})[0]


def test_an_impossible_category_that_is_occupied_is_seen() -> None:
    codes = np.repeat(np.arange(6), [2400, 2400, 2400, 2400, 400, 0])
    for name in ("mcgof", "mcgof published", "zcdp-gof", "privit-laplace"):
        assert run(of(name), table_of(codes))[1].reject, name


def test_noisy_counts_of_an_earlier_study_are_read_again() -> None:
    """Of other noise than the study's own, and of cells that are sums of the earlier ones."""
    two = Domain(columns=(COLUMN, CategoricalColumn(name="y", levels=("u", "v"))))
    codes = np.column_stack([np.zeros(6000, dtype=np.int64), np.arange(6000) % 2])
    counting = NoisyCounts()
    for noise, method in (("laplace", "mcgof"), ("gaussian", "zcdp-gof"), ("gaussian", "mcgof")):
        source = study(domain=two, budget=Budget.of(0.7, 1e-6)).model_copy(
            update={"procedure": "noisy_counts", "parameters": {"noise": noise}}
        )
        earlier = counting.privatise(
            source, counting.summarise(source, table_of(codes, domain=two)), OpenDPNoise()
        )
        owner = Owner(name="owner", key="0" * 64, data_set="data", reuses="a" * 64)
        asked = study(method, owners=(owner,))
        read = IDENTITY.plan(asked).reread(owner, source, earlier)
        IDENTITY.plan(asked).check_reread(read)
        with pytest.raises(ReleaseError):
            IDENTITY.check_release(asked, read)  # what an owner sends has the study's own noise and cells
        verdict = IDENTITY.assemble(asked, {"owner": read})
        assert verdict.reject
        assert any("read again" in warning for warning in verdict.warnings)
    with pytest.raises(StudyError, match="use mcgof"):
        IDENTITY.plan(study("privit-laplace")).reread(owner, source, earlier)
    laplace = source.model_copy(update={"parameters": {"noise": "laplace"}})
    counts = counting.privatise(
        laplace, counting.summarise(laplace, table_of(codes, domain=two)), OpenDPNoise()
    )
    with pytest.raises(StudyError, match="Gaussian counts"):
        IDENTITY.plan(study("zcdp-gof")).reread(owner, laplace, counts)


def reusing_owner() -> Owner:
    return Owner(name="owner", key="0" * 64, data_set="data", reuses="a" * 64)


def counted(unlisted: str, codes: np.ndarray) -> tuple[Study, Release]:
    """A study of noisy counts, and its owner's release."""
    source = study().model_copy(update={"procedure": "noisy_counts", "parameters": {"unlisted": unlisted}})
    counting = NoisyCounts()
    summary = counting.summarise(source, table_of(codes, domain=source.domain))
    return source, counting.privatise(source, summary, OpenDPNoise())


def test_counts_of_other_cells_are_not_taken_for_the_studys_own() -> None:
    """A folded table and one with cells for unlisted values hold different things, in either direction."""
    codes = np.arange(4000) % 4
    for theirs, ours in (("last", "cells"), ("cells", "last")):
        source, release = counted(theirs, codes)
        asked = study(owners=(reusing_owner(),), parameters={"unlisted": ours})
        with pytest.raises(StudyError, match="unlisted"):
            IDENTITY.plan(asked).reread(asked.owners[0], source, release)
        with pytest.raises(ReleaseError):
            IDENTITY.plan(asked).check_reread(release)
