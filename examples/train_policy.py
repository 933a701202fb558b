# %% [markdown]
# # Train a policy with a reward of your own
#
# GRPO on a few prompts, with two reward functions, callbacks, and an evaluation on held-out prompts before and after.
# Each cell can be run in a notebook; as a script: `python examples/train_policy.py`.

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.runs.callbacks import Callback
from assay_policy_training.trainer import PolicyTrainer

# %% Settings
POLICY = "smollm2"  # embedded; "tiny", a folder, or a hub id
STEPS = 20
WORKSPACE = "my-policies"  # a folder, created where there is none

# %% The prompts are rows. A reward function receives the entries that it names.
TOPICS = ["gold", "silver", "rain", "bread", "tea", "a bridge", "the sea", "a violin", "winter", "the moon"]
rows = [{"prompt": f"Write one short sentence about {topic}.", "topic": topic} for topic in TOPICS]


# %% The rewards: of one response each. One that gets a list of `responses` or `completions` is called with the batch.
def mentions_topic(response: str, topic: str) -> float:
    return float(topic.split()[-1] in response.lower())


def about_twelve_words(response: str) -> float:
    return max(0.0, 1.0 - abs(len(response.split()) - 12) / 12)


# %% A callback overrides the events that it is about.
class Curve(Callback):
    def __init__(self) -> None:
        self.rewards: list[float] = []

    def on_step(self, row: Mapping[str, Any]) -> None:
        self.rewards.append(row["reward_mean"])
        print(f"step {row['step']}: reward {row['reward_mean']:.3f}, {row['length_mean']:.0f} tokens")

    def on_evaluation(self, row: Mapping[str, Any]) -> None:
        print(f"step {row['step']}: held-out reward {row['eval_reward_mean']:.3f}")

    def on_checkpoint(self, step: int, path: Path) -> None:
        print(f"step {step}: {path.name}")


# %% The trainer, as `assay rl` would make it: every option has the name that it has there.
curve = Curve()
trainer = PolicyTrainer.from_recipe(
    "grpo",
    policy=POLICY,
    reward=[mentions_topic, about_twelve_words],
    prompts=rows[:8],
    eval_prompts=rows[8:],
    eval_every=10,
    keep="best",
    steps=STEPS,
    prompts_per_step=4,
    group_size=8,
    max_new_tokens=32,
    lr=1e-5,
    settings={"reward.weights": {"mentions_topic": 2.0, "about_twelve_words": 1.0}, "kl.coefficient": 0.001},
    workspace=WORKSPACE,
    name=f"sentences-{POLICY}",
    callbacks=[curve],
)
trained = trainer.train()

# %% The outcome: a stock transformers folder, and a recorded run.
assert trained.change is not None
assert trained.change.reward is not None
print(f"held-out reward {trained.change.reward.value:+.3f} after {len(curve.rewards)} steps")
print(f"policy {trained.policy}")
print(f"curves and rollouts: assay report {trained.run_id}")
