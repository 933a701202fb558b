"""Scoring with a reward model: Assay's engine beside a plain transformers loop and vLLM's pooling runner.

Float32, one machine, all of its cores each in turn. Three kinds of work on real HH conversations, other ones in every
round: single responses, and groups of 8 and of 16 responses to one prompt (a group's responses are the prompt's own
two and those of other conversations). Ratios are of scores a second, ours to the peer's; ours includes rendering and
encoding, the peers get token ids. All scores must agree. The plain loop is the stock classifier on padded batches in
the order given.

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
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from assay_serving.model_config import ModelConfig
from hh_pairs import hh_pairs
from measure import Report, Spread, arguments, interleaved, peak_rss_mb, ratio, versions

MEASURES = (
    "serving/assay_serving/engines",
    "platform/assay/models",
)

HERE = Path(__file__).resolve().parent
WORK = {"single": 1, "groups of 8": 8, "groups of 16": 16}
PLAIN_BATCH = 8
LENGTH = 1024
TOLERANCE = 1e-3  #: scores of different engines, float32


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

    def score(self, rows: Sequence[Sequence[int]]) -> tuple[float, list[float]]:
        """Seconds in the engine, and scores."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([list(map(int, row)) for row in rows]) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        return answer["seconds"], answer["scores"]

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
    parser.add_argument("--scores", type=int, default=None, help="of a kind in a round (default: 32; quick: 16)")
    parser.add_argument("--rounds", type=int, default=None, help="rounds (default: 3)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run(options, Path(scratch) / "reward-model")


def run(options: argparse.Namespace, folder: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification

    from assay_serving.engines.transformers import TransformersScorer

    torch.set_num_threads(options.threads)
    save_model(options.base, folder)
    number = options.scores or (16 if options.quick else 32)
    rounds = options.rounds or 3
    scorer = TransformersScorer.load(ModelConfig(str(folder), device="auto", max_length=LENGTH))
    stock = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).to(scorer.model.device)
    report = Report("scoring", measures=MEASURES)
    report.figures = {
        "scores_a_round": number,
        "rounds": rounds,
        "dtype": scorer.info.dtype,
        "threads": options.threads,
    }
    report.figures |= {"device": device_name(scorer.model.device), "versions": versions("torch", "transformers")}
    if options.vllm_python:
        with VllmPeer(options.vllm_python, str(folder), options.threads, "float32") as peer:
            report.figures["vllm"] = peer.about
            compare(report, scorer, stock.eval(), peer, number, rounds)
            report.figures["peak_mb"] = {"assay and plain": round(peak_rss_mb()), "vLLM": round(peak_rss_mb(peer.pid))}
    else:
        report.figures["vllm"] = "skipped: no environment named by --vllm-python or ASSAY_VLLM_PYTHON"
        compare(report, scorer, stock.eval(), None, number, rounds)
    for name, value in report.figures.items():
        print(f"{name}: {value}")
    report.finish(options)


def compare(report: Report, scorer: Any, stock: Any, peer: VllmPeer | None, number: int, rounds: int) -> None:
    """Measure every kind of work; ratios of groups of 16 first."""
    rates: dict[str, dict[str, list[float]]] = {}
    report.figures["work"], report.figures["largest_difference"] = {}, {}
    for seed, (kind, group) in enumerate(WORK.items()):
        batches = [items_of(group, number, seed=1000 * seed + n) for n in range(rounds + 1)]
        batches[0] = batches[0][:4]
        scores: dict[str, list[list[float]]] = {}
        work: list[dict[str, int]] = []

        def ours(batches: Any = batches, scores: Any = scores, work: Any = work) -> float:
            items = batches[len(scores.setdefault("assay", []))]
            started = time.perf_counter()
            score_results = scorer.score(items)
            seconds = time.perf_counter() - started
            scores["assay"].append([score.reward for score in score_results])
            work.append({"tokens": scorer.last_tokens, "computed": scorer.last_computed})
            return len(items) / seconds

        def plain(batches: Any = batches, scores: Any = scores) -> float:
            rows = tokens_of(scorer, batches[len(scores.setdefault("plain", []))])
            seconds, rewards = plain_loop(stock, rows)
            scores["plain"].append(rewards)
            return len(rows) / seconds

        def vllm(batches: Any = batches, scores: Any = scores) -> float:
            assert peer is not None
            rows = tokens_of(scorer, batches[len(scores.setdefault("vLLM", []))])
            seconds, rewards = peer.score(rows)
            scores["vLLM"].append(rewards)
            return len(rows) / seconds

        contenders: dict[str, Callable[[], float]] = {"assay": ours, "plain": plain}
        if peer is not None:
            contenders["vLLM"] = vllm
        for contender in contenders.values():  # once unmeasured: a first pass prepares kernels
            contender()
        work.clear()
        rates[kind] = interleaved(contenders, rounds)
        for name, contender_scores in scores.items():
            gaps = [
                abs(one - other)
                for ours_found, theirs in zip(scores["assay"], contender_scores, strict=True)
                for one, other in zip(ours_found, theirs, strict=True)
            ]
            report.figures["largest_difference"][f"{kind}, {name}"] = max(gaps)
            if max(gaps) > TOLERANCE:
                sys.exit(f"{name} and assay disagree by {max(gaps):.3g} on {kind}: the comparison means nothing")
        report.figures["work"][kind] = {name: round(sum(w[name] for w in work) / len(work)) for name in work[0]}
        for name, values in rates[kind].items():
            print(f"{kind}, {name}: {Spread.of(values)} scores/s", flush=True)
    for kind in reversed(WORK):
        for name in rates[kind]:
            if name != "assay":
                label = "plain transformers" if name == "plain" else name
                report.ratios[f"{kind}: assay / {label}"] = ratio(rates[kind]["assay"], rates[kind][name])
    report.figures["scores_per_s"] = {
        kind: {name: round(Spread.of(values).median, 2) for name, values in contender_scores.items()}
        for kind, contender_scores in rates.items()
    }


def plain_loop(model: Any, rows: Sequence[Sequence[int]]) -> tuple[float, list[float]]:
    """The stock classifier on batches padded on the right, as its own documentation does it."""
    import torch

    scores: list[float] = []
    started = time.perf_counter()
    with torch.inference_mode():
        for at in range(0, len(rows), PLAIN_BATCH):
            part = [torch.tensor(row) for row in rows[at : at + PLAIN_BATCH]]
            ids = torch.nn.utils.rnn.pad_sequence(part, batch_first=True, padding_value=model.config.pad_token_id)
            mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in part], batch_first=True)
            answer = model(input_ids=ids.to(model.device), attention_mask=mask.to(model.device), use_cache=False)
            scores += answer.logits[:, 0].tolist()
    return time.perf_counter() - started, scores


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
