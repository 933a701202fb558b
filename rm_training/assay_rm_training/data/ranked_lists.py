"""Ranked lists for list-wise training: several responses to one prompt with their ranks.

Covers: JSON Lines with ranks or scores, and lists built from comparisons that share a prompt (a snapshot's or a
file's), each comparison in exactly one list. Leaves out: single pairs (`assay.data.pairs`), other formats (`assay data
import` first).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.data.conversation import prompt_turns, text_or_empty
from assay.data.json_lines import RowError
from assay.data.pairs import from_snapshot_or_file
from assay.data.row_files import number_of, read_rows
from assay.data.voted_pairs import VotedPair, read_voted_pairs, snapshot_votes
from assay.domain import Prompt, Response, prompt_of
from assay.errors import BadInputError
from assay.workspace import Workspace

LONGEST = 16  #: responses of one list, which bounds the size of a forward pass


@dataclass(frozen=True, slots=True)
class RankedList:
    """`ranks`: 1 is the best; equal ranks are ties. At least two responses, all different."""

    prompt: Prompt
    responses: tuple[Response, ...]
    ranks: tuple[int, ...]
    weight: float = 1.0
    source: str = ""
    category: str = ""

    def __post_init__(self) -> None:
        if len(self.responses) < 2 or len(self.responses) != len(self.ranks):
            raise BadInputError("needs at least two responses, each with a rank", field="responses")
        if len(self.responses) > LONGEST:
            raise BadInputError(f"{len(self.responses)} responses; at most {LONGEST}", field="responses")
        if len(set(self.responses)) < len(self.responses):
            raise BadInputError("two responses are identical", field="responses")


def load_ranked_lists(workspace: Workspace | None, data: str | Path) -> list[RankedList]:
    """`data`: a snapshot, else a file. Raises NotFoundError for neither."""
    return from_snapshot_or_file(
        workspace, data, lambda here, name: lists_of(snapshot_votes(here, name)), read_ranked_lists
    )


def read_ranked_lists(path: str | Path) -> list[RankedList]:
    """Lists of a file: rows {prompt, responses, ranks} or {prompt, responses, scores} (also `ratings.scores`; higher is
    better), or {prompt, demonstration, samples}: the first before the others. A file of pairs (rows with chosen and
    rejected, or labels of two responses) is grouped by prompt.

    Raises BadInputError naming file, row and field.
    """
    if not any(_is_list(record) for record in read_rows(path, lambda record: [record], what="rows")):
        return lists_of(read_voted_pairs(path))
    return read_rows(path, _parse, what="ranked lists")


def _is_list(record: dict[str, Any]) -> bool:
    """Whether the row is a ranked list; one with two responses and `ratings.scores` is a comparison."""
    if any(record.get(name) is not None for name in ("ranks", "scores", "demonstration")):
        return True
    ratings = record.get("ratings")
    scores = ratings.get("scores") if isinstance(ratings, dict) else None
    return isinstance(scores, list) and len(scores) != 2


def _parse(record: dict[str, Any]) -> list[RankedList]:
    ranks, responses = _ranks(record), record.get("responses")
    if record.get("demonstration") is not None:
        samples = record.get("samples")
        if not isinstance(samples, list) or not samples:
            raise RowError("a demonstration is learned from beside samples of a policy", field="samples")
        by_field = [("demonstration", record["demonstration"]), *(("samples", sample) for sample in samples)]
        responses = [*dict.fromkeys(text_or_empty(text, field) for field, text in by_field)]
        ranks = (1, *(2 for _ in responses[1:]))
        if len(ranks) < 2:
            return []  # every sample is the demonstration; such rows are counted
    if ranks is None:
        return []
    if not isinstance(responses, list) or len(responses) != len(ranks):
        raise RowError("not one rank or score for each response", field="responses")
    texts = tuple(text_or_empty(text, "responses") for text in responses)
    weight = record.get("weight")
    return [
        RankedList(
            prompt_of(prompt_turns(record.get("prompt"))),
            texts,
            ranks,
            1.0 if weight is None else number_of(weight, "weight"),
            str(record.get("source") or ""),
            str(record.get("category") or ""),
        )
    ]


def _ranks(record: dict[str, Any]) -> tuple[int, ...] | None:
    """Dense ranks, 1 best, of `ranks` or of scores; None where the row has neither."""
    ratings = record.get("ratings")
    for name, values, sign in (
        ("ranks", record.get("ranks"), 1),
        ("scores", record.get("scores"), -1),
        ("ratings.scores", ratings.get("scores") if isinstance(ratings, dict) else None, -1),
    ):
        if values is None:
            continue
        if not isinstance(values, list):
            raise RowError("not a list", field=name)
        overall = [value.get("overall") if isinstance(value, dict) else value for value in values]
        numbers = [sign * number_of(value, name) for value in overall]
        places = {value: rank for rank, value in enumerate(sorted(set(numbers)), start=1)}
        return tuple(places[value] for value in numbers)
    return None


@dataclass
class _Graph:
    """Comparisons of one prompt as a graph. `level[i, j]`: 1 where i is better, 0 tied, -1 worse."""

    prompt: Prompt
    source: str
    category: str
    texts: dict[Response, int] = field(default_factory=dict)
    level: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(self, pair: VotedPair) -> None:
        i, j = (self.texts.setdefault(text, len(self.texts)) for text in (pair.first, pair.second))
        better = {"first": 1, "second": -1, "tie": 0}[pair.label or "tie"]
        self.level[i, j], self.level[j, i] = better, -better


def lists_of(pairs: Sequence[VotedPair]) -> list[RankedList]:
    """Comparisons of one prompt as lists of up to LONGEST responses. Undecided comparisons are left out.

    A list holds responses that were all compared with each other, with outcomes that agree on one order (ties allowed);
    comparisons that fit in no larger list are lists of two. Each comparison is in exactly one list; cycles (a beats b
    beats c beats a) are split.
    """
    graphs: dict[Prompt, _Graph] = {}
    for pair in pairs:
        if pair.label is not None:
            graph = graphs.setdefault(pair.prompt, _Graph(pair.prompt, pair.source, pair.category))
            graph.add(pair)
    return [ranked for graph in graphs.values() for ranked in _cover(graph)]


def _cover(graph: _Graph) -> list[RankedList]:
    """Every comparison in one list: grown greedily from each unused one, in order."""
    texts = list(graph.texts)
    neighbours: dict[int, set[int]] = defaultdict(set)  # by comparisons not used yet
    for i, j in graph.level:
        neighbours[i].add(j)
    lists = []
    for i, j in list(graph.level):
        if j not in neighbours[i]:
            continue
        members = [i, j]
        for other in sorted(neighbours[i] & neighbours[j]):
            if len(members) < LONGEST and neighbours[other] >= set(members) and _places(graph, [*members, other]):
                members.append(other)
        places = _places(graph, members)
        assert places is not None  # two responses always have an order
        for member in members:
            neighbours[member] -= set(members)
        lists.append(
            RankedList(
                graph.prompt,
                tuple(texts[member] for member in members),
                places,
                source=graph.source,
                category=graph.category,
            )
        )
    return lists


def _places(graph: _Graph, members: Sequence[int]) -> tuple[int, ...] | None:
    """Ranks consistent with all comparisons of the members; None where there are none."""
    beaten_by = [sum(graph.level[other, member] == 1 for other in members if other != member) for member in members]
    for a, i in enumerate(members):
        for b, j in enumerate(members):
            if a < b and (beaten_by[b] > beaten_by[a]) - (beaten_by[b] < beaten_by[a]) != graph.level[i, j]:
                return None
    dense = {value: rank for rank, value in enumerate(sorted(set(beaten_by)), start=1)}
    return tuple(dense[value] for value in beaten_by)
