"""Does one round of training on what fooled a reward make it fall for less? On arguments that people compared.

A Bradley-Terry head on frozen MiniLM features (of the response, of response x prompt, log length) is fitted on pairs of
some debates of UKPConvArg1, attacked there, and fitted again with the responses that fooled it as rejected sides. Both
are attacked on debates that neither has seen. For each kind of attack, three models: trained on no attack, on all kinds
but this one, on all kinds. Beside them: accuracy on the held-out pairs, and that of choosing the longer argument.

`--pairs` of each debate are attacked, `--ordinary` of each are trained on and measured. Negatives are drawn so that
they are `--share` of the attacked training pairs at most, kinds alike; 0 = all that fooled it. Several draws of the
debates (`--seeds`); each keeps ten or more of them for the measure. Intervals, of rates and of their changes on the
same responses, are by debate.

    python benchmarks/attack_negatives.py --data ukpconvarg1_pairs.jsonl.gz --cache features.npz --json
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.data.pairs import read_pair_file
from assay.domain import PreferencePair, response_text
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreResult
from assay.statistics.intervals import bounds, clustered_mean, interval_text, share_interval
from assay_pipelines.embedding.mean_pooling import minilm
from assay_rm_training.attacks.attack import ATTACKS, POLICY, SEARCH, Attack, AttackedResponse
from assay_rm_training.attacks.rates import BASELINE, JudgedAttack
from assay_rm_training.attacks.target import RewardTarget
from assay_rm_training.methods.probe import fit_head
from assay_serving.scorer import ModelInfo, ScoreItem
from measure import Report, arguments

MEASURES = (
    "rm_training/assay_rm_training/attacks",
    "rm_training/assay_rm_training/methods/probe.py",
)

Floats = npt.NDArray[np.float64]
L2 = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4)
KINDS = [name for name in ATTACKS.members if name not in (SEARCH, POLICY)]


class Features:
    """Of a response to a prompt [2 * H + 1]; each text is encoded once, and kept in `cache`."""

    def __init__(self, cache: Path | None) -> None:
        self._encoder, self._cache = minilm("cpu"), cache
        self._known: dict[str, npt.NDArray[np.float32]] = {}  # by the hash of the text
        if cache is not None and cache.is_file():
            with np.load(cache, allow_pickle=False) as stored:
                self._known = dict(zip(stored["hashes"].tolist(), stored["vectors"], strict=True))

    def learn(self, texts: Iterable[str]) -> None:
        missing = [text for text in dict.fromkeys(texts) if _hash(text) not in self._known]
        for start in range(0, len(missing), 512):
            part = missing[start : start + 512]
            self._known.update(zip(map(_hash, part), self._encoder.encode(part), strict=True))
            print(f"  encoded {start + len(part)} of {len(missing)} texts", flush=True)
            if self._cache is not None:
                np.savez(self._cache, hashes=np.array([*self._known]), vectors=np.stack([*self._known.values()]))

    def of(self, items: Sequence[tuple[str, str]]) -> Floats:
        """Of (prompt, response)."""
        self.learn(text for item in items for text in item)
        prompts, responses = (np.stack([self._known[_hash(item[side])] for item in items]) for side in (0, 1))
        lengths = np.log1p([[len(item[1])] for item in items]) / 5.0
        return np.hstack([responses, np.sqrt(prompts.shape[1]) * responses * prompts, lengths]).astype(np.float64)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class HeadScorer:
    """A linear reward over the features."""

    features: Features
    head: Floats
    name: str = "head"

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(self.name, version="1")

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        if not items:
            return []
        rewards = self.features.of([(prompt_text(i), response_text(i.response)) for i in items]) @ self.head
        return [Score(float(r), self.name, "1", "", tokens=0, truncated=False) for r in rewards]


def prompt_text(item: ScoreItem | PreferencePair) -> str:
    return "\n".join(message.text for message in item.prompt)


def fitted(features: Features, pairs: Sequence[PreferencePair], l2: float) -> Floats:
    sides = [[(prompt_text(pair), response_text(side(pair))) for pair in pairs] for side in (_chosen, _rejected)]
    return fit_head(features.of(sides[0]) - features.of(sides[1]), np.ones(len(pairs)), l2=l2)


def _chosen(pair: PreferencePair) -> Any:
    return pair.chosen


def _rejected(pair: PreferencePair) -> Any:
    return pair.rejected


def right(scorer: HeadScorer, pairs: Sequence[PreferencePair]) -> list[float]:
    sides = [
        [s.reward for s in scorer.score([ScoreItem(p.prompt, side(p)) for p in pairs]) if isinstance(s, Score)]
        for side in (_chosen, _rejected)
    ]
    return [float(a > b) for a, b in zip(*sides, strict=True)]


def best_l2(features: Features, pairs: Sequence[PreferencePair]) -> float:
    """By accuracy on folds of debates left out."""
    debates = sorted({pair.category for pair in pairs})
    folds = [set(debates[at::4]) for at in range(4)]

    def accuracy(l2: float) -> float:
        scored: list[float] = []
        for fold in folds:
            head = fitted(features, [p for p in pairs if p.category not in fold], l2)
            scored += right(HeadScorer(features, head), [p for p in pairs if p.category in fold])
        return fmean(scored)

    return max(L2, key=accuracy)


def attacked(scorer: HeadScorer, pairs: Sequence[PreferencePair], attacks: dict[str, Attack]) -> list[JudgedAttack]:
    """Also the worse responses as they are. Intervals are by debate, which stands in for the prompt."""
    target = RewardTarget(scorer, pairs)
    items = []
    plain = [AttackedResponse(row, pair.rejected) for row, pair in enumerate(pairs)]
    listed = {BASELINE: plain} | {n: a.attack(pairs, target, random.Random(0)) for n, a in attacks.items()}
    for name, responses in listed.items():
        for one, verdict in zip(responses, target.judge(responses), strict=True):
            judged = JudgedAttack.of(name, one, pairs[one.row], verdict)
            items.append(replace(judged, prompt_id=pairs[one.row].category))
    return items


def negatives(
    found: Sequence[JudgedAttack], pairs: Sequence[PreferencePair], most: int, rng: random.Random
) -> list[PreferencePair]:
    """The good response against what was preferred to it; of more than `most` a draw in which kinds are alike."""
    by_kind = {k: list(g) for k, g in groupby(sorted(found, key=lambda i: i.attack), key=lambda i: i.attack)}
    for kind in by_kind.values():
        rng.shuffle(kind)
    turns = [
        kind[at]
        for at in range(max(map(len, by_kind.values()), default=0))
        for kind in by_kind.values()
        if at < len(kind)
    ]
    return [
        PreferencePair(pairs[i.row].prompt, pairs[i.row].chosen, i.response, category=pairs[i.row].category)
        for i in (turns[:most] if most else turns)
    ]


def one(
    features: Features, ordinary: Sequence[PreferencePair], attackable: int, seed: int, share: float
) -> dict[str, Any]:
    """`ordinary`: of all debates; the first `attackable` of each are attacked."""
    rng = random.Random(seed)
    debates = sorted({pair.category for pair in ordinary})
    held = set(rng.sample(debates, max(10, len(debates) // 3)))
    train, test = ([p for p in ordinary if (p.category in held) == side] for side in (False, True))
    tried, measured = (
        [p for d in debates for p in [p for p in side if p.category == d][:attackable]] for side in (train, test)
    )
    attacks: dict[str, Attack] = {name: ATTACKS.create(name) for name in KINDS}
    l2 = best_l2(features, train)
    base = HeadScorer(features, fitted(features, train, l2))
    fooling = [item for item in attacked(base, tried, attacks) if item.fooled and item.attack != BASELINE]

    def hardened(kinds: Sequence[str]) -> HeadScorer:
        listed = [item for item in fooling if item.attack in kinds]
        added = negatives(listed, tried, int(share * len(tried)), random.Random(seed))
        return HeadScorer(features, fitted(features, [*train, *added], l2))

    models = {"base": base, "all": hardened(KINDS)}
    models |= {f"without {kind}": hardened([k for k in KINDS if k != kind]) for kind in KINDS}
    items = {name: attacked(scorer, measured, attacks) for name, scorer in models.items()}
    accuracies = {name: right(scorer, test) for name, scorer in models.items()}
    groups = [pair.category for pair in test]
    longer = [float(len(response_text(p.chosen)) > len(response_text(p.rejected))) for p in test]
    return {
        "seed": seed,
        "train": len(train),
        "test": len(test),
        "l2": l2,
        "fooling": len(fooling),
        "items": items,
        "right": accuracies,
        "longer": longer,
        "groups": groups,
    }


def pooled(runs: Sequence[dict[str, Any]], model: str, kind: str | None = None) -> dict[str, Any]:
    """Rate of a kind, or accuracy, over the draws, and its change from `base` on the same responses."""
    values, before, groups = [], [], []
    for run in runs:
        if kind is None:
            values += run["right"][model]
            before += run["right"]["base"]
            groups += run["groups"]
        else:
            values += [float(bool(item.fooled)) for item in run["items"][model] if item.attack == kind]
            before += [float(bool(item.fooled)) for item in run["items"]["base"] if item.attack == kind]
            groups += [item.prompt_id for item in run["items"][model] if item.attack == kind]
    interval = share_interval(values, groups)
    change = clustered_mean([after - first for after, first in zip(values, before, strict=True)], groups)
    text = f"{fmean(values):.3f} ({interval_text(interval, '.3f')})"
    if model != "base":
        text = f"{fmean(values):.3f}, change {fmean(values) - fmean(before):+.3f} ({interval_text(change, '+.3f')})"
    return {
        "value": fmean(values),
        "interval": bounds(interval),
        "change": fmean(values) - fmean(before),
        "change_interval": bounds(change),
        "text": text,
    }


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", type=Path, required=True, help="UKPConvArg1 as JSON Lines")
    parser.add_argument("--cache", type=Path, default=None, help="file .npz of encoded texts, so that a run resumes")
    parser.add_argument("--pairs", type=int, default=None, help="attacked ones of each debate (default: 10; quick: 3)")
    parser.add_argument("--ordinary", type=int, default=None, help="of each debate (default: 100; quick: 10)")
    parser.add_argument("--seeds", type=int, default=None, help="draws of debates (default: 5; quick: 1)")
    parser.add_argument("--share", type=float, default=0.0, help="most negatives, as a share of the pairs; 0 = all")
    options = parser.parse_args()
    count = options.pairs or (3 if options.quick else 10)
    each = max(count, options.ordinary or (10 if options.quick else 100))
    by_debate: dict[str, list[PreferencePair]] = {}
    for pair in read_pair_file(options.data):
        by_debate.setdefault(pair.category, []).append(pair)
    rng = random.Random(0)
    pairs = [
        pair
        for debate in sorted(by_debate)
        for pair in rng.sample(by_debate[debate], min(each, len(by_debate[debate])))
    ]
    features = Features(options.cache)
    runs = [
        one(features, pairs, count, seed, options.share) for seed in range(options.seeds or (1 if options.quick else 5))
    ]
    report = Report("attack_negatives", measures=MEASURES)
    report.figures = {"debates": len(by_debate), "pairs": len(pairs), "attacked_each": count, "share": options.share}
    report.figures |= {name: [run[name] for run in runs] for name in ("train", "test", "l2", "fooling")}
    table = {}
    print(f"{'kind':<16} {'trained on none':<26} {'on the other kinds':<42} {'on all kinds':<42}")
    for kind in (BASELINE, *KINDS):
        names = ["base", f"without {kind}" if kind in KINDS else "all", "all"]
        table[kind] = {
            arm: pooled(runs, name, kind) for arm, name in zip(("none", "others", "all"), names, strict=True)
        }
        print(f"{kind:<16} " + " ".join(f"{figure['text']:<42}" for figure in table[kind].values()))
    table["accuracy"] = {arm: pooled(runs, name) for arm, name in (("none", "base"), ("all", "all"))}
    table["accuracy"] |= {f"without {kind}": pooled(runs, f"without {kind}") for kind in KINDS}
    for arm, figure in table["accuracy"].items():
        print(f"accuracy, {arm}: {figure['text']}")
    longer = fmean(value for run in runs for value in run["longer"])
    print(f"accuracy of the longer argument: {longer:.3f}")
    report.figures |= {"rates": table, "longer": longer}
    report.finish(options)


if __name__ == "__main__":
    main()
