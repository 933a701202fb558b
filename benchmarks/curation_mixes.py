"""What the curation study is fed: pairs with their truth, sources that err in known ways, features of all texts.

Covers: UKP, HH and the length-balanced AlpacaEval pool, the mixes of docs/curation/study.md, gold and a judge, all by
seed; MiniLM embeddings, computed once and kept in a file. Leaves out: the arms (`curation_study.py`).
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from assay.domain import Answer, Comparison, PreferencePair, Prompt, prompt_of
from assay.runs.progress_bar import Advance, silent
from assay_pipelines.embedding.encoder_loader import open_encoder
from assay_serving.engines.frozen_backbone import FeatureResult, Features
from assay_serving.scorer import ScoreItem

Side = Literal["A", "B"]
Floats = npt.NDArray[np.float64]
SETS = {
    "UKP": ("ukpconvarg1_pairs",),
    "HH": ("hh_helpful_base_test", "hh_harmless_base_test"),
    "ALP": ("alpacaeval2_soft_preferences",),
}
POOL = {"UKP": 3_000, "HH": 2_200, "ALP": 3_000}
MIXES: dict[str, dict[str, float]] = {
    "crowd": {"crowd": 1.0},
    "random": {"crowd": 0.5, "random": 0.5},
    "adversary": {"crowd": 0.6, "adversary": 0.4},
    "longer": {"crowd": 0.3, "longer": 0.7},
    "M3": {"crowd": 0.3, "random": 0.35, "shouting": 0.35},
}
WRONG = {"random": 0.4, "adversary": 0.8, "crowd": 0.11}
FOLLOWS = 0.9  # of a source that goes by a surface feature
JUDGE, JUDGE_WHERE_LONGER, JUDGE_WHERE_SHORTER, PEOPLE = 0.8, 0.95, 0.65, 0.95


@dataclass(frozen=True)
class StudyPair:
    """In canonical order. `true`: the better side. `votes`: of its people. `p_a`: the annotator's probability of A."""

    comparison_id: str
    group: str
    prompt: Prompt
    a: str
    b: str
    true: Side
    votes: tuple[Answer, ...] = ()
    p_a: float | None = None

    def pair(self, label: str) -> PreferencePair:
        sides = (self.a, self.b) if label == "A" else (self.b, self.a)
        return PreferencePair(self.prompt, *sides, comparison_id=self.comparison_id, category=self.group)


@dataclass(frozen=True)
class NoisyPool:
    """One cell's draw. `source`, `label`: by comparison id; `people`, `judges`: what they would answer, 3 judges."""

    train: Sequence[StudyPair]
    test: Sequence[StudyPair]
    source: Mapping[str, str]
    label: Mapping[str, Side]
    people: Mapping[str, Side]
    judges: Sequence[Mapping[str, Side]]


def read_pairs(folder: Path, name: str) -> list[StudyPair]:
    """Every pair with a truth, once."""
    rows = {row.comparison_id: row for row in _READERS[name](folder)}
    return [rows[key] for key in sorted(rows)]


def draw(pairs: Sequence[StudyPair], name: str, mix: str, seed: int, size: int) -> NoisyPool:
    """The split, each pair's source and label, people's and judges' answers."""
    rng = np.random.default_rng([seed, *name.encode(), *mix.encode()])
    groups = sorted({pair.group for pair in pairs})
    held_out = set(rng.permutation(groups)[: max(1, len(groups) // 4)].tolist())
    if name == "HH":
        order = rng.permutation(len(pairs))
        train = [pairs[i] for i in order[:size]]
        test = [pairs[i] for i in order[size:]]
    else:
        rest = [pair for pair in pairs if pair.group not in held_out]
        train = [rest[i] for i in rng.permutation(len(rest))[:size]]
        test = [pair for pair in pairs if pair.group in held_out]
    shares = MIXES[mix]
    kinds = rng.choice(list(shares), size=len(train), p=list(shares.values()))
    shout = _shouting(train)
    source = {pair.comparison_id: str(kind) for pair, kind in zip(train, kinds, strict=True)}
    label = {
        pair.comparison_id: _label(pair, str(kind), shout[i], rng)
        for i, (pair, kind) in enumerate(zip(train, kinds, strict=True))
    }
    people = {pair.comparison_id: _right(pair, PEOPLE, rng) for pair in train}
    judges = [{pair.comparison_id: _right(pair, _judge(pair, mix), rng) for pair in train} for _ in range(3)]
    return NoisyPool(train, test, source, label, people, judges)


def _label(pair: StudyPair, kind: str, shout: float, rng: np.random.Generator) -> Side:
    if kind == "crowd" and pair.votes:
        vote = pair.votes[rng.integers(len(pair.votes))]
        return vote if vote in ("A", "B") else ("A" if rng.random() < 0.5 else "B")
    if kind == "crowd" and pair.p_a is not None:
        return "A" if rng.random() < pair.p_a else "B"
    if kind in ("longer", "shouting"):
        prefers_a = len(pair.a) > len(pair.b) if kind == "longer" else shout > 0
        return "A" if prefers_a == (rng.random() < FOLLOWS) else "B"
    return _right(pair, 1 - WRONG[kind], rng)


def _judge(pair: StudyPair, mix: str) -> float:
    if mix != "longer":
        return JUDGE
    return JUDGE_WHERE_LONGER if (len(pair.a) > len(pair.b)) == (pair.true == "A") else JUDGE_WHERE_SHORTER


def _right(pair: StudyPair, accuracy: float, rng: np.random.Generator) -> Side:
    other: Side = "B" if pair.true == "A" else "A"
    return pair.true if rng.random() < accuracy else other


def _shouting(pairs: Sequence[StudyPair]) -> Floats:
    counts = np.array([[p.a.count("!") - p.b.count("!"), _capitals(p.a) - _capitals(p.b)] for p in pairs], dtype=float)
    deviation = counts.std(axis=0)
    standard: Floats = (counts - counts.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    total: Floats = standard.sum(axis=1)
    return total


def _capitals(text: str) -> int:
    return sum(map(str.isupper, text))


def surface(text: str) -> Floats:
    """[12]: length, words, sentences, marks, capitals, ..."""
    words = text.split()
    n, capitals = max(1, len(words)), _capitals(text)
    return np.array(
        [
            np.log1p(len(text)), len(words), len(re.findall(r"[.!?]+", text)), text.count("!"), text.count("?"),
            capitals / max(1, len(text)), np.log1p(capitals), sum(w.isupper() and len(w) > 1 for w in words),
            text.count(","), len(set(words)) / n, len(text) / n, text.count("\n"),
        ]
    )  # fmt: skip


class TextVectors:
    """Embeddings by text, kept in an .npz file; those that are missing are computed and added."""

    def __init__(self, path: Path, encoder: str = "minilm") -> None:
        self._path, self._encoder = path, encoder
        self._vectors: dict[str, npt.NDArray[np.float16]] = {}
        if path.is_file():
            with np.load(path) as stored:
                self._vectors = dict(zip(stored["keys"].tolist(), stored["vectors"], strict=True))

    def add(self, texts: Sequence[str]) -> None:
        missing = sorted({t for t in texts if _key(t) not in self._vectors}, key=len)
        if not missing:
            return
        encoder = open_encoder(self._encoder, "cpu")
        for start in range(0, len(missing), 256):
            part = missing[start : start + 256]
            self._vectors |= dict(zip(map(_key, part), encoder.encode(part).astype(np.float16), strict=True))
        with self._path.open("wb") as stream:
            np.savez(stream, keys=np.array(list(self._vectors)), vectors=np.stack(list(self._vectors.values())))

    def __getitem__(self, text: str) -> npt.NDArray[np.float32]:
        return self._vectors[_key(text)].astype(np.float32)


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass
class StudyFeatures:
    """In the place of a backbone's `FeatureCache`: of a response its embedding and surface features."""

    vectors: TextVectors
    backbone: Any = field(
        default_factory=lambda: SimpleNamespace(
            base="minilm+surface",
            width=396,
            renderer=SimpleNamespace(template_hash="none", max_length=256),
            trainable=SimpleNamespace(model=SimpleNamespace(device="cpu")),
        )
    )
    _held: dict[str, Features] = field(default_factory=dict)

    def of(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[FeatureResult]:
        """Vectors are in memory; nothing fails."""
        return [self._features(str(item.response)) for item in items]

    def _features(self, text: str) -> Features:
        if text not in self._held:
            vector = np.concatenate([self.vectors[text], surface(text)]).astype(np.float32)
            self._held[text] = Features(vector, len(text.split()), False)
        return self._held[text]


def _records(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as stream:
        for line in stream:
            yield json.loads(line)


def _canonical(
    prompt: Prompt, group: str, better: str, worse: str, votes: Sequence[Answer] = (), p: float | None = None
) -> StudyPair:
    """`votes` and `p` are of the better response as A."""
    comparison, swapped = Comparison.of(prompt, better, worse)
    turn = {"A": "B", "B": "A"} if swapped else {}
    turned: tuple[Any, ...] = tuple(turn.get(vote, vote) for vote in votes)
    p_a = p if p is None or not swapped else 1 - p
    true: Side = "B" if swapped else "A"
    first, second = (worse, better) if swapped else (better, worse)
    return StudyPair(comparison.id, group, prompt, first, second, true, turned, p_a)


def _prompt(value: Any) -> Prompt:
    return prompt_of([{"role": "user", "content": value}] if isinstance(value, str) else value)


def _ukp(folder: Path) -> Iterator[StudyPair]:
    for record in _records(folder, SETS["UKP"][0]):
        first, second = record["responses"]
        votes = [vote["value"] for vote in record["ratings"]["votes"]]
        a, b, tie = (votes.count(side) for side in ("A", "B", "tie"))
        if first.strip() == second.strip() or a == b or tie >= max(a, b):
            continue
        if a > b:
            yield _canonical(_prompt(record["prompt"]), record["category"], first, second, votes)
        else:
            turned = [{"A": "B", "B": "A"}.get(vote, vote) for vote in votes]
            yield _canonical(_prompt(record["prompt"]), record["category"], second, first, turned)


def _hh(folder: Path) -> Iterator[StudyPair]:
    for name in SETS["HH"]:
        for record in _records(folder, name):
            if record["chosen"].strip() and record["rejected"].strip() and record["chosen"] != record["rejected"]:
                yield _canonical(_prompt(record["prompt"]), record["id"], record["chosen"], record["rejected"])


def _alp(folder: Path) -> Iterator[StudyPair]:
    by_length: dict[bool, list[tuple[str, StudyPair]]] = {True: [], False: []}
    for record in _records(folder, SETS["ALP"][0]):
        baseline = record["baseline"]["text"]
        for response in record["responses"]:
            text, p = response["text"], response["preference"]
            if p == 0.5 or len(text) == len(baseline) or not text.strip():
                continue
            wins = p > 0.5
            sides = (text, baseline) if wins else (baseline, text)
            pair = _canonical(_prompt(record["prompt"]), record["id"], *sides, p=max(p, 1 - p))
            rank = hashlib.sha256((record["id"] + response["system"]).encode()).hexdigest()
            by_length[(len(text) > len(baseline)) == wins].append((rank, pair))
    fewest = min(map(len, by_length.values()))
    for pairs in by_length.values():
        yield from (pair for _, pair in sorted(pairs, key=lambda ranked: ranked[0])[:fewest])


_READERS = {"UKP": _ukp, "HH": _hh, "ALP": _alp}
