"""Bounds and levels that are common knowledge, by a column's name and never by its values.

They say what values can be, and are wide: values beyond them are clipped, and the noise grows with their
width. Where a column is something special, its owner knows better.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tacit_protocol.domain import CategoricalColumn, Column, NumericColumn
from tacit_protocol.names import folded


@dataclass(frozen=True)
class KnownColumns:
    """What is known of columns of some names.

    ``names`` is a regular expression for a whole name, in small letters, its words parted by one ``_``.
    """

    names: str
    quantity: str
    bounds: tuple[float, float] | None = None
    levels: tuple[str, ...] = ()

    def column(self, name: str) -> Column:
        """Return the column of that name."""
        if self.bounds is not None:
            return NumericColumn(name=name, lower=self.bounds[0], upper=self.bounds[1])
        return CategoricalColumn(name=name, levels=self.levels)


_AT = r"(_(at|on)_(admission|entry|baseline|diagnosis|enrol(l)?ment|discharge|visit))?"
_MG_DL, _MMOL = r"(_mg_?(per_)?_?dl)?", r"_mmol(_?(per_)?l)?"

_YES_OR_NO = (
    r"(smoker|diabetic|pregnant|alive|dead|died|deceased|hypertensive|vaccinated|married|male|female"
    r"|(is|has|was|had)_.+|.+_(flag|yn|yes_?no))"
)


def _pressure(*words: str) -> str:
    return rf"({'|'.join(words)})(_?(bp|blood_pressure|pressure))?"


KNOWN: tuple[KnownColumns, ...] = (
    KnownColumns(rf"(patient_)?age(_?(in_)?(years|yrs|y))?{_AT}", "age in years", (0, 120)),
    KnownColumns(r"(gestational_age|gestation)(_weeks)?", "gestational age in weeks", (20, 45)),
    KnownColumns(
        rf"({_pressure('systolic', 'sys')}|sbp|bp_sys(tolic)?|trestbps|ap_hi)(_mm_?hg)?{_AT}",
        "systolic blood pressure in mmHg",
        (50, 300),
    ),
    KnownColumns(
        rf"({_pressure('diastolic', 'dia')}|dbp|bp_dia(stolic)?|ap_lo)(_mm_?hg)?{_AT}",
        "diastolic blood pressure in mmHg",
        (20, 200),
    ),
    KnownColumns(
        rf"(blood_pressure|bp|map|mean_arterial_pressure)(_mm_?hg)?{_AT}", "blood pressure in mmHg", (20, 300)
    ),
    KnownColumns(r"(heart_?rate|hr|pulse(_rate)?|thalach)(_bpm)?", "heart rate per minute", (20, 250)),
    KnownColumns(r"(respiratory_rate|resp_rate|rr)", "breaths per minute", (0, 80)),
    KnownColumns(r"(body_mass_index|bmi)", "body mass index in kg/m^2", (10, 80)),
    KnownColumns(r"(body_)?height(_cm)?", "height in cm", (40, 230)),
    KnownColumns(r"(body_)?height_m", "height in m", (0.4, 2.3)),
    KnownColumns(r"birth_?weight(_g)?", "birth weight in g", (300, 6000)),
    KnownColumns(r"(body_)?weight(_kg)?", "body weight in kg", (2, 300)),
    KnownColumns(r"(waist|hip)(_circumference)?(_cm)?", "circumference in cm", (30, 200)),
    KnownColumns(
        r"(body_)?temp(erature)?(_?(c|celsius|deg_c))?", "body temperature in degrees Celsius", (30, 45)
    ),
    KnownColumns(
        r"(oxygen_saturation|spo2|sao2|o2_?sat)(_(pct|percent))?", "oxygen saturation in percent", (0, 100)
    ),
    KnownColumns(rf"(total_)?(cholesterol|chol){_MG_DL}", "cholesterol in mg/dl", (50, 600)),
    KnownColumns(rf"(total_)?(cholesterol|chol){_MMOL}", "cholesterol in mmol/l", (1, 16)),
    KnownColumns(rf"(ldl|hdl)(_c(holesterol)?)?{_MG_DL}", "LDL or HDL cholesterol in mg/dl", (5, 400)),
    KnownColumns(rf"(blood_|fasting_)?(glucose|sugar){_MG_DL}", "blood glucose in mg/dl", (20, 1000)),
    KnownColumns(rf"(blood_|fasting_)?(glucose|sugar){_MMOL}", "blood glucose in mmol/l", (1, 55)),
    KnownColumns(r"(hba1c|a1c)(_(pct|percent))?", "HbA1c in percent", (3, 20)),
    KnownColumns(r"(serum_)?creatinine(_mg_?dl)?", "creatinine in mg/dl", (0, 25)),
    KnownColumns(r"e?gfr", "glomerular filtration rate in ml/min", (0, 200)),
    KnownColumns(r"(haemoglobin|hemoglobin|hgb|hb)(_g_?dl)?", "haemoglobin in g/dl", (2, 25)),
    KnownColumns(r"(serum_)?potassium(_mmol(_?l)?)?", "potassium in mmol/l", (1, 10)),
    KnownColumns(r"(serum_)?sodium(_mmol(_?l)?)?", "sodium in mmol/l", (90, 200)),
    KnownColumns(
        r"(length_of_stay|los)(_days)?", "length of stay in days; longer ones are clipped", (0, 365)
    ),
    KnownColumns(r"(gcs|glasgow_coma_(scale|score))", "Glasgow coma scale", (3, 15)),
    KnownColumns(r"apgar(_?(1|5|10))?(_min)?", "Apgar score", (0, 10)),
    KnownColumns(r"(pain|nrs|vas)(_score)?", "pain from 0 to 10", (0, 10)),
    KnownColumns(
        r"(education_num|years_of_education|education_years|schooling_years)", "years of education", (0, 30)
    ),
    KnownColumns(r"(hours_per_week|weekly_hours|working_hours)", "hours a week", (0, 168)),
    KnownColumns(r"(birth_year|year_of_birth|yob)", "year of birth", (1900, 2030)),
    KnownColumns(r"(.*_)?year", "calendar year", (1900, 2100)),
    KnownColumns(r"(.*_)?month", "month", (1, 12)),
    KnownColumns(r"(.*_)?hour(_of_day)?", "hour of the day", (0, 24)),
    KnownColumns(r"(.*_)?(percent|percentage|pct)", "percentage", (0, 100)),
    KnownColumns(r"(.*_)?(probability|proportion|fraction)", "share of one", (0, 1)),
    KnownColumns(r"(lat|latitude)", "latitude in degrees", (-90, 90)),
    KnownColumns(r"(lon|lng|longitude)", "longitude in degrees", (-180, 180)),
    KnownColumns(r"(sex|gender)", "sex, as many files write it; write the codes of yours", levels=("F", "M")),
    KnownColumns(r"(blood_(group|type)|abo)", "blood group", levels=("A", "B", "AB", "O")),
    KnownColumns(r"(rhesus|rh)(_factor)?", "rhesus factor", levels=("+", "-")),
    KnownColumns(
        r"(weekday|day_of_week)", "day of the week", levels=("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
    ),
    KnownColumns(
        _YES_OR_NO, "yes or no, as many files write it; write the codes of yours", levels=("no", "yes")
    ),
)
"""Tried in turn."""


def words_of(name: str) -> str:
    """Return a column's name in small letters, its words parted by ``_``: "heartRate" is heart_rate."""
    return _parted(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name))


def _parted(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", folded(name)).strip("_")


def known_of(name: str) -> KnownColumns | None:
    """Return what is known of a column of that name, or None."""
    readings = (words_of(name), _parted(name))  # SpO2 is one word
    return next(
        (known for known in KNOWN if any(re.fullmatch(known.names, words) for words in readings)), None
    )


NO_NAMES = "the first line has numbers where names should be: add a line of names"

OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}


def header_fault(names: Sequence[str]) -> str | None:
    """Say why a line of CSV can be no line of names, or None; it may be a person's, and is not repeated."""
    if any(_is_number(name) for name in names):
        return NO_NAMES
    marks = [mark for mark in OTHER_SEPARATORS if len(names) == 1 and mark in names[0]]
    return (
        f"its values are separated by {OTHER_SEPARATORS[marks[0]]}: write it with commas" if marks else None
    )


def line_fault(line: bytes) -> str | None:
    """Say why a file's first line can be no header of CSV in UTF-8, or None; nothing of it is repeated."""
    if b"\0" in line or line.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "it is UTF-16, or no text: save the file as CSV in UTF-8"
    try:
        line.decode("utf-8-sig")
    except UnicodeDecodeError:
        return "it is not UTF-8, but perhaps Latin-1 or Windows-1252: save the file as CSV in UTF-8"
    if b"\r" in line.rstrip(b"\r\n"):
        return "its lines end in carriage returns alone: save the file with line feeds (LF or CRLF)"
    return None


def name_fault(wanted: str, names: Sequence[str]) -> str | None:
    """Say which of the columns' names is meant by one that is not among them; None where none is like it."""
    alike = next((name for name in names if name.strip().casefold() == wanted.strip().casefold()), None)
    if alike is None:
        return None
    if alike.strip() == wanted.strip():
        return f"it has {alike!r}, with blanks: take them out of the header"
    return f"it has {alike!r}: capitals count"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


CAUTION = (
    "Bounds and levels are public. Take them from what can be: a coding manual, an instrument's range, "
    "common knowledge. NEVER look at the data for them: the largest value in your table is one person's "
    "value, and a bound that follows it tells it to everyone."
)

ColumnType = Literal["number", "text", "yes or no", "other", "unknown"]


@dataclass(frozen=True)
class ColumnSchema:
    """A column's name and the kind of its type, which in CSV is unknown: it would take values to know."""

    name: str
    type: ColumnType


def arrow_type(name: str) -> ColumnType:
    """Return the kind of an Arrow type by its name: ``int64``, ``dictionary<values=string, ...>``."""
    if name.startswith("dictionary<values="):
        return arrow_type(name.removeprefix("dictionary<values=").partition(",")[0])
    if re.fullmatch(r"u?int\d+|halffloat|float|double|decimal\d+\(.*", name):
        return "number"
    if name == "bool":
        return "yes or no"
    return "text" if name in {"string", "large_string"} else "other"


_IDENTIFIERS = {
    *(
        "id",
        "uuid",
        "guid",
        "mrn",
        "ssn",
        "nhs_number",
        "name",
        "first_name",
        "last_name",
        "surname",
        "email",
    ),
    *("phone", "address", "index", "row", "row_number", "insurance_number", "passport"),
}


@dataclass(frozen=True)
class Proposal:
    """A column and what is proposed for it.

    Attributes:
        name: as the data set has it.
        type: its type in words, or "unknown", as in CSV.
        fields: of a column in ``agent.toml``; blanks, "" and [], are where a person has to write something.
            None where the column had better be left out.
        complete: whether nothing is blank.
        why: where the proposal comes from, or what to write.
    """

    name: str
    type: ColumnType
    fields: Mapping[str, Any] | None
    complete: bool
    why: str


def proposal(column: ColumnSchema) -> Proposal:
    """Propose bounds or levels for a column, by its name and type alone."""
    words = words_of(column.name)
    if words in _IDENTIFIERS or words.endswith("_id"):
        return _left_out(column, "looks like an identifier: leave it out; it may be the unit_column")
    if column.type == "other":
        return _left_out(column, "its type cannot be read as numbers or categories: leave it out")
    known = known_of(column.name)
    # Levels that many files use in words say nothing of files that use numbers for them.
    if known is not None and (known.bounds is not None or column.type in {"text", "unknown"}):
        proposed = known.column(column.name).model_dump(mode="json", exclude_none=True)
        return Proposal(column.name, column.type, proposed, True, known.quantity)
    if column.type == "yes or no":
        levels = {"kind": "categorical", "name": column.name, "levels": ["false", "true"]}
        return Proposal(column.name, column.type, levels, True, "its type has these two values alone")
    return _blank(column, is_coded=known is not None)


def _left_out(column: ColumnSchema, why: str) -> Proposal:
    return Proposal(column.name, column.type, None, True, why)


def _blank(column: ColumnSchema, is_coded: bool) -> Proposal:
    """Leave to a person what is not known; an agent refuses it as it is."""
    name, fields = {"name": column.name}, dict[str, Any]()
    if is_coded or column.type == "text":
        fields, what = {"kind": "categorical", **name, "levels": []}, "the levels of your coding manual"
    elif column.type == "number":
        fields = {"kind": "numeric", **name, "lower": "", "upper": ""}
        what = "the smallest and the largest value that there can be"
    else:
        fields = {"kind": "", **name}
        what = 'kind = "numeric" with lower and upper, or kind = "categorical" with levels'
    return Proposal(column.name, column.type, fields, False, f"FILL IN: {what}")
