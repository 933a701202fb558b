"""Responses that fooled a reward (`assay attack`) beside the good one: pairs for training, and for people to look at.

Covers: a pair file, a snapshot, a queue. Leaves out: finding them (`assay_rm_training.runs.attack`). Blank responses
are in none of them: no pair holds one.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.conversation.message import response_form, response_turns
from assay.data.conversation import prompt_columns, response_columns
from assay.data.snapshots import Selection, Snapshot, create_snapshot
from assay.domain import Comparison, PreferencePair, Prompt, Response, response_text
from assay.store.intake import pair_schema, store_pairs
from assay.system.atomic_files import replacing
from assay.workspace import Workspace
from assay_pipelines.annotation.items import QueueItem
from assay_pipelines.annotation.queues import create_queue
from assay_pipelines.annotation.recording import Queue
from assay_rm_training.attacks.rates import JudgedAttack

REASON = "Which of the two responses is better checks a reward model."


@dataclass(frozen=True)
class AttackedPair:
    """`good` was chosen by the data; `attacked`, of this attack, is the response that the model preferred to it."""

    prompt: Prompt
    good: Response
    attacked: Response
    attack: str
    margin: float

    @property
    def comparison_id(self) -> str:
        return Comparison.of(self.prompt, self.good, self.attacked)[0].id


def attacked_pairs(pairs: Sequence[PreferencePair], fooled_by: Sequence[JudgedAttack]) -> list[AttackedPair]:
    """Of what fooled the model, each comparison once, without blank responses."""
    unique: dict[str, AttackedPair] = {}
    for item in fooled_by:
        pair = pairs[item.row]
        if response_text(item.response).strip():
            one = AttackedPair(pair.prompt, pair.chosen, item.response, item.attack, item.margin or 0.0)
            unique.setdefault(one.comparison_id, one)
    return list(unique.values())


def write_pairs(path: Path, pairs: Sequence[AttackedPair]) -> None:
    """As JSON Lines that `assay train --data` reads, written atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
        for one in pairs:
            stream.write(json.dumps(_row(one), ensure_ascii=False) + "\n")


def store_attacked(workspace: Workspace, pairs: Sequence[AttackedPair], run: str, *, labelled: bool) -> str:
    """Put them into the store as pairs of their own source, whose name is returned. `labelled`: the source says that
    the good response is better; without it the pairs wait for people. The model's preference is its judgment."""
    import pyarrow as pa

    source = f"attacks of {run}"
    rows = [_stored(one, number, source, labelled) for number, one in enumerate(pairs, 1)]
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist(rows, pair_schema()), run)
    return source


def snapshot_of(workspace: Workspace, name: str, source: str, run: str) -> Snapshot:
    return create_snapshot(workspace, name, Selection(sources=(source,)), run)


def queue_of(workspace: Workspace, name: str, pairs: Sequence[AttackedPair], run: str) -> Queue:
    """The pairs that fool the model by most are asked first. What the model prefers is never shown: it would tell which
    responses are attacks."""
    items = [QueueItem(one.comparison_id, priority=one.margin, reason=REASON, opinions=()) for one in pairs]
    return create_queue(workspace, name, items, gold_checks=0.0, run_id=run)


def _row(one: AttackedPair) -> dict[str, Any]:
    sides = (one.good, one.attacked)
    if not all(isinstance(side, str) for side in sides):  # a file's sides have one form
        sides = (response_turns(one.good), response_turns(one.attacked))
    chosen, rejected = map(response_form, sides)
    prompt = [message.to_dict() for message in one.prompt]
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected, "source": "attack", "category": one.attack}


def _stored(one: AttackedPair, number: int, source: str, labelled: bool) -> dict[str, Any]:
    messages, conversation = prompt_columns([message.to_dict() for message in one.prompt])
    first, first_turns = response_columns(response_form(one.good))
    second, second_turns = response_columns(response_form(one.attacked))
    vote = {"kind": "reward_model", "voter": "the attacked model", "label": "second", "strength": None}
    return {
        "row": number,
        "messages": messages,
        "conversation": conversation,
        "first": first,
        "second": second,
        "first_turns": first_turns,
        "second_turns": second_turns,
        "label": "first" if labelled else None,
        "votes": [vote | {"rationale": f"margin {one.margin:.4g}"}],
        "source": source,
        "record_id": f"{one.attack}/{number}",
        "category": one.attack,
        "meta": json.dumps({"attack": one.attack, "margin": one.margin}),
        "annotator": "assay attack" if labelled else None,
    }
