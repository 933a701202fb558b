"""Reward models that put a head of their own on a decoder and read it at one position.

Written from publishers' code as public repositories hold it: rewardbench/models/{grm,inform,openbmb,internlm,starling,
beaver}.py of allenai/reward-bench, openrlhf/models/model.py of OpenRLHF, the model cards of Starling-RM-7B-alpha and
Eurus-RM-7b, InternLM2's modeling code (`get_score`) and ModelTC/lightllm's split of `wqkv`, the `generate` call for
Nemotron in several repositories that quote its card, the card of Llama-3.3-Nemotron-70B-Reward-Principle, two projects'
calls of Skywork-VL-Reward (TRL's value head over Qwen2.5-VL, in a file of its own). From memory: which file names a
repository has; that UltraRM joins turns by a line break was read in a user's evaluation code, not in its card.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import nn

from assay.models.adapters.adapter import NEEDLESS, HeadWeights, ModelAdapter
from assay.models.adapters.heads import LayeredHead, LogitsHead, RewardHead, linear

if TYPE_CHECKING:
    import torch

#: Turns in square brackets as Mistral-Instruct has them; Eurus closes them with a backslash.
_EURUS = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}{{ m['content'] }}{% if not loop.last %} {% endif %}"
    "{% else %}[INST] {{ m['content'] }} [\\INST] {% endif %}{% endfor %}"
)
_ULTRA = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}Assistant: {% else %}Human: {% endif %}{{ m['content'] }}"
    "{% if not loop.last %}{{ '\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '\\nAssistant: ' }}{% endif %}"
)
_STARLING = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'assistant' %}{{ m['content'] }}{{ eos_token }}"
    "{% else %}[INST] {{ m['content'] }} {{ eos_token }} [/INST] {% endif %}{% endfor %}"
)
_BEAVER = (
    "BEGINNING OF CONVERSATION: {% for m in messages %}{% if m['role'] == 'assistant' %}{{ m['content'] }}"
    "{{ eos_token }}{% else %}USER: {{ m['content'] }} ASSISTANT:{% endif %}{% endfor %}"
)


def one_layer(*names: str) -> Any:
    """The maker of a head of one linear layer, of the first of these names that the checkpoint has."""

    def head(weights: HeadWeights) -> RewardHead:
        name = next((name for name in names if f"{name}.weight" in weights), names[0])
        return LayeredHead([linear(weights[f"{name}.weight"], weights.get(f"{name}.bias"))])

    return head


def relu_layers(weights: HeadWeights, prefix: str, *, minus: bool = False) -> RewardHead:
    """The linear layers `prefix` n of a `nn.Sequential`, with ReLU between them."""
    layers: list[nn.Module] = []
    for number in weights.numbered(prefix):
        layers += [nn.ReLU()] if layers else []
        layers.append(linear(weights[f"{prefix}{number}.weight"], weights.get(f"{prefix}{number}.bias")))
    return LayeredHead(layers, minus=minus)


def _openrlhf(weights: HeadWeights) -> RewardHead:
    prefix = str(weights.config.get("value_head_prefix") or "value_head")
    name = next((n for n in (prefix, "value_head", "score") if f"{n}.weight" in weights), prefix)
    mean, std = 0.0, 1.0
    if weights.config.get("normalize_reward"):
        mean, std = (_number(weights.config.get(key), default) for key, default in (("mean", 0.0), ("std", 1.0)))
    return LayeredHead([linear(weights[f"{name}.weight"], weights.get(f"{name}.bias"))], mean=mean, std=std)


def _number(value: Any, default: float) -> float:
    first = value[0] if isinstance(value, list) and value else value
    return default if first is None else float(first)


def _beaver(weights: HeadWeights) -> RewardHead:
    config, mean, std = weights.config, 0.0, 1.0
    if config.get("do_normalize"):  # affine for rewards, scale for costs; epsilon as there
        std = float(_number(config.get("var"), 1.0) ** 0.5) + 1e-8
        mean = _number(config.get("mean"), 0.0) if config.get("score_type", "reward") == "reward" else 0.0
    return LayeredHead([linear(weights["score_head.weight"], weights.get("score_head.bias"))], mean=mean, std=std)


def _grm(weights: HeadWeights) -> RewardHead:
    if "v_head.summary.weight" in weights:
        return one_layer("v_head.summary")(weights)  # type: ignore[no-any-return]
    return relu_layers(weights, "v_head.summary.")


def internlm2_to_llama(
    name: str, tensor: "torch.Tensor", config: Mapping[str, Any]
) -> "dict[str, torch.Tensor] | None":
    """`wqkv` [(q per k + 2) * k heads * D, H], grouped by key head: its queries, its key, its value."""
    if not name.endswith("attention.wqkv.weight"):
        return None
    keys = int(config.get("num_key_value_heads") or config["num_attention_heads"])
    size = int(config["hidden_size"]) // int(config["num_attention_heads"])
    groups = tensor.reshape(keys, -1, size, tensor.shape[-1])
    layer = name.removesuffix("attention.wqkv.weight") + "self_attn."
    parts = {"q_proj": groups[:, :-2], "k_proj": groups[:, -2], "v_proj": groups[:, -1]}
    return {f"{layer}{part}.weight": rows.reshape(-1, tensor.shape[-1]).contiguous() for part, rows in parts.items()}


REWARD_BENCH = "publisher's code as allenai/reward-bench holds it"

OPENRLHF = ModelAdapter(
    reads="the value head at the last token; less mean, over std where the configuration says normalize_reward",
    source="publisher's code (OpenRLHF)",
    architectures=("RewardModel",),
    signature=(r"value_head\.weight",),
    head=_openrlhf,
)
INTERNLM2 = ModelAdapter(
    reads="the value head at the reward token, which is put at the end; the network as a Llama",
    source="publisher's code as public repositories quote it",
    architectures=("InternLM2ForRewardModel",),
    requires=(r"v_head\.weight", r"model\.layers\.0\.attention\.wqkv\.weight"),
    backbone="llama",
    convert=internlm2_to_llama,
    rename=(
        (r"tok_embeddings", "embed_tokens"),
        (r"attention\.wo\.", "self_attn.o_proj."),
        (r"feed_forward\.w1\.", "mlp.gate_proj."),
        (r"feed_forward\.w3\.", "mlp.up_proj."),
        (r"feed_forward\.w2\.", "mlp.down_proj."),
        (r"attention_norm\.", "input_layernorm."),
        (r"ffn_norm\.", "post_attention_layernorm."),
    ),
    head=one_layer("v_head"),
    append="reward_token_id",
)
STARLING = ModelAdapter(
    reads="the value head at the last token, the end of the response; [INST] prompts",
    source="model card and allenai/reward-bench",
    names=r"starling-rm",
    signature=(r"transformer\.layers\.0\.mlp\.gate_proj\.weight", r"v_head\.weight"),
    rename=((r"^transformer\.", "model."),),
    needless=rf"{NEEDLESS}|model\.(model|lm_head)\..*",
    head=one_layer("v_head"),
    template=_STARLING,
    max_length=2048,
)
ULTRARM = ModelAdapter(
    reads="the regression head at the last token; Human: and Assistant: prompts",
    source=REWARD_BENCH,
    architectures=("LlamaRewardModel",),
    requires=(r"regression_head\.weight",),
    head=one_layer("regression_head"),
    template=_ULTRA,
    max_length=2048,
)
EURUS = ModelAdapter(
    reads="the regression head at the last token; [INST] prompts",
    source="publisher's code and model card as public repositories quote them",
    architectures=("EurusRewardModel",),
    requires=(r"regression_head\.weight",),
    head=one_layer("regression_head"),
    template=_EURUS,
)
INF_ORM = ModelAdapter(
    reads="the score of two layers with ReLU at the last token",
    source=REWARD_BENCH,
    architectures=("INFORMForSequenceClassification",),
    requires=(r"score\.0\.weight", r"score\.2\.weight"),
    head=lambda weights: relu_layers(weights, "score."),
)
QWEN_MATH_RM = ModelAdapter(
    reads="the score of two layers with ReLU at the last token; the system turn of Qwen2.5-Math",
    source="model card and sglang's class, by sight",
    architectures=("Qwen2ForRewardModel",),
    requires=(r"score\.0\.weight", r"score\.2\.weight"),
    head=lambda weights: relu_layers(weights, "score."),
    system="Please reason step by step, and put your final answer within \\boxed{}.",
)
GRM = ModelAdapter(
    reads="the value head (layers with ReLU) at the last token",
    source=REWARD_BENCH,
    architectures=("GRewardModel", "GRMModel"),
    signature=(r"v_head\.summary\.(0\.)?weight", r"model\.layers\.0\.mlp\.up_proj\.weight"),
    head=_grm,
)
BEAVER = ModelAdapter(
    reads="the score head at the last token, the end of the response; USER: and ASSISTANT: prompts",
    source=f"{REWARD_BENCH}; its prompt from memory",
    architectures=("LlamaForScore", "LlamaModelForScore"),
    requires=(r"score_head\.weight",),
    needless=rf"{NEEDLESS}|normalizer\..*",
    head=_beaver,
    template=_BEAVER,
)
NEMOTRON = ModelAdapter(
    reads="the language head's logit of token 0 after the conversation's last token",
    source="model card as public repositories quote it",
    names=r"nemotron-70b-reward(-hf|-multilingual)?(?!-principle)(\s|/|$)",
    requires=(r"model\.layers\.0\.mlp\.up_proj\.weight",),
    body="language",
    head=lambda weights: LogitsHead(0),
    max_length=4096,
)
NEMOTRON_PRINCIPLE = ModelAdapter(
    reads="the language head's logit of Yes less that of No at the answer to the question about the principle",
    source="model card as a public repository holds it",
    names=r"nemotron-70b-reward-principle",
    requires=(r"model\.layers\.0\.mlp\.up_proj\.weight",),
    body="language",
    question="Evaluate the response to the previous prompt in terms of whether it satisfies this principle: "
    "{principle}. Only answer Yes or No.",
    max_length=4096,
)
SKYWORK_VL = ModelAdapter(
    reads="the value head at the last token of a conversation with images",
    source="publisher's snippet as public repositories hold it",
    signature=(r"v_head\.summary\.weight", r"(model\.)?visual\.merger\.ln_q\.weight", r"(.*\.)?lm_head\.weight"),
    rename=((r"^visual\.", "model.visual."), (r"^model\.(?!visual\.|language_model\.)", "model.language_model.")),
    head=one_layer("v_head.summary"),
)
