"""Encoding of preference pairs.

Covers: encoding both sides with the one renderer, the reasons a pair is left out. Leaves out: reading pairs
(`assay.data.pairs`), batches (`encoded_dataset.py`), the forward pass (`packed_forward.py`).

Training pairs for losses that learn from ties or from split votes. Covers: labels of comparisons under either. Leaves
out: reading and counting votes (`assay.data.voted_pairs`), the losses (`objectives/`).
"""

import logging
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from assay.data.voted_pairs import VotedPair, load_voted_pairs
from assay.domain import PreferencePair
from assay.errors import BadInputError
from assay.ids import conversation_json
from assay.models.attention.packing import TokenGroup
from assay.models.chat.renderer import Encoded, Renderer
from assay.runs.progress_bar import Advance, silent
from assay.workspace import Workspace
from assay_rm_training.data.encoded_dataset import Collect, EncodedDataset, Tags, tags_of
from assay_rm_training.data.response_groups import encode_rows, image_in, is_empty
from assay_rm_training.objectives.pair import vote_target

Tokens = npt.NDArray[np.int32]


class EncodedPair(NamedTuple):
    """Token ids of both conversations; `margin` is 0 where the label carries none. `preference`, `tie`: as in
    `PreferencePair`. `starts`: where each side's response begins. `reference`: log-probabilities of both responses
    under the model before training, where the method needs them."""

    chosen: Tokens
    rejected: Tokens
    margin: float
    weight: float

    common: int  #: length of the common prefix, short of the end of either side
    preference: float = 1.0
    tie: bool = False
    starts: tuple[int, int] = (0, 0)
    tags: Tags | None = None
    reference: tuple[float, ...] = ()
    images: tuple[tuple[str, ...], ...] = ()  #: of both sides, as `Encoded.images`; empty where neither has any

    @property
    def group(self) -> TokenGroup:
        """Both sides, chosen first, with their common prefix once."""
        return TokenGroup(
            self.chosen[: self.common], (self.chosen[self.common :], self.rejected[self.common :]), self.images
        )


def encode_pairs(
    rows: Collection[PreferencePair],
    renderer: Renderer,
    *,
    collect: Collect = list,
    advance: Advance = silent,
    written: bool = False,
) -> EncodedDataset[EncodedPair]:
    """Encode every pair. A pair is left out, and counted, where a side is empty, does not fit or cannot be rendered,
    where the cut made both sides equal, or where its weight is not positive. `written`: the model learns to write the
    sides, so that images in them leave a pair out too. Raises BadInputError when none remains.
    """
    return encode_rows(
        rows,
        lambda pair: (image_in((pair.chosen, pair.rejected)) if written else None) or _encode(pair, renderer),
        unit="pairs",
        identity=_identity,
        name_of=lambda pair: pair.comparison_id,
        collect=collect,
        advance=advance,
    )


def _encode(pair: PreferencePair, renderer: Renderer) -> tuple[EncodedPair, bool] | str:
    """The encoded pair and whether it was cut, or why not: 'reason' or 'reason: detail'."""
    if not pair.weight > 0:
        return f"weight not positive: {pair.weight}"
    sides: list[Encoded] = []
    for name, response in (("chosen", pair.chosen), ("rejected", pair.rejected)):
        if is_empty(response):
            return f"{name} is empty"
        try:
            encoded = renderer.encode(pair.prompt, response)
        except BadInputError as error:
            return f"{name} cannot be rendered: {error}"
        if encoded.response_cut:
            return f"{name} does not fit: its response alone passes {renderer.max_length} tokens (max_length)"
        sides.append(encoded)
    images = (sides[0].images, sides[1].images)
    if sides[0].ids == sides[1].ids and images[0] == images[1]:
        return "both sides are the same tokens"
    chosen, rejected = (np.asarray(side.ids, dtype=np.int32) for side in sides)
    encoded_pair = EncodedPair(
        chosen,
        rejected,
        float(pair.margin or 0.0),
        pair.weight,
        _common(chosen, rejected),
        pair.preference,
        pair.tie,
        (sides[0].response_start, sides[1].response_start),
        tags_of(pair),
        images=images if any(images) else (),
    )
    return encoded_pair, any(side.truncated for side in sides)


def _identity(pair: PreferencePair) -> tuple[Any, ...]:
    """The fields of a pair that the digest is of."""
    sides = (side if isinstance(side, str) else conversation_json(side) for side in (pair.chosen, pair.rejected))
    plain = (pair.comparison_id, *sides, pair.margin, pair.weight)
    return (*plain, pair.preference, pair.tie) if pair.tie or pair.preference != 1.0 else plain


def _common(chosen: Tokens, rejected: Tokens) -> int:
    """Length of the common prefix, short of the last token of either side, where its reward is read."""
    shorter = min(len(chosen), len(rejected)) - 1
    differ = np.flatnonzero(chosen[:shorter] != rejected[:shorter])
    return int(differ[0]) if len(differ) else shorter


log = logging.getLogger(__name__)


def read_labelled_pairs(
    workspace: Workspace | None, data: str, *, soft: bool, prior: float = 0.5
) -> list[PreferencePair]:
    """Comparisons of a snapshot or a file as `labelled_pairs`. Raises BadInputError where none can be used."""
    pairs = labelled_pairs(load_voted_pairs(workspace, data), soft=soft, prior=prior)
    if not pairs:
        raise BadInputError("holds no comparison with a label", file=data)
    return pairs


def labelled_pairs(voted: Sequence[VotedPair], *, soft: bool, prior: float = 0.5) -> list[PreferencePair]:
    """Pairs with chosen and rejected by the label; of a tie, chosen is the first.

    `soft`: every comparison with votes is used, even without a label; its `preference` is P(chosen wins) from the
    votes, below 1/2 where they contradict the label. Otherwise comparisons without a label are left out, counted in a
    log warning.
    """
    pairs = []
    for row in voted:
        if row.label is None and not soft:
            continue
        swap = row.label == "second"
        chosen, rejected = (row.second, row.first) if swap else (row.first, row.second)
        votes = (row.votes.second, row.votes.first) if swap else (row.votes.first, row.votes.second)
        pairs.append(
            PreferencePair(
                row.prompt,
                chosen,
                rejected,
                row.comparison_id,
                row.margin,
                row.weight,
                row.source,
                row.category,
                preference=vote_target(*votes, row.votes.ties, prior=prior) if soft else 1.0,
                tie=row.label not in ("first", "second"),
            )
        )
    if soft and voted and all(row.votes.total <= 1 for row in voted):
        log.warning("no comparison has more than one vote: every soft label is the same, %g", pairs[0].preference)
    if undecided := len(voted) - len(pairs):
        log.warning("left out %d comparisons without a label", undecided)
    return pairs
