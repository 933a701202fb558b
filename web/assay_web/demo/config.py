"""The demo's settings, in its full form (the embedded 135M model) and its quick form (a tiny random model)."""

from dataclasses import dataclass, field

from assay_pipelines.curation.loop.pass_config import RelabelConfig, SourcePassConfig
from assay_pipelines.hygiene.cleaning import CleanConfig
from assay_rm_training.methods.probe import ProbeConfig
from assay_web.demo.source import SimulatedSource

#: Constraints that a response of some twenty words can meet, of which a policy of 135M parameters can learn more.
KINDS = ("max_words", "no_commas", "contains_number", "forbidden_words", "required_words", "starts_with", "quoted")
SOURCES = (
    SimulatedSource("careful", share=0.3, wrong=0.05),
    SimulatedSource("hasty", share=0.35, wrong=0.4),
    SimulatedSource("longer-wins", share=0.35, wrong=0.5, longer=0.9),
)


@dataclass(frozen=True)
class DemoConfig:
    """Everything that decides what the demo does; it is recorded with the demo's run."""

    base: str
    prompts: int  #: training prompts
    heldout_prompts: int  #: prompts on topics that no training prompt has
    samples: int  #: responses drawn per prompt
    pairs_per_prompt: int  #: at most this many comparisons of one prompt
    max_new_tokens: int
    rl_steps: int
    rl_lr: float
    rl_eval_prompts: int
    rl_eval_samples: int
    constraint_kinds: tuple[str, ...] = KINDS
    sources: tuple[SimulatedSource, ...] = SOURCES
    gold_share: float = 0.15  #: share of training prompts whose pairs the verifier decides
    source_pass: SourcePassConfig = field(default_factory=lambda: SourcePassConfig(use="drop", least=0.7))
    relabel: RelabelConfig = field(default_factory=RelabelConfig)
    probe: ProbeConfig = field(default_factory=ProbeConfig)
    clean: CleanConfig = field(default_factory=CleanConfig)
    rl_prompts: int = 4  #: prompts a step
    rl_group: int = 8  #: rollouts a prompt
    max_length: int = 384
    seed: int = 7

    @classmethod
    def full(cls, seed: int = 7) -> "DemoConfig":
        """SmolLM2-135M-Instruct; sized for under 12 minutes on two CPU cores."""
        return cls(
            base="smollm2",
            prompts=256,
            heldout_prompts=128,
            samples=6,
            pairs_per_prompt=3,
            max_new_tokens=32,
            rl_steps=12,
            rl_lr=4e-5,
            rl_eval_prompts=64,
            rl_eval_samples=2,
            seed=seed,
        )

    @classmethod
    def quick(cls, seed: int = 7) -> "DemoConfig":
        """The tiny random model: shows that every step runs; its figures mean nothing."""
        return cls(
            base="tiny",
            prompts=160,
            heldout_prompts=90,
            samples=4,
            pairs_per_prompt=2,
            max_new_tokens=16,
            # Random bytes pass and fail these often enough to form pairs.
            constraint_kinds=("contains_number", "no_commas", "all_lowercase", "max_words", "forbidden_words"),
            gold_share=0.4,
            rl_steps=2,
            rl_lr=1e-4,
            rl_eval_prompts=12,
            rl_eval_samples=2,
            rl_prompts=2,
            rl_group=4,
            clean=CleanConfig(control_characters=False),  # random bytes are full of them
            seed=seed,
        )
