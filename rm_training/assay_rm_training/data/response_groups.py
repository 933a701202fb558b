"""Encoding of several responses to one prompt with their common prefix once, and of rows of any kind.

Covers: the reasons a row is left out, the loop over rows. Leaves out: the forward pass (`packed_forward.py`).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from assay import ids
from assay.conversation.message import response_turns
from assay.domain import Prompt, Response
from assay.errors import BadInputError
from assay.models.attention.packing import TokenGroup, group_of
from assay.models.chat.image_reader import references_of
from assay.models.chat.renderer import Encoded, Renderer
from assay.runs.progress_bar import Advance, silent
from assay_rm_training.data.encoded_dataset import Collect, EncodedDataset

Row = TypeVar("Row")
Item = TypeVar("Item")


class Conversations(NamedTuple):
    """Conversations of one prompt. `starts`: in each one, the first token of its response; `truncated`: whether any
    lost old turns."""

    group: TokenGroup
    starts: tuple[int, ...]
    truncated: bool

    @property
    def lengths(self) -> list[int]:
        """Tokens of each response, the template's end of turn included."""
        prefix = len(self.group.prefix)
        return [prefix + len(branch) - start for branch, start in zip(self.group.branches, self.starts, strict=True)]


def is_empty(response: Response) -> bool:
    """Whether it is a text without content: there is nothing to learn from such a row, and it is left out."""
    return isinstance(response, str) and not response.strip()


def image_in(responses: Iterable[Response]) -> str | None:
    """Why policies are not trained on such a row: there are images in it that they would have to write."""
    return "an image in a response" if references_of([m for each in responses for m in response_turns(each)]) else None


def encode_responses(renderer: Renderer, prompt: Prompt, responses: Sequence[Response]) -> Conversations | str:
    """The encoded conversations, or why not: 'reason' or 'reason: detail'."""
    encoded: list[Encoded] = []
    for number, response in enumerate(responses, start=1):
        if is_empty(response):
            return f"a response is empty: response {number}"
        try:
            conversation = renderer.encode(prompt, response)
        except BadInputError as error:
            return f"cannot be rendered: response {number}: {error}"
        if conversation.response_cut:
            return f"does not fit: response {number} alone passes {renderer.max_length} tokens (max_length)"
        encoded.append(conversation)
    if len({(conversation.ids, conversation.images) for conversation in encoded}) < len(encoded):
        return "two responses are the same tokens"
    group = group_of([each.ids for each in encoded], [each.images for each in encoded])
    starts = tuple(conversation.response_start for conversation in encoded)
    return Conversations(group, starts, any(conversation.truncated for conversation in encoded))


def encode_rows(
    rows: Collection[Row],
    encode: Callable[[Row], tuple[Item, bool] | str],
    *,
    unit: str,
    identity: Callable[[Row], tuple[Any, ...]] = lambda row: (repr(row),),
    name_of: Callable[[Row], str] = lambda row: ids.prompt_id(getattr(row, "prompt", ())),
    collect: Collect = list,
    advance: Advance = silent,
) -> EncodedDataset[Item]:
    """Encode all rows; `encode` returns an item and whether it was truncated, or why there is none ('reason: detail').

    `unit`: what a row is called, plural. `identity`: the fields of a row that the digest is of. `name_of`: the id by
    which the first fault names a row, of its prompt unless another is given. `collect`: see `Collect`; rows are read
    once, in their order. Raises BadInputError when nothing remains, with that fault.
    """
    left_out: Counter[str] = Counter()
    digest, content = ids.RowsDigest(), ids.RowsDigest()
    truncated = 0
    first_fault = ""

    def encoded_items() -> Iterator[Item]:
        nonlocal truncated, first_fault
        for number, row in enumerate(rows, start=1):
            outcome = encode(row)
            digest.add(identity(row))
            content.add((repr(row),))
            if isinstance(outcome, str):
                left_out[outcome.partition(": ")[0]] += 1
                suffix = f" ({name})" if (name := name_of(row)) else ""
                first_fault = first_fault or f"{unit.removesuffix('s')} {number}{suffix}: {outcome}"
            else:
                truncated += outcome[1]
                yield outcome[0]
            advance(1)

    items = collect(encoded_items())
    if not items:
        what = f"none of the {len(rows)} {unit} can be used; {first_fault}" if len(rows) else f"there are no {unit}"
        raise BadInputError(what)
    return EncodedDataset(items, dict(left_out), truncated, str(digest), first_fault, str(content))
