"""Log-probabilities of responses, in training and under the reference, which is measured once before training.

Covers: the sums over responses that a packed pass computed, and each item's sums under a reference, kept beside the
encoded items, where a resumed run reads them. Leaves out: losses (`objectives/`), the forward pass.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from assay import ids
from assay.errors import BadInputError
from assay.models.attention.packing import PackedHidden, TokenGroup
from assay.models.devices import to_device
from assay.models.parallelism.strategy import SingleProcess
from assay.models.token_losses import token_losses
from assay.system.atomic_files import replacing
from assay_rm_training.data.encoded_dataset import EncodedDataset, item_passes
from assay_rm_training.data.stored_dataset import with_items
from assay_rm_training.data.token_shards import StoredItems
from assay_rm_training.model.packed_forward import GroupForward
from assay_rm_training.model.trainable_model import TrainableModel

log = logging.getLogger(__name__)

Head = Callable[[torch.Tensor], torch.Tensor]


class Responses(Protocol):
    """Conversations of one prompt; `starts`: in each one, the first token of its response, at least 1."""

    @property
    def group(self) -> TokenGroup: ...
    @property
    def starts(self) -> tuple[int, ...]: ...


def response_lengths(item: Responses) -> list[int]:
    """Tokens of each response, the template's end of turn included."""
    prefix = len(item.group.prefix)
    return [prefix + len(own) - start for own, start in zip(item.group.branches, item.starts, strict=True)]


def response_log_probs(
    hidden: PackedHidden, items: Sequence[Responses], head: Head, *, responses: int | None = None
) -> torch.Tensor:
    """Summed log p of the tokens of each response [n, k], float32; of the first `responses` (else all k, alike in all
    items) of an item. `hidden`: of a pass over the items' groups. `head`: states [N, H] to logits [N, V]."""
    places: list[Sequence[int]] = []
    targets, lengths = [], []
    for item in items:
        for number, (sequence, start) in enumerate(zip(item.group.sequences(), item.starts, strict=True)):
            if responses is not None and number >= responses:
                places.append(())
                continue
            places.append(range(start - 1, len(sequence) - 1))
            targets.append(sequence[start:])
            lengths.append(len(sequence) - start)
    states = hidden.at(places)
    losses, _ = token_losses(head, states, to_device(torch.from_numpy(np.concatenate(targets)).long(), states.device))
    return -torch.stack([part.sum() for part in torch.split(losses, lengths)]).view(len(items), -1)


def with_references(
    trainable: TrainableModel,
    head_of: Callable[[TrainableModel], Head],
    forward: GroupForward,
    data: EncodedDataset[Any],
    *,
    version: str,
    parallel: SingleProcess,
) -> EncodedDataset[Any]:
    """The items with their `reference`: log p of each response under this model, in the training's number format. All
    processes call this, and each measures its share.

    What an interrupted run measured is used again where it is of the same data and `version`, of the model's files and
    how they are run. Raises BadInputError for a template whose response starts at the first token.
    """
    data = checked_starts(data)
    file = _reference_file(data, version) if parallel.main else None
    if parallel.share(file is not None and file.is_file()):
        references: np.ndarray[Any, Any] = np.empty(0)  # of a follower: the first process sends it the new items
        if file is not None:
            log.warning("%s: used again, measured by an interrupted run", file)
            references = np.load(file)
    else:
        references = _measured(trainable, head_of, forward, data, parallel)
        if file is not None:
            with replacing(file) as temporary, temporary.open("wb") as stream:
                np.save(stream, references)
    both = zip(data.items, references, strict=True)
    new = (item._replace(reference=tuple(reference.tolist())) for item, reference in both)
    return with_items(data, new, parallel)


def checked_starts(data: EncodedDataset[Any]) -> EncodedDataset[Any]:
    """The data. Raises BadInputError for a template whose response starts at the first token."""
    if any(min(item.starts) < 1 for item in data.items):
        raise BadInputError("a response without a token before it: its first token is predicted from nothing")
    return data


def _reference_file(data: EncodedDataset[Any], version: str) -> Path | None:
    if not isinstance(data.items, StoredItems) or not data.content:
        return None
    return data.items.folder.with_name(f"reference-{ids.digest(f'{data.content} {version}')[:16]}.npy")


def _measured(
    trainable: TrainableModel,
    head_of: Callable[[TrainableModel], Head],
    forward: GroupForward,
    data: EncodedDataset[Any],
    parallel: SingleProcess,
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """[items, k], of a model in evaluation mode."""

    def measure() -> torch.Tensor:
        hidden = forward(trainable, [item.group for item in items])
        with forward.autocast(trainable):
            return response_log_probs(hidden, items, head_of(trainable))

    references = np.full((len(data), len(data.items[0].starts)), np.nan)  # not 0 for what nobody measured
    trained = trainable.model.training
    trainable.model.train(False)
    costs = [forward.cost(item.group) for item in data.items]
    numbers, sums = list[int](), list[list[float]]()
    with torch.no_grad():
        for part in item_passes(costs, forward.budget, parallel, padded=not forward.packs):
            items = [data.items[number] for number in part.numbers]
            measured = parallel.forward(trainable.model, measure)
            if part.counts:
                numbers += part.numbers
                sums += measured.tolist()
    for measured_by_one in parallel.gather((numbers, np.array(sums).reshape(len(numbers), references.shape[1]))):
        references[measured_by_one[0]] = measured_by_one[1]
    trainable.model.train(trained)
    parallel.settle(trainable.model)
    return references
