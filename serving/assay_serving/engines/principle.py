"""Scoring with principle reward models: one question per item, answered in one token; the reward is the log-odds.

Covers: any causal language model with the frozen question (`assay.models.chat.principle_renderer`), common beginnings
computed once (several principles on one response share all but the principle; several responses share their prompt).
Leaves out: the forward pass (`packed`), batching across callers (`assay_serving.server`).

A reward depends on its item alone. Rewards under different principles have different scales (the base rates differ):
compare them within one principle, or calibrate.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from assay.errors import BadInputError
from assay.models.chat.principle_renderer import QUESTION, PrincipleRenderer
from assay.models.chat.renderer import Renderer
from assay.models.devices import pick_device, pick_dtype
from assay.models.heads import log_odds
from assay.models.loading import load_causal_lm, load_tokenizer, spec_of, stored_spec
from assay.models.spec import RewardModelSpec
from assay_serving.engines.packed import PackedScorer, require_parity
from assay_serving.engines.token import PrincipleReader
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import UNLIMITED

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

    from assay_serving.engines.engine import ModelLoader


class PrincipleScorer(PrincipleReader, PackedScorer):
    """Asks a language model; the reward is log P(Yes) - log P(No) at the answer's position."""

    def check(self, name: str) -> None:
        super().check(name)
        if self.model.get_output_embeddings() is None:
            raise BadInputError(f"{name} ({type(self.model).__name__}) has no language head to answer with")

    @classmethod
    def load(
        cls,
        config: ModelConfig,
        loader: "ModelLoader | None" = None,
    ) -> Self:
        """Load a folder or hub id. A language model without a spec of ours is asked too: by the config's `question`,
        the wording it was trained with (`{principle}` in it), else by ours.

        Raises BadInputError for a reward model of another kind, for another question than the spec's, and for a
        checkpoint that failed its parity check (unless the config allows it).
        """
        name, device = config.reference, pick_device(config.device)
        tokenizer = load_tokenizer(name)
        spec = principle_spec(name, tokenizer, config.question)
        require_parity(config, spec)
        model = load_causal_lm(name, tokenizer, dtype=pick_dtype(device, config.dtype), device=device)
        return cls.of_model(model, tokenizer, spec, config)

    def head(self, states: "torch.Tensor") -> "torch.Tensor":
        """The log-odds of the two answers, in float32; only their rows of the language head are computed."""
        answers = self.questions.answers
        return log_odds(self.model, states, yes=answers.yes, no=answers.no)[:, None]


def principle_spec(name: str, tokenizer: "PreTrainedTokenizerBase", question: str | None = None) -> RewardModelSpec:
    """The checkpoint's own spec; for a language model without one, a spec made for `question` (default: ours).

    Raises BadInputError where the spec is of another kind or names another question.
    """
    spec = stored_spec(name)
    if spec is None:
        question_renderer = PrincipleRenderer(Renderer(tokenizer, max_length=UNLIMITED), question or QUESTION)
        spec = spec_of(name, template_hash=lambda: question_renderer.template_hash)
        return replace(spec, kind="principle", **question_fields(question_renderer))
    if spec.kind != "principle":
        raise BadInputError(f"{name} is a reward model of kind {spec.kind}, not a principle model")
    if question is not None and question != (spec.question or QUESTION):
        raise BadInputError(f"{name} was trained with the question {spec.question!r}; leave --question out")
    return spec


def question_fields(renderer: PrincipleRenderer) -> dict[str, Any]:
    """Fields of the spec of a model that answers this question."""
    return {
        "principles": True,
        "template_hash": renderer.template_hash,
        "question": renderer.question,
        "yes_token": renderer.answers.yes,
        "no_token": renderer.answers.no,
    }
