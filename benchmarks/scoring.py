"""Scoring with a reward model: Assay's engine beside a plain transformers loop and vLLM's pooling runner.

One machine, all of its cores each in turn, one number format for all (--dtype). Three kinds of work on real HH
conversations, other ones in every round: single responses, and groups of 8 and of 16 responses to one prompt (a group's
responses are the prompt's own two and those of other conversations); --quick has the first and the last. Ratios are of
scores a second, ours to the peer's; ours includes rendering and encoding, the peers get token ids. All scores must
agree. The plain loop is the stock classifier on padded batches of conversations of about one length.

With --dtype bfloat16 its price is measured too: how far our scores of HH pairs are from those in float32, in standard
deviations, and what becomes of their order. --model: a trained reward model instead of one with a random head.

vLLM needs an environment of its own (docs/reward-models/speed.md): --vllm-python PATH or $ASSAY_VLLM_PYTHON; without
it that peer is skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from assay.score import Score, ScoreFailure
from assay_serving.model_config import ModelConfig
from hh_pairs import hh_pairs
from measure import Cost, Report, arguments, compare, peak_rss_mb, spent, versions

MEASURES = (
    "serving/assay_serving/engines",
    "platform/assay/models",
)

HERE = Path(__file__).resolve().parent
WORK = {"single": 1, "groups of 8": 8, "groups of 16": 16}
PLAIN_BATCH = 8
LENGTH = 1024
QUICK_WORK = ("single", "groups of 16")
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.2}  #: scores of different engines


class VllmPeer:
    """The peer's process, for the length of a `with` block."""

    def __init__(self, python: str, model: str, threads: int, dtype: str) -> None:
        environment = {
            **os.environ,
            "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}",
            "OMP_NUM_THREADS": str(threads),
            "HF_HUB_OFFLINE": "1",
        }
        self._process = subprocess.Popen(
            [python, HERE / "vllm_scores.py", model, dtype, str(LENGTH)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if not os.environ.get("ASSAY_BENCH_VERBOSE") else None,
            text=True,
            env=environment,
        )
        self.about = self._answer()

    def __enter__(self) -> VllmPeer:
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def score(self, rows: Sequence[Sequence[int]]) -> list[float]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([list(map(int, row)) for row in rows]) + "\n")
        self._process.stdin.flush()
        scores: list[float] = self._answer()["scores"]
        return scores

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            stderr_text = self._process.stderr.read() if self._process.stderr else ""
            raise RuntimeError(f"the vLLM process ended: {stderr_text[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--vllm-python", default=os.environ.get("ASSAY_VLLM_PYTHON"), help="Python that has vLLM")
    parser.add_argument("--base", default="smollm2", help="language model whose reward model is scored with")
    parser.add_argument("--model", type=Path, default=None, help="folder of a trained scalar reward model instead")
    parser.add_argument("--dtype", choices=list(TOLERANCE), default="float32", help="number format of all contenders")
    parser.add_argument("--pairs", type=int, default=None, help="of the price of bfloat16 (default: 120; quick: 20)")
    parser.add_argument("--scores", type=int, default=None, help="of a kind in a round (default: 32; quick: 16)")
    parser.add_argument("--rounds", type=int, default=None, help="rounds (default: 5; quick: 3)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run(options, Path(scratch) / "reward-model")


def run(options: argparse.Namespace, folder: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification

    from assay_serving.engines.transformers import TransformersScorer

    torch.set_num_threads(options.threads)
    if options.model is None:
        save_model(options.base, folder)
    folder, name = options.model or folder, options.dtype
    number = options.scores or (16 if options.quick else 32)
    scorer = TransformersScorer.load(ModelConfig(str(folder), device="auto", max_length=LENGTH, dtype=name))
    stock = AutoModelForSequenceClassification.from_pretrained(folder, dtype=getattr(torch, name))
    stock = stock.to(scorer.model.device).eval()
    report = Report("scoring" if name == "float32" else f"scoring.{name}", measures=MEASURES, peers=("vllm",))
    report.figures = {"scores_a_round": number, "dtype": scorer.info.dtype, "threads": options.threads}
    report.figures |= {"device": device_name(scorer.model.device), "versions": versions("torch", "transformers")}
    if options.vllm_python:
        with VllmPeer(options.vllm_python, str(folder), options.threads, name) as peer:
            report.figures["vllm"] = peer.about
            measure_work(report, options, scorer, stock, peer, number)
            report.figures["peak_mb"] = {"assay and plain": round(peak_rss_mb()), "vLLM": round(peak_rss_mb(peer.pid))}
    else:
        report.figures["vllm"] = "skipped: no environment named by --vllm-python or ASSAY_VLLM_PYTHON"
        measure_work(report, options, scorer, stock, None, number)
    if name != "float32":
        del stock
        exact = TransformersScorer.load(ModelConfig(str(folder), device="auto", max_length=LENGTH))
        report.figures["price"] = price(scorer, exact, options.pairs or (20 if options.quick else 120))
    for title, value in report.figures.items():
        print(f"{title}: {value}")
    report.finish(options)


def price(scorer: Any, exact: Any, number: int) -> dict[str, Any]:
    """What becomes of the scores of `number` HH pairs that `exact` gives in float32. Differences are divided by the
    standard deviation of those."""
    import torch

    from assay_serving.scorer import ScoreItem

    pairs = hh_pairs(number, seed=99)
    items = [ScoreItem(pair.prompt, text) for pair in pairs for text in (pair.chosen, pair.rejected)]
    both = [each.score(items) for each in (scorer, exact)]
    scored = [
        all(isinstance(result, Score) for results in both for result in results[n : n + 2])
        for n in range(0, len(items), 2)
    ]
    low, full = (
        torch.tensor([result.reward for n, result in enumerate(results) if scored[n // 2]], dtype=torch.float64)
        for results in both
    )
    if len(full) < 4:
        raise SystemExit(f"{sum(scored)} of {number} pairs have scores: the price of {scorer.info.dtype} takes two")
    gap = (low - full) / full.std()
    margins = [(scores[0::2] - scores[1::2]) for scores in (low, full)]
    ranks = torch.stack([scores.argsort().argsort().double() for scores in (low, full)])
    return {
        "pairs": sum(scored),
        "pairs_without_a_score": number - sum(scored),
        "difference_in_deviations": {
            "rms": float(gap.square().mean().sqrt()),
            "largest": float(gap.abs().max()),
        },
        "rank_correlation": float(torch.corrcoef(ranks)[0, 1]),
        "pair_accuracy": {
            name: float((margin > 0).double().mean())
            for name, margin in zip((scorer.info.dtype, "float32"), margins, strict=True)
        },
        "pairs_turned_round": int((margins[0].sign() != margins[1].sign()).sum()),
        "ties": int((margins[0] == 0).sum()),
    }


def measure_work(
    report: Report, options: argparse.Namespace, scorer: Any, stock: Any, peer: VllmPeer | None, number: int
) -> None:
    """Every kind of work; ratios of groups of 16 first."""
    kinds = {kind: group for kind, group in WORK.items() if not options.quick or kind in QUICK_WORK}
    rounds = options.rounds or (3 if options.quick else 5)
    ratios = {}
    report.figures |= {"rounds": rounds, "work": {}, "largest_difference": {}, "scores_per_s": {}, "too_long": {}}
    for seed, (kind, group) in enumerate(kinds.items()):
        drawn = [items_of(group, max(group, number), seed=1000 * seed + n) for n in range(rounds + 1)]
        batches = [fitting(scorer, items) for items in (drawn[0][:4], *drawn[1:])]
        report.figures["too_long"][kind] = sum(map(len, drawn[1:])) - sum(map(len, batches[1:]))
        scores: dict[str, list[list[float]]] = {}
        work: list[dict[str, int]] = []

        def ours(batches: Any = batches, scores: Any = scores, work: Any = work) -> Cost:
            items = batches[len(scores.setdefault("assay", []))]
            cost = spent(lambda: scores["assay"].append([score.reward for score in scorer.score(items)]))
            work.append({"tokens": scorer.last_tokens, "computed": scorer.last_computed})
            return Cost(cost.wall_s, cost.cpu_s, len(items))

        def plain(batches: Any = batches, scores: Any = scores) -> Cost:
            rows = tokens_of(scorer, batches[len(scores.setdefault("plain transformers", []))])
            cost = spent(lambda: scores["plain transformers"].append(plain_loop(stock, rows)))
            return Cost(cost.wall_s, cost.cpu_s, len(rows))

        def vllm(batches: Any = batches, scores: Any = scores) -> Cost:
            assert peer is not None
            rows = tokens_of(scorer, batches[len(scores.setdefault("vLLM", []))])
            cost = spent(lambda: scores["vLLM"].append(peer.score(rows)), pid=peer.pid)
            return Cost(cost.wall_s, cost.cpu_s, len(rows))

        contenders: dict[str, Callable[[], Cost]] = {"assay": ours, "plain transformers": plain}
        if peer is not None:
            contenders["vLLM"] = vllm
        for contender in contenders.values():  # once unmeasured: a first pass prepares kernels
            contender()
        work.clear()
        measured = compare(contenders, options, rounds=rounds, parts_left=len(kinds) - seed)
        for name, contender_scores in scores.items():
            gap = max(
                abs(one - other)
                for ours_found, theirs in zip(scores["assay"], contender_scores, strict=True)
                for one, other in zip(ours_found, theirs, strict=True)
            )
            report.figures["largest_difference"][f"{kind}, {name}"] = gap
            if gap > TOLERANCE[options.dtype]:
                sys.exit(f"{name} and assay disagree by {gap:.3g} on {kind}: the comparison means nothing")
        report.figures["work"][kind] = {name: round(sum(w[name] for w in work) / len(work)) for name in work[0]}
        report.figures["scores_per_s"][kind] = {name: str(measured.per_second(name)) for name in contenders}
        for name in contenders:
            print(f"{kind}, {name}: {measured.per_second(name)} scores/s", flush=True)
            if name != "assay":
                ratios[f"{kind}: assay / {name}"] = measured.ratio("assay", name)
    report.ratios = dict(reversed(ratios.items()))


def plain_loop(model: Any, rows: Sequence[Sequence[int]]) -> list[float]:
    """The stock classifier on batches padded on the right, of conversations of about one length."""
    import torch

    scores = [0.0] * len(rows)
    order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
    with torch.inference_mode():
        for at in range(0, len(rows), PLAIN_BATCH):
            numbers = order[at : at + PLAIN_BATCH]
            part = [torch.tensor(rows[number]) for number in numbers]
            ids = torch.nn.utils.rnn.pad_sequence(part, batch_first=True, padding_value=model.config.pad_token_id)
            mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in part], batch_first=True)
            answer = model(input_ids=ids.to(model.device), attention_mask=mask.to(model.device), use_cache=False)
            for number, score in zip(numbers, answer.logits[:, 0].tolist(), strict=True):
                scores[number] = score
    return scores


def items_of(group: int, number: int, *, seed: int) -> list[Any]:
    """`number` items, `group` responses a prompt, in random order."""
    import random

    from assay_serving.scorer import ScoreItem

    pairs = hh_pairs(max(number, 2), seed=seed)
    if group == 1:
        return [ScoreItem(pair.prompt, pair.chosen) for pair in pairs[:number]]
    all_texts = [text for pair in pairs for text in (pair.chosen, pair.rejected)]
    items = []
    for pair in pairs[: number // group]:
        texts = list(dict.fromkeys((pair.chosen, pair.rejected, *all_texts)))
        items += [ScoreItem(pair.prompt, text) for text in texts[:group]]
        all_texts = all_texts[group - 2 :]
    random.Random(seed).shuffle(items)
    return items


def fitting(scorer: Any, items: Sequence[Any]) -> list[Any]:
    """Those that fit into the model: of a tokenizer of few words some responses do not."""
    return [item for item in items if not isinstance(scorer.encode(item), ScoreFailure)]


def tokens_of(scorer: Any, items: Sequence[Any]) -> list[Sequence[int]]:
    return [scorer.encode(item).ids for item in items]


def save_model(base: str, folder: Path) -> None:
    """A reward model with a random head, as a stock checkpoint."""
    import torch

    from assay.models.loading import load_scalar_model, load_tokenizer
    from assay.models.quiet import quiet_transformers

    tokenizer = load_tokenizer(base)
    model = load_scalar_model(base, tokenizer, dtype=torch.float32, device=torch.device("cpu"), new_head=True)
    with quiet_transformers():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def device_name(device: Any) -> str:
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU (no GPU at hand)"


if __name__ == "__main__":
    main()
