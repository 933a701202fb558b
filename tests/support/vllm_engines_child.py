"""Runs inside a vLLM environment, with Assay's sources on PYTHONPATH: what vLLM in process makes of given items.

python vllm_engines_child.py REQUEST.json REPLY.json; asked by `test_vllm_engine.py`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from assay.domain import Message
from assay.models.spec import Judging
from assay.score import Score
from assay_serving.generative.templates import POINTWISE
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer
from assay_serving.scorer import ScoreItem
from assay_serving.vllm.engine_loader import InProcessLoader

OPTIONS = {"kv_cache_memory_bytes": 64 << 20, "max_num_seqs": 16}


def main(request: Path, reply: Path) -> None:
    request_body: dict[str, Any] = json.loads(request.read_text())
    scores: dict[str, Any] = {}
    for folder in request_body["folders"]:
        scorer = load_scorer(ModelConfig(folder, engine="vllm", engine_options=OPTIONS))
        results = scorer.score(items(request_body["items"], principle=scorer.info.kind == "principle"))
        scores[folder] = [r.reward if isinstance(r, Score) else r.code for r in results]
        scorer.engine.close()  # type: ignore[attr-defined]  # of these engines
    judging = Judging(POINTWISE.name, POINTWISE.hash, max_new_tokens=request_body["max_new_tokens"])
    loader = InProcessLoader(ModelConfig(request_body["writer"], engine_options=OPTIONS))
    scores["written"] = written(loader.writer(judging)[0], judging)
    reply.write_text(json.dumps(scores))


def items(texts: list[list[str]], *, principle: bool) -> list[ScoreItem]:
    return [ScoreItem((Message("user", p),), r, "correctness" if principle else None) for p, r in texts]


def written(writer: Any, judging: Judging) -> dict[str, Any]:
    """What a writer says to fixed questions, greedily; its labels' log-probs after fixed answers; seeded draws."""
    from assay_serving.generative.generation import SamplingParams

    metals = ("gold", "iron", "tin")
    prompts = [POINTWISE.ask((Message("user", "Name a metal."),), (metal,), None) for metal in metals]
    answers = writer.answer(prompts, POINTWISE, judging, seed=0, on_progress=lambda _: None)
    labels = (*POINTWISE.labels, POINTWISE.labels[0])
    texts = [f"It is {metal}.\n{POINTWISE.final_line(label)}" for metal, label in zip(metals, labels, strict=True)]
    rows = [writer.renderer.encode(prompt).ids for prompt in prompts]
    drawing = SamplingParams(6, 0.8, 0.9)
    drawn = [writer.generate(part, drawing, samples=2, seed=3) for part in (rows, rows[1:])]
    return {
        "answers": [[(a.text, a.tokens_in, a.tokens_out, a.ended) for a in answer_list] for answer_list in answers],
        "logps": writer.label_logps(prompts, texts, POINTWISE),
        "draws": [[[list(sample.ids) for sample in answer_list] for answer_list in part] for part in drawn],
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
