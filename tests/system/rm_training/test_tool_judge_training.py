"""A judge that calls a calculator: supervised on recorded traces, served, reinforced; results never have a gradient."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from assay_command import Run

from assay.data.json_lines import RowError
from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.spec import RewardModelSpec
from assay.score import Score
from assay.workspace import Workspace
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import FINAL_TURN, PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.environments.episode import EpisodeLimits
from assay_policy_training.plugins.environments.tool_use import Tools
from assay_policy_training.plugins.samplers.episodes import in_environment
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_rm_training.checkpoints.checkpoint import save_checkpoint
from assay_rm_training.generative import sft
from assay_rm_training.generative.judged_rows import rows_of
from assay_rm_training.generative.sft import GenerativeSft
from assay_rm_training.generative.tool_traces import trace_of
from assay_rm_training.generative.verdict_reward import VERDICT, VerdictReward
from assay_rm_training.training_config import TrainingConfig
from assay_serving.generative.engine import GenerativeScorer
from assay_serving.generative.local import LocalWriter, info_of
from assay_serving.generative.templates import PAIRWISE, POINTWISE

CPU = torch.device("cpu")
#: Themis's form of a step.
STEP = {"Thought": "I check.", "Action": "calculator", "Action Input": "2*3=6", "Observation": "It is right."}
CALL = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "2*3=6"}}\n</tool_call>'
TRACE = [{"text": CALL, "results": [{"name": "calculator", "arguments": {"expression": "2*3=6"}, "content": "true"}]}]
ROW = {"prompt": "2*3?", "response": "6", "verdict": "Yes", "rationale": "So.", "tool_trace": TRACE}


@contextmanager
def last_states(model: Any) -> Iterator[list[torch.Tensor]]:
    """The last hidden states of every pass, with their gradients."""
    kept: list[torch.Tensor] = []

    def keep(_: Any, __: Any, output: torch.Tensor) -> None:
        output.retain_grad()
        kept.append(output)

    hook = model.model.norm.register_forward_hook(keep)
    yield kept
    hook.remove()


def test_results_are_read_and_never_trained_on() -> None:
    method = GenerativeSft("pointwise", tools=("calculator",))
    config = TrainingConfig("tiny", dtype="float32", device="cpu", max_length=4096)
    trainable = method.load(config, CPU)
    renderer = Renderer(trainable.tokenizer, max_length=4096)
    [item] = method.encode(rows_of(ROW, POINTWISE), renderer).items
    [order] = item.orders
    observed = sorted(set(range(len(order.answer))) - set(order.trained.tolist()))
    assert "true" in str(renderer.tokenizer.decode(order.answer[observed]))
    assert str(renderer.tokenizer.decode(order.answer[order.trained][order.judgement :])).startswith("Yes")
    with last_states(trainable.model) as states:
        measured = method.task(trainable, config).measure(trainable, [item])
        measured.losses.sum().backward()  # type: ignore[no-untyped-call]
    assert states[0].grad is not None
    gradient = states[0].grad[0].abs().sum(-1)  # at position p: of the token at p + 1
    start = len(order.question)
    assert [float(gradient[start + place - 1]) for place in observed] == [0.0] * len(observed)
    assert all(float(gradient[start + place - 1]) > 0 for place in order.trained)
    # A stock trainer's loss on the same row with the results' labels at -100.
    ids = torch.tensor([[*order.question.tolist(), *order.answer.tolist()]])
    labels = torch.full_like(ids, -100)
    places = start + torch.from_numpy(order.trained).long()
    labels[0, places] = ids[0, places]
    stock = trainable.model(input_ids=ids, labels=labels).loss
    assert float(measured.losses[0].detach()) == pytest.approx(float(stock.detach()), abs=1e-4)


def test_traces_follow_their_response_and_unknown_tools_are_counted() -> None:
    pair = {"prompt": "2*3?", "chosen": "6", "rejected": "7", "rationale": "CHOSEN: Yes. || REJECTED: No."}
    pair["meta"] = {"tool_trace_chosen": json.dumps(STEP), "tool_trace_rejected": "Thought: none\nFinished."}  # type: ignore[assignment]
    [both] = rows_of(pair, PAIRWISE)
    assert [len(trace) for trace in both.traces] == [1, 0]
    swapped = both.swapped()
    assert swapped is not None
    assert [len(trace) for trace in swapped.traces] == [0, 1]
    yes, no = rows_of(pair, POINTWISE)
    assert (len(yes.trace), len(no.trace)) == (1, 0)
    assert yes.trace[0].text.startswith('I check.\n<tool_call>\n{"name": "calculator"')
    renderer = Renderer(GenerativeSft().load(TrainingConfig("tiny", device="cpu"), CPU).tokenizer, max_length=4096)
    encoded = GenerativeSft("pointwise", tools=("python",)).encode([yes, no], renderer)
    assert encoded.left_out == {"its trace calls calculator, which is not among the tools": 1}
    with pytest.raises(RowError, match="no text 'Action Input'"):
        rows_of({**ROW, "tool_trace": {"Thought": "", "Action": "calculator"}}, POINTWISE)


def test_traces_are_read_in_every_form() -> None:
    steps = "\n".join(f"{name}: {value}" for name, value in STEP.items())
    assert trace_of(steps) == trace_of(json.dumps(STEP)) == trace_of(STEP)
    assert len(trace_of(f"{steps}\n{steps}")) == 2
    assert trace_of("Finished.") == ()
    with pytest.raises(BadInputError, match="no text 'Observation'"):  # at once, and not as a row without tools
        trace_of("Thought: a\nAction: b\nAction Input: c\n" * 2000)
    assert [turn.to_dict() for turn in trace_of([turn.to_dict() for turn in trace_of(STEP)])] == [
        turn.to_dict() for turn in trace_of(STEP)
    ]


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny judge that has learnt one row by heart."""
    torch.manual_seed(0)
    method = GenerativeSft("pointwise", tools=("calculator",), max_new_tokens=160)
    config = TrainingConfig("tiny", dtype="float32", device="cpu", max_length=4096)
    trainable = method.load(config, CPU)
    renderer = Renderer(trainable.tokenizer, max_length=4096)
    items = list(method.encode(rows_of(ROW, POINTWISE), renderer).items)
    task = method.task(trainable, config)
    optimiser = torch.optim.AdamW(trainable.model.parameters(), lr=1e-2)
    for _ in range(120):
        loss = task.measure(trainable, items).losses.sum()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if float(loss.detach()) < 0.03:
            break
    folder = tmp_path_factory.mktemp("judge")
    trainable.model.save_pretrained(folder)
    trainable.tokenizer.save_pretrained(folder)
    return folder


def test_a_saved_judge_is_evaluated_with_its_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parity is checked by a reader without tools, for complete answers call none; evaluations ask the judge."""
    method = GenerativeSft("pointwise", tools=("calculator",))
    trainable = method.load(TrainingConfig("tiny", dtype="float32", device="cpu", max_length=4096), CPU)
    renderer = Renderer(trainable.tokenizer, max_length=4096)
    spec = RewardModelSpec(
        "generative", "tiny", renderer.template_hash, 4096, "unsaved", **method.spec_fields(trainable)
    )
    asked: list[tuple[str, ...]] = []

    def evaluated(writer: Any, spec: RewardModelSpec, rows: Any, **options: Any) -> None:
        assert spec.judging is not None
        asked.append(spec.judging.tools)

    monkeypatch.setattr(sft, "evaluate_judge", evaluated)
    rows = list(rows_of(ROW, POINTWISE))

    def card(saved: Any) -> str:
        assert saved.info.name == "judge"
        method.evaluate(saved, rows, seed=0)
        return ""

    save_checkpoint(
        trainable, spec, renderer, tmp_path / "judge", sample=method.responses(rows), card=card, engine=method.engine
    )
    assert asked == [("calculator",)]


@pytest.mark.slow
def test_a_trained_judge_calls_the_tool_before_its_verdict(judge: Path) -> None:
    policy = Policy(str(judge), device=CPU, max_prompt_tokens=4096)
    judging = GenerativeSft("pointwise", tools=("calculator",), max_new_tokens=160).judging
    spec = RewardModelSpec("generative", "tiny", policy.renderer.template_hash, 4096, "v", judging=judging)
    writer = LocalWriter(policy.model, policy.renderer, info_of("judge", spec, policy.model))
    [row] = rows_of(ROW, POINTWISE)
    [score] = GenerativeScorer(writer, spec).score([row.item()])
    assert isinstance(score, Score)
    assert score.reward > 0
    assert {part.name: part.value for part in score.parts} == {"tool_calls": 1.0, "tool_errors": 0.0}


@pytest.mark.slow
def test_rollouts_with_tools_keep_every_token_and_mask_the_results(judge: Path) -> None:
    policy = Policy(str(judge), device=CPU, max_prompt_tokens=4096, autocast=False)
    [row] = rows_of(ROW, POINTWISE)
    item = PromptItem(row.question(POINTWISE), meta={"row": 0, "order": 0, "label": "Yes"})
    sampling = Sampling(max_new_tokens=300, max_prompt_tokens=4096, temperature=0.2)
    plain = TransformersSampler(policy, sampling)
    sampler = in_environment(policy, plain, sampling, Tools(tools=("calculator",)), EpisodeLimits())
    batch = sampler.rollout([item], 2, seed=[7], version=3)
    assert batch.forced is not None
    assert batch.segment is not None
    row_of = int(batch.forced.any(1).nonzero()[0])
    forced, own = batch.forced[row_of], batch.mask[row_of]
    assert not bool((forced & own).any())
    assert batch.responses[row_of].count("<tool_response>\ntrue\n</tool_response>") == 1
    assert batch.items[row_of].meta[FINAL_TURN].endswith("Verdict: Yes")
    assert set(batch.segment[row_of][own].tolist()) == {0, 1}
    # The log-probs that were sampled are the policy's own for the row as it stands.
    alone = batch.select([row_of])
    with last_states(policy.model) as states:
        logp = policy.scores(alone, temperature=0.2).logp
        assert torch.allclose(logp[alone.mask], alone.logp_mu[alone.mask], atol=1e-4)
        logp.masked_fill(~alone.loss_mask, 0.0).sum().backward()  # type: ignore[no-untyped-call]
    assert states[0].grad is not None
    gradient = states[0].grad[0].abs().sum(-1)
    start = int(alone.train_mask.sum())
    assert all(float(gradient[start + int(t) - 1]) == 0.0 for t in forced.nonzero())
    assert any(float(gradient[start + int(t) - 1]) > 0.0 for t in own.nonzero())
    # A row depends neither on the rows beside it nor on the batch.
    again = sampler.rollout([item, item], 2, seed=[7, 8], version=3)
    assert again.responses[:2] == batch.responses
    reward = VerdictReward(POINTWISE)
    assert float(reward.score(batch.items, batch.responses).parts[VERDICT][row_of]) == 1.0


@pytest.mark.slow
def test_a_judge_is_reinforced_with_tools(judge: Path, workspace: Workspace, tmp_path: Path, assay: Run) -> None:
    data = tmp_path / "rows.jsonl"
    rows = [{**ROW, "prompt": prompt} for prompt in ("2*3?", "2*3 ?")]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    command = (
        "train", "generative-rl", "--data", data, "--base", judge, "--name", "judge-rl", "--format", "pointwise",
        "--steps", "1", "--group-size", "2", "--max-new-tokens", "300", "--eval-data", data,
        "--set", "environment.kind=tools", "--set", "environment.tools=[calculator]",
        "--set", "sampling.prompts_per_step=2", "--set", "sampling.max_prompt_tokens=2000",
        "--set", "optimisation.autocast=false", "--device", "cpu", "--workspace", workspace.root, "--json",
    )  # fmt: skip
    code, out, err = assay(*command)
    assert code == 0, err
    made = json.loads(out)
    assert made["first_step"]["tool_calls"] > 0
    spec = RewardModelSpec.read(Path(made["path"]))
    assert spec is not None
    assert spec.judging is not None
    assert spec.judging.tools == ("calculator",)
    run = workspace.runs / made["run_id"]
    assert made["after"]["items"] == 2
    assert "<tool_response>" in (run / "rollouts.jsonl").read_text(encoding="utf-8")
    [item, *_] = [json.loads(line) for line in (run / "items.jsonl").read_text(encoding="utf-8").splitlines()]
    assert item["answers"][0]["tools"][0]["results"][0]["name"] == "calculator"
