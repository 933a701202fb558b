"""Conversations that a caller has put through a chat template already, as token ids for a reward model.

Covers: texts of this model's own template, read as they stand (no second template, BOS exactly once); texts of
another template, read back into messages and written by this one; token ids, checked against the vocabulary; texts of
a foreign template that cannot be read back, which are refused: this model would score its markers as words. Leaves
out: ways of writing (`assay.models.chat.formats`), length limits (the engine's).

In this order: the own template's text exactly; the text of a template that was named for it; of a common family; any
text with a marker of the own template, or with no known marker at all, stands as it is.
"""

import hashlib
from collections.abc import Sequence
from datetime import date
from functools import cached_property

import jinja2

from assay.data.conversation import check_unicode
from assay.domain import Message, Prompt
from assay.errors import BadInputError
from assay.models.chat.formats import FAMILIES, ChatForm, Found, Writer
from assay.models.chat.renderer import FIXED_DATE, Encoded, Renderer
from assay.models.chat.template_trial import check_first_run


class PolicyTemplate:
    """The chat template of a policy's tokenizer, whose texts are expected. It may print today's date."""

    def __init__(self, name: str) -> None:
        """Folder or hub id of the tokenizer. Raises NotFoundError, and BadInputError for one without a template."""
        from assay.models.loading import load_tokenizer

        self.name = name
        self._tokenizer = load_tokenizer(name)
        if not self._tokenizer.chat_template:
            raise BadInputError(f"the tokenizer of {name} has no chat template", field="policy_template")
        self._day = date.min
        self._form: ChatForm | None = None

    @property
    def identity(self) -> str:
        return hashlib.sha256(str(self._tokenizer.chat_template).encode()).hexdigest()[:16]

    def read(self, text: str) -> Found | None:
        """The conversation that the policy's template writes as this text."""
        if self._form is None or self._day != date.today():
            self._day = date.today()
            self._form = ChatForm(self.name, _writer(self._tokenizer, None), bos=str(self._tokenizer.bos_token or ""))
        return self._form.read(text)


class RenderedTexts:
    """Reads them for one renderer. `policies`: templates that texts may be written in, tried in order."""

    def __init__(self, renderer: Renderer, policies: Sequence[PolicyTemplate] = ()) -> None:
        self.renderer = renderer
        self._uncut = Renderer(renderer.tokenizer, max_length=1 << 30, chat=renderer.chat)
        self.policies = tuple(policies)

    @property
    def identity(self) -> str:
        """What else than the renderer its readings depend on; empty where nothing else does."""
        return "".join(f" {policy.identity}" for policy in self.policies)

    def encode(self, text: str, *, add_special_tokens: bool = False, complete: bool = False) -> Encoded:
        """Token ids of a text, all of them.

        `add_special_tokens`: put BOS before a text that lacks it, if the tokenizer does so. `complete`: write the white
        space that the template puts after a finished last turn. Raises BadInputError for a text of a foreign template
        that cannot be read, and for text that is not valid Unicode.
        """
        check_unicode(text, "text")
        native, foreign = self._read(text)
        if foreign is not None:
            return self._uncut.encode(foreign.messages[:-1], foreign.messages[-1:])
        if native is not None:
            text = native.before + text
            if complete and not native.lacking.strip():
                text += native.lacking
        ids = list(self.renderer.tokenizer(text, add_special_tokens=add_special_tokens, verbose=False)["input_ids"])
        bos = self.renderer.tokenizer.bos_token_id
        if bos is not None and ids[:2] == [bos, bos]:
            del ids[0]
        return Encoded(tuple(ids), 0)

    def encode_ids(self, ids: Sequence[int]) -> Encoded:
        """Ids as they are. Raises BadInputError for one outside the vocabulary."""
        wrong = next((token for token in ids if not 0 <= token < self._vocabulary), None)
        if wrong is not None:
            raise BadInputError(f"token id {wrong} is not in the vocabulary of {self._vocabulary}", field="input_ids")
        return Encoded(tuple(ids), 0)

    def conversation(self, text: str) -> tuple[Prompt, str]:
        """Prompt and response, for models that need them apart. Raises BadInputError where no one could tell."""
        check_unicode(text, "text")
        native, foreign = self._read(text)
        parsed = native or foreign
        if parsed is None:
            raise BadInputError(
                "this model needs prompt and response by themselves, and they cannot be told apart in this text; "
                "send messages"
            )
        return parsed.messages[:-1], parsed.messages[-1].text

    def _read(self, text: str) -> tuple[Found | None, Found | None]:
        """The text by the own template, or else by another one. Raises BadInputError for a foreign one unread."""
        if (native := self._native_form.read(text)) is not None:
            return native, None
        for policy in self.policies:
            if (parsed := policy.read(text)) is not None:
                return None, parsed
        present = [family for family in FAMILIES if family.wrote(text)]
        foreign = [family for family in present if not family.wrote(self._shape)]
        if all(family.turns is not None for family in foreign):
            for family in foreign:
                if family.form is not None and (parsed := family.form.read(text)) is not None:
                    return None, parsed
        if foreign and foreign == present:
            names = " or ".join(dict.fromkeys(family.name for family in foreign))
            raise BadInputError(
                f"the text is written in the {names} format, this model's chat template is {self._format_name}, and "
                "the text could not be read back into turns; name the tokenizer that wrote it (--policy-template), or "
                "send messages"
            )
        return None, None

    @cached_property
    def _native_form(self) -> ChatForm:
        bos = str(self.renderer.tokenizer.bos_token or "")
        return ChatForm("own", _writer(self.renderer.tokenizer, self.renderer.template), bos=bos)

    @cached_property
    def _shape(self) -> str:
        """What the own template writes around a small conversation."""
        return self.renderer.render((Message("user", "a"), Message("assistant", "b"), Message("user", "c")), "d")

    @property
    def _format_name(self) -> str:
        return next((family.name for family in FAMILIES if family.wrote(self._shape)), "none of the common ones")

    @cached_property
    def _vocabulary(self) -> int:
        return max(self.renderer.tokenizer.get_vocab().values()) + 1


def _writer(tokenizer: object, template: str | None) -> Writer:
    """The tokenizer's template over contents as they are; a given one sees the renderer's fixed date."""

    def write(messages: Sequence[Message]) -> str:
        options = (
            {} if template is None else {"chat_template": template, "date_string": FIXED_DATE.strftime("%d %b %Y")}
        )

        def rendered() -> str:
            return str(
                tokenizer.apply_chat_template(  # type: ignore[attr-defined]
                    [message.to_dict() for message in messages], tokenize=False, **options
                )
            )

        check_first_run(str(template or getattr(tokenizer, "chat_template", "")), rendered)
        try:
            return rendered()
        except jinja2.TemplateError as error:
            raise BadInputError(f"the chat template refuses this conversation: {error}") from error

    return write
