"""PPE (Preference Proxy Evaluations): votes of people on pairs, and lists of answers with verified correctness.

Source: arXiv 2410.14872. Its code was NOT available: formulas and field names are from memory, and aggregate names
differ from the leaderboard's. A file may hold votes, lists, or both. The figures over models are in `vote_figures.py`.

Lists (correctness): per prompt, then the mean over prompts of a domain, then the mean over domains. `pair_accuracy`: of
the pairs of a right and a wrong answer that the file names (`sampled_conflict_pairs`), else of all. `auc`: chance that
a right answer outscores a wrong one, a tie 1/2. `end_score`: gold of the best of all K by the model; `max_score`: the
highest point of the domain's mean best-of-k curve; `loss`: mean over k of the squared gap to the best possible choice;
`regret`: that gap at K. `kendall_tau_b`, `spearman`: of score and gold within a prompt.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from assay.statistics.best_of_n import expected_best
from assay.statistics.rank_correlation import kendall_tau_b, spearman
from assay_rm_training.benchmarks.benchmark import (
    BenchmarkFigures,
    ScoredItems,
    TiePolicy,
    grouped,
    win,
)
from assay_rm_training.benchmarks.figures.best_of_n import ScoredList, curve, scored_lists
from assay_rm_training.benchmarks.figures.vote_figures import vote_figures
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome, Record
from assay_rm_training.benchmarks.published import PublishedBenchmark
from assay_rm_training.benchmarks.strata import Floats, Means, Shares, Stratum, mean_of, pooled, pooled_sizes, sizes_of

VOTES = "preference"
_WINNERS = {"model_a": (1.0, 0.0), "model_b": (0.0, 1.0)}
_RESPONSE = re.compile(r"response_(\d+)")
DOMAINS = {"mmlu-pro": "MMLU-Pro", "math": "MATH", "gpqa": "GPQA", "mbpp-plus": "MBPP-Plus", "ifeval": "IFEval"}
PER_PROMPT = ("pairs_right", "pairs", "auc", "end_score", "loss", "regret", "kendall_tau_b", "spearman")


def auc(scores: Sequence[float], labels: Sequence[float]) -> float | None:
    """Chance that a right response (label above 1/2) outscores a wrong one, a tie 1/2; None for one kind alone."""
    right = np.array([s for s, label in zip(scores, labels, strict=True) if label > 0.5])
    wrong = np.array([s for s, label in zip(scores, labels, strict=True) if label <= 0.5])
    if not len(right) or not len(wrong):
        return None
    gaps = right[:, None] - wrong[None, :]
    return float(((gaps > 0) + 0.5 * (gaps == 0)).mean())


class PPE(PublishedBenchmark, name="ppe"):
    def read(self, record: Record) -> BenchmarkItem:
        return _vote(record) if "winner" in record.values else _list(record)

    def credit(self, item: BenchmarkItem, outcome: Outcome, ties: TiePolicy) -> float:
        assert outcome.scores is not None
        if item.part != VOTES:
            return item.gold[int(np.argmax(outcome.scores))]
        if item.gold[0] == item.gold[1]:
            return math.nan  # a tied vote is skipped
        better = 0 if item.gold[0] > item.gold[1] else 1
        return win(outcome.scores[better], outcome.scores[1 - better], ties)

    def measure(self, scored: ScoredItems) -> BenchmarkFigures:
        strata: list[Stratum] = []
        shares: dict[str, list[tuple[str, str]]] = {}
        votes: list[tuple[BenchmarkItem, Sequence[float]]] = []
        lists: dict[str, list[ScoredList]] = {}
        groups = scored.grouped(lambda item: item.part)
        for part, members in groups.items():
            if part == VOTES:
                decided = [(i, o) for i, o in members if i.gold[0] != i.gold[1]]
                for language, language_members in grouped(decided, lambda item: item.subset).items():
                    stratum = scored.stratum(
                        f"{VOTES}|{language}",
                        language_members,
                        ("accuracy",),
                        lambda item, s: [self.credit(item, Outcome(scores=tuple(s)), scored.ties)],
                    )
                    if stratum is not None:
                        strata.append(stratum)
                        for group in (f"{VOTES}/accuracy", f"{VOTES}/language/{language}"):
                            shares.setdefault(group, []).append((stratum.name, "accuracy"))
                votes = [(i, o.scores) for i, o in members if o.scores is not None]
                continue
            longest = max(len(item.gold) for item, _ in members)
            columns = (*PER_PROMPT, *(f"best_of_{k}" for k in range(1, longest + 1)))
            stratum = replace(scored, failed_as_wrong=False).stratum(
                part,
                members,
                columns,
                lambda item, s, width=longest: _per_prompt(item, s, scored.ties, width),  # type: ignore[misc]
            )
            if stratum is not None:
                strata.append(stratum)
                lists[f"correctness/{part}"] = scored_lists(members)
        sizes = sizes_of(strata)
        domains = [name for name in sizes if not name.startswith(f"{VOTES}|")]
        return BenchmarkFigures(
            strata,
            lambda means: _combine(means, shares, sizes, domains),
            shares=shares,
            sizes={
                **pooled_sizes(shares, sizes),
                **{f"correctness/{name}": sizes[name] for name in domains},
            },
            counts={
                "votes": sum(item.part == VOTES for item in scored.items),
                "tied_votes": sum(item.part == VOTES and item.gold[0] == item.gold[1] for item in scored.items),
            },
            extra_figures=lambda: vote_figures(votes, seed=scored.seed),
            curves=lambda: {name: curve(mine, seed=scored.seed) for name, mine in lists.items()},
            missing=[part for part in (VOTES, *DOMAINS) if part not in groups],
        )


def _vote(record: Record) -> BenchmarkItem:
    winner = record.text("winner")
    gold = _WINNERS.get(winner, (0.5, 0.5) if winner.startswith("tie") else None)
    if gold is None:
        raise record.error(f"{winner!r} is neither model_a nor model_b nor a tie", "winner")
    return BenchmarkItem(
        id=record.identity("question_id", "id"),
        prompt=record.prompt("prompt"),
        responses=(record.text("response_1"), record.text("response_2")),
        gold=gold,
        subset=str(record.values.get("language") or "unknown"),
        part=VOTES,
        models=(record.text("model_a"), record.text("model_b")),
    )


def _list(record: Record) -> BenchmarkItem:
    numbered = sorted(
        (int(match[1]), name)
        for name, value in record.values.items()
        if value is not None and (match := _RESPONSE.fullmatch(name))
    )
    responses = tuple(record.text(name) for _, name in numbered)
    gold = record.get("scores")
    if not isinstance(gold, list | tuple) or not all(isinstance(g, int | float) and math.isfinite(g) for g in gold):
        raise record.error("not a list of gold scores, one a response", "scores")
    if len(responses) < 2 or len(gold) != len(responses):
        raise record.error(f"{len(gold)} gold scores for {len(responses)} responses", "scores")
    return BenchmarkItem(
        id=record.identity("question_id", "id"),
        prompt=record.prompt("prompt"),
        responses=responses,
        gold=tuple(float(g) for g in gold),
        subset=str(record.values.get("model_name") or ""),
        part=_domain(record),
        pairs=_named_pairs(record, gold),
    )


def _named_pairs(record: Record, gold: Sequence[float]) -> tuple[tuple[int, int], ...]:
    """(better, worse) of the pairs the row names; pairs of equal gold are left out."""
    conflict_pairs = record.values.get("sampled_conflict_pairs")
    if conflict_pairs is None:
        return ()
    if not isinstance(conflict_pairs, list | tuple):
        raise record.error("not a list of pairs", "sampled_conflict_pairs")
    pairs = []
    for pair in conflict_pairs:
        valid = isinstance(pair, list | tuple) and len(pair) == 2 and all(type(n) is int for n in pair)
        if not valid or not all(0 <= n < len(gold) for n in pair):
            raise record.error(f"{pair!r:.60} is not a pair of response numbers", "sampled_conflict_pairs")
        first, second = pair
        if gold[first] != gold[second]:
            pairs.append((first, second) if gold[first] > gold[second] else (second, first))
    return tuple(pairs)


def _domain(record: Record) -> str:
    domain = record.values.get("domain") or record.values.get("benchmark") or record.file.rsplit("/", 1)[-1]
    text = str(domain).lower().replace("_", "-").replace("mbpp+", "mbpp-plus")
    return next((part for part in DOMAINS if part in text), str(record.values.get("domain") or "correctness"))


def _per_prompt(item: BenchmarkItem, scores: Sequence[float], ties: TiePolicy, width: int) -> list[float]:
    pairs = item.pairs or [
        (i, j) for i, better in enumerate(item.gold) for j, worse in enumerate(item.gold) if better > worse
    ]
    picked, possible = expected_best(scores, item.gold), expected_best(item.gold, item.gold)
    area = auc(scores, item.gold)
    gap = possible - picked
    row = [
        sum(win(scores[i], scores[j], ties) for i, j in pairs),
        float(len(pairs)),
        math.nan if area is None else area,
        float(picked[-1]),
        float((gap**2).mean()),
        float(gap[-1]),
        kendall_tau_b(scores, item.gold),
        spearman(scores, item.gold),
    ]
    return [*row, *np.pad(picked, (0, width - len(picked)), constant_values=math.nan)]


def _combine(means: Means, shares: Shares, sizes: Mapping[str, int], domains: Sequence[str]) -> dict[str, Floats]:
    out = pooled(means, shares, sizes)
    figures: dict[str, dict[str, Floats]] = {}
    for domain in domains:
        with np.errstate(invalid="ignore", divide="ignore"):
            combined = {"pair_accuracy": means[f"{domain}/pairs_right"] / means[f"{domain}/pairs"]}
        combined |= {name: means[f"{domain}/{name}"] for name in PER_PROMPT[2:]}
        curve_means = [value for key, value in means.items() if key.startswith(f"{domain}/best_of_")]
        combined["max_score"] = np.nanmax(np.stack(curve_means), axis=0)
        figures[domain] = combined
    if figures:
        for name in next(iter(figures.values())):
            present = [combined[name] for combined in figures.values() if not np.isnan(combined[name]).all()]
            if present:  # undefined in a domain whose lists are all right or all wrong
                out[f"correctness/{name}"] = mean_of(present)
        out.update(
            {f"correctness/{d}/{name}": value for d, combined in figures.items() for name, value in combined.items()}
        )
    return out


BENCHMARK = PPE()
