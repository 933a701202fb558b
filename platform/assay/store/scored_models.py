"""Which models have scores in the store, and how many.

Covers: one entry for each (version, template, principle) that a stored score can have, and the version that it has;
the rewards of a name. Leaves out: what scores are compared by (the parts above).
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from assay.store.database import Connection

#: SQL of (response_id, reward) of a model's name, its one parameter: of one version, template and principle, those it
#: was last scored with, because rewards of two are on two scales.
LAST_REWARDS = """SELECT response_id, reward FROM scores
    WHERE reward IS NOT NULL AND (model_version, template_hash, principle) IN (
        SELECT (model_version, template_hash, principle) FROM scores WHERE model = {name}
        ORDER BY created_at DESC, model_version, template_hash, principle LIMIT 1)"""
#: Formats that move scores by more than rounding in float32 does.
HALF = ("bfloat16", "float16")
_FORMATS = r"(\+(bfloat16|float16|float32))+$"
#: SQL of the model's own version, as its calibrations have it, of a stored score's version {stored}.
MODEL_VERSION = f"regexp_replace({{stored}}, '{_FORMATS}', '')"
MOST = 500  #: entries listed; a model may have judged by thousands of principles


@dataclass(frozen=True)
class ScoredModel:
    """A model whose scores the store holds. `principle`: "" where none was asked for. `scored`, `failed`: responses.
    `probabilities`, `uncertainties`, `truncated`: of the scored ones. `model`: the name it was last scored under."""

    model: str
    version: str
    template_hash: str
    principle: str
    scored: int
    failed: int
    probabilities: int
    uncertainties: int
    truncated: int
    last: datetime


def stored_version(version: str, dtype: str) -> str:
    """The version under which the store keeps scores of a model: with the number format where it is a half one, as
    `3f2a+bfloat16`, so that they stand beside those in float32 and never for them. `dtype`: also of several members, as
    `bfloat16, float32`."""
    formats = dtype.split(", ")
    return "+".join([version, *formats]) if set(formats) & set(HALF) else version


def model_version(stored: str) -> str:
    """The model's own version: without what `stored_version` adds."""
    return re.sub(_FORMATS, "", stored)


def scored_models(db: Connection, *, most: int = MOST) -> list[ScoredModel]:
    """Those with the most scores first."""
    rows = db.execute(
        """SELECT arg_max(model, created_at), model_version, template_hash, principle, count(reward), count(error),
                  count(probability), count(uncertainty), count_if(truncated), epoch(max(created_at))
           FROM scores GROUP BY model_version, template_hash, principle
           ORDER BY count(*) DESC, max(created_at) DESC, model_version, template_hash, principle LIMIT ?""",
        [most],
    ).fetchall()
    models = []
    for *values, last in rows:
        row: tuple[Any, ...] = (*values, datetime.fromtimestamp(last, UTC))
        models.append(ScoredModel(*row))
    return models
