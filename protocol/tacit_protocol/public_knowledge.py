"""Bounds and levels that are common knowledge, by a column's name and never by its values.

They say what values can be, and are wide: values beyond them are clipped, and the noise grows with their
width. Where a column is something special, its owner knows better.
"""

import re
from dataclasses import dataclass

from tacit_protocol.domain import CategoricalColumn, Column, NumericColumn


@dataclass(frozen=True)
class Known:
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


KNOWN: tuple[Known, ...] = (
    Known(rf"(patient_)?age(_?(in_)?(years|yrs|y))?{_AT}", "age in years", (0, 120)),
    Known(r"(gestational_age|gestation)(_weeks)?", "gestational age in weeks", (20, 45)),
    Known(
        rf"({_pressure('systolic', 'sys')}|sbp|bp_sys(tolic)?|trestbps|ap_hi)(_mm_?hg)?{_AT}",
        "systolic blood pressure in mmHg",
        (50, 300),
    ),
    Known(
        rf"({_pressure('diastolic', 'dia')}|dbp|bp_dia(stolic)?|ap_lo)(_mm_?hg)?{_AT}",
        "diastolic blood pressure in mmHg",
        (20, 200),
    ),
    Known(
        rf"(blood_pressure|bp|map|mean_arterial_pressure)(_mm_?hg)?{_AT}", "blood pressure in mmHg", (20, 300)
    ),
    Known(r"(heart_?rate|hr|pulse(_rate)?|thalach)(_bpm)?", "heart rate per minute", (20, 250)),
    Known(r"(respiratory_rate|resp_rate|rr)", "breaths per minute", (0, 80)),
    Known(r"(body_mass_index|bmi)", "body mass index in kg/m^2", (10, 80)),
    Known(r"(body_)?height(_cm)?", "height in cm", (40, 230)),
    Known(r"(body_)?height_m", "height in m", (0.4, 2.3)),
    Known(r"birth_?weight(_g)?", "birth weight in g", (300, 6000)),
    Known(r"(body_)?weight(_kg)?", "body weight in kg", (2, 300)),
    Known(r"(waist|hip)(_circumference)?(_cm)?", "circumference in cm", (30, 200)),
    Known(r"(body_)?temp(erature)?(_?(c|celsius|deg_c))?", "body temperature in degrees Celsius", (30, 45)),
    Known(
        r"(oxygen_saturation|spo2|sao2|o2_?sat)(_(pct|percent))?", "oxygen saturation in percent", (0, 100)
    ),
    Known(rf"(total_)?(cholesterol|chol){_MG_DL}", "cholesterol in mg/dl", (50, 600)),
    Known(rf"(total_)?(cholesterol|chol){_MMOL}", "cholesterol in mmol/l", (1, 16)),
    Known(rf"(ldl|hdl)(_c(holesterol)?)?{_MG_DL}", "LDL or HDL cholesterol in mg/dl", (5, 400)),
    Known(rf"(blood_|fasting_)?(glucose|sugar){_MG_DL}", "blood glucose in mg/dl", (20, 1000)),
    Known(rf"(blood_|fasting_)?(glucose|sugar){_MMOL}", "blood glucose in mmol/l", (1, 55)),
    Known(r"(hba1c|a1c)(_(pct|percent))?", "HbA1c in percent", (3, 20)),
    Known(r"(serum_)?creatinine(_mg_?dl)?", "creatinine in mg/dl", (0, 25)),
    Known(r"e?gfr", "glomerular filtration rate in ml/min", (0, 200)),
    Known(r"(haemoglobin|hemoglobin|hgb|hb)(_g_?dl)?", "haemoglobin in g/dl", (2, 25)),
    Known(r"(serum_)?potassium(_mmol(_?l)?)?", "potassium in mmol/l", (1, 10)),
    Known(r"(serum_)?sodium(_mmol(_?l)?)?", "sodium in mmol/l", (90, 200)),
    Known(r"(length_of_stay|los)(_days)?", "length of stay in days; longer ones are clipped", (0, 365)),
    Known(r"(gcs|glasgow_coma_(scale|score))", "Glasgow coma scale", (3, 15)),
    Known(r"apgar(_?(1|5|10))?(_min)?", "Apgar score", (0, 10)),
    Known(r"(pain|nrs|vas)(_score)?", "pain from 0 to 10", (0, 10)),
    Known(
        r"(education_num|years_of_education|education_years|schooling_years)", "years of education", (0, 30)
    ),
    Known(r"(hours_per_week|weekly_hours|working_hours)", "hours a week", (0, 168)),
    Known(r"(birth_year|year_of_birth|yob)", "year of birth", (1900, 2030)),
    Known(r"(.*_)?year", "calendar year", (1900, 2100)),
    Known(r"(.*_)?month", "month", (1, 12)),
    Known(r"(.*_)?hour(_of_day)?", "hour of the day", (0, 24)),
    Known(r"(.*_)?(percent|percentage|pct)", "percentage", (0, 100)),
    Known(r"(.*_)?(probability|proportion|fraction)", "share of one", (0, 1)),
    Known(r"(lat|latitude)", "latitude in degrees", (-90, 90)),
    Known(r"(lon|lng|longitude)", "longitude in degrees", (-180, 180)),
    Known(r"(sex|gender)", "sex, as many files write it; write the codes of yours", levels=("F", "M")),
    Known(r"(blood_(group|type)|abo)", "blood group", levels=("A", "B", "AB", "O")),
    Known(r"(rhesus|rh)(_factor)?", "rhesus factor", levels=("+", "-")),
    Known(
        r"(weekday|day_of_week)", "day of the week", levels=("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
    ),
    Known(_YES_OR_NO, "yes or no, as many files write it; write the codes of yours", levels=("no", "yes")),
)
"""Tried in turn."""


def words_of(name: str) -> str:
    """Return a column's name in small letters, its words parted by ``_``: "heartRate" is heart_rate."""
    return _parted(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name))


def _parted(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def known_of(name: str) -> Known | None:
    """Return what is known of a column of that name, or None."""
    readings = (words_of(name), _parted(name))  # SpO2 is one word
    return next(
        (known for known in KNOWN if any(re.fullmatch(known.names, words) for words in readings)), None
    )
