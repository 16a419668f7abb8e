"""A delta that promises nothing is refused, and one above one in the number of units is warned about."""

import numpy as np
import pandas as pd
import pytest

from tacit import local
from tacit.errors import InputError
from tacit_protocol.preparation import prepared
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.procedures.base import StudyError, check_study
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.relay import conclude

BOUNDS = {"x": (0.0, 1.0)}


def samples(rows: int) -> list[pd.DataFrame]:
    rng = np.random.default_rng(1)
    return [pd.DataFrame({"x": rng.random(rows)}) for _ in range(2)]


@pytest.mark.parametrize("delta", [0.01, 0.5])
def test_a_delta_of_a_hundredth_or_more_is_refused_everywhere(delta: float) -> None:
    with pytest.raises(InputError, match=r"must be below 0\.01"):
        local.kernel_two_sample(*samples(200), epsilon=1, delta=delta, bounds=BOUNDS)
    study = local.kernel_two_sample(*samples(200), epsilon=1, delta=1e-5, bounds=BOUNDS).source.study
    study = study.model_copy(update={"budget": Budget.of(1, delta)})
    for refuses in (prepared, lambda asked: check_study(procedure_named(asked.procedure), asked)):
        with pytest.raises(StudyError, match=r"must be below 0\.01"):
            refuses(study)


def test_a_delta_above_one_in_the_units_is_warned_about_in_every_result() -> None:
    found = local.kernel_two_sample(*samples(200), epsilon=1, delta=0.006, bounds=BOUNDS)
    words = "delta is 0.006, above one in 200 units"
    assert found.warnings[0].startswith(words)
    assert words in str(found).partition("statistic")[0], "before the answer"
    html = found._repr_html_()
    assert html.startswith(f"<p>Warning: {words}")
    assert html.index("Warning") < html.index("</p>") < html.index("statistic")
    study, releases = found.source.study, found.source.releases
    again = conclude(
        procedure_named(study.procedure), study, releases, {name: one.units for name, one in releases.items()}
    )
    assert again.warnings == found.warnings
    fine = local.kernel_two_sample(*samples(200), epsilon=1, delta=0.005, bounds=BOUNDS)
    assert not any("delta is" in warning for warning in fine.warnings)


def test_it_is_said_before_a_study_is_sent() -> None:
    study = local.kernel_two_sample(*samples(200), epsilon=1, delta=0.006, bounds=BOUNDS).source.study
    owners = tuple(owner.model_copy(update={"units": 200}) for owner in study.owners)
    declared = prepared(study.model_copy(update={"owners": owners}))
    assert declared.warnings[0].startswith("delta is 0.006, above one in 200 units")
    few = tuple(owner.model_copy(update={"units": 166}) for owner in study.owners)
    assert not any("delta is" in one for one in prepared(study.model_copy(update={"owners": few})).warnings)
