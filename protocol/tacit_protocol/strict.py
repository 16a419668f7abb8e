"""The base of every message: strict, frozen models, and JSON that has only one reading."""

from pydantic import BaseModel, ConfigDict


class StrictModel(BaseModel):
    """A frozen model that takes no extra field, no coerced type, no NaN and no infinity.

    Validation errors never carry the rejected value (``hide_input_in_errors``): a value may be private.
    The ValueErrors that a model's own validators raise are sent to other parties, so their text is constant.
    """

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )
