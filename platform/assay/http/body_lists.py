"""Lists in bodies of requests: read no further than to their first wrong member.

A caller has to mend that one first, and a report of 65,000 wrong ones keeps everybody else waiting for more than a
second (docs/serving/security.md). Leaves out: how many members there may be (`request_body`, routes).
"""

from typing import Annotated, Any, TypeVar, cast

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema

T = TypeVar("T")


class FirstError:
    """As `pydantic.FailFast`, which cannot be a member of a union: it has no hash."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        if schema["type"] != "list":
            raise TypeError(f"for lists, not for {schema['type']}")
        return cast(CoreSchema, {**schema, "fail_fast": True})


ListOf = Annotated[list[T], FirstError()]
