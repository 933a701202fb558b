"""The vocabulary head in chunks: the numbers and gradients of all logits at once, in a part of the memory."""

from collections.abc import Callable

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from assay.models import token_losses as token_losses_module
from assay.models.devices import kept_casts
from assay.models.token_losses import CHUNK_TOKENS, KEPT_CHUNKS, LARGE_BLOCK, token_losses, token_statistics
from assay.planning.fake_step import measured

Loss = Callable[[torch.nn.Linear, torch.Tensor, torch.Tensor], torch.Tensor]


def at_once(head: torch.nn.Linear, states: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(head(states).float(), targets, reduction="none")


def in_parts(head: torch.nn.Linear, states: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return token_losses(head, states, targets)[0]


def test_chunks_have_the_losses_and_gradients_of_all_at_once() -> None:
    torch.manual_seed(0)
    head, states = torch.nn.Linear(16, 997), torch.randn((KEPT_CHUNKS + 1) * CHUNK_TOKENS + 7, 16)
    targets, shares = torch.randint(0, 997, (len(states),)), torch.randn(len(states))

    def run(loss: Loss) -> list[torch.Tensor]:
        leaf = states.clone().requires_grad_()
        losses = loss(head, leaf, targets)
        return [losses, *torch.autograd.grad((losses * shares).sum() / len(states), [leaf, *head.parameters()])]

    for chunked, whole in zip(run(in_parts), run(at_once), strict=True):
        torch.testing.assert_close(chunked, whole, atol=1e-6, rtol=1e-6)
    logits = head(states).detach()
    assert torch.equal(token_losses(head, states, targets)[1], logits.argmax(-1) == targets)


def test_the_gradient_of_log_probs_and_their_normaliser() -> None:
    logits = torch.randn(5, 9, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda given: token_statistics(given, torch.arange(5))[:2], logits)


def test_memory_is_that_of_chunks_and_not_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a vocabulary of 128k and bfloat16 products; counted on tensors without memory."""
    monkeypatch.setattr(token_losses_module, "BLOCK", LARGE_BLOCK)
    vocabulary, tokens = 128_256, 4 * CHUNK_TOKENS
    targets = torch.randint(0, vocabulary, (tokens,))

    def peak(loss: Loss, number: int) -> int:
        with FakeTensorMode(allow_non_fake_inputs=True):
            head = torch.nn.Linear(64, vocabulary, bias=False)
            states = torch.randn(number, 64, requires_grad=True)

        def step() -> None:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                losses = loss(head, states, targets[:number])
            losses.mean().backward()  # type: ignore[no-untyped-call]

        return measured([head], [], step).bytes - 2 * head.weight.nbytes

    logits = 4 * CHUNK_TOKENS * vocabulary
    assert peak(in_parts, tokens) == pytest.approx(peak(in_parts, KEPT_CHUNKS * CHUNK_TOKENS), rel=0.05)
    assert peak(in_parts, tokens) < 2.2 * logits
    assert peak(at_once, tokens) > 10 * logits


class _Casts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    number = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.number += func is torch.ops.aten._to_copy.default and isinstance(args[0], torch.nn.Parameter)
        return func(*args, **(kwargs or {}))


def test_weights_are_cast_once_for_all_passes_with_the_same_gradient() -> None:
    torch.manual_seed(0)
    model, rows = torch.nn.Linear(8, 3), torch.randn(4, 5, 8)

    def run(wanted: bool) -> tuple[int, torch.Tensor]:
        model.zero_grad()
        with _Casts() as casts, kept_casts(wanted):  # type: ignore[no-untyped-call]
            for row in rows:
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = model(row).float().square().mean()
                loss.backward()
        assert model.weight.grad is not None
        return casts.number, model.weight.grad.clone()

    (once, kept), (every, plain) = run(wanted=True), run(wanted=False)
    assert (once, every) == (2, 8)
    assert torch.equal(kept, plain)
