"""Constraint by a JSON Schema, checked by the library jsonschema (extra `verifiers`).

Covers: the drafts that the library knows, chosen by the schema's `$schema` (default 2020-12); references within the
schema. Leaves out: references to other documents (nothing is fetched), the formats (`format` is an annotation, as in
the specification).
"""

import importlib.util
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from assay.errors import BackendError, BadInputError
from assay_serving.verifiers.constraint import Constraint, Verdict

EXTRA = "pip install 'assay[verifiers]'"
_FENCE = re.compile(r"```(?:json|JSON)?[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)


@dataclass(frozen=True)
class JsonSchema(Constraint):
    """The whole response, or the one code fence it consists of, is JSON that is valid under `schema`."""

    foreign: ClassVar[bool] = True
    schema: str  #: as JSON text; given as an object or as text

    def __post_init__(self) -> None:
        source: Any = self.schema
        try:
            parsed = json.loads(source) if isinstance(source, str) else source
            if not isinstance(parsed, Mapping):
                raise BadInputError("must be a JSON Schema, an object", field="schema")
            object.__setattr__(self, "schema", json.dumps(parsed, sort_keys=True))
        except (TypeError, ValueError, RecursionError) as error:
            raise BadInputError(f"not a JSON Schema: {error}", field="schema") from error

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "schema": json.loads(self.schema)}

    def prepare(self, response: str) -> None:
        if importlib.util.find_spec("jsonschema") is None:
            raise BackendError(f"json_schema needs the package jsonschema: {EXTRA}")
        import jsonschema  # noqa: F401

    def judge(self, response: str) -> Verdict:
        """Raises BadInputError for a schema that is none: no response is to blame."""
        import jsonschema
        from jsonschema.validators import validator_for
        from referencing import Registry
        from referencing.exceptions import Unresolvable

        text = response.strip()
        fenced = _FENCE.fullmatch(text)
        schema = json.loads(self.schema)
        kind = validator_for(schema, default=jsonschema.Draft202012Validator)
        try:
            kind.check_schema(schema)
        except jsonschema.SchemaError as error:
            raise BadInputError(f"not a JSON Schema: {error.message}", field="schema") from error
        try:
            value = json.loads(fenced.group(1) if fenced else text)
        except (ValueError, RecursionError) as error:
            return Verdict(False, f"not JSON: {error}")
        try:
            first = next(kind(schema, registry=Registry()).iter_errors(value), None)
        except Unresolvable as error:
            raise BadInputError(f"refers to what is not in it: {error}", field="schema") from error
        if first is None:
            return Verdict(True, "valid")
        return Verdict(False, f"at {first.json_path}: {first.message[:200]}")
