"""Calibrations in the store, and the probabilities of stored scores that follow from them.

Covers: writing down a calibration, giving every stored score of its model the probability that the model would give
now. Leaves out: fitting (`assay_rm_training.calibration`). A probability in the store always says by `calibration`
which one it came from; a score whose `calibration` is not its model's newest is out of date, and only it.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from assay.models.calibration import Calibration
from assay.store.database import registered
from assay.store.scored_models import MODEL_VERSION

if TYPE_CHECKING:
    from assay.workspace import Workspace

CHUNK = 200_000  # scores of one unit of work


def record_calibration(workspace: "Workspace", version: str, calibration: Calibration, run_id: str | None) -> None:
    """Write it down as fitted for the model of this version; once more changes nothing."""
    with workspace.store.unit() as db:
        db.execute(
            """INSERT INTO calibrations (calibration_id, model_version, method, parameters, run_id)
               VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING""",
            [calibration.id, version, calibration.method, json.dumps(asdict(calibration)), run_id],
        )


def refresh_probabilities(
    workspace: "Workspace", version: str, calibration: Calibration, *, advance: Callable[[int], object] = lambda n: None
) -> int:
    """Give every stored score of this version, in any number format, its probability under `calibration`; returns how
    many changed.

    In short units of work: a kill leaves some done and the rest to the next call.
    """
    import pyarrow as pa

    changed, own = 0, MODEL_VERSION.format(stored="model_version")
    while True:
        with workspace.store.unit() as db:
            stale = db.execute(
                f"""SELECT rowid, reward FROM scores
                    WHERE starts_with(model_version, $version) AND {own} = $version AND reward IS NOT NULL
                      AND calibration IS DISTINCT FROM $id
                    LIMIT {CHUNK}""",
                {"version": version, "id": calibration.id},
            ).fetchall()
            if not stale:
                return changed
            table = pa.table(
                {
                    "place": pa.array([rowid for rowid, _ in stale], type=pa.int64()),
                    "probability": pa.array([calibration.probability(reward) for _, reward in stale]),
                }
            )
            with registered(db, "fresh", table):
                db.execute(
                    """UPDATE scores SET probability = f.probability, calibration = $id FROM fresh f
                       WHERE scores.rowid = f.place""",
                    {"id": calibration.id},
                )
        changed += len(stale)
        advance(len(stale))
