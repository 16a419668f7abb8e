"""Five agents and a tester as processes: counts, groups, votes and a database of all, under masks.

What a hostile tester does with keys is tried in memory, tests/attacks/test_masked_sums.py.
"""

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tacit.database.files import load_database
from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import LocalFederation, OwnerSetup

pytestmark = pytest.mark.long

OWNERS = ("east", "north", "south", "west", "york")
YES = {name: 100 + 50 * place for place, name in enumerate(OWNERS)}
UNITS = 400
AGE = '[[columns]]\nkind = "numeric"\nname = "age"\nlower = 0.0\nupper = 100.0\n'


def person(name: str, row: int) -> tuple[str, int]:
    """Return a row: who answered yes is twenty years older, and owners lie apart."""
    yes = row < YES[name]
    return "yes" if yes else "no", 10 + 10 * OWNERS.index(name) + row % 9 + 20 * yes


@pytest.fixture
def federation(
    tmp_path: Path, start_federation: Callable[[Sequence[OwnerSetup]], LocalFederation]
) -> LocalFederation:
    owners = []
    for name in OWNERS:
        with (tmp_path / f"{name}.csv").open("w", newline="") as opened:
            rows = csv.writer(opened)
            rows.writerow(["answer", "age"])
            rows.writerows([person(name, row) for row in range(UNITS)])
        policy = PolicySetup("automatic", 2.0, 1e-5, procedures=("*",), columns=("answer", "age"))
        source = DataSetSetup("people", str(tmp_path / f"{name}.csv"), 20.0, 1e-4)
        owners.append(OwnerSetup(name, source, policy))
    return start_federation(owners)


def test_five_agents_count_compare_groups_vote_and_release_one_database_under_masks(
    federation: LocalFederation, tmp_path: Path, tacit_json: Callable[..., Any]
) -> None:
    """One count's noise has a standard deviation of 17, the difference's one of 2 years, and that of some 200
    votes one of 13: each bound here is missed with a probability of 1e-9 or less."""
    party = ("--party", str(federation.analyst.configuration))
    transcript = tmp_path / "transcript.json"

    def ask(procedure: str, epsilon: float, parameters: str, columns: str = AGE) -> Any:
        owners = "".join(f'[[owners]]\nname = "{name}"\ndata_set = "people"\n' for name in OWNERS)
        file = tmp_path / f"{procedure}.toml"
        file.write_text(
            f'title = "{procedure}"\nprocedure = "{procedure}"\nepsilon = {epsilon}\ndelta = 1e-6\n'
            f'[parameters]\naggregation = "masked"\n{parameters}\n{columns}[[columns]]\n'
            f'kind = "categorical"\nname = "answer"\nlevels = ["no", "yes"]\n{owners}'
        )
        study = tacit_json("study", "create", str(file), *party)["digest"]
        told = tacit_json("study", "watch", study, *party)
        assert told["outcome"] == "completed", procedure
        tacit_json("study", "transcript", study, "--output", str(transcript), *party)
        assert tacit_json("verify", str(transcript), "--tester-key", federation.tester_key)["verified"]
        kept = json.loads(transcript.read_text())
        assert set(kept["mask_keys"]) == set(kept["releases"]) == set(OWNERS)
        return told["result"]

    (counts,) = ask("noisy_counts", 0.5, 'noise = "gaussian"\ncolluders = 1', "")["tables"]["counts"].values()
    assert abs(counts[1] - sum(YES.values())) < 150
    groups = ask("group_comparison", 1.0, "colluders = 3")
    (effect,) = groups["effects"]
    assert groups["reject"]
    assert abs(effect["estimate"] - 20) < 12
    assert groups["effects_by_owner"] == []
    votes = ask("aggregated_test", 1.0, 'test = "mann_whitney"\ncolluders = 3')
    assert (votes["direction"], votes["votes_by_owner"]) == ("up", {})
    ask("embedding_release", 1.0, "colluders = 3\nn_points = 20")
    assert load_database(transcript).units == UNITS * len(OWNERS)
