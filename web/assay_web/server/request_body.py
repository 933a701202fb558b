"""The base of JSON request bodies: objects whose unknown fields are refused.

A misspelled field, or one of another version, would otherwise leave a default in force silently.
"""

from pydantic import BaseModel, ConfigDict


class RequestBody(BaseModel):
    """Base of every request body and of every object inside one. An unknown field is a 422 that names it."""

    model_config = ConfigDict(extra="forbid")
