"""Dry-run estimates against what a run then spends, at an endpoint that counts with a real tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from transformers import AutoTokenizer

from assay.data.snapshots import Selection
from assay.models.loading import resolve_model
from assay.store.intake import pair_schema, store_pairs
from assay.workspace import Workspace
from assay_pipelines.judging.asking import ask
from assay_pipelines.judging.estimating import estimate
from assay_pipelines.judging.fake_endpoint import JudgeRequest, fake_endpoint
from assay_pipelines.judging.openai_compatible import LlmJudge, LlmJudgeConfig
from assay_pipelines.llm.configuration import EndpointConfig
from assay_pipelines.llm.questions import Question, iter_questions

ROOT = Path(__file__).parents[3]
SHORT = "The first follows the instruction and is right; the second leaves out the last step."
LONG = " ".join([SHORT] * 20)
PRICES = {"price_in": 1.0, "price_out": 4.0}


@pytest.fixture(scope="module")
def count_tokens() -> Callable[[str], int]:
    try:
        tokenizer = AutoTokenizer.from_pretrained(resolve_model("smollm2"))
    except Exception as error:
        pytest.skip(f"the embedded model's tokenizer is not installed: {error}")
    return lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"])


@pytest.fixture
def questions(workspace: Workspace) -> list[Question]:
    """Prose, lists, code and another script: pieces of this repository's own pages and modules."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))[:6]]
    texts += [path.read_text(encoding="utf-8") for path in sorted((ROOT / "platform/assay").glob("*.py"))[:4]]
    texts.append("这是一个关于黄金和白银的问题。请写出详细的回答,并说明理由。" * 40)
    pieces = [text[start : start + 900] for text in texts for start in range(0, min(len(text), 5400), 1800)]
    rows = [
        {
            **dict.fromkeys(pair_schema().names),
            "row": n,
            "messages": [{"role": "user", "content": f"Question {n}: {piece[:200]}"}],
            "first": piece,
            "second": piece[::2] + piece[300:],
            "source": "s",
            "record_id": str(n),
        }
        for n, piece in enumerate(pieces, start=1)
    ]
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist(rows, schema=pair_schema()), None)
    return [question for page in iter_questions(workspace, Selection(("unverified",))) for question in page]


@pytest.mark.slow
@pytest.mark.parametrize(("reasoning", "known_within"), [(SHORT, 1.5), (LONG, 3.0)])
def test_an_estimate_is_near_what_is_spent(
    workspace: Workspace,
    questions: list[Question],
    count_tokens: Callable[[str], int],
    reasoning: str,
    known_within: float,
) -> None:
    """Before the first answer its length is unknown; once some are recorded, any model is known."""

    def rule(request: JudgeRequest) -> dict[str, object]:
        return {"reasoning": reasoning, "verdict": "1", "strength": 2, "confidence": 0.9}

    with fake_endpoint(rule, count_tokens=count_tokens) as fake:
        judge = LlmJudge(LlmJudgeConfig(EndpointConfig(fake.base_url, "m", **PRICES), both_orders=True), workspace)  # type: ignore[arg-type]
        for part, within in ((questions[:6], known_within), (questions[6:], 1.5)):
            expected = estimate(workspace, judge, part)
            assert expected.calls == 2 * len(part)
            report = ask(workspace, judge, part, None)
            assert report.attempts == expected.calls
            tokens = expected.tokens / (report.tokens_in + report.tokens_out)
            assert expected.cost is not None
            assert 1 / within < tokens < within
            assert 1 / within < expected.cost / report.cost < within
        assert (expected.measured_on, estimate(workspace, judge, questions).calls) == (12, 0)
