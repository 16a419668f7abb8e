"""The owners of `tacit demo --all`: four hospitals, which trust a curator too, and two public registers.

The data are real: see demo_data/ATTRIBUTION.txt. Each owner's rows go to its own folder, as a hospital or a
register would hold them.
"""

import csv
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from tacit.agent_process import run_align
from tacit.configuration import DataSetSetup, PolicySetup
from tacit.data_set import DataSetDescription
from tacit.demo import ATTRIBUTION_FILE, COLUMNS, DATA_SET, HOSPITALS, copy_demo_file
from tacit.errors import ServiceError
from tacit.federation import LocalFederation, OwnerSetup
from tacit.keys import create_unit_key
from tacit.local_curator import CuratedOwnerSetup

DELTA = 1e-5
HOSPITAL_EPSILON = 4.0
"""What each hospital lets be spent on its patients at its own agent, in all."""

CURATED_EPSILON = 1.0
"""What each hospital lets be spent on the copy that the curator holds. A patient's loss is both together."""

REGISTER_EPSILON = 4.0

DIGIT_COLUMN = "pressure_digit"
"""The last digit of the blood pressure that Cleveland wrote down."""

DIGIT_HOSPITAL = "cleveland"
DIGITS = tuple(str(digit) for digit in range(10))

PEOPLE = 32_561
PERSON = "person"
PEOPLE_SET = "people"
SCHOOL_REGISTER, TAX_OFFICE = "school-register", "tax-office"
REGISTERS = {
    SCHOOL_REGISTER: ("age", "sex", "education_num", "hours_per_week"),
    TAX_OFFICE: ("income",),
}
"""Which columns of the census records each register holds, of the same people."""

ORDER_SEED = 1994
"""Of the order in which the tax office keeps people: another than the school register's."""


@dataclass(frozen=True)
class DemoOwners:
    """Owners with agents, and owners whose data a curator holds."""

    with_agents: list[OwnerSetup]
    curated: list[CuratedOwnerSetup]


def all_owners(folder: Path) -> DemoOwners:
    """Write every owner's rows below ``folder`` and describe the owners."""
    folder.mkdir(parents=True, exist_ok=True)
    copy_demo_file(ATTRIBUTION_FILE, folder / ATTRIBUTION_FILE)
    hospitals = [_hospital(name, folder / name) for name in HOSPITALS]
    curated = [_curated(name, folder / name) for name in HOSPITALS]
    return DemoOwners([*hospitals, *_registers(folder)], curated)


def align_registers(federation: LocalFederation) -> str:
    """Let both registers compare their people, past the tester; returns the digest that studies name.

    Raises:
        ServiceError: they do not hold the same people, or could not compare.
    """
    place, other = (federation.folder / name for name in REGISTERS)
    create_unit_key(place / "shared.key")
    # In life somebody takes the key there by hand.
    shutil.copy(place / "shared.key", other / "shared.key")
    # Each step runs at both at once: nearly all of its time is that of a process that starts.
    with ThreadPoolExecutor(2) as both:
        steps = (both.submit(_align, at, "make", "--out", at / "units.json") for at in (place, other))
        for step in list(steps):
            step.result()
        pairs = ((place, other), (other, place))
        compared = [both.submit(_align, a, "compare", "--with", b / "units.json") for a, b in pairs]
        return str({step.result()["digest"] for step in compared}.pop())


def published_people() -> list[list[Any]]:
    """Return rows of the census' published half, as public points of a database: one value per column."""
    text = (resources.files("tacit.demo_data") / "census-published.csv").read_text("utf-8")
    header, *rows = csv.reader(text.splitlines())
    texts = {header.index("sex")}
    return [[value if i in texts else float(value) for i, value in enumerate(row)] for row in rows]


def _align(place: Path, step: str, option: str, file: Path) -> dict[str, Any]:
    """Run a step of `tacit data align` for the register in ``place``."""
    of = ("--data-set", PEOPLE_SET, "--key", str(place / "shared.key"))
    done = run_align(place / "agent.toml", [step, *of, option, str(file), "--json"])
    if not done.passed:
        raise ServiceError(f"{place.name} could not align its people: {done.output}")
    found: dict[str, Any] = json.loads(done.output)
    return found


def _hospital(name: str, place: Path) -> OwnerSetup:
    columns = [column["name"] for column in COLUMNS]
    place.mkdir(parents=True)
    copy_demo_file(f"{name}.csv", place / f"{DATA_SET}.csv")
    if name == DIGIT_HOSPITAL:
        columns.append(DIGIT_COLUMN)
        _add_digits(place / f"{DATA_SET}.csv")
    policy = PolicySetup(
        approval="automatic",
        epsilon_per_study_max=1.0,
        delta_per_study_max=DELTA,
        units_min=100,
        procedures=("kernel_two_sample", "joint_independence", "identity", "homogeneity"),
        columns=columns,
    )
    return OwnerSetup(name, DataSetSetup(DATA_SET, f"{DATA_SET}.csv", HOSPITAL_EPSILON, DELTA), policy)


def _curated(name: str, place: Path) -> CuratedOwnerSetup:
    rows = place / "for-the-curator.csv"
    copy_demo_file(f"{name}.csv", rows)
    described = {
        "name": DATA_SET,
        "columns": COLUMNS,
        "epsilon": CURATED_EPSILON,
        "delta": DELTA,
        "policy": {
            "approval": "automatic",
            "epsilon_per_study_max": CURATED_EPSILON,
            "delta_per_study_max": DELTA,
            "analysts": ["*"],
            "procedures": ["curated_two_sample"],
        },
    }
    return CuratedOwnerSetup(name, DataSetDescription.from_dict(described), rows)


def _add_digits(file: Path) -> None:
    """Add the last digits of the blood pressures, which are kept beside the other columns, to every row."""
    pressures = resources.files("tacit.demo_data") / f"{DIGIT_HOSPITAL}-pressure.csv"
    digits = [DIGIT_COLUMN, *(line[-1] for line in pressures.read_text("utf-8").splitlines()[1:])]
    rows = file.read_text("utf-8").splitlines()
    joined = (f"{row},{digit}" for row, digit in zip(rows, digits, strict=True))
    file.write_text("\n".join(joined) + "\n", "utf-8")


def _registers(folder: Path) -> list[OwnerSetup]:
    with resources.as_file(resources.files("tacit.demo_data") / "census.parquet") as path:
        people = parquet.read_table(path)
    people = people.append_column(PERSON, pa.array(range(1, PEOPLE + 1), pa.int32()))
    owners = []
    for name, columns in REGISTERS.items():
        table = people.select([PERSON, *columns])
        if name == TAX_OFFICE:
            table = table.take(np.random.default_rng(ORDER_SEED).permutation(PEOPLE))
        (folder / name).mkdir(parents=True)
        parquet.write_table(table, folder / name / f"{PEOPLE_SET}.parquet")
        policy = PolicySetup(
            approval="automatic",
            epsilon_per_study_max=2.0,
            delta_per_study_max=DELTA,
            procedures=("distance_correlation", "embedding_release"),
            columns=columns,
        )
        # Both studies of the registers have Gaussian noise.
        source = DataSetSetup(
            PEOPLE_SET, f"{PEOPLE_SET}.parquet", REGISTER_EPSILON, DELTA, PERSON, pure_share=0.0
        )
        owners.append(OwnerSetup(name, source, policy))
    return owners
