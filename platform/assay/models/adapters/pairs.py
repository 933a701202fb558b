"""Reward models that are shown two responses at once: PairRM (an encoder), SteamSHP (an encoder with a decoder).

Written from rewardbench/models/{pairrm,shp}.py of allenai/reward-bench and calls of SteamSHP in trlx and elsewhere,
which quote its card. Leaves out: the texts that they read (`assay_serving.engines.pairs`).
"""

from torch import nn

from assay.models.adapters.adapter import NEEDLESS, HeadWeights, ModelAdapter
from assay.models.adapters.heads import LayeredHead, LogitsHead, RewardHead, linear

#: What PairRM puts before the prompt and before each response; its head reads these tokens' states.
MARKS = ("<|source|>", "<|candidate1|>", "<|candidate2|>")


def _pairrm(weights: HeadWeights) -> RewardHead:
    """Of the states of the prompt's mark and of a response's, beside each other."""
    for mark, key in zip(MARKS, ("source_prefix_id", "cand1_prefix_id", "cand2_prefix_id"), strict=True):
        weights.expect(key, weights.one_token(mark))
    names = ("head_layer.1", "head_layer.4")
    first, second = (linear(weights[f"{name}.weight"], weights.get(f"{name}.bias")) for name in names)
    return LayeredHead([first, nn.Tanh(), second])


PAIRRM = ModelAdapter(
    reads="the head at the mark of each of two responses, beside the prompt's; their difference is a log-odds",
    source="publisher's code as allenai/reward-bench holds it",
    architectures=("DebertaV2PairRM",),
    signature=(r"pretrained_model\.embeddings\.word_embeddings\.weight", r"head_layer\.1\.weight"),
    requires=(r"head_layer\.4\.weight",),
    body="states",
    rename=((r"^pretrained_model\.", ""),),
    head=_pairrm,
    max_length=2048,
)
STEAMSHP = ModelAdapter(
    reads="the decoder's first token: P(A) of a response beside an empty one, or the log-odds of A against B",
    source="model card as public repositories quote it",
    names=r"steamshp",
    requires=(r"(shared|encoder\.embed_tokens)\.weight", r"decoder\.block\.0\.layer\.0\.SelfAttention\.q\.weight"),
    body="seq2seq",
    needless=NEEDLESS.removesuffix(r"|lm_head\.weight"),
    head=lambda weights: LogitsHead(weights.one_token("A"), weights.one_token("B")),
    max_length=512,
    ranked=False,
)
