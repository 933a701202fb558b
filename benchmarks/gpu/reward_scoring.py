"""Scoring with a reward model in bfloat16 on a GPU: scores a second of groups, beside vLLM and a plain loop.

The model is a language model with a random head; conversations are made up, eight responses to a prompt. Ours includes
rendering and encoding, the peers get token ids. The plain loop is the stock classifier on batches sorted by length.
vLLM's pooling runner: ASSAY_VLLM_PYTHON names its Python.
"""

from __future__ import annotations

import argparse
import random
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from contenders import Clock, Contender, Row, parser, run, weights_of

MEASURES = ("serving/assay_serving/engines", "platform/assay/models")
GROUP, PLAIN_BATCH = 8, 16


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    from assay.domain import Message
    from assay.models.chat.renderer import Renderer
    from assay.models.loading import load_tokenizer

    name = "tiny" if options.dry_run else options.model
    folder = options.checkpoint or f"{options.scratch}/scored-{Path(name).name}"
    if not Path(folder).is_dir():
        save_model(name, Path(folder))
    draw, number, words = random.Random(0), 2 if options.dry_run else options.prompts, 8 if options.dry_run else 300
    texts = [(text(draw, words), [text(draw, words) for _ in range(GROUP)]) for _ in range(number)]
    renderer = Renderer(load_tokenizer(folder), max_length=4096)
    ids = [renderer.encode((Message("user", p),), r).ids for p, responses in texts for r in responses]
    return {"model": folder, "texts": texts, "ids": [list(map(int, row)) for row in ids]}


def text(draw: random.Random, words: int) -> str:
    return " ".join(
        draw.choice(("the", "answer", "is", "near", "a", "river", "which", "was", "seven")) for _ in range(words)
    )


def save_model(name: str, folder: Path) -> None:
    from scoring import save_model as save

    save(name, folder)


def ours(settings: dict[str, Any]) -> Row:
    from assay.domain import Message
    from assay_serving.engines.transformers import TransformersScorer
    from assay_serving.model_config import ModelConfig
    from assay_serving.scorer import ScoreItem

    scorer = TransformersScorer.load(ModelConfig(settings["model"], dtype="bfloat16", max_length=4096))
    items = [ScoreItem((Message("user", p),), r) for p, responses in settings["texts"] for r in responses]
    scorer.score(items[:GROUP])
    clock = Clock()
    clock.start()
    scorer.score(items)
    return clock.row(len(items), flops=2 * weights_of(scorer.model) * sum(map(len, settings["ids"])))


def plain(settings: dict[str, Any]) -> Row:
    torch, transformers = import_module("torch"), import_module("transformers")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = transformers.AutoModelForSequenceClassification.from_pretrained(settings["model"], dtype=torch.bfloat16)
    model, pad = model.to(device).eval(), model.config.pad_token_id
    rows = sorted(settings["ids"], key=len)
    clock = Clock()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def score(some: list[list[int]]) -> None:
        for start in range(0, len(some), PLAIN_BATCH):
            batch = some[start : start + PLAIN_BATCH]
            width = max(map(len, batch))
            ids = torch.tensor([row + [pad] * (width - len(row)) for row in batch], device=device)
            mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in batch], device=device)
            model(input_ids=ids, attention_mask=mask).logits.float().cpu()

    score(rows[:PLAIN_BATCH])
    clock.start()
    score(rows)
    return clock.row(len(rows), flops=2 * weights_of(model) * sum(map(len, rows)))


def vllm(settings: dict[str, Any]) -> Row:
    module = import_module("vllm")
    pooling = import_module("vllm.config").PoolerConfig(use_activation=False)
    engine = module.LLM(
        model=settings["model"], runner="pooling", convert="classify", dtype="bfloat16", pooler_config=pooling
    )
    prompts = [{"prompt_token_ids": row} for row in settings["ids"]]
    engine.classify(prompts[:GROUP], use_tqdm=False)
    engine.reset_prefix_cache()
    clock = Clock()
    clock.start()
    engine.classify(prompts, use_tqdm=False)
    return clock.row(len(prompts), version=module.__version__)


CONTENDERS = {"assay": Contender(ours), "plain loop": Contender(plain), "vLLM": Contender(vllm, "ASSAY_VLLM_PYTHON")}


def main(arguments: list[str] | None = None) -> dict[str, list[Row]]:
    import tempfile

    options = parser(__doc__)
    options.add_argument("--prompts", type=int, default=64, help="each with 8 responses")
    options.add_argument("--checkpoint", default=None, help="a reward model's folder, in place of a random head")
    options.add_argument("--scratch", default=None, help=argparse.SUPPRESS)
    if sys.argv[1:2] == ["--child"] and arguments is None:
        return run(__file__, CONTENDERS, options, settings_of, MEASURES)
    with tempfile.TemporaryDirectory() as scratch:
        options.set_defaults(scratch=scratch)
        return run(__file__, CONTENDERS, options, settings_of, MEASURES, arguments)


if __name__ == "__main__":
    main()
