"""Does one round of training on what fooled a reward make it fall for less? On arguments that people compared.

A Bradley-Terry head on frozen MiniLM features (of the response, of response x prompt, log length) is fitted on pairs of
some debates of UKPConvArg1, attacked there, and fitted again with the responses that fooled it as rejected sides. Both
are attacked on debates that neither has seen. For each kind of attack, three models: trained on no attack, on all kinds
but this one, on all kinds. Beside them: accuracy on the held-out pairs, and that of choosing the longer argument.

Negatives are drawn so that they are `--share` of the pairs at most, kinds alike; 0 = all that were found. Several draws
of the debates (`--seeds`); each draw keeps ten or more of them for the measure, the intervals are by debate.

    python benchmarks/attack_negatives.py --data ukpconvarg1_pairs.jsonl.gz --cache features.npz --json
"""

from __future__ import annotations

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
from assay.statistics.intervals import interval_text, share_interval
from assay_pipelines.embedding.mean_pooling import minilm
from assay_rm_training.attacks.attack import ATTACKS, POLICY, SEARCH, Attack, AttackedResponse
from assay_rm_training.attacks.rates import BASELINE, JudgedAttack
from assay_rm_training.attacks.target import RewardTarget
from assay_rm_training.methods.probe import fit_head
from assay_serving.scorer import ModelInfo, ScoreItem
from measure import Report, arguments

Floats = npt.NDArray[np.float64]
L2 = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4)
KINDS = [name for name in ATTACKS.members if name not in (SEARCH, POLICY)]


class Features:
    """Of a response to a prompt [2 * H + 1]; each text is encoded once, and kept in `cache`."""

    def __init__(self, cache: Path | None) -> None:
        self._encoder, self._cache = minilm("cpu"), cache
        self._known: dict[str, npt.NDArray[np.float32]] = {}
        if cache is not None and cache.is_file():
            with np.load(cache, allow_pickle=False) as stored:
                self._known = dict(zip(stored["texts"].tolist(), stored["vectors"], strict=True))

    def learn(self, texts: Iterable[str]) -> None:
        missing = [text for text in dict.fromkeys(texts) if text not in self._known]
        for start in range(0, len(missing), 512):
            part = missing[start : start + 512]
            self._known.update(zip(part, self._encoder.encode(part), strict=True))
            print(f"  encoded {start + len(part)} of {len(missing)} texts", flush=True)
            if self._cache is not None:
                np.savez(self._cache, texts=np.array([*self._known]), vectors=np.stack([*self._known.values()]))

    def of(self, items: Sequence[tuple[str, str]]) -> Floats:
        """Of (prompt, response)."""
        self.learn(text for item in items for text in item)
        prompts, responses = (np.stack([self._known[item[side]] for item in items]) for side in (0, 1))
        lengths = np.log1p([[len(item[1])] for item in items]) / 5.0
        return np.hstack([responses, np.sqrt(prompts.shape[1]) * responses * prompts, lengths]).astype(np.float64)


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
    sides = [[(prompt_text(p), response_text(side)) for p in pairs for side in (s(p),)] for s in (_chosen, _rejected)]
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


def one(features: Features, pairs: Sequence[PreferencePair], seed: int, share: float) -> dict[str, Any]:
    rng = random.Random(seed)
    debates = sorted({pair.category for pair in pairs})
    held = set(rng.sample(debates, max(10, len(debates) // 3)))
    train, test = ([p for p in pairs if (p.category in held) == side] for side in (False, True))
    attacks: dict[str, Attack] = {name: ATTACKS.create(name) for name in KINDS}
    l2 = best_l2(features, train)
    base = HeadScorer(features, fitted(features, train, l2))
    found = [item for item in attacked(base, train, attacks) if item.fooled and item.attack != BASELINE]

    def hardened(kinds: Sequence[str]) -> HeadScorer:
        listed = [item for item in found if item.attack in kinds]
        added = negatives(listed, train, int(share * len(train)), random.Random(seed))
        return HeadScorer(features, fitted(features, [*train, *added], l2))

    models = {"base": base, "all": hardened(KINDS)}
    models |= {f"without {kind}": hardened([k for k in KINDS if k != kind]) for kind in KINDS}
    items = {name: attacked(scorer, test, attacks) for name, scorer in models.items()}
    accuracies = {name: right(scorer, test) for name, scorer in models.items()}
    groups = [pair.category for pair in test]
    longer = [float(len(response_text(p.chosen)) > len(response_text(p.rejected))) for p in test]
    return {
        "seed": seed,
        "train": len(train),
        "test": len(test),
        "l2": l2,
        "found": len(found),
        "items": items,
        "right": accuracies,
        "longer": longer,
        "groups": groups,
    }


def pooled(runs: Sequence[dict[str, Any]], model: str, kind: str | None = None) -> dict[str, Any]:
    """Rate of a kind, or accuracy, over the draws, with the interval by debate of all draws."""
    if kind is None:
        values = [value for run in runs for value in run["right"][model]]
        groups = [group for run in runs for group in run["groups"]]
    else:
        items = [item for run in runs for item in run["items"][model] if item.attack == kind]
        values, groups = [float(bool(item.fooled)) for item in items], [item.prompt_id for item in items]
    interval = share_interval(values, groups)
    return {
        "value": fmean(values),
        "low": interval and interval.low,
        "high": interval and interval.high,
        "text": f"{fmean(values):.3f} ({interval_text(interval, '.3f')})",
    }


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", type=Path, required=True, help="UKPConvArg1 as JSON Lines")
    parser.add_argument("--cache", type=Path, default=None, help="file .npz of encoded texts, so that a run resumes")
    parser.add_argument("--pairs", type=int, default=None, help="of each debate (default: 10; quick: 3)")
    parser.add_argument("--seeds", type=int, default=None, help="draws of debates (default: 5; quick: 1)")
    parser.add_argument("--share", type=float, default=1.0, help="most negatives, as a share of the pairs; 0 = all")
    options = parser.parse_args()
    count = options.pairs or (3 if options.quick else 10)
    by_debate: dict[str, list[PreferencePair]] = {}
    for pair in read_pair_file(options.data):
        by_debate.setdefault(pair.category, []).append(pair)
    rng = random.Random(0)
    pairs = [pair for debate in sorted(by_debate) for pair in rng.sample(by_debate[debate], count)]
    features = Features(options.cache)
    runs = [one(features, pairs, seed, options.share) for seed in range(options.seeds or (1 if options.quick else 5))]
    report = Report("attack_negatives")
    report.figures = {"debates": len(by_debate), "pairs": len(pairs), "share": options.share}
    report.figures |= {name: [run[name] for run in runs] for name in ("train", "test", "l2", "found")}
    table = {}
    print(f"{'kind':<16} {'trained on none':<26} {'on the other kinds':<26} {'on all kinds':<26}")
    for kind in (BASELINE, *KINDS):
        names = ["base", f"without {kind}" if kind in KINDS else "all", "all"]
        table[kind] = {
            arm: pooled(runs, name, kind) for arm, name in zip(("none", "others", "all"), names, strict=True)
        }
        print(f"{kind:<16} " + " ".join(f"{one['text']:<26}" for one in table[kind].values()))
    table["accuracy"] = {"none": pooled(runs, "base"), "all": pooled(runs, "all")}
    table["accuracy"]["others"] = {"value": fmean(pooled(runs, f"without {kind}")["value"] for kind in KINDS)}
    longer = fmean(value for run in runs for value in run["longer"])
    print(
        f"accuracy: none {table['accuracy']['none']['text']}, all {table['accuracy']['all']['text']}, "
        f"without one kind {table['accuracy']['others']['value']:.3f}; the longer argument {longer:.3f}"
    )
    report.figures |= {"rates": table, "longer": longer}
    report.finish(options)


if __name__ == "__main__":
    main()
