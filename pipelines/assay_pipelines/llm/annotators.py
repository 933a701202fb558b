"""Identity of a judge in the store: its kind, its name with a version of its configuration, its id.

Another configuration (model, prompts, samples) is another annotator, so that their answers are never mixed.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from assay import ids
from assay.domain import AnnotatorKind
from assay.store.database import Connection
from assay.store.records import insert_annotator

HASH_DIGITS = 8


@dataclass(frozen=True, slots=True)
class Annotator:
    """One row of `annotators`."""

    kind: AnnotatorKind
    name: str
    config: Mapping[str, Any]

    @property
    def id(self) -> str:
        return ids.annotator_id(self.kind, self.name)

    def write(self, db: Connection) -> None:
        insert_annotator(db, self.kind, self.name, self.config)


class Identified(Protocol):
    """What a judge, or anything else that annotates, says of itself."""

    @property
    def kind(self) -> AnnotatorKind: ...
    @property
    def name(self) -> str: ...
    @property
    def config(self) -> Mapping[str, Any]: ...


def annotator_of(judge: Identified) -> Annotator:
    """`NAME@HASH` with the first digits of the configuration's hash; a name that carries its own version after an `@`
    (a reward model's) is taken as it is, as is the name of a judge without any configuration."""
    return versioned(judge.kind, judge.name, judge.config)


def versioned(kind: AnnotatorKind, name: str, config: Mapping[str, Any]) -> Annotator:
    return Annotator(kind, name if "@" in name or not config else f"{name}@{config_hash(config)}", config)


def config_hash(config: Mapping[str, Any]) -> str:
    """Of the configuration's canonical JSON."""
    canonical = json.dumps(config, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:HASH_DIGITS]
