"""What a source's columns hold, as numbers and as categories, read in small batches."""

import math

from tacit_protocol.arrow_columns import numbers, text
from tacit_services.agent.data.source import Columns, Source


def numbers_of(source: Source, name: str, rows_max: int = 2) -> list[float | None]:
    found: list[float] = []
    for batch in source.batches(Columns(numbers=(name,)), rows_max):
        assert batch.num_rows <= rows_max
        found += numbers(name, batch.column(name)).tolist()
    return [value if math.isfinite(value) else None for value in found]


def texts_of(source: Source, name: str, rows_max: int = 2) -> list[str | None]:
    found: list[str | None] = []
    for batch in source.batches(Columns(text=(name,)), rows_max):
        assert batch.num_rows <= rows_max
        read = text(batch.column(name))
        found += [read.distinct[place] if place >= 0 else None for place in read.indices]
    return found
