"""Which signature a reward function has, and the arguments of a call.

    def f(prompt, response, **row) -> float                                     one response
    def f(prompts, responses, **columns) -> list[float]                         a batch
    def f(completions, prompts=None, **columns) -> list[float | None]           TRL (GRPOTrainer's `reward_funcs`)
    def f(data_source, solution_str, ground_truth, extra_info=None) -> float    verl (`compute_score`)
    def f(data_sources, solution_strs, ground_truths, extra_infos) -> list      verl's batch form
    def f(queries, prompts, labels, **kwargs) -> Tensor or dict                 OpenRLHF (`reward_func`)

The names of the parameters decide. A function receives those of the row's entries that it names, or all with `**row`.
Prompts and completions are texts where the row's prompt is one, else lists of messages, as in TRL; a `response` is
always text. Leaves out: TRL's `trainer_state` and `log_extra`; calling the function (`calls`, `source`).
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, overload

from assay.errors import BadInputError
from assay_policy_training.core.prompt import PromptItem

#: Parameter that tells a signature -> its name. The batch ones are called once for all rows.
MARKS = {
    "response": "one response",
    "responses": "a batch",
    "completions": "TRL",
    "solution_str": "verl",
    "solution_strs": "verl, a batch",
    "queries": "OpenRLHF",
}
BATCHES = ("responses", "completions", "solution_strs", "queries")
NO_TOKENS = "completion_ids: a reward reads texts here, and the sampled tokens are not passed"
LogMetric = Callable[[str, float], None]


@dataclass(frozen=True)
class Signature:
    """`mark`: the parameter by which it was recognised. `names` None: the function takes any keyword."""

    mark: str
    names: frozenset[str] | None
    asynchronous: bool

    @property
    def batched(self) -> bool:
        return self.mark in BATCHES

    @classmethod
    def of(cls, function: Callable[..., Any], name: str) -> "Signature":
        """Raises BadInputError where the names of the parameters do not tell how to call it."""
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError) as error:
            raise BadInputError(f"{name} is no function that can be called as a reward", field="--reward") from error
        names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        marks = [mark for mark in MARKS if mark in names]
        if len(marks) != 1:
            listed = ", ".join(p.name for p in parameters) or "no parameter"
            choices = ", ".join(f"{mark} ({what})" for mark, what in MARKS.items())
            raise BadInputError(
                f"cannot tell how to call {name}({listed}): name exactly one parameter of {choices}", field="--reward"
            )
        call = getattr(function, "__call__", None)  # noqa: B004 (an object's own, which may be asynchronous)
        asynchronous = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
        return cls(marks[0], None if takes_any else frozenset(names), asynchronous)

    def calls(
        self, items: Sequence[PromptItem], responses: Sequence[str], log_metric: LogMetric
    ) -> list[dict[str, Any]]:
        """The arguments of each call: one of all rows for a batch, else one of each row."""
        rows = [self._row(item, response) for item, response in zip(items, responses, strict=True)]
        if not self.batched:
            return [self._accepted(row) for row in rows]
        names = dict.fromkeys(name for row in rows for name in row)
        columns: dict[str, Any] = {name: [row.get(name) for row in rows] for name in names}
        if self.mark == "completions":
            columns |= {"completion_ids": _NoTokenIds(), "log_metric": log_metric}
        return [self._accepted(columns)]

    def _row(self, item: PromptItem, response: str) -> dict[str, Any]:
        """One row's arguments, under the names that this signature gives them."""
        entries = item.meta
        if self.mark in ("solution_str", "solution_strs"):
            s = "s" if self.mark == "solution_strs" else ""
            return {
                f"data_source{s}": entries.get("data_source", entries.get("source", "")),
                f"solution_str{s}": response,
                f"ground_truth{s}": ground_truth(entries),
                f"extra_info{s}": entries.get("extra_info"),
            }
        if self.mark == "queries":  # there a query is the prompt, rendered, and the response
            text = "\n".join(message.text for message in item.prompt)
            return {"queries": text + response, "prompts": text, "labels": ground_truth(entries)}
        messages = [message.to_dict() for message in item.prompt]
        prompt: Any = item.prompt[-1].content if item.as_text else messages
        if self.mark == "completions":
            completion: Any = response if item.as_text else [{"role": "assistant", "content": response}]
            return {**entries, "prompts": prompt, "completions": completion}
        s = "s" if self.mark == "responses" else ""
        return {**entries, f"prompt{s}": prompt, f"response{s}": response}

    def _accepted(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in arguments.items() if self.names is None or name in self.names}


def ground_truth(entries: Mapping[str, Any]) -> Any:
    """What a row states as right: verl's `reward_model.ground_truth`, `ground_truth`, `answer` or `label`."""
    stated = entries.get("reward_model")
    if isinstance(stated, Mapping) and "ground_truth" in stated:
        return stated["ground_truth"]
    return next((entries[name] for name in ("ground_truth", "answer", "label") if name in entries), None)


class _NoTokenIds(Sequence[list[int]]):
    """TRL's `completion_ids`, for functions that accept it and do not read it. Raises BadInputError when read."""

    @overload
    def __getitem__(self, index: int) -> list[int]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[list[int]]: ...
    def __getitem__(self, index: int | slice) -> NoReturn:
        raise BadInputError(NO_TOKENS)

    def __len__(self) -> NoReturn:
        raise BadInputError(NO_TOKENS)
