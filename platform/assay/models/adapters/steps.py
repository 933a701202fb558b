"""How a published process model is shown a response's steps: the tag after each, where each is read.

Covers: one text with tags in it, and pieces that are tokenised alone, as some trainers do. Leaves out: what is read
there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from assay.domain import Prompt
from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.chat.step_reader import StepPlaces, require_steps

_MARK = "\ue000"  #: private use: stands for the tag while the conversation is rendered


@dataclass(frozen=True)
class StepFormat:
    """`tag`: written after each step, and read at its last token. `before`, `after`: text around the tag.

    `pieces`: the prompt, each step and each tag are tokenised alone (token ids joined), not as one text.
    """

    tag: str
    before: str = ""
    after: str = ""
    pieces: bool = False

    def places(self, renderer: Renderer, prompt: Prompt, steps: Sequence[str]) -> StepPlaces:
        """Raises BadInputError for no steps, for steps that do not fit, and for a tag that the tokenizer lacks."""
        require_steps(steps)
        if any(_MARK in step for step in steps):
            raise BadInputError(f"{_MARK!r} has no place in a step", field="steps")
        ids, places = (self._pieces if self.pieces else self._text)(renderer, prompt, steps)
        if len(ids) > renderer.max_length:
            raise BadInputError(f"{len(ids)} tokens of prompt and steps, at most {renderer.max_length} (max_length)")
        return StepPlaces(tuple(ids), tuple(places), truncated=False)

    def _text(self, renderer: Renderer, prompt: Prompt, steps: Sequence[str]) -> tuple[list[int], list[int]]:
        tokenizer = renderer.tokenizer
        if not tokenizer.is_fast:
            raise BadInputError("this tokenizer does not say where in the text a token is")
        marked = self.after.join(f"{step}{self.before}{_MARK}" for step in steps)
        text, ends = "", []
        *parts, last = renderer.render(prompt, marked).split(_MARK)
        for part in parts:
            text += part + self.tag
            ends.append(len(text))
        text += last
        if len(ends) != len(steps):
            raise BadInputError("the chat template changes the text of a step")
        encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        begins = [tokenizer.bos_token_id] if renderer.adds_beginning else []
        spans = encoding["offset_mapping"]
        # The token that holds the tag's last character: with a space before it, as some tokenizers have it.
        places = [next(n for n, (start, end) in enumerate(spans) if start < at <= end) for at in ends]
        ids = list(encoding["input_ids"])
        tag = tokenizer(self.tag, add_special_tokens=False, verbose=False)["input_ids"][-1]
        is_one_token = str(tokenizer.decode([tag])).strip() == self.tag.strip()
        if not is_one_token or any(ids[position] != tag for position in places):
            raise BadInputError(f"the tokenizer has no token of its own for {self.tag!r}, the end of a step")
        return [*begins, *ids], [position + len(begins) for position in places]

    def _pieces(self, renderer: Renderer, prompt: Prompt, steps: Sequence[str]) -> tuple[list[int], list[int]]:
        tokenizer = renderer.tokenizer
        ids, places = list(renderer.encode(prompt).ids), []
        tag = tokenizer(self.tag, add_special_tokens=False)["input_ids"]
        for step in steps:
            ids += [*tokenizer(renderer.plain(step), add_special_tokens=False)["input_ids"], *tag]
            places.append(len(ids) - 1)
        return ids, places
