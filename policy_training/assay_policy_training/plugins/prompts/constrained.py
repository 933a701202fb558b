"""Prompts with constraints that a program can check: the source of verifiable preferences and rewards.

Covers: a deterministic generator over our own topics, tasks and constraints, mixed for a language model of about
135M parameters (some constraints it mostly meets, some it mostly misses), and a held-out split by topic. Leaves
out: sampling responses, checking them (`assay_serving.verifiers`), making comparisons of them.
"""

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from assay.domain import Message, Prompt
from assay.errors import BadInputError
from assay.registry import unknown
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.prompts.demonstration import LISTING_TASK, TASK, demonstrate
from assay_policy_training.plugins.prompts.topics import TASKS, TOPICS, PromptTask, Topic
from assay_serving.verifiers import (
    AllLowercase,
    AllUppercase,
    AnswerLanguage,
    BulletCount,
    Constraint,
    ContainsNumber,
    EndsWith,
    ForbiddenWords,
    JsonObject,
    MaxWords,
    MinWords,
    NoCommas,
    NumberedList,
    ParagraphCount,
    Quoted,
    RequiredWords,
    SentenceCount,
    StartsWith,
    compatible,
)

Split: TypeAlias = Literal["train", "heldout"]
HELDOUT_EVERY = 5  #: one topic in five, by hash, is held out
_PATIENCE = 500  # draws in a row without a new prompt after which the templates count as exhausted

_OPENINGS = ("Sure", "Did you know", "In short", "I think", "Here is", "The best thing", "Every day", "Once", "People")
_CLOSINGS = ("the end", "thank you", "have a nice day", "that is all", "good luck")
_COMMON_WORDS = ("the", "and", "is", "of", "a", "in")
_EXTRA_WORDS = ("because", "always", "small", "world", "learn", "beautiful", "every", "different")
_KEYS = (("title", "text"), ("name", "fact"), ("topic", "summary"), ("answer",), ("question", "answer"))


@dataclass(frozen=True, slots=True)
class ConstrainedPrompt:
    """A prompt and the constraints that its wording states."""

    prompt: Prompt
    constraints: tuple[Constraint, ...]
    kind: str  #: the constraints' kinds, sorted, joined by "+"
    split_key: str  #: the topic, which decides the split (`split_of`)

    @property
    def split(self) -> Split:
        return split_of(self.split_key)

    def to_meta(self) -> dict[str, Any]:
        """JSON-ready record for a comparison's meta; `constraint_from_dict` reads the constraints back."""
        return {
            "kind": self.kind,
            "topic": self.split_key,
            "constraints": [constraint.to_dict() for constraint in self.constraints],
        }


def split_of(topic: str) -> Split:
    """The side of a topic. A hash, so it does not change when topics are added."""
    digest = hashlib.sha256(topic.encode("utf-8")).digest()
    return "heldout" if int.from_bytes(digest[:8], "big") % HELDOUT_EVERY == 0 else "train"


def _some_words(rng: random.Random, topic: Topic) -> tuple[str, ...]:
    if rng.random() < 0.75:
        return (rng.choice(topic.words),)
    return tuple(sorted((rng.choice(topic.words), rng.choice([w for w in _EXTRA_WORDS if w not in topic.words]))))


def _forbidden(rng: random.Random, topic: Topic) -> tuple[str, ...]:
    return (rng.choice(_COMMON_WORDS if rng.random() < 0.5 else topic.words),)


ConstraintFactory: TypeAlias = Callable[[random.Random, Topic], Constraint]
_FACTORIES: dict[str, ConstraintFactory] = {
    "max_words": lambda rng, _: MaxWords(rng.choice((10, 15, 20, 25))),
    "min_words": lambda rng, _: MinWords(rng.choice((15, 20, 25, 30))),
    "sentence_count": lambda rng, _: SentenceCount(rng.choice((1, 1, 2, 3))),
    "paragraph_count": lambda rng, _: ParagraphCount(rng.choice((1, 2))),
    "required_words": lambda rng, topic: RequiredWords(_some_words(rng, topic)),
    "forbidden_words": lambda rng, topic: ForbiddenWords(_forbidden(rng, topic)),
    "all_lowercase": lambda rng, _: AllLowercase(),
    "all_uppercase": lambda rng, _: AllUppercase(),
    "no_commas": lambda rng, _: NoCommas(),
    "contains_number": lambda rng, _: ContainsNumber(rng.choice((1, 1, 1, 2))),
    "starts_with": lambda rng, _: StartsWith(rng.choice(_OPENINGS)),
    "ends_with": lambda rng, _: EndsWith(rng.choice(_CLOSINGS)),
    "quoted": lambda rng, _: Quoted(),
    "bullet_count": lambda rng, _: BulletCount(rng.choice((2, 3))),
    "numbered_list": lambda rng, _: NumberedList(rng.choice((2, 3))),
    "json_object": lambda rng, _: JsonObject(rng.choice(_KEYS)),
    "language": lambda rng, _: AnswerLanguage(rng.choice(("es", "fr", "de"))),
}
#: Kinds that ask for items, so they go with listing tasks only.
_LISTING = frozenset({"bullet_count", "numbered_list"})
#: Share of prompts that show a worked example in an earlier turn, where the prompt has such a kind: SmolLM2-135M meets
#: these in hardly one of ten responses without an example, and the first three nearly always with one.
_DEMONSTRATED = {
    "all_lowercase": 0.7,
    "all_uppercase": 0.7,
    "quoted": 0.6,
    "bullet_count": 1.0,
    "json_object": 1.0,
    "starts_with": 1.0,
    "ends_with": 1.0,
}
_DEMONSTRATED_DEFAULT = 0.4
#: How often each kind is drawn, relative to the others. `ends_with` is met in one of twenty responses: kept, but rarer.
MIX: dict[str, float] = {**dict.fromkeys(_FACTORIES, 1.0), "ends_with": 0.5}


def generate_prompts(
    n: int,
    seed: int,
    *,
    kinds: Sequence[str] | None = None,
    constraints_per_prompt: Sequence[int] = (1, 2),
    split: Split | None = None,
) -> list[ConstrainedPrompt]:
    """`n` distinct prompts; the same arguments give the same list, and a smaller `n` a prefix of it.

    `kinds`: the kinds of constraints to draw from (default: those of `MIX`, by its weights). `constraints_per_prompt`:
    the numbers of constraints a prompt may have, drawn evenly. `split`: topics of one side only. Raises
    BadInputError on an unknown kind and when the templates cannot give `n` prompts.
    """
    if n < 0:
        raise BadInputError(f"must be a number of prompts, not {n}", field="n")
    names = tuple(MIX) if kinds is None else tuple(kinds)
    if not names:
        raise BadInputError(f"no kinds given; choose from {', '.join(_FACTORIES)}", field="kinds")
    for name in names:
        if name not in _FACTORIES:
            raise unknown("kind of constraint", name, _FACTORIES, field="kinds")
    if not constraints_per_prompt or min(constraints_per_prompt) < 1 or max(constraints_per_prompt) > len(names):
        raise BadInputError(
            f"must be numbers from 1 to {len(names)}, not {tuple(constraints_per_prompt)}",
            field="constraints_per_prompt",
        )
    prompts: dict[Prompt, ConstrainedPrompt] = {}
    misses = 0
    for candidate in _candidates(random.Random(seed), names, constraints_per_prompt, split):
        if len(prompts) >= n:
            break
        if candidate is None or candidate.prompt in prompts:
            misses += 1
            if misses == _PATIENCE:
                raise BadInputError(f"these kinds gave only {len(prompts)} distinct prompts, not {n}", field="n")
            continue
        misses = 0
        prompts[candidate.prompt] = candidate
    return list(prompts.values())


def constrained_prompts(argument: str, *, seed: int, split: Split | None) -> list[PromptItem]:
    """`generate_prompts` as a prompt source. `argument`: how many, 64 where it is empty."""
    if argument and (not argument.isdigit() or int(argument) < 1):
        raise BadInputError(f"how many? e.g. constrained:64, not {argument!r}", field="prompts")
    generated = generate_prompts(int(argument or 64), seed, split=split)
    return [PromptItem(p.prompt, p.constraints, p.to_meta(), as_text=True) for p in generated]


def _candidates(
    rng: random.Random, kinds: Sequence[str], sizes: Sequence[int], split: Split | None
) -> Iterator[ConstrainedPrompt | None]:
    """Endless candidates; None where the sampled constraints contradict each other."""
    topics = [topic for topic in TOPICS if split is None or split_of(topic.name) == split]
    weights = [MIX[kind] for kind in kinds]
    while True:
        topic = rng.choice(topics)
        drawn = rng.choices(kinds, weights=weights, k=rng.choice(sizes))
        constraints = tuple(_FACTORIES[kind](rng, topic) for kind in drawn)
        listing = not _LISTING.isdisjoint(drawn)
        task = rng.choice([task for task in TASKS if task.listing == listing])
        yield _compose(rng, topic, task, constraints) if compatible(constraints) else None


def _compose(
    rng: random.Random, topic: Topic, task: PromptTask, constraints: tuple[Constraint, ...]
) -> ConstrainedPrompt:
    demands = " ".join(constraint.instruction(rng.randrange(12)) for constraint in constraints)
    demands_first = rng.random() < 0.25
    share = max(_DEMONSTRATED.get(constraint.kind, _DEMONSTRATED_DEFAULT) for constraint in constraints)
    demonstration = demonstrate(constraints) if rng.random() < share else None
    turns: list[Message] = []
    if demonstration is not None:
        request = LISTING_TASK if task.listing else TASK
        turns = [
            Message("user", _ask(request, demands, constraints, demands_first)),
            Message("assistant", demonstration),
        ]
    request = task.text.format(topic=topic.name)
    turns.append(Message("user", _ask(request, demands, constraints, demands_first)))
    kind = "+".join(sorted(constraint.kind for constraint in constraints))
    return ConstrainedPrompt(tuple(turns), constraints, kind, topic.name)


def _ask(request: str, demands: str, constraints: tuple[Constraint, ...], demands_first: bool) -> str:
    """The user's turn. Its own case follows the constraint, which helps a small model."""
    text = f"{demands} {request}" if demands_first else f"{request} {demands}"
    if any(isinstance(constraint, AllLowercase) for constraint in constraints):
        return text.lower()
    if any(isinstance(constraint, AllUppercase) for constraint in constraints):
        return text.upper()
    return text
