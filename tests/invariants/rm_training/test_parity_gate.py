"""The parity gate over any scorer: what fails it, what is written down, and vLLM where there is one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from assay.domain import Message
from assay.models.loading import load_scalar_model, load_tokenizer
from assay.models.quiet import quiet_transformers
from assay.models.spec import ParityCheck, RewardModelSpec
from assay.models.tiny import make_tiny
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreResult
from assay_rm_training.checkpoints.card_sections import parity_lines, with_section
from assay_rm_training.checkpoints.parity import ALONE, check_scorer, verdict
from assay_rm_training.checkpoints.vllm_parity import ENVIRONMENT, vllm_check, vllm_python
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ModelInfo, ScoreItem, Scorer

SAMPLE = [ScoreItem((Message("user", f"question {i}"),), "yes " * (1 + i % 5)) for i in range(10)]


class Leaky:
    """A scorer whose reward depends on its neighbours by `leak`, and whose other way is off by `other`."""

    def __init__(self, leak: float = 0.0, other: float = 0.0) -> None:
        self.leak, self.other = leak, other
        self.info = ModelInfo("leaky", "1", "scalar", "t", 100, False, "unchecked", "float32", "cpu")

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        on_progress(len(items))
        mean = sum(len(i.response) for i in items) / len(items)
        return [Score(len(i.response) + self.leak * mean, "leaky", "1", "t", 5, truncated=False) for i in items]

    def other_ways(self) -> Iterator[tuple[str, Scorer]]:
        shifted = Leaky(self.leak)
        original = shifted.score
        shifted.score = lambda items, on_progress=silent: [  # type: ignore[method-assign]
            replace(s, reward=s.reward + self.other) for s in original(items, on_progress) if isinstance(s, Score)
        ]
        yield "another way", shifted


def test_a_score_that_depends_on_its_neighbours_fails() -> None:
    assert verdict(check_scorer(Leaky(), SAMPLE)) == "passed"
    found = check_scorer(Leaky(leak=0.01), SAMPLE)
    assert [check.name for check in found if not check.passed] == [ALONE]
    assert found[0].largest > 0.01
    assert verdict(found).startswith("failed: response 1")


def test_a_way_of_scoring_that_differs_fails_by_its_name() -> None:
    found = check_scorer(Leaky(other=0.5), SAMPLE)
    assert [(check.name, check.passed) for check in found] == [(ALONE, True), ("another way", False)]
    assert found[1].largest == pytest.approx(0.5)
    assert "another way" in verdict(found)
    assert verdict([]) == "unchecked"


def test_the_engine_passes_and_padding_is_among_its_ways(tiny_reward_model: Path) -> None:
    scorer = TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu"))
    found = check_scorer(scorer, SAMPLE)
    assert {ALONE, "left = right padding"} <= {check.name for check in found}
    assert all(check.passed and check.compared == len(SAMPLE) for check in found)


def test_checks_travel_with_the_spec(tmp_path: Path) -> None:
    checks = (ParityCheck("a = b", True, 1e-6, 4), ParityCheck("c = d", False, 0.5, 4, "response 1: 1 != 2"))
    spec = RewardModelSpec("scalar", "tiny", "t", 100, "v", parity=verdict(checks), parity_checks=checks)
    spec.write(tmp_path)
    assert RewardModelSpec.read(tmp_path) == spec
    text = "\n".join(parity_lines(checks))
    assert "| a = b | holds | 1e-06 | 4 |" in text
    assert "FAILS: response 1: 1 != 2" in text


def test_a_section_of_a_card_is_replaced_in_its_place() -> None:
    card = "# m\n\n## Parity\n\nold\n\n## Evaluation\n\nfigures\n"
    assert with_section(card, "Parity", ["new"]) == "# m\n\n## Parity\n\nnew\n\n## Evaluation\n\nfigures\n"
    assert with_section("# m\n", "Parity", ["new"]) == "# m\n\n## Parity\n\nnew\n"
    assert with_section(with_section(card, "X", ["1"]), "X", ["2"]).count("## X") == 1


@pytest.mark.vllm
def test_vllm_gives_the_same_rewards(tmp_path: Path) -> None:
    if not os.environ.get(ENVIRONMENT):
        pytest.skip(f"no vLLM environment: set {ENVIRONMENT} to its Python")
    python = vllm_python()
    assert python is not None
    base, folder = tmp_path / "base", tmp_path / "rm"
    make_tiny(base, hidden=128)  # vLLM's CPU attention wants heads of 32 or more
    tokenizer = load_tokenizer(str(base))
    model = load_scalar_model(str(base), tokenizer, dtype=torch.float32, device=torch.device("cpu"), new_head=True)
    with quiet_transformers():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    scorer = TransformersScorer.load(ModelConfig(str(folder), device="cpu", max_length=200))
    check = vllm_check(folder, scorer.renderer, SAMPLE, scorer.score(SAMPLE), python=python)
    assert check is not None
    assert check.passed, check
    assert check.compared == len(SAMPLE)
    wrong = [replace(s, reward=s.reward + 0.1) for s in scorer.score(SAMPLE) if isinstance(s, Score)]
    refused = vllm_check(folder, scorer.renderer, SAMPLE, wrong, python=python)
    assert refused is not None
    assert not refused.passed


def test_a_vllm_that_cannot_run_leaves_no_check(
    tiny_reward_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A check that was not made must not stand among those that passed."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho 'no such engine' >&2\nexit 3\n")
    program.chmod(0o755)
    scorer = TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu"))
    scores = scorer.score(SAMPLE[:2])
    assert vllm_check(tiny_reward_model, scorer.renderer, SAMPLE[:2], scores, python=program) is None
    assert "was not checked: vLLM failed: no such engine" in caplog.text
