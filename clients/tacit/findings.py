"""What the doctor found."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "failed", "skipped"]


@dataclass(frozen=True)
class Finding:
    """One check: what was looked at, how it is, and what to do where it is not well."""

    name: str
    state: State
    text: str
