"""What every JSON body of a request is: an object with the fields that its route knows, and no others.

A field that nobody reads, misspelled or of another version, would else leave a default in force without a word.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class RequestBody(BaseModel):
    """The base of every body, and of every object inside one. A field that there is not is a 422 that names it."""

    model_config = ConfigDict(extra="forbid")
