"""What a published form of reward model is: how it is recognised, how its weights map, what is read where.

Covers: the declaration, which is all that a form of one's own needs; the tensors that a head is made of. Leaves out:
the registered forms (`kind`, and a module a family), opening files (`checkpoint`), running the model
(`assay_serving.engines.adapted`).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from assay.errors import BadInputError
from assay.models.adapters.checkpoint import PublishedCheckpoint
from assay.models.adapters.steps import StepFormat
from assay.models.readings import Stepwise

if TYPE_CHECKING:
    import torch

    from assay.models.adapters.heads import RewardHead

#: What checkpoints carry along that no reward depends on.
NEEDLESS = r"(.*\.)?(rotary_emb\.inv_freq|masked_bias|position_ids)|lm_head\.weight"
#: `classifier`: the decoder below a stock classifier; `language`: with its language head; `encoder`: a whole stock
#: classifier of an encoder, whose own pass gives the outputs.
#: `states`: an encoder alone; `seq2seq`: an encoder with a decoder and its language head.
Body = Literal["classifier", "language", "encoder", "states", "seq2seq"]


@dataclass
class HeadWeights:
    """What a head is made from: the checkpoint's tensors by name, its configuration, the tokenizer."""

    checkpoint: PublishedCheckpoint
    tokenizer: Any
    used: set[str] = field(default_factory=set)

    @property
    def config(self) -> Mapping[str, Any]:
        return self.checkpoint.config

    def __contains__(self, name: str) -> bool:
        return name in self.checkpoint.shapes

    def __getitem__(self, name: str) -> "torch.Tensor":
        """Raises BadInputError for a tensor that is not there."""
        if name not in self.checkpoint.shapes:
            raise BadInputError(f"{self.checkpoint.name} lacks the weights {name} of its reward head")
        self.used.add(name)
        return self.checkpoint.tensor(name)

    def get(self, name: str) -> "torch.Tensor | None":
        if name not in self:
            return None
        return self[name]

    def numbered(self, prefix: str) -> list[int]:
        """The numbers n of the tensors `prefix` n `.weight`, in order."""
        pattern = re.compile(rf"{re.escape(prefix)}(\d+)\.weight")
        return sorted(int(match[1]) for name in self.checkpoint.shapes if (match := pattern.fullmatch(name)))

    def one_token(self, text: str) -> int:
        """The id of a text that is one token. Raises BadInputError where it is several."""
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(ids) != 1:
            raise BadInputError(f"{self.checkpoint.name}'s tokenizer has no token of its own for {text!r}")
        return int(ids[0])

    def expect(self, key: str, token: int) -> None:
        """Raises BadInputError where the configuration says another token than the tokenizer."""
        if (stated := self.config.get(key)) != token:
            raise BadInputError(f"{self.checkpoint.name}: config.json says {key} {stated}, its tokenizer {token}")


HeadMaker = Callable[[HeadWeights], "RewardHead"]


@dataclass(frozen=True)
class ModelAdapter:
    """One published form.

    Recognised by `architectures` (classes that its configuration names), else by `names` (a regular expression found in
    the model's name, for forms that nothing else tells from a language model), else by `signature` (regular expressions
    that each match the whole name of a tensor). `requires`: of tensors too, for the message of one that is incomplete.

    `rename`: pairs for `re.sub` on tensor names, to those of the stock class; `convert`: one tensor to several of the
    stock class, or None to leave it as it is; `needless`: tensors that are left out. `head` makes the head of the other
    tensors; None: an encoder's own.

    Read at the conversation's last token; `gate`: first at the beginning of the last place where this text's tokens
    are; `append`: key of the configuration with the id of a token that is put at the end first. `template`, `system`:
    the publisher's own prompt format and system turn. `question`: of a language model that answers Yes or No, with
    `{principle}` in it; its reward is the log-odds.
    """

    reads: str  #: what is read where, for people
    source: str  #: what the declaration was written from
    architectures: tuple[str, ...] = ()
    names: str = ""
    signature: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    body: Body = "classifier"
    backbone: str | None = None  #: model type of transformers, where the configuration has one of its own
    rename: tuple[tuple[str, str], ...] = ()
    convert: "Callable[[str, torch.Tensor, Mapping[str, Any]], dict[str, torch.Tensor] | None] | None" = None
    needless: str = NEEDLESS
    head: HeadMaker | None = None
    template: str | None = None
    system: str | None = None
    gate: str | None = None
    append: str | None = None
    question: str | None = None
    steps: StepFormat | None = None
    stepwise: Stepwise | None = None
    max_length: int | None = None  #: tokens that its publisher reads at most, where that is less than the context
    ranked: bool = True  #: trained by comparisons, so that a difference of rewards is a log-odds

    def __post_init__(self) -> None:
        # What `assay plugins` prints of it.
        object.__setattr__(self, "__doc__", f"Reads {self.reads}. Written from: {self.source}.")

    def recognises(self, checkpoint: PublishedCheckpoint) -> bool:
        """Whether the checkpoint is of this form, or looks as if it were."""
        return (
            self.by_class(checkpoint)
            or self.by_name(checkpoint)
            or (bool(self.signature) and not any(missing(self.signature, checkpoint.shapes)))
        )

    def by_class(self, checkpoint: PublishedCheckpoint) -> bool:
        return bool(checkpoint.classes & set(self.architectures))

    def by_name(self, checkpoint: PublishedCheckpoint) -> bool:
        written = ("ForCausalLM", "ForConditionalGeneration")
        if not self.names or any("For" in kind and not kind.endswith(written) for kind in checkpoint.classes):
            return False  # a classifier that was trained from such a model keeps its name
        folder = checkpoint.folder  # its own name, not those of the folders that it lies in
        name = folder.parent.parent.name if folder.parent.name == "snapshots" else folder.name  # of a hub: in its cache
        text = f"{name} {checkpoint.config.get('_name_or_path') or ''}"
        return re.search(self.names, text, re.IGNORECASE) is not None

    @property
    def compares(self) -> bool:
        """Whether it compares two responses, and rates none alone."""
        return self.body == "states"

    def detail(self, checkpoint: PublishedCheckpoint) -> int:
        """How much of the checkpoint the declaration says, to choose between forms that a checkpoint may be of."""
        patterns = len(self.signature) + len(self.requires)
        return patterns + 10 * self.by_class(checkpoint) + 5 * self.by_name(checkpoint)

    def lacking(self, checkpoint: PublishedCheckpoint) -> list[str]:
        """Patterns of the tensors that a whole checkpoint of this form has, and this one has not."""
        return list(missing((*self.signature, *self.requires), checkpoint.shapes))

    def check(self, checkpoint: PublishedCheckpoint, form: str) -> None:
        """Raises BadInputError that says what a checkpoint of this `form` is without."""
        if not checkpoint.shapes:
            raise BadInputError(
                f"{checkpoint.name} looks like the form {form!r}, and has no safetensors or .bin weights"
            )
        if lacking := self.lacking(checkpoint):
            words = " and ".join(pattern.replace("\\", "") for pattern in lacking)
            raise BadInputError(f"{checkpoint.name} looks like the form {form!r}, and has no weights named {words}")


def missing(patterns: Iterable[str], names: Iterable[str]) -> Iterable[str]:
    """The patterns that match no whole name."""
    present = list(names)
    return (pattern for pattern in patterns if not any(re.fullmatch(pattern, name) for name in present))
