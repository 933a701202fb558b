"""What a recipe changes of the conversation: template, its variables, a system turn, texts that end a response."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch
from transformers.generation.stopping_criteria import StopStringCriteria

from assay.domain import Message
from assay.errors import BadInputError
from assay.models.chat.options import ChatOptions
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_tokenizer
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.core.stop_strings import StopStrings
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.plugins.samplers.vllm.completions import VllmCompletion, request_fields
from assay_policy_training.plugins.samplers.vllm.policy_engine import VllmSampler
from assay_policy_training.recipe.loading import load_recipe, recipe_from_dict, recipe_to_dict

CPU = torch.device("cpu")
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% if enable_thinking is defined and not enable_thinking %}"
    "<think></think>{% endif %}{% endif %}"
)
HI = (Message("user", "hi"),)
ITEMS = [PromptItem((Message("user", text),)) for text in ("hi", "and you?")]


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy("tiny", device=CPU, max_prompt_tokens=64)


def renderer(chat: ChatOptions | None = None) -> Renderer:
    return Renderer(load_tokenizer("tiny"), max_length=64, chat=chat)


def test_template_variables_and_system_turn_shape_the_text_and_its_identity() -> None:
    templated = ChatOptions(template=TEMPLATE)
    quiet = ChatOptions(template=TEMPLATE, kwargs={"enable_thinking": False})
    brief = ChatOptions(template=TEMPLATE, system="Be brief.")
    assert renderer(templated).render(HI) == "<user>hi\n<assistant>"
    assert renderer(quiet).render(HI) == "<user>hi\n<assistant><think></think>"
    assert renderer(brief).render(HI) == "<system>Be brief.\n<user>hi\n<assistant>"
    assert renderer(brief).render((Message("system", "Shout."), *HI)) == "<system>Shout.\n<user>hi\n<assistant>"
    hashes = [renderer(chat).template_hash for chat in (None, templated, quiet, brief)]
    assert len(set(hashes)) == 4
    assert renderer(ChatOptions()).template_hash == hashes[0]  # models of before keep their identity
    encoded = renderer(brief).encode(HI, "yes")
    text = load_tokenizer("tiny").decode(list(encoded.ids[encoded.response_start :]))
    assert text == "yes\n"


def test_what_the_template_does_not_read_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"chat\.kwargs\.enable_thinkng.*no such variable"):
        renderer(ChatOptions(template=TEMPLATE, kwargs={"enable_thinkng": False}))
    with pytest.raises(BadInputError, match=r"chat\.kwargs\.messages.*set by the renderer"):
        ChatOptions(kwargs={"messages": []})
    with pytest.raises(BadInputError, match="the chat template refuses"):
        renderer(ChatOptions(template="{{ raise_exception('no') }}"))


def test_a_recipe_holds_them_and_a_policy_keeps_the_template() -> None:
    recipe = load_recipe(
        "grpo",
        [
            f"chat.template={json.dumps(TEMPLATE)}",
            "chat.kwargs.enable_thinking=false",
            "chat.system=Be brief.",
            'sampling.stop=["</answer>", "\\n\\n"]',
        ],
    )
    assert recipe.chat == ChatOptions(TEMPLATE, {"enable_thinking": False}, "Be brief.")
    assert recipe.sampling.stop == ("</answer>", "\n\n")
    again = recipe_from_dict(json.loads(json.dumps(recipe_to_dict(recipe))))
    assert (again.chat, again.sampling) == (recipe.chat, recipe.sampling)
    policy = Policy("tiny", device=CPU, max_prompt_tokens=64, chat=recipe.chat)
    assert policy.tokenizer.chat_template == TEMPLATE
    assert policy.renderer.chat == recipe.chat
    for key, value in (("sampling.stop", '[""]'), ("sampling.stop", "[1]"), ("chat.name", "x")):
        with pytest.raises(BadInputError, match=key.split(".")[1]):
            load_recipe("grpo", [f"{key}={value}"])
    with pytest.raises(BadInputError, match="later window"):
        load_recipe("grpo", ["sampling.stop=[x]", "asynchrony.window=8", "asynchrony.actors=1"])


@pytest.mark.slow
def test_a_row_ends_where_transformers_would_end_it() -> None:
    """Oracle: `StopStringCriteria` on every prefix of random rows."""
    tokenizer = load_tokenizer("smollm2")
    texts = ("the", ".\n", "é", "</answer>", "ab ")
    criteria = StopStringCriteria(tokenizer, list(texts))
    stops = StopStrings(tokenizer, texts)
    generator = torch.Generator().manual_seed(0)
    written = [tokenizer(text)["input_ids"] for text in ("so <answer>4</answer> is", "cafés ab c", "x.\n\ny", "aé")]
    rows = [torch.randint(3, 2000, (40,), generator=generator).tolist() for _ in range(30)] + written
    for row in rows:
        expected = next(
            (end for end in range(1, len(row) + 1) if bool(criteria(torch.tensor([row[:end]]), None)[0])), len(row)
        )
        assert stops.length(row) == expected, tokenizer.decode(row)
    assert len({stops.length(row) for row in rows}) > 5  # they do end
    assert not StopStrings(tokenizer, ())


def test_rows_with_stop_texts_are_the_beginnings_of_those_without(policy: Policy) -> None:
    """The same tokens and log-probs up to the token that completes a text; such a row is finished."""
    free = TransformersSampler(policy, Sampling(max_new_tokens=24)).rollout(ITEMS, 8, seed=3, version=0)
    letters = sorted({letter for response in free.responses for letter in response if letter.isalnum()})
    stops = StopStrings(policy.tokenizer, letters[:6])
    stopped = TransformersSampler(policy, Sampling(max_new_tokens=24, stop=tuple(letters[:6])))
    batch = stopped.rollout(ITEMS, 8, seed=3, version=0)
    shorter = 0
    for row in range(len(free)):
        tokens = free.tokens[row][free.mask[row]].tolist()
        length = stops.length(tokens)
        assert batch.tokens[row][batch.mask[row]].tolist() == tokens[:length]
        torch.testing.assert_close(batch.logp_mu[row][:length], free.logp_mu[row][:length])
        ends = any(text in batch.responses[row] for text in letters[:6])
        assert bool(batch.finished[row]) == (ends or bool(free.finished[row]))
        shorter += length < len(tokens)
    assert shorter > 3
    streamed = list(stopped.stream(ITEMS, 8, seed=3, version=0))
    assert [r for part in streamed for r in part.responses] == list(batch.responses)


class FixedEngine:
    """Gives the same long row for every request, as an engine that ended it later would."""

    where, max_length, at_once = "an engine", None, 1

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = tuple(ids)
        self.fields: Mapping[str, Any] = {}

    def complete(
        self, rows: Sequence[Sequence[int]], n: int, fields: Mapping[str, Any], seeds: Sequence[int]
    ) -> Iterator[list[VllmCompletion]]:
        self.fields = fields
        for _ in rows:
            yield [VllmCompletion(self.ids, tuple(-0.1 * k for k in range(len(self.ids))))] * n

    def load(self, weights: Any) -> None:
        raise NotImplementedError

    def sleep(self) -> None:
        """It holds nothing that could be given back."""

    def confirm(self) -> None:
        """There is no server that could have died."""


def test_an_engine_is_asked_to_stop_and_cut_at_the_same_token(policy: Policy) -> None:
    ids = policy.tokenizer("so it ends here, or there", add_special_tokens=False)["input_ids"]
    sampling = Sampling(max_new_tokens=64, stop=("ends",))
    engine = FixedEngine(ids)
    batch = VllmSampler(policy, sampling, engine, tolerance=1.0).rollout(ITEMS[:1], 2, seed=0, version=0)
    length = StopStrings(policy.tokenizer, ("ends",)).length(ids)
    assert batch.mask.sum(1).tolist() == [length, length]
    assert batch.responses[0].endswith("ends")
    assert batch.finished.tolist() == [True, True]
    assert engine.fields["stop"] == ["ends"]
    assert engine.fields["include_stop_str_in_output"]
    assert "stop" not in request_fields(Sampling(), [2])
