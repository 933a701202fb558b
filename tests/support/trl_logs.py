"""TRL's own `GRPOTrainer` for a step, of which only the generation is a stand-in: it says what a script says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from assay.models.loading import resolve_model


def trl_logs(folder: Path, factory: type, rows: list[dict[str, Any]], scripts: list[list[str]]) -> dict[str, Any]:
    """What it logs of a step with two rollouts a row; `task`: of which row."""
    pytest.importorskip("trl", reason='TRL is in the bench extra: pip install "assay[bench]"')
    import torch
    import trl
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    policy = resolve_model("tiny")
    tokenizer = AutoTokenizer.from_pretrained(policy, padding_side="left")
    template = Path(trl.__file__).parent / "chat_templates" / "qwen2_5.jinja"  # tiny's has no place for tools
    tokenizer.chat_template = template.read_text(encoding="utf-8")

    class Scripted(GRPOTrainer):  # type: ignore[misc]
        def _generate_single_turn(self, prompt_ids: list[list[int]], *arguments: Any, **options: Any) -> Any:
            turns = []
            for ids in prompt_ids:
                text = self._tokenizer.decode(ids)
                number = int(re.findall(r"<\|im_start\|>user\n(\d)", text)[0])
                turns.append(scripts[number][text.count("<tool_response>")])
            return [self._tokenizer(turn + "<|im_end|>")["input_ids"] for turn in turns], None

    config = GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        num_generations=2,
        max_completion_length=400,
        max_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    table = [row | {"prompt": [{"role": "user", "content": f"{number}"}]} for number, row in enumerate(rows)]
    trainer = Scripted(
        model=AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32),
        args=config,
        train_dataset=Dataset.from_list(table),
        processing_class=tokenizer,
        environment_factory=factory,
    )
    trainer.train()
    asked = [messages[0]["content"] for messages in trainer._logs["prompt"]]
    return {**trainer._logs, "task": [int(text[0]) for text in asked]}
