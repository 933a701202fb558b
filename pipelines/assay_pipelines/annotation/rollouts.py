"""The closed loop: doubtful pairs of a policy run's rollouts become a queue, with each reward's preference as its
judgment; the queue's decisions are traced to snapshots and models. Of a run that was watched they are those on which
two rewards disagree (suspects.jsonl), of any other those of `rollout_pairs`.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from assay import ids
from assay.data.conversation import prompt_columns, response_columns
from assay.data.json_lines import Lines, parse_object
from assay.domain import prompt_of, response_of
from assay.errors import BadInputError, NotFoundError
from assay.runs.record import Run
from assay.store.intake import pair_schema, store_pairs
from assay.workspace import Workspace
from assay_pipelines.annotation.items import QueueItem
from assay_pipelines.annotation.queues import create_queue, get_queue
from assay_pipelines.annotation.recording import Queue
from assay_pipelines.annotation.rollout_pairs import uncertain_pairs

SUSPECTS_FILE, ROLLOUTS_FILE = "suspects.jsonl", "rollouts.jsonl"
TRAINED_ON, HELD_OUT = "the reward trained on", "the held-out reward"
REASON = "Two rewards disagree about these responses of a policy in training."
UNCERTAIN = "The reward hardly tells these responses of a policy in training apart, or its parts disagree about them."


@dataclass(frozen=True)
class RolloutQueue:
    """`new`: comparisons that were not in the store before."""

    queue: Queue
    suspects: int
    new: int


@dataclass(frozen=True)
class Effect:
    """One decision that came of a queue, and where it is now."""

    comparison_id: str
    label: str | None  #: A, B, tie; None = discarded as undecidable
    preferred: str | None  #: the answer of the reward trained on, where the pair came of rollouts
    contradictory: bool  #: runs that found the pair had rewards which order it differently: none of them is `preferred`
    snapshots: tuple[str, ...]  #: names of those that hold it with this label
    models: tuple[str, ...]  #: names of the models that were trained on one of them

    @property
    def overturned(self) -> bool | None:
        """Whether people disagree with the reward trained on; None where one of the two has no preference, or rewards
        of several runs have different ones."""
        if self.label not in ("A", "B") or self.preferred not in ("A", "B"):
            return None
        return self.label != self.preferred

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "overturned": self.overturned}


def queue_rollouts(
    workspace: Workspace,
    policy_run: str,
    name: str,
    run: Run,
    *,
    limit: int | None = None,
    overlap: int = 1,
    gold_checks: float = 0.1,
    seed: int = 0,
) -> RolloutQueue:
    """Make a queue of the run's most doubtful pairs, once each; the same call again adds what the run has found since.

    Raises NotFoundError for an unknown run, BadInputError for one that has no rollouts or no such pair.
    """
    folder = workspace.runs / policy_run
    if not folder.is_dir():
        raise NotFoundError(f"no run {policy_run!r} in {workspace.root}")
    path, reason = folder / SUSPECTS_FILE, REASON
    if path.is_file():
        pairs: Iterable[dict[str, Any]] = (parse_object(line) for _, line in Lines(path))
    elif (path := folder / ROLLOUTS_FILE).is_file():
        pairs, reason = uncertain_pairs(path), UNCERTAIN
    else:
        raise BadInputError(f"{policy_run} has no rollouts: name a run of assay rl, watched (--watch) or not")
    rows = _most_doubtful(pairs, limit)
    if not rows:
        raise BadInputError(f"{policy_run} has no pair that its rewards disagree about or hardly tell apart", file=path)
    import pyarrow as pa

    table = pa.Table.from_pylist([_pair(row, number, policy_run) for number, row in enumerate(rows, 1)], pair_schema())
    with workspace.store.unit() as db:
        counts = store_pairs(db, table, run.id)
    items = [QueueItem(_comparison(row), priority=float(row["doubt"]), reason=reason) for row in rows]
    queue = create_queue(workspace, name, items, overlap=overlap, gold_checks=gold_checks, run_id=run.id, seed=seed)
    return RolloutQueue(queue, len(rows), counts.comparisons)


def effects(workspace: Workspace, name: str) -> list[Effect]:
    """What became of a queue's decisions, in the order they were made. Raises NotFoundError."""
    queue = get_queue(workspace, name)
    with workspace.store.unit() as db:
        rows = db.execute(_EFFECTS, {"queue": queue.id, "voter": TRAINED_ON}).fetchall()
    return [
        Effect(
            c,
            label,
            next(iter(preferences)) if len(preferences) == 1 else None,
            len(preferences) > 1,
            _names(snapshots),
            _names(models),
        )
        for c, label, answers, snapshots, models in rows
        for preferences in [set(answers or ())]
    ]


def _names(value: Sequence[str | None] | None) -> tuple[str, ...]:
    return tuple(sorted(name for name in value or () if name is not None))


def _most_doubtful(pairs: Iterable[dict[str, Any]], limit: int | None) -> list[dict[str, Any]]:
    """One row a comparison, the most doubtful first."""
    most: dict[str, dict[str, Any]] = {}
    for row in pairs:
        key = _comparison(row)
        if key not in most or row["doubt"] > most[key]["doubt"]:
            most[key] = row
    return sorted(most.values(), key=lambda row: (-row["doubt"], _comparison(row)))[:limit]


def _comparison(row: dict[str, Any]) -> str:
    prompt = ids.prompt_id(prompt_of(row["prompt"]))
    return ids.comparison_id(prompt, *(ids.response_id(prompt, response_of(form)) for form in row["responses"]))


def _pair(row: dict[str, Any], number: int, policy_run: str) -> dict[str, Any]:
    """Of the intermediate form. The source itself says nothing; the two rewards do."""
    messages, conversation = prompt_columns(row["prompt"])
    (first, first_turns), (second, second_turns) = map(response_columns, row["responses"])
    higher, lower = row["rewards"]
    votes = [(TRAINED_ON, "first" if higher > lower else "tie", row["rewards"])]
    votes += [(HELD_OUT, "second", row["held_out"])] if "held_out" in row else []
    return {
        "row": number,
        "messages": messages,
        "conversation": conversation,
        "first": first,
        "second": second,
        "first_turns": first_turns,
        "second_turns": second_turns,
        "label": None,
        "strength": None,
        "rationale": None,
        "votes": [
            {
                "kind": "reward_model",
                "voter": voter,
                "label": label,
                "strength": None,
                "rationale": f"{scores[0]:.4g} for one, {scores[1]:.4g} for the other",
            }
            for voter, label, scores in votes
        ],
        "source": f"rollouts of {policy_run}",
        "record_id": f"{row['step']}/{row['uid']}",
        "category": None,
        "license": None,
        "language": None,
        "meta": json.dumps({"policy_run": policy_run, "step": row["step"], "doubt": row["doubt"]}),
        "annotator": None,
    }


# A decision counts where it still stands. A model was changed by it where its training read a snapshot that holds the
# decision's label and was made after it.
_EFFECTS = """
WITH decided AS (
    SELECT d.comparison_id, d.label, d.position, d.created_at
    FROM queue_decisions q JOIN current_decisions d USING (comparison_id, position)
    WHERE q.queue_id = $queue
), said AS (
    SELECT j.comparison_id, list(DISTINCT j.answer) AS answers
    FROM judgments j JOIN annotators a USING (annotator_id)
    WHERE a.kind = 'reward_model' AND a.name LIKE '%/' || $voter GROUP BY j.comparison_id
), held AS (
    SELECT d.comparison_id, s.snapshot_id, s.name
    FROM decided d JOIN snapshot_items i ON i.comparison_id = d.comparison_id AND i.label = d.label
    JOIN snapshots s ON s.snapshot_id = i.snapshot_id AND s.created_at >= d.created_at
), trained AS (
    SELECT h.comparison_id, m.name
    FROM held h JOIN run_links l ON l.direction = 'input' AND l.kind = 'snapshot' AND l.ref = h.snapshot_id
    JOIN artifacts m ON m.run_id = l.run_id AND m.kind IN ('reward_model', 'policy')
)
SELECT d.comparison_id, d.label, any_value(s.answers),
       list(DISTINCT h.name) FILTER (h.name IS NOT NULL), list(DISTINCT t.name) FILTER (t.name IS NOT NULL)
FROM decided d LEFT JOIN said s USING (comparison_id) LEFT JOIN held h USING (comparison_id)
LEFT JOIN trained t USING (comparison_id)
GROUP BY d.comparison_id, d.label, d.position ORDER BY d.position
"""
