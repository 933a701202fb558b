"""The 95 % interval of a figure in a reply, read from the `interval` of the record that the reply is made of."""

from __future__ import annotations

from pydantic import AliasPath, BaseModel, ConfigDict, Field


class FromRecord(BaseModel):
    """A reply that `model_validate` makes of a record of a lower package."""

    model_config = ConfigDict(from_attributes=True, json_schema_serialization_defaults_required=True)


class WithInterval(FromRecord):
    """`low`, `high`: null where the record has no interval."""

    low: float | None = Field(None, validation_alias=AliasPath("interval", "low"))
    high: float | None = Field(None, validation_alias=AliasPath("interval", "high"))
