"""Replies that are made of records of lower packages, with the 95 % interval of a figure as two fields."""

from types import SimpleNamespace
from typing import Any, Self

from pydantic import AliasPath, BaseModel, ConfigDict, Field


class FromRecord(BaseModel):
    """A reply that `model_validate` makes of a record; paths of aliases lead through its attributes."""

    model_config = ConfigDict(from_attributes=True, json_schema_serialization_defaults_required=True)

    @classmethod
    def of(cls, **record: Any) -> Self:
        """Of a record's fields."""
        return cls.model_validate(SimpleNamespace(**record))


class WithInterval(FromRecord):
    """`low`, `high`: null where the record's `interval` is None."""

    low: float | None = Field(None, validation_alias=AliasPath("interval", "low"))
    high: float | None = Field(None, validation_alias=AliasPath("interval", "high"))
