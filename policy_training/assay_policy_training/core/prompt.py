"""One prompt of a policy run: what the user asks, what a program can check, and what the policy sees of it.

Covers: prompts whose context at generation, or in training, differs from what the reward reads (hints); text that the
policy's turn starts with and that it did not write. Leaves out: where prompts come from (`prompts`), who changes
contexts (`contexts`).

Recorded responses: the data of methods that learn without generating. Covers: a record (text, steps or tokens;
optionally its reward, its sampler's log-probs, the values of its steps), where a prompt's records are found (its own
row's `responses`, or a JSON Lines file), the reward that was recorded. Leaves out: rows made of records
(`samplers.recorded`). File format: one object a line with `prompt` (text or messages) and `responses`: a list of texts
or of objects

    {"text": "..."}              or {"steps": ["...", "..."]} or {"tokens": [...]} (then `logprobs` may be given)
    "reward": 0.7                what the reward source `recorded` gives; missing stays missing
    "step_values": [.5, .6, .1]  probability of success, or value, before the first step, before the second, ...; one
                                 more than there are steps, the last after all of them, or without that one
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.data.conversation import prompt_turns
from assay.data.json_lines import Lines, RowError, parse_object
from assay.domain import Prompt, prompt_of
from assay.errors import BadInputError
from assay.ids import FIELD, digest, prompt_id
from assay_serving.verifiers import Constraint, constraint_from_dict

EPISODE = "episode"  #: entry of the `meta` of a row of an environment: the record of its episode, as JSON
FINAL_TURN = "final_turn"  #: entry of the `meta` of a row that called tools: the text of its last turn, which answers
POLICY = "policy"  #: `source` of a rollout that the policy generated from the context that is trained on


@dataclass(frozen=True, slots=True)
class PromptItem:
    """One prompt, with the constraints a verifier can check (empty: `acc` is missing for its rows)."""

    prompt: Prompt  #: what the user asked: what rewards and verifiers read
    constraints: tuple[Constraint, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)  #: e.g. principle, references, answer, solution, source
    generate_from: Prompt | None = None  #: context of generation where it differs, e.g. with a hint
    train_on: Prompt | None = None  #: context of training where it differs from `prompt`
    forced: str = ""  #: start of the policy's turn that is given, not generated: no reward gradient there
    source: str = POLICY  #: tag of its rows: objectives and corrections may treat other sources otherwise
    as_text: bool = False  #: its row states the prompt as a text, and not as messages: reward functions see it so
    episode_seed: int | None = None  #: of its environment, where that is not the group's: of a task that is tried again

    @property
    def task_id(self) -> str:
        """Identity of what is asked: of the prompt, and of what its row says beside it, such as what an environment
        hides (values that are no JSON are left out)."""
        row = {name: value for name, value in self.meta.items() if name not in (EPISODE, FINAL_TURN)}
        row_json = json.dumps(row, sort_keys=True, default=lambda value: None) if row else ""
        return "t-" + digest(prompt_id(self.prompt) + FIELD + row_json)

    def answer_in(self, response: str) -> str:
        """What a program checks of a response: its last turn, where tools were called and their results stand in it."""
        return str(self.meta.get(FINAL_TURN, response))

    @property
    def generation_context(self) -> Prompt:
        return self.prompt if self.generate_from is None else self.generate_from

    @property
    def training_context(self) -> Prompt:
        return self.prompt if self.train_on is None else self.train_on

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready where `meta` is; `item_from_dict` is the inverse."""

        def turns(prompt: Prompt | None) -> list[dict[str, str]] | None:
            return None if prompt is None else [message.to_dict() for message in prompt]

        return {
            "prompt": turns(self.prompt),
            "constraints": [constraint.to_dict() for constraint in self.constraints],
            "meta": dict(self.meta),
            "generate_from": turns(self.generate_from),
            "train_on": turns(self.train_on),
            "forced": self.forced,
            "source": self.source,
            "as_text": self.as_text,
            **({} if self.episode_seed is None else {"episode_seed": self.episode_seed}),
        }


def item_from_dict(payload: Mapping[str, Any]) -> PromptItem:
    """Inverse of `PromptItem.to_dict`."""
    contexts = {name: payload[name] for name in ("generate_from", "train_on")}
    return PromptItem(
        prompt_of(payload["prompt"]),
        tuple(constraint_from_dict(constraint) for constraint in payload["constraints"]),
        payload["meta"],
        **{name: None if turns is None else prompt_of(turns) for name, turns in contexts.items()},
        forced=payload["forced"],
        source=payload["source"],
        as_text=payload.get("as_text", False),
        episode_seed=payload.get("episode_seed"),
    )


RESPONSES = "responses"  #: entry of a prompt: its records
RECORD = "recorded"  #: entry of a row's prompt: the record the row was made of
PLACE = "place"  #: entry of a record: its place among the prompt's records


def checked_record(value: Any, index: int) -> dict[str, Any]:
    """A record as an object with `text` (or `tokens`) and `place`. Raises BadInputError naming the field."""
    record = {"text": value} if isinstance(value, str) else dict(value) if isinstance(value, Mapping) else None
    where = f"{RESPONSES}.{index}"
    if record is None:
        raise BadInputError("must be a text or an object", field=where)
    steps = record.get("steps")
    if steps is not None:
        if not _all(steps, str) or not steps or not all(steps):
            raise BadInputError("must be a list of texts, none empty", field=f"{where}.steps")
        record["text"] = "".join(steps)
    if not isinstance(record.get("text", ""), str):
        raise BadInputError("must be a text", field=f"{where}.text")
    tokens, logp = record.get("tokens"), record.get("logprobs")
    if tokens is not None and (not _all(tokens, int) or not tokens):
        raise BadInputError("must be a list of token ids", field=f"{where}.tokens")
    if tokens is None and not record.get("text"):
        raise BadInputError("needs text, steps or tokens", field=where)
    if logp is not None and (tokens is None or not _all(logp, float, int) or len(logp) != len(tokens)):
        raise BadInputError("must be a number for each of `tokens`", field=f"{where}.logprobs")
    _check_values(record, where)
    return {PLACE: index, **record}


def _check_values(record: Mapping[str, Any], where: str) -> None:
    values, reward = record.get("step_values"), record.get("reward")
    if reward is not None and (isinstance(reward, bool) or not isinstance(reward, int | float)):
        raise BadInputError("must be a number", field=f"{where}.reward")
    if values is not None:
        number = len(record.get("steps") or [0])
        if not _all(values, float, int) or len(values) not in (number, number + 1):
            raise BadInputError(f"must be {number} or {number + 1} numbers", field=f"{where}.step_values")


def _all(value: Any, *kinds: type) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(v, kinds) and not isinstance(v, bool) for v in value)


def records_of(item: PromptItem, by_prompt: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """The prompt's records: of its row, else of a file read by `read_records`.

    Raises BadInputError for a prompt that has none, or a wrong one.
    """
    listed = item.meta.get(RESPONSES)
    records = listed if listed is not None else by_prompt.get(prompt_id(item.prompt))
    if not isinstance(records, list | tuple) or not records:
        raise BadInputError(f"no recorded response to the prompt {item.prompt[-1].content[:60]!r}", field=RESPONSES)
    return [checked_record(value, index) for index, value in enumerate(records)]


def read_records(path: Path) -> dict[str, list[Any]]:
    """Prompt's id -> records, in the file's order; a prompt may have several lines.

    Raises BadInputError naming file, row and field.
    """
    if not path.is_file():
        raise BadInputError("no such file of recorded responses", file=path, field="sampler.file")
    by_prompt: dict[str, list[Any]] = {}
    for row, line in Lines(path):
        try:
            record = parse_object(line)
            prompt = prompt_of(prompt_turns(record.get("prompt")))
            listed = record.get(RESPONSES)
            if not isinstance(listed, list):
                raise BadInputError("must be a list", field=RESPONSES)
            for index, value in enumerate(listed):
                checked_record(value, index)
        except RowError as error:
            raise BadInputError(error.reason, file=path, row=row, field=error.field) from error
        except BadInputError as error:
            raise BadInputError(str(error), file=path, row=row) from error
        by_prompt.setdefault(prompt_id(prompt), []).extend(listed)
    return by_prompt


def record_of(item: PromptItem) -> Mapping[str, Any]:
    """The record a row was made of; empty for rows that the policy wrote."""
    record = item.meta.get(RECORD)
    return record if isinstance(record, Mapping) else {}
