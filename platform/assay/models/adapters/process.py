"""Process reward models: a reward for each step of a response, as log-odds, whose sigmoid is the published number.

Written from the model cards of Qwen2.5-Math-PRM and Math-Shepherd (its data set's card and evaluation code that quotes
it), Skywork's own inference code as public repositories hold it (`prepare_input`, `PRM_MODEL`), and TRL's PRMTrainer
(`tokenize_row`, as it was before TRL dropped it). That the published number of a response is its smallest step's is
common use, not a part of those forms.
"""

from assay.errors import BadInputError
from assay.models.adapters.adapter import HeadWeights, ModelAdapter
from assay.models.adapters.heads import LayeredHead, LogitsHead, RewardHead, linear
from assay.models.adapters.steps import StepFormat
from assay.models.adapters.value_heads import relu_layers
from assay.models.readings import Stepwise

_PLAIN = "{% for m in messages %}{{ m['content'] }}{% if not loop.last %} {% endif %}{% endfor %}"


def _plus_minus(weights: HeadWeights) -> RewardHead:
    ids = weights.tokenizer("+ -", add_special_tokens=False)["input_ids"]
    if len(ids) != 2:
        raise BadInputError(f"{weights.checkpoint.name}'s tokenizer has no tokens of their own for + and -")
    return LogitsHead(*ids)


def _two_labels(weights: HeadWeights) -> RewardHead:
    layer = linear(weights["score.weight"], weights.get("score.bias"))
    if layer.out_features != 2:
        raise BadInputError(f"{weights.checkpoint.name} has {layer.out_features} labels a step; two are read here")
    return LayeredHead([layer], minus=True)


MATH_SHEPHERD = ModelAdapter(
    reads="the language head's logit of + less that of - at each step's tag",
    source="model card as public repositories quote it",
    names=r"math-shepherd\S*prm",  # its authors' policies have the name, too
    requires=(r"model\.layers\.0\.mlp\.up_proj\.weight",),
    body="language",
    head=_plus_minus,
    template=_PLAIN + "{% if add_generation_prompt %} {% endif %}",
    steps=StepFormat("ки", before=" ", after="\n"),
    stepwise=Stepwise("\n"),
)
QWEN_MATH_PRM = ModelAdapter(
    reads="the second label less the first at <extra_0> after each step",
    source="model card",
    architectures=("Qwen2ForProcessRewardModel",),
    requires=(r"score\.0\.weight", r"score\.2\.weight"),
    head=lambda weights: relu_layers(weights, "score.", minus=True),
    system="Please reason step by step, and put your final answer within \\boxed{}.",
    steps=StepFormat("<extra_0>"),
    stepwise=Stepwise("\n\n"),
    max_length=4096,
)
SKYWORK_O1_PRM = ModelAdapter(
    reads="the value head at the line break after each step",
    source="publisher's code as public repositories hold it",
    architectures=("Qwen2ForPrmModel",),
    requires=(r"v_head\.summary\.weight",),
    head=lambda weights: LayeredHead([linear(weights["v_head.summary.weight"], weights.get("v_head.summary.bias"))]),
    template="{{ bos_token }}{% for m in messages %}{% if not loop.last or add_generation_prompt %}{{ m['content'] }}\n"
    "{% else %}{{ m['content'] }}{% endif %}{% endfor %}",
    steps=StepFormat("\n", pieces=True),
    stepwise=Stepwise("\n"),
)
TRL_PRM = ModelAdapter(
    reads="the second label less the first at the line break after each step",
    source="TRL's PRMTrainer as public repositories hold it",
    architectures=(
        "Qwen2ForTokenClassification",
        "Qwen3ForTokenClassification",
        "LlamaForTokenClassification",
        "MistralForTokenClassification",
        "Gemma2ForTokenClassification",
    ),
    requires=(r"score\.weight",),
    head=_two_labels,
    template="{% if bos_token %}{{ bos_token }}{% endif %}" + _PLAIN,
    steps=StepFormat("\n", pieces=True),
    stepwise=Stepwise("\n"),
)
