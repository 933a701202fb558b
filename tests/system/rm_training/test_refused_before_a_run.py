"""What a training is refused for that is known without loading a weight leaves no run behind."""

import json
import shlex
from pathlib import Path

import pytest
from assay_command import Run

from assay.workspace import Workspace

RL = "rl --policy tiny --prompts prompts.jsonl --reward verifier --steps 1 --device cpu"
JUDGE = "train generative-rl --base tiny --data pairs.jsonl"


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (f"{RL} --set sampler.kind=vllm", 5, "vLLM is not in this environment"),
        (f"{RL} --set sampler.kind=vllm_server --set sampler.launch=true", 2, "name the Python of vLLM's environment"),
        (f"{RL} --set sampler.kind=vllm_server --set sampler.url=http://127.0.0.1:9", 5, "cannot be reached"),
        (f"{RL} --recipe ppo --set critic.base=nothing", 3, "no model 'nothing'"),
        (f"{RL} --on ray:127.0.0.1:1", 2, "no actors to place"),
        (f"{RL} --set sampling.max_prompt_tokens=1", 2, "40 of 40 prompts have more than 1 tokens"),
        (f"{JUDGE} --set sampler.kind=vllm", 5, "vLLM is not in this environment"),
        ("train dpo --base tiny --data pairs.jsonl --reference nothing", 3, "no model 'nothing'"),
        ("train probe --base tiny --data pairs.jsonl --device xpu", 2, "device 'xpu' is not available here"),
        ("train bt --base tiny --data pairs.jsonl --waive-contamination b=old", 2, "not a registered benchmark"),
    ],
)
def test_no_run_is_left(
    assay: Run,
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    code: int,
    words: str,
) -> None:
    monkeypatch.delenv("ASSAY_VLLM_PYTHON", raising=False)
    monkeypatch.chdir(workspace.root)
    sums = [{"prompt": f"What is {n} + {n}?", "chosen": f"{2 * n}", "rejected": "?", "answer": "4"} for n in range(40)]
    for file in ("pairs.jsonl", "prompts.jsonl"):
        Path(file).write_text("".join(json.dumps(row) + "\n" for row in sums))
    status, _, err = assay(*shlex.split(command))
    assert (status, [words in line for line in err.splitlines() if line.startswith("assay: ")]) == (code, [True]), err
    assert "plan: " not in err  # one that is refused has none
    assert list(workspace.runs.glob("*")) == []
