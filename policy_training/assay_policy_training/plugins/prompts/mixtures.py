"""Prompts of several sources: concatenated, or drawn by weights, and held-out sets by name.

    --prompts a.jsonl@0.7 --prompts b.parquet@0.3        each prompt's source is drawn by weight (order `mixed`)
    --eval-prompts maths=gsm8k.parquet                   a set is named, or called after its source

Leaves out: reading one source (`source`), drawing (`streams`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.errors import BadInputError
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.prompts import PROMPT_SOURCES
from assay_policy_training.plugins.prompts.source import Shuffled, load_prompts
from assay_policy_training.plugins.prompts.streams import Mixed
from assay_policy_training.plugins.protocols import PromptOrder

SET = "prompt_set"  #: entry of a prompt: which of several sources it is of
_NAMED = re.compile(r"(?P<name>[\w.-]+)=(?P<source>.+)")


def split_weight(text: str) -> tuple[str, float | None]:
    """A source and its weight, as `SOURCE@WEIGHT`. Raises BadInputError for a weight below 0."""
    source, at, weight = text.rpartition("@")
    if not at or Path(text).expanduser().exists():
        return text, None
    try:
        value = float(weight)
    except ValueError:
        return text, None
    if not 0 <= value < float("inf"):
        raise BadInputError(f"a weight is a number from 0, not {weight}", field="--prompts")
    return source, value


def absolute_source(text: str) -> str:
    """A source with its file or folder, if it is one, by its absolute path; its name and weight stay."""
    if (match := _NAMED.fullmatch(text)) is not None and not Path(text).expanduser().exists():
        return f"{match['name']}={absolute_source(match['source'])}"
    source = split_weight(text)[0]
    file, colon, split = source.rpartition(":")
    for path, end in ((source, text[len(source) :]), (file, colon + split + text[len(source) :])):
        if path and Path(path).expanduser().exists():
            return f"{Path(path).expanduser().resolve()}{end}"
    return text


def load_mixture(sources: Sequence[str], **reading: Any) -> list[PromptItem]:
    """The prompts of all sources in their order; of several, each states its own. `reading`: see `load_prompts`."""
    pairs = [(set_name(text), split_weight(text)[0]) for text in sources]
    if len({name for name, _ in pairs}) < len(pairs):
        raise BadInputError(f"two of {', '.join(name for name, _ in pairs)} have one name", field="--prompts")
    items = [(name, item) for name, source in pairs for item in load_prompts(source, **reading)]
    if len(sources) == 1:
        return [item for _, item in items]
    return [replace(item, meta={**item.meta, SET: name}) for name, item in items]


def mixed_order(sources: Sequence[str], order: PromptOrder) -> PromptOrder:
    """The order in which several sources with weights are drawn; without weights, `order` itself.

    Raises BadInputError where only some have a weight, and for an order of the recipe that weights would replace.
    """
    weights = {set_name(text): split_weight(text)[1] for text in sources}
    by_set = {name: weight for name, weight in weights.items() if weight is not None}
    if not by_set:
        return order
    if len(by_set) < len(weights) or len(sources) == 1:
        raise BadInputError("a weight is for one of several sources: give each of them one", field="--prompts")
    if not isinstance(order, Shuffled):
        raise BadInputError(
            "the recipe has an order of its own (source.kind): leave the weights out", field="--prompts"
        )
    return Mixed(by_set, key=SET)


def held_out_sets(sources: Sequence[str], limit: int, **reading: Any) -> Mapping[str, list[PromptItem]]:
    """Set name -> its first `limit` prompts; of generated ones (`constrained:N`), without those of the sets before.

    Raises BadInputError for two sets of one name, and for a set that this leaves without prompts.
    """
    sets: dict[str, list[PromptItem]] = {}
    for text in sources:
        match = None if Path(text).expanduser().exists() else _NAMED.fullmatch(text)
        name, source = (match["name"], match["source"]) if match else (set_name(text), text)
        if name in sets:
            raise BadInputError(f"two sets are named {name!r}: NAME=SOURCE names one", field="--eval-prompts")
        items = load_prompts(source, split="heldout", **reading)
        if source.partition(":")[0] in PROMPT_SOURCES.names() and not Path(source).expanduser().is_file():
            before = {item.prompt for earlier in sets.values() for item in earlier}
            items = [item for item in items if item.prompt not in before]
            if not items:
                raise BadInputError(f"{name} has no prompt that the sets before it lack", field="--eval-prompts")
        sets[name] = items[:limit]
    return sets


def set_name(text: str) -> str:
    """What a source is called: its file's name, or the source itself."""
    source = split_weight(text)[0]
    return Path(source).name if Path(source).expanduser().exists() else source
