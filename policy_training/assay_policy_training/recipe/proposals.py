"""Recipes for a task in words: `assay recipes --for "verifiable maths, 1 GPU"`.

Covers: what a recipe needs (`TRAITS`), read from its text, and a ranking by the words of its header, rarer words first.
Leaves out: any judgement of which method is better; among equals the base methods come first, which take any reward,
and then the recipes that follow a maintained framework.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import yaml

from assay.errors import BadInputError

#: Trait -> the words of a query that ask for it.
TRAITS: Mapping[str, str] = {
    "verifier": "verifiable verifier verified math maths reasoning code correct correctness answer rlvr",
    "reward model": "preference chat helpful helpfulness human rlhf model server",
    "critic": "critic value",
    "KL to a reference": "kl reference",
    "recorded responses": "offline recorded dataset demonstration",
    "asynchronous rollouts": "async asynchronous actor cluster stale off-policy",
}
#: The base methods, for tasks with a verifier as with a reward model.
_ANY_REWARD = frozenset({"dapo", "dr_grpo", "grpo", "gspo", "ppo", "reinforce_pp", "rloo"})
_VERIFIED = re.compile(r"\bacc\b|verifier|verifiable|right or wrong|all[- ]right|right row|correctness|correct rows")
#: What does not fit one GPU well: further models in the same memory, processes that generate beside training.
_ON_ONE_GPU = {"critic": 2.0, "KL to a reference": 1.0, "asynchronous rollouts": 4.0}
_NEGATED = re.compile(r"\b(?:no|without)\s+([\w-]+)")
_GPUS = re.compile(r"\b(\d+|one|single|a)[\s-]+gpus?\b")
_FILLER = re.compile(r"an|and|as|at|by|for|from|gpus?|in|is|it|no|of|on|one|or|our|the|to|with|without")


@dataclass(frozen=True)
class Proposal:
    """`traits`: what the recipe needs or serves; `matches`: words of the query that speak for it."""

    recipe: str
    score: float
    traits: tuple[str, ...]
    matches: tuple[str, ...]


def traits_of(text: str) -> tuple[str, ...]:
    """Of a recipe's YAML text."""
    sections = yaml.safe_load(text)
    present = {
        "verifier": bool(_VERIFIED.search(text)),
        "critic": bool(sections.get("critic")),
        "KL to a reference": bool((sections.get("kl") or {}).get("coefficient")),
        "recorded responses": "recorded" in text,
        "asynchronous rollouts": bool(sections.get("asynchrony")),
    }
    present["reward model"] = not present["verifier"] and not present["recorded responses"]
    return tuple(trait for trait in TRAITS if present[trait])


def propose(query: str, texts: Mapping[str, str], most: int = 5) -> list[Proposal]:
    """The best of the recipes `texts` (by name) for the task, the best first.

    Raises BadInputError where no recipe has to do with any word of the query.
    """
    query = query.lower()
    gpus = _GPUS.search(query)
    single = gpus is not None and gpus[1] in ("1", "one", "single", "a")
    refused = {stem(word) for word in _NEGATED.findall(query)}
    words = {stem(word): word for word in re.findall(r"[a-z][\w-]+", query) if not _FILLER.fullmatch(word)}
    terms = [word for word in words if word not in refused]
    headers = {name: Counter(_header_words(text)) for name, text in texts.items()}
    frequency = Counter(word for header in headers.values() for word in header)
    proposals = []
    for name, text in texts.items():
        traits = traits_of(text)
        asked_by = {trait: {stem(word) for word in TRAITS[trait].split()} for trait in TRAITS}
        anyhow = ("verifier", "reward model") if name in _ANY_REWARD else ()
        served = {word for trait in {*traits, *anyhow} for word in asked_by[trait]}
        matches = [word for word in terms if word in served or word in headers[name]]
        score = sum(2.0 if word in served else 0.0 for word in matches)
        rare = [word for word in matches if word in headers[name] and word not in served]
        score += sum(math.log(len(texts) / frequency[word]) for word in rare)
        score -= 4.0 * sum(not refused.isdisjoint(asked_by[trait]) for trait in traits)
        if single:
            score -= sum(_ON_ONE_GPU.get(trait, 0.0) for trait in traits)
        score += 1.0 * ("[F" in text) + 1.0 * bool(anyhow)
        needed = tuple(trait for trait in traits if trait not in anyhow)
        needed = ("any reward", *needed) if anyhow else needed
        proposals.append(Proposal(name, score, needed, tuple(words[word] for word in matches)))
    if not any(proposal.matches for proposal in proposals) and not refused:
        raise BadInputError(f"no recipe has to do with {query!r}; assay recipes lists them", field="--for")
    return sorted(proposals, key=lambda proposal: (-proposal.score, proposal.recipe))[:most]


def stem(word: str) -> str:
    """Without a plural's s."""
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _header_words(text: str) -> Iterable[str]:
    for line in text.splitlines():
        if not line.startswith("#"):
            return
        yield from map(stem, re.findall(r"[a-z][\w-]+", line.lower()))
