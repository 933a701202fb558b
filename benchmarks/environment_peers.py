"""Episodes with a tool of 50 ms beside TRL's own: the same environment, model, template and tokens.

Both generate by transformers on one thread: 32 episodes of `--turns` turns. A turn has an uneven number of tokens drawn
at random (4 to 28 by default), then, but for the last one, a call that is forced on both, token by token, through their
logits; the tool waits 50 ms, and its answer is read. TRL: `GRPOTrainer(environment_factory=...)`, whose `_generate` is
timed; ours: the sampler that `assay rl` opens. Every contender's numbers of drawn tokens are checked against the plan.
Needs the extra `bench`. Rates are by wall and by CPU seconds of this process.
"""

import asyncio
import os
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch
from torch import Tensor

from assay.conversation.parts import ToolDefinitionPart
from assay.domain import Message
from assay.models.chat.options import ChatOptions
from assay.models.loading import load_tokenizer, resolve_model
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation
from assay_policy_training.plugins.environments.episode import EpisodeLimits
from assay_policy_training.plugins.samplers import decoding
from assay_policy_training.plugins.samplers.decoding import Decoding
from assay_policy_training.plugins.samplers.episodes import EpisodeSampler
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_serving.tools.tool import ToolResult
from measure import Cost, Report, arguments, compare, spent

MEASURES = (
    "policy_training/assay_policy_training/plugins/environments",
    "policy_training/assay_policy_training/plugins/samplers",
)

EPISODES, SLEEP_S, SAID = 32, 0.05, "Noted. Go on."
CALL = '\n<tool_call>\n{"name": "note", "arguments": {"text": "x"}}\n</tool_call>'
SCHEMA = '{"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}'


class Script:
    """What each row draws: `plan` [rows, turns] tokens at random, then `call` where a turn follows, then the end."""

    def __init__(self, plan: Tensor, call: Sequence[int], end: int, never: Sequence[int]) -> None:
        self.plan, self.end, self.never = plan, end, torch.tensor(never)
        self.forced = [*call, end]

    @property
    def drawn(self) -> int:
        rows, turns = self.plan.shape
        return int(self.plan.sum()) + rows * (len(self.forced) * (turns - 1) + 1)

    def apply(self, logits: Tensor, rows: Sequence[int], turns: Sequence[int], places: Sequence[int]) -> Tensor:
        """Logits [n,V] of rows in these turns, that many tokens into them."""
        logits = logits.index_fill(-1, self.never, -torch.inf)
        for n, (row, turn, place) in enumerate(zip(rows, turns, places, strict=True)):
            at = place - int(self.plan[row, turn])
            if at >= 0:
                forced = self.forced if turn + 1 < self.plan.shape[1] else self.forced[-1:]
                token = forced[min(at, len(forced) - 1)]
                logits[n] = torch.full_like(logits[n], -torch.inf).index_fill(0, torch.tensor([token]), 0.0)
        return logits


class Notebook(Environment):
    """Ours."""

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        return Observation(tools=(ToolDefinitionPart("note", "Notes a text.", SCHEMA),))

    async def step(self, action: Action) -> Observation | Done:
        if not action.calls:
            return Done({"win": 1.0})
        await asyncio.sleep(SLEEP_S)
        return Observation(results=[ToolResult(call, SAID) for call in action.calls])


class TrlNotebook:
    """The same for TRL."""

    def reset(self, **_: Any) -> None:
        """Begin."""

    async def note(self, text: str) -> str:
        """
        Notes a text.

        Args:
            text: the text
        """
        await asyncio.sleep(SLEEP_S)
        return SAID


def ours(policy: Policy, items: Sequence[PromptItem], script: Script, most: int) -> Callable[[], tuple[int, int]]:
    class Scripted(Decoding):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.number = [0] * len(self.tokens)

        def _sample(self, rows: Tensor, logits: Tensor, going: Tensor) -> tuple[Tensor, Tensor]:
            places = (self._lengths[rows] - self._turn_starts[rows]).tolist()
            numbers = rows.tolist()
            forced = script.apply(logits, numbers, [self.number[row] for row in numbers], places)
            return super()._sample(rows, forced, going)

        def resume(self, row: int, observed: Sequence[int]) -> None:
            self.number[row] += 1
            super().resume(row, observed)

    decoding.Decoding = Scripted  # type: ignore[misc]
    sampling = Sampling(max_new_tokens=most, rows_at_once=EPISODES)
    limits = EpisodeLimits(turns=script.plan.shape[1])
    sampler = EpisodeSampler(policy, TransformersSampler(policy, sampling), sampling, Notebook(), limits)

    def rollout() -> tuple[int, int]:
        batch = sampler.rollout(items, 1, seed=1, version=0)
        return int(batch.mask.sum()), int(batch.present.sum())

    return rollout


def peer(
    base: Path, template: str, items: Sequence[PromptItem], script: Script, most: int, folder: str
) -> Callable[[], tuple[int, int]]:
    datasets, transformers, trl = map(import_module, ("datasets", "transformers", "trl"))
    tokenizer = load_tokenizer(str(base))
    tokenizer.chat_template, tokenizer.padding_side = template, "left"
    prompts = [[{"role": "user", "content": item.prompt[-1].text}] for item in items]
    config = trl.GRPOConfig(
        output_dir=folder, per_device_train_batch_size=EPISODES, num_generations=2, max_completion_length=most,
        temperature=1.0, beta=0.0, report_to="none", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    trainer = trl.GRPOTrainer(
        model=model, reward_funcs=lambda completions, **_: [1.0] * len(completions), args=config,
        train_dataset=datasets.Dataset.from_list([{"prompt": prompt} for prompt in prompts]),
        processing_class=tokenizer, environment_factory=TrlNotebook,
    )  # fmt: skip
    trainer.model.eval()
    state = {"turn": 0, "start": 0}

    def forced(ids: Tensor, logits: Tensor) -> Tensor:
        rows = range(len(ids))
        place = ids.shape[1] - state["start"]
        return script.apply(logits, rows, [state["turn"]] * len(ids), [place] * len(ids))

    generate = trainer.model.generate

    def scripted(**options: Any) -> Any:
        state["start"] = options["input_ids"].shape[1]
        answer = generate(**options, logits_processor=transformers.LogitsProcessorList([forced]))
        state["turn"] += 1
        return answer

    trainer.model.generate = scripted
    trainer._batch_environments = [None] * len(prompts)

    def rollout() -> tuple[int, int]:
        state["turn"] = 0
        environments = [TrlNotebook() for _ in prompts]
        trainer.environments = environments
        trainer._sync_tool_dicts = [{} for _ in prompts]
        trainer._async_tool_dicts = [{"note": environment.note} for environment in environments]
        _, completions, tool_mask, *_ = trainer._generate(prompts)
        return sum(map(sum, tool_mask)), sum(map(len, completions))

    return rollout


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--base", default=None, help="default: smollm2; quick: tiny")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--longest", type=int, default=28, help="tokens of a turn before its call; the shortest has 4")
    options = parser.parse_args()
    torch.set_num_threads(1)
    base = Path(resolve_model(options.base or ("tiny" if options.quick else "smollm2")))
    trl = import_module("trl")
    template = (Path(str(trl.__file__)).parent / "chat_templates" / "qwen3.jinja").read_text()
    policy = Policy(str(base), device=torch.device("cpu"), max_prompt_tokens=1024, chat=ChatOptions(template=template))
    policy.model.eval()
    random = torch.Generator().manual_seed(0)
    plan = torch.randint(4, options.longest + 1, (EPISODES, options.turns), generator=random)
    call = policy.tokenizer(CALL, add_special_tokens=False)["input_ids"]
    script = Script(plan, call, int(policy.tokenizer.eos_token_id), sorted(policy.end_ids))
    most = int(plan.sum(1).max()) + options.turns * (len(call) + 60)
    items = [PromptItem((Message("user", f"Tell a story of {n} mice."),)) for n in range(EPISODES)]
    tokens: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        rollouts = {
            "assay": ours(policy, items, script, most),
            "TRL": peer(base, template, items, script, most, folder),
        }

        def turn(name: str) -> Callable[[], Cost]:
            def rollout() -> None:
                drawn, present = rollouts[name]()
                assert drawn == script.drawn, (name, drawn, script.drawn)
                tokens[name] = {"drawn": drawn, "observed": present - drawn}

            return lambda: spent(rollout, amount=script.drawn)

        compared = compare({name: turn(name) for name in rollouts}, options, rounds=options.rounds)
    report = Report("environment_peers", measures=MEASURES, peers=("trl",))
    report.ratios["drawn tokens, assay / TRL"] = compared.ratio("assay", "TRL")
    report.figures |= {f"{name}, drawn tokens/s": str(compared.per_second(name)) for name in rollouts}
    report.figures |= {"tokens": tokens, "base": base.name}
    report.finish(options)


if __name__ == "__main__":
    main()
