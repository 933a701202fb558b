"""The slots of a recipe: which of its sections hold plug-ins, of which kind, with the built-in members. Imports nothing
heavy.

A member of a slot is a dataclass whose fields are its settings; its kind says which attributes it must have, those of
its protocol (`plugins.protocols`). An objective of scope `group` has `row_scores` and `batch_loss`, any other `loss`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from assay.registry import Kind


class _Slot(NamedTuple):
    """`folder` of the members' modules, which are named in it as "module:Class"."""

    kind: str
    summary: str
    requires: tuple[str, ...]
    folder: str
    members: Mapping[str, str]


_SLOTS = {
    "source": _Slot(
        "prompt_order",
        "The order in which a policy run draws its prompts",
        ("open",),
        "plugins.prompts",
        {
            "shuffled": "source:Shuffled",
            "mixed": "streams:Mixed",
            "stages": "stages:PromptStages",
            "dump": "dump:Dump",
            "gain_rl": "gain_rl:GainRl",
            "one_shot": "one_shot:OneShot",
        },
    ),
    "contexts": _Slot(
        "context_policy",
        "What the policy sees of a prompt, such as hints",
        ("first", "again"),
        "plugins.contexts",
        {
            "ghpo": "ghpo:Ghpo",
            "guide": "guide:Guide",
            "seele": "seele:Seele",
            "revise": "revise:Revise",
            "drawn_direction": "direction:DrawnDirection",
        },
    ),
    "sampler": _Slot(
        "sampler",
        "Generates the rollouts",
        ("open",),
        "plugins.samplers",
        {
            "windowed": "windowed:Windowed",
            "vllm_server": "vllm.server:VllmServerSampler",
            "vllm": "vllm.in_process:Vllm",
            "transformers": "transformers:Transformers",
            "recorded": "recorded:RecordedResponses",
            "entropy_temperature": "entropy_temperature:EntropyTemperature",
        },
    ),
    "reward": _Slot(
        "reward_composition",
        "Combines named reward parts to one reward",
        ("__call__",),
        "plugins.compositions",
        {
            "weighted": "weighted:Composition",
            "gated": "gated:GatedAccumulation",
            "stable_reinforce": "gated:ConsistencyReward",
            "soft_penalties": "gated:SoftPenalties",
            "constrained": "constrained:Constrained",
            "hypervolume": "hypervolume:HypervolumeWeighting",
            "gradient_weights": "gradient_weights:GradientWeighting",
            "maxmin": "maxmin:MaxMin",
            "dpa": "directional:Directional",
        },
    ),
    "filters": _Slot(
        "group_filter",
        "Selects the rollouts to train on",
        ("rounds", "keep"),
        "plugins.filters",
        {
            "enough_valid": "enough_valid:EnoughValid",
            "guided_mixed": "guided_mixed:GuidedMixed",
            "best_of_group": "best_of_group:BestOfGroup",
            "dynamic_sampling": "dynamic_sampling:DynamicSampling",
            "reject_zero_advantage": "dynamic_sampling:RejectZeroAdvantage",
            "drop_solved": "dynamic_sampling:DropSolved",
            "online_difficulty": "online_difficulty:OnlineDifficulty",
            "only_correct": "rows:OnlyCorrect",
            "only_wrong": "rows:OnlyWrong",
            "overlong": "rows:OverlongFilter",
            "dler": "after_truncation:VariesAfterTruncation",
        },
    ),
    "shaping": _Slot(
        "reward_shaper",
        "Changes rewards by length, group or KL",
        ("needs", "shape"),
        "plugins.shaping",
        {
            "kl": "kl_in_reward:KlInReward",
            "overlong": "length:Overlong",
            "kimi_length": "length:KimiLength",
            "self_rewarded_efficiency": "length:ConciseCorrect",
            "dler": "length:TruncatedReward",
            "cosine": "cosine:CosineLength",
            "repetition": "repetition:RepetitionPenalty",
            "laser": "laser:Laser",
            "laser_d": "laser:LaserD",
            "laser_de": "laser:LaserDe",
            "clip_and_delta": "process:ClipAndDelta",
            "par": "par:ParReward",
            "rlcr": "rlcr:CalibrationReward",
            "rubric": "rubric:Rubric",
            "trust_grpo": "trust:TrustedThinking",
        },
    ),
    "critic": _Slot(
        "critic",
        "A value function",
        ("open",),
        "plugins.critics",
        {
            "value_model": "value_model:ValueModel",
        },
    ),
    "estimator": _Slot(
        "estimator",
        "Turns rewards into advantages",
        ("needs", "__call__"),
        "plugins.estimators",
        {
            "grpo": "group_relative:Grpo",
            "dr_grpo": "group_relative:DrGrpo",
            "rloo": "group_relative:Rloo",
            "gae": "gae:Gae",
            "returns_to_go": "gae:ReturnsToGo",
            "token_level": "token_level:TokenLevel",
            "constant": "constant:Constant",
            "step_values": "step_values:StepValues",
            "optimal_token_baseline": "optimal_token_baseline:OptimalTokenBaseline",
            "ngrpo": "ngrpo:Ngrpo",
            "canon": "canon:Canon",
            "signed": "signed:Signed",
            "opo": "opo:Opo",
            "pass_at_k": "pass_at_k:PassAtK",
            "gdpo": "gdpo:Gdpo",
            "lite_ppo": "lite_ppo:LitePpo",
            "constrained": "constrained:ConstrainedMixture",
        },
    ),
    "modulators": _Slot(
        "modulator",
        "Changes advantages",
        ("needs", "modulate"),
        "plugins.modulators",
        {
            "whitening": "whitening:Whitening",
            "clip": "clip:ClipAdvantage",
            "three_sigma": "three_sigma:ThreeSigma",
            "mrt": "progress:BlockProgress",
            "empg": "empg:Empg",
            "effective_rank": "effective_rank:EffectiveRank",
            "exploration": "exploration:Exploration",
            "future_kl": "future_kl:FutureKl",
            "dr_irl": "reward_scaling:RewardScaling",
        },
    ),
    "corrections": _Slot(
        "correction",
        "Corrects for a sampler that differs from the trained policy",
        ("needs", "correct"),
        "plugins.corrections",
        {
            "geometric": "rejection:GeometricRejection",
            "icepop": "importance:TokenMis",
            "sequence_mis": "importance:SequenceMis",
            "sequence_tis": "importance:SequenceTis",
            "token_tis": "importance:TokenTis",
            "trust_region": "rejection:TrustRegionMask",
        },
    ),
    "replay": _Slot(
        "replay",
        "Adds rows of other steps or sources to a batch",
        ("mix",),
        "plugins.replay",
        {
            "objectives": "objectives:Objectives",
            "priority": "priority:PriorityReplay",
            "recent": "recent:Recent",
        },
    ),
    "token_weights": _Slot(
        "token_weight",
        "Weights the loss of single tokens",
        ("needs", "prepare", "weight"),
        "plugins.token_weights",
        {
            "clip_cov": "covariance:ClipCov",
            "high_entropy": "high_entropy:HighEntropy",
            "steer": "steer:Steer",
            "not_truncated": "not_truncated:NotTruncated",
        },
    ),
    "objective": _Slot(
        "objective",
        "The loss of a policy",
        ("scope", "needs"),
        "plugins.objectives",
        {
            "ppo_clip": "ratio_clip:PpoClip",
            "reinforce": "ratio_clip:Reinforce",
            "guide": "guide:GuideLoss",
            "pacs": "pacs:Pacs",
            "drpo": "drpo:Drpo",
            "inpo": "inpo:Inpo",
            "srpo": "srpo:Srpo",
            "a_lol": "a_lol:Alol",
            "rover": "rover:Rover",
            "direct_advantage": "direct_advantage:DirectAdvantage",
            "aipo": "truncated_ratio:Aipo",
            "cispo": "truncated_ratio:Cispo",
            "dppo": "divergence_mask:Dppo",
            "dro": "quadratic:Dro",
            "gmpo": "sequence_ratio:Gmpo",
            "gpg": "ratio_clip:Gpg",
            "gspo": "sequence_ratio:Gspo",
            "hapo": "hapo:Hapo",
            "kl_cov": "kl_cov:KlCov",
            "sapo": "soft_gate:Sapo",
            "stable_reinforce": "stable_reinforce:StableReinforce",
        },
    ),
    "aggregation": _Slot(
        "aggregator",
        "Reduces token losses to one number",
        ("needs", "__call__"),
        "core",
        {
            "mean": "aggregation:LossAggregation",
        },
    ),
    "auxiliary": _Slot(
        "auxiliary_loss",
        "A loss added to the policy's",
        ("name", "needs", "coefficient", "loss"),
        "plugins.auxiliary",
        {
            "kl": "kl:KlLoss",
            "hint_nll": "hint_nll:HintNll",
            "entropy": "entropy:EntropyBonus",
            "magic": "entropy:Magic",
            "teacher_kl": "teacher_kl:TeacherKl",
        },
    ),
    "schedules": _Slot(
        "schedule",
        "Changes a setting from step to step",
        ("value",),
        "plugins.schedules",
        {
            "cosine": "decay:Cosine",
            "linear": "decay:Linear",
            "length_lr": "length_lr:LengthLr",
            "stages": "stages:StagedSchedule",
        },
    ),
    "metrics": _Slot("policy_metric", "Measures each finished step", ("measure",), "plugins.watch", {}),
    "stop": _Slot(
        "stop_rule",
        "Ends a run early",
        ("reason",),
        "plugins.watch",
        {
            "out_of_bounds": "stop_rules:OutOfBounds",
            "no_progress": "stop_rules:NoProgress",
        },
    ),
}
#: Section of a recipe -> the kind of its plug-ins.
SLOTS: dict[str, Kind[type[Any]]] = {
    section: Kind(
        slot.kind,
        f"{slot.summary} (recipe section `{section}`).",
        {name: f"assay_policy_training.{slot.folder}.{target}" for name, target in slot.members.items()},
        slot.requires,
    )
    for section, slot in _SLOTS.items()
}
#: The plug-in of a section that names none.
DEFAULTS = {"source": "shuffled", "sampler": "transformers", "reward": "weighted", "aggregation": "mean"}
