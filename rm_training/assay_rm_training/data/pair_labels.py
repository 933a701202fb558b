"""Training pairs for losses that learn from ties or from split votes.

Covers: labels of comparisons under either. Leaves out: reading and counting votes
(`assay.data.voted_pairs`), the losses (`objectives/`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from assay.data.voted_pairs import VotedPair, load_voted_pairs
from assay.domain import PreferencePair
from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_rm_training.objectives.soft_labels import vote_target

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
