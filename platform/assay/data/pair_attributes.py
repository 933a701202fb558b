"""The five preference attributes of a comparison (Skywork-Reward-V2), and their rows in the store.

Covers: the type, its validation and JSON form, writing attributes, reading the ones to use of each comparison. Leaves
out: how attributes are produced (`assay_pipelines.attributes`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeAlias

from assay.errors import BadInputError
from assay.settings import check_settings
from assay.store.database import registered
from assay.workspace import Workspace

Objectivity: TypeAlias = Literal["objective", "subjective"]
Controversiality: TypeAlias = Literal["low", "medium", "high"]


@dataclass(frozen=True, slots=True)
class PairAttributes:
    """`task_category`, `objectivity` and `controversiality` balance and prioritise; `desired` (what the user expects of
    a good answer) and `guideline` (criteria for this instance) steer labels."""

    task_category: str
    objectivity: Objectivity
    controversiality: Controversiality
    desired: str
    guideline: str

    def __post_init__(self) -> None:
        check_settings(self)
        for name in ("task_category", "desired", "guideline"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name).strip():
                raise BadInputError("must be a text", field=name)

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> "PairAttributes":
        """From its JSON form; raises BadInputError naming the field that is missing, unknown or wrong."""
        names = [field.name for field in fields(cls)]
        for name in names:
            if name not in payload:
                raise BadInputError("is missing", field=name)
        if unknown := sorted(set(payload) - set(names)):
            raise BadInputError("is not an attribute", field=unknown[0])
        return cls(**payload)

    def to_dict(self) -> dict[str, str]:
        return asdict(self)

    @property
    def easy_for_people(self) -> bool:
        """Objective and of low controversiality: annotated by people first."""
        return self.objectivity == "objective" and self.controversiality == "low"


def store_attributes(
    workspace: Workspace, annotator_id: str, described: Mapping[str, PairAttributes], run_id: str | None
) -> int:
    """Store `comparison id -> attributes` of this annotator, which must be in the store; returns how many were new.
    Attributes that the annotator gave a comparison before stay.
    """
    import pyarrow as pa

    rows = [
        (comparison, name, json.dumps(value, ensure_ascii=False))
        for comparison, attributes in described.items()
        for name, value in attributes.to_dict().items()
    ]
    if not rows:
        return 0
    table = pa.table(list(map(list, zip(*rows, strict=True))), names=["comparison_id", "name", "value"])
    with workspace.store.unit() as db, registered(db, "incoming", table):
        row = db.execute(
            """INSERT INTO attributes (comparison_id, annotator_id, name, value, run_id)
               SELECT i.comparison_id, $annotator, i.name, i.value::JSON, $run FROM incoming i
               WHERE NOT EXISTS (SELECT 1 FROM attributes a
                                 WHERE a.comparison_id = i.comparison_id AND a.annotator_id = $annotator)""",
            {"annotator": annotator_id, "run": run_id},
        ).fetchone()
    return (int(row[0]) if row else 0) // len(fields(PairAttributes))


def load_attributes(workspace: Workspace, comparison_ids: Sequence[str]) -> dict[str, PairAttributes]:
    """The attributes of those comparisons that have all five: a person's before a machine's, then the latest run's."""
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT t.comparison_id, json_group_object(t.name, t.value)::VARCHAR
               FROM attributes t JOIN annotators n USING (annotator_id)
               JOIN (SELECT DISTINCT unnest($ids) AS comparison_id) USING (comparison_id)
               LEFT JOIN runs r ON r.run_id = t.run_id
               GROUP BY t.comparison_id, t.annotator_id
               QUALIFY row_number() OVER (
                   PARTITION BY t.comparison_id
                   ORDER BY min(if(n.kind = 'human', 0, 1)), max(r.started_at) DESC NULLS LAST, t.annotator_id) = 1""",
            {"ids": list(comparison_ids)},
        ).fetchall()
    attributes = {}
    for comparison, values in rows:
        try:
            attributes[comparison] = PairAttributes.of(json.loads(values))
        except BadInputError:
            continue  # only some of the five, e.g. a category set by hand
    return attributes
