"""Policies of images and text: sampled = trained log-probs, a batch of one = of many, saved = loaded."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from drawn_images import asked, data_url, digit, drawn
from vision_models import gemma3, qwen2_vl, smolvlm

from assay.conversation.parts import ImagePart, TextPart
from assay.data.conversation import turns_of
from assay.domain import Message, prompt_of
from assay.errors import BadInputError
from assay.models.tiny_vision import make_tiny_vision
from assay.models.vision import image_token_of
from assay_policy_training.core.policy import Policy, reload_difference
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling, group_seeds
from assay_policy_training.plugins.samplers.recorded import RecordedSampler
from assay_policy_training.plugins.samplers.transformers import TransformersSampler

CPU = torch.device("cpu")
RED, SEVEN = (data_url(image) for image in (drawn(random.Random(1), "red", "circle"), digit(random.Random(2), 7)))
ITEMS = [
    PromptItem(prompt_of(turns_of(asked(RED), "prompt"))),
    PromptItem((Message("user", "plain"),)),
    PromptItem((Message("user", (ImagePart(url=RED), TextPart("or"), ImagePart(url=SEVEN))),)),
]


@pytest.mark.parametrize(
    "make", [make_tiny_vision, gemma3, qwen2_vl, smolvlm], ids=["idefics3", "gemma3", "qwen2-vl", "smolvlm"]
)
def test_rows_with_images_have_the_log_probs_that_they_were_sampled_with(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        make(tmp_path / "base")
    policy = Policy(str(tmp_path / "base"), device=CPU, max_prompt_tokens=400)
    # Fewer rows at once than there are: prompts join a running batch.
    sampler = TransformersSampler(policy, Sampling(max_new_tokens=8, temperature=1.3, rows_at_once=4))
    batch = sampler.rollout(ITEMS, 2, seed=1, version=0)
    trained = policy.scores(batch, temperature=1.3).logp
    torch.testing.assert_close(batch.logp_mu, trained, atol=1e-4, rtol=0)
    alone = torch.cat([policy.scores(batch.select([row]), temperature=1.3).logp for row in range(len(batch))])
    torch.testing.assert_close(alone, trained, atol=1e-5, rtol=0)
    first = sampler.rollout(ITEMS[:1], 2, seed=group_seeds(1, 3)[:1], version=0)
    assert torch.equal(first.tokens, batch.tokens[:2])
    trained.sum().backward()  # type: ignore[no-untyped-call]
    assert any("vis" in name for name, weight in policy.trainable().items() if weight.grad is not None)
    other = batch.with_(items=(*(PromptItem(prompt_of(turns_of(asked(SEVEN), "prompt"))),) * 2, *batch.items[2:]))
    moved = (policy.scores(other, temperature=1.3).logp - trained).abs()
    assert float(moved[:2].max().detach()) > 1e-3
    assert float(moved[2:].max().detach()) < 1e-5
    policy.save(tmp_path / "saved")
    again = Policy(str(tmp_path / "saved"), device=CPU, max_prompt_tokens=400)
    assert again.renderer.template_hash == policy.renderer.template_hash
    assert reload_difference(tmp_path / "saved", batch, policy.float32_logp(batch), CPU) < 1e-5


def test_places_of_images_are_never_written_and_recorded_ones_are_refused(tmp_path: Path) -> None:
    make_tiny_vision(tmp_path)
    policy = Policy(str(tmp_path), device=CPU, max_prompt_tokens=400)
    place = image_token_of(policy.model.config)
    assert place is not None
    with torch.no_grad():
        head = policy.model.get_output_embeddings().weight
        head[place] = 50 * head.sum(0)  # else the likeliest token, or the least
    batch = TransformersSampler(policy, Sampling(max_new_tokens=8)).rollout(ITEMS[:2], 4, seed=1, version=0)
    assert place not in batch.tokens[batch.mask]
    assert torch.isfinite(policy.scores(batch, temperature=1.0).entropy).all()
    recorded = PromptItem(ITEMS[0].prompt, meta={"responses": ["an <image>"]})
    with pytest.raises(BadInputError, match="a response with places of images"):
        RecordedSampler(policy, Sampling(), {}).rollout([recorded], 1, seed=1, version=0)
