"""The one renderer of chat templates: training, evaluation and serving turn conversations into tokens here.

Covers, each with a test: no double BOS and no missing BOS; templates that print today's date are given a fixed
one; a conversation too long loses its oldest turns, never the end of the response; special-token strings inside
user text stay text; the position where the response starts comes from the rendered text, not from token
differences; an identity (`template_hash`) of all that shapes the tokens; a template's first run, in a process of its
own (`template_trial`); messages with typed parts, or a refusal that names what the template has no place for; images,
where the model reads them (`image_reader`), which are dropped with their turn and never cut. Leaves out: padding (the
batch's matter; every model here pools by mask, so neither padding side nor the pad token can change a score).
"""

import hashlib
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import jinja2

from assay.conversation.message import response_turns
from assay.domain import Message, Prompt, Response
from assay.errors import BadInputError
from assay.models.chat.image_reader import ImageReader, references_of
from assay.models.chat.options import ChatOptions
from assay.models.chat.template_form import PROBES, Feature, TemplateProbe, features_of, template_form
from assay.models.chat.template_trial import check_first_run

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

RENDERER_VERSION = "1"
#: What date-printing templates see. Any fixed day will do; a moving one would make scores depend on the date.
FIXED_DATE = datetime(2024, 7, 26)
DATE_STRING = FIXED_DATE.strftime("%d %b %Y")
#: For tokenizers that bring no chat template.
PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] | capitalize }}: {{ message['content'] }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant: {% endif %}"
)
_DATE_CALL = re.compile(r"""strftime_now\(\s*(?P<quote>['"])(?P<format>.*?)(?P=quote)\s*\)""")
_ZERO_WIDTH_SPACE = "\u200b"


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids of one conversation. `ids[response_start:]` are the response (and the template's end of turn).
    `images`: by the references that an `ImageReader` reads, in the order of their places in `ids`."""

    ids: tuple[int, ...]
    response_start: int
    truncated: bool = False  #: older turns or the start of the prompt were dropped to fit
    response_cut: bool = False  #: not even the response fits: a score of this would judge a fragment
    images: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)


class Renderer:
    """Turns prompts and responses into token ids for one tokenizer.

    `max_length`: tokens; longer conversations are cut as the module says. `chat`: what is changed of the model's own
    template. `images`: of a model that reads them. Raises BadInputError for a variable that the template does not read.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        *,
        max_length: int,
        chat: ChatOptions | None = None,
        images: ImageReader | None = None,
    ) -> None:
        if max_length < 1:
            raise BadInputError(f"must be positive, not {max_length}", field="max_length")
        self.tokenizer = tokenizer
        self._backend = _backend_of(tokenizer)
        self.max_length = max_length
        self.chat = chat or ChatOptions()
        self.images = images
        chat_template = (images.template if images is not None else None) or tokenizer.chat_template
        if isinstance(chat_template, dict):  # several named templates
            chat_template = chat_template.get("default")
        self.template: str = _with_fixed_date(self.chat.template or chat_template or PLAIN_TEMPLATE)
        self.chat.check(self.template)
        control = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
        specials = sorted((token for token in control if len(token) > 2), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, specials))) if specials else None
        self._shows: dict[Feature, bool] = {"images": images is not None}
        self._arguments_as_text = self._as_parts = False
        if images is not None:  # many templates of such models know lists of parts alone
            self._as_parts = not self._probe(TemplateProbe((Message("user", "zquser"),), ("zquser",)))
        probe = self._tokenize(self.render((Message("user", "probe"),), "probe"))[0]
        bos = tokenizer.bos_token_id
        # A template may bring BOS itself; a tokenizer that would add it must see it exactly once.
        wants_bos = bos is not None and tokenizer("probe").input_ids[:1] == [bos]
        self._prepend: tuple[int, ...] = (bos,) if wants_bos and bos is not None and probe[:1] != [bos] else ()
        if bos is not None and [*self._prepend, *probe][:2] == [bos, bos]:
            raise BadInputError(f"the chat template of {tokenizer.name_or_path} starts with BOS twice")

    @property
    def adds_beginning(self) -> bool:
        """Whether the tokenizer's beginning token is put before what the template gives."""
        return bool(self._prepend)

    @property
    def template_hash(self) -> str:
        """Identity of the tokens this renderer makes: template, special tokens, BOS rule, rules of this module."""
        parts = (
            RENDERER_VERSION,
            self.template,
            str(self.tokenizer.bos_token),
            str(self.tokenizer.eos_token),
            str(self._prepend),
            FIXED_DATE.isoformat(),
            *self.chat.identity,
            *(() if self.images is None else (self.images.identity,)),
        )
        return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:16]

    def render(self, prompt: Sequence[Message], response: Response | None = None) -> str:
        """The conversation as text. Without a response it ends where the assistant is to go on.

        Raises BadInputError where the template refuses the conversation (a role it lacks, wrong order of turns), or
        does not show a part of it (a tool call, an image).
        """
        messages = self.chat.with_system([*prompt, *(() if response is None else response_turns(response))])
        if not prompt and response is None:
            raise BadInputError("a conversation needs at least one message", field="prompt")
        for feature in features_of(messages):
            if not self.shows(feature):
                raise BadInputError(self._no_place(feature), field="prompt")
        try:
            return self._apply(messages, generation=response is None)
        except (jinja2.TemplateError, TypeError) as error:
            raise BadInputError(f"the chat template refuses this conversation: {error}", field="prompt") from error

    def shows(self, feature: Feature) -> bool:
        """Whether the template writes such a part where there is one: found out by rendering a small conversation."""
        if feature not in self._shows:
            self._shows[feature] = self._probe(PROBES[feature])
            if not self._shows[feature] and feature == "tool calls" and not self._arguments_as_text:
                self._arguments_as_text = True
                self._shows[feature] = self._probe(PROBES[feature])
        return self._shows[feature]

    def _probe(self, probe: TemplateProbe) -> bool:
        try:
            text = self._apply(probe.messages, generation=False)
        except (jinja2.TemplateError, TypeError):
            return False
        return all(word in text for word in probe.words)

    def _no_place(self, feature: Feature) -> str:
        name = self.tokenizer.name_or_path or "the model"
        if feature == "images":
            return f"{name} reads text only: it has no place for images"
        return f"{name}'s chat template has no place for {feature}"

    def _apply(self, messages: Sequence[Message], *, generation: bool) -> str:
        form = template_form(messages, self.plain, arguments_as_text=self._arguments_as_text, as_parts=self._as_parts)
        tools: dict[str, Any] = {} if form.tools is None else {"tools": form.tools}

        def rendered() -> str:
            text: Any = self.tokenizer.apply_chat_template(
                form.messages,
                chat_template=self.template,
                tokenize=False,
                add_generation_prompt=generation,
                date_string=DATE_STRING,
                **self.chat.kwargs,
                **tools,
            )
            return str(text)

        check_first_run(self.template, rendered)
        return rendered()

    def count(self, prompt: Prompt) -> int:
        """Tokens of the prompt before any is cut. Raises BadInputError as `render` does."""
        return len(self._encode_whole(list(prompt), None, ())[0])

    def encode(
        self, prompt: Prompt, response: Response | None = None, *, after: Sequence[Message] = (), parted: bool = True
    ) -> Encoded:
        """Token ids of the conversation, cut to `max_length`. Raises BadInputError as `render` does.

        `after`: turns that follow the response, ending with the assistant's; like the response they are never cut,
        and they belong to `ids[response_start:]`. `parted`: False for callers that do not read `response_start`, which
        takes another rendering: then it is 0 where nothing is cut.
        """
        turns, dropped = list(prompt), False
        ids, start = self._encode_whole(turns, response, after, parted)
        if not parted and len(ids) > self.max_length:
            return self.encode(prompt, response, after=after)
        while len(ids) > self.max_length and (oldest := _oldest_droppable(turns)) is not None:
            turns = turns[: oldest[0]] + turns[oldest[1] :]
            dropped = True
            ids, start = self._encode_whole(turns, response, after)
        excess = len(ids) - self.max_length
        images = references_of((*turns, *(() if response is None else response_turns(response)), *after))
        if excess <= 0:
            return Encoded(tuple(ids), start, truncated=dropped, images=images)
        if images:
            raise BadInputError(f"does not fit in {self.max_length} tokens, and an image cannot be cut", field="prompt")
        return Encoded(
            tuple(ids[excess:]),
            max(0, start - excess),
            truncated=True,
            response_cut=response is not None and excess > start,
        )

    def _encode_whole(
        self,
        prompt: Sequence[Message],
        response: Response | None,
        after: Sequence[Message] = (),
        parted: bool = True,
    ) -> tuple[list[int], int]:
        if after and response is not None:
            text = self.render((*prompt, *response_turns(response), *after[:-1]), tuple(after[-1:]))
        else:
            text = self.render(prompt, response)
        images = references_of((*prompt, *(() if response is None else response_turns(response)), *after))
        written, grown = self._with_images(text, images)
        ids, offsets = self._tokenize(written, offsets=parted and response is not None)
        ids = [*self._prepend, *ids]
        if response is None or not parted:
            return ids, len(ids) if response is None else 0
        before = self.render(prompt)
        # Some templates render a past assistant turn unlike the one to come: then where the two texts part.
        boundary = next(
            (i for i, (x, y) in enumerate(zip(before, text, strict=False)) if x != y), min(len(before), len(text))
        )
        boundary += sum(more for end, more in grown if end <= boundary)
        if offsets is None:
            start = len(self._tokenize(written[:boundary])[0])
        else:
            start = next((i for i, (_, end) in enumerate(offsets) if end > boundary), len(offsets))
        return ids, start + len(self._prepend)

    def _with_images(self, text: str, images: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
        """The text with what the processor writes in the place of each image; where each place ends in `text`, and by
        how many characters it grew. Raises BadInputError for an image that cannot be read."""
        if not images:
            return text, []
        assert self.images is not None  # else it would have been refused
        place = self.images.placeholder
        pieces = text.split(place)
        if len(pieces) != len(images) + 1:
            raise BadInputError(
                f"the chat template writes {len(pieces) - 1} of the conversation's {len(images)} images", field="prompt"
            )
        texts = self.images.read(images).texts
        ends = itertools.accumulate(len(piece) + len(place) for piece in pieces[:-1])
        grown = [(end, len(shown) - len(place)) for end, shown in zip(ends, texts, strict=True)]
        return "".join(itertools.chain.from_iterable(zip(pieces, (*texts, ""), strict=True))), grown

    def _tokenize(self, text: str, *, offsets: bool = False) -> tuple[list[int], list[tuple[int, int]] | None]:
        if (backend := self._backend) is not None:
            # What the tokenizer does itself, but for making masks and a mapping that nobody reads here.
            if backend.truncation is not None:
                backend.no_truncation()
            if backend.padding is not None:
                backend.no_padding()
            if backend.encode_special_tokens:
                backend.encode_special_tokens = False
            if not offsets:  # `encode`, which finds them, also holds the interpreter lock until it has read a long text
                return backend.encode_batch_fast([text], add_special_tokens=False)[0].ids, None
            encoded = backend.encode(text, add_special_tokens=False)
            return encoded.ids, encoded.offsets
        fast = offsets and bool(self.tokenizer.is_fast)
        encoding = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=fast, verbose=False)
        return list(encoding["input_ids"]), encoding["offset_mapping"] if fast else None

    def plain(self, content: str) -> str:
        """`content` as it is rendered. User text must not open or close turns: break up what would become special
        tokens."""
        if self._special is None:
            return content
        return self._special.sub(lambda match: match[0][0] + _ZERO_WIDTH_SPACE + match[0][1:], content)


def _backend_of(tokenizer: Any) -> Any:
    """The `tokenizers` object that gives the same ids as the tokenizer does; None where that has code of its own."""
    kind = type(tokenizer)
    methods = kind.__call__, getattr(kind, "_encode_plus", None)
    modules = [f"transformers.tokenization_utils_{name}" for name in ("base", "tokenizers")]
    if [getattr(method, "__module__", "") for method in methods] != modules or tokenizer.split_special_tokens:
        return None
    return tokenizer.backend_tokenizer


def _with_fixed_date(template: str) -> str:
    """Replace calls of `strftime_now` (today's date) by the fixed date. Raises BadInputError for a computed format."""
    fixed = _DATE_CALL.sub(lambda call: repr(FIXED_DATE.strftime(call["format"])), template)
    if re.search(r"strftime_now\s*\(", fixed):
        raise BadInputError("the chat template prints today's date in a computed format: scores would change by day")
    return fixed


def _oldest_droppable(messages: Sequence[Message]) -> tuple[int, int] | None:
    """Range of the oldest exchange after a leading system turn, while a later user turn remains; else None."""
    first = 1 if messages and messages[0].role in ("system", "developer") else 0
    for index in range(first + 1, len(messages)):
        if messages[index].role == "user":
            return first, index
    return None
