"""The rows that layouts return, gathered into bounded Arrow batches."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Any, TypeAlias, TypedDict, Unpack

import pyarrow as pa

from assay.data.conversation import ResponseForm, Turns, check_unicode, prompt_columns, response_columns
from assay.data.json_lines import RowError
from assay.store.feedback_intake import feedback_schema, principle_schema, rated_schema
from assay.store.intake import pair_schema, reject_schema
from assay.store.media import MediaFile
from assay_pipelines.importers.images import RowImages

BATCH_PAIRS = 122_880  #: one of DuckDB's row groups: a unit of work of a few seconds; smaller ones cost checkpoints
BATCH_BYTES = 96_000_000  #: of texts in memory; a batch is there about six times until it is stored
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=str).encode
RAW_CHARACTERS = 500  #: how much of a rejected row is kept


@dataclass(slots=True, kw_only=True)
class _Origin:
    """Where a row is from. `source` and `record_id` None: the file's own."""

    source: str | None = None
    record_id: str | None = None
    category: str | None = None
    license: str | None = None
    language: str | None = None
    meta: dict[str, Any] = field(default_factory=dict)


def not_empty(response: ResponseForm, field: str) -> ResponseForm:
    """Itself. Raises RowError for an empty response, of which nobody can say anything."""
    if not response:
        raise RowError("empty", field=field)
    return response


@dataclass(slots=True)
class PairRow(_Origin):
    """One pair in the order of the source."""

    turns: Turns
    first: ResponseForm
    second: ResponseForm
    label: str | None  #: one of `assay.store.intake.LABELS`, or None: not judged by the source
    strength: int | None = None
    rationale: str | None = None
    votes: list[dict[str, Any]] | None = None
    annotator: str | None = None

    def check(self, names: tuple[str, str] = ("chosen", "rejected")) -> "PairRow":
        """Itself, if the two sides can be a comparison. Raises RowError."""
        if not (self.first and self.second):
            raise RowError("empty", field=names[bool(self.first)])
        if self.first == self.second:
            raise RowError("the two sides are identical")
        return self


@dataclass(slots=True)
class FeedbackRow(_Origin):
    """Free-text feedback of one annotator on one response. `voter` None: the source itself."""

    turns: Turns
    response: ResponseForm
    content: str
    kind: str = "human"
    voter: str | None = None


@dataclass(slots=True)
class PrincipleJudgmentRow(_Origin):
    """Whether a response fulfils a principle: `answer` is yes, no or partially."""

    turns: Turns
    response: ResponseForm
    principle: str
    answer: str
    evidence: str | None = None
    kind: str = "human"
    voter: str | None = None


@dataclass(slots=True)
class RatedRow(_Origin):
    """What annotators said of one response in numbers. `ratings` and `marks`: of `rating` and `mark`; both may be
    empty, for a response that is only kept. `occasion`: tells the ratings of this row from others of the same record
    that are of the same text."""

    turns: Turns
    response: ResponseForm
    ratings: list[dict[str, Any]] = field(default_factory=list)
    marks: list[dict[str, Any]] = field(default_factory=list)
    occasion: str = ""


ACCEPTABLE, SCORE = "acceptable", "score"  #: the aspects of binary labels and of scores that have no name of their own


class StatedBy(TypedDict, total=False):
    """Who says it, and how it is told from others. `voter` None: the source itself. `scale`: its lowest and highest."""

    scale: tuple[float, float] | None
    voter: str | None
    kind: str
    rationale: str | None
    origin: str


def rating(aspect: str, value: float | bool | None, **stated: Unpack[StatedBy]) -> dict[str, Any]:
    """One annotator's rating of a response. `value` None: could not say; a truth value has the scale 0 to 1. Raises
    RowError for a number that is not finite or off its scale."""
    check_unicode(aspect, "aspect")
    if isinstance(value, bool):
        stated["scale"] = (0.0, 1.0)
    return {"aspect": aspect, **_stated_value(aspect, value, **stated)}


def mark(
    start: int,
    end: int,
    *,
    step: int | None = None,
    label: str | None = None,
    value: float | None = None,
    **stated: Unpack[StatedBy],
) -> dict[str, Any]:
    """One annotator's label of the characters `start` to `end` of a response. Raises RowError as `rating` does, and for
    a mark that says nothing."""
    name = "span" if step is None else f"step {step}"
    if value is None and label is None:
        raise RowError("neither a value nor a label", field=name)
    if label is not None:
        check_unicode(label, name)
    if not 0 <= start <= end:
        raise RowError(f"no such characters: {start} to {end}", field=name)
    span = {"step": step, "start": start, "end": end, "label": label}
    return span | _stated_value(name, value, **stated)


def _stated_value(name: str, value: float | None, **stated: Unpack[StatedBy]) -> dict[str, Any]:
    low, high = stated.get("scale") or (None, None)
    if value is not None:
        value = float(value)
        if not math.isfinite(value):
            raise RowError("not a finite number", field=name)
        if low is not None and high is not None and not low <= value <= high:
            raise RowError(f"{value:g} is not on the scale {low:g} to {high:g}", field=name)
    about = {name: stated.get(name) for name in ("voter", "rationale")}
    return about | {
        "kind": stated.get("kind", "source"),
        "origin": stated.get("origin", ""),
        "value": value,
        "low": low,
        "high": high,
    }


Row: TypeAlias = PairRow | FeedbackRow | PrincipleJudgmentRow | RatedRow


@dataclass(frozen=True, slots=True)
class RatedCompletion:
    """A completion as one record rates it, the higher the better; 1 and 0: preferred and rejected.

    `stem`: the beginning of the response, before a `completion` that is text. `span`: the largest difference of two
    values, for the strength of a pair; None: no strength.
    """

    turns: Turns
    stem: str
    completion: ResponseForm
    value: float
    span: float | None = None
    source: str | None = None
    record_id: str | None = None
    category: str | None = None
    license: str | None = None
    language: str | None = None

    @property
    def response(self) -> ResponseForm:
        return self.stem + self.completion if isinstance(self.completion, str) else self.completion


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """A batch as Arrow tables, and how many rows of the file it came from. None: no such rows."""

    pairs: pa.RecordBatch
    rejects: pa.RecordBatch
    rows: int
    feedback: pa.RecordBatch | None = None
    principles: pa.RecordBatch | None = None
    rated: pa.RecordBatch | None = None
    media: Sequence[MediaFile] = ()
    dialogues: int = 0  #: pairs of conversations that part before their last turns


class BatchBuilder:
    """Gathers rows and rejects; `full` tells when to `take` a batch, so that memory stays bounded."""

    def __init__(self, source: str, name: str, images: RowImages) -> None:
        """`source`: for rows that name none. `name`: the file's, for record ids of rows without an id. `images`: where
        the images of rows go."""
        self.source, self.name, self._images = source, name, images
        self._clear()

    def _clear(self) -> None:
        self._pairs, self._feedback = _Columns(pair_schema()), _Columns(feedback_schema())
        self._principles, self._rated = _Columns(principle_schema()), _Columns(rated_schema())
        self._rejects = _Columns(reject_schema())
        self._rows = self._entries = self._bytes = self._dialogues = 0

    def row_done(self) -> None:
        self._rows += 1

    def add(self, row: int, entry: Row) -> None:
        turns, conversation = self._prompt(entry.turns)
        self._entries += 1
        source, record_id = entry.source or self.source, entry.record_id or f"{self.name}#{row}"
        meta = meta_json(entry.meta)
        origin = (source, record_id, entry.category, entry.license, entry.language, meta)
        texts: list[str | None] = [meta]
        if isinstance(entry, PairRow):
            first, first_turns = self._response(entry.first)
            second, second_turns = self._response(entry.second)
            if first_turns is not None and second_turns is not None:
                self._dialogues += _goes_on(entry.first) and _goes_on(entry.second)
            said = entry.votes or []
            texts.append(entry.rationale)
            sides = (conversation, first, second, first_turns, second_turns)
            votes = _apart(entry.votes, ("kind", "voter", "label", "strength"))
            judged = (entry.label, entry.strength, entry.rationale, votes)
            self._pairs.add((row, *sides, *judged, *origin, entry.annotator), turns)
        else:
            response, response_turns = self._response(entry.response)
            about = (row, conversation, response, response_turns, *origin)
            said = []
            if isinstance(entry, RatedRow):
                said = [*entry.ratings, *entry.marks]
                # a record has one occasion in all files
                occasion = "/".join(filter(None, (entry.record_id, entry.occasion)))
                for stated in said:
                    stated["origin"] = stated["origin"] or occasion
                ratings = _apart(entry.ratings, ("kind", "voter", "aspect", "value"))
                marks = _apart(entry.marks, ("kind", "voter", "step", "start", "end", "label", "value"))
                self._rated.add((*about, ratings, marks), turns)
            elif isinstance(entry, FeedbackRow):
                texts.append(entry.content)
                self._feedback.add((*about, entry.kind, entry.voter, entry.content), turns)
            else:
                texts += (entry.principle, entry.evidence)
                judgment = (entry.kind, entry.voter, entry.principle, entry.answer, entry.evidence)
                self._principles.add((*about, *judgment), turns)
        self._bytes += sum(map(getsizeof, texts))
        for one in said:
            self._bytes += sum(map(getsizeof, one.values()))

    def _prompt(self, turns: Turns) -> tuple[Turns, str | None]:
        """The store's two columns; images are put into the workspace."""
        size = 0
        for turn in turns:
            if type(turn["content"]) is not str:
                texts, conversation = prompt_columns(self._images.resolved(turns))
                self._bytes += getsizeof(conversation) + sum(getsizeof(each["content"]) for each in texts)
                return texts, conversation
            size += getsizeof(turn["content"])
        self._bytes += size
        return turns, None

    def _response(self, response: ResponseForm) -> tuple[str, str | None]:
        if type(response) is str:
            self._bytes += getsizeof(response)
            return response, None
        assert isinstance(response, list)
        text, turns = response_columns(self._images.resolved(response))
        self._bytes += getsizeof(text) + getsizeof(turns)
        return text, turns

    def reject(self, row: int, error: RowError, raw: str | None) -> None:
        """`raw` is cut to RAW_CHARACTERS; what UTF-8 cannot encode is escaped."""
        if raw is not None:
            raw = raw[:RAW_CHARACTERS].encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")
            self._bytes += getsizeof(raw)
        self._entries += 1
        self._rejects.add((row, error.field, error.reason, raw))

    @property
    def full(self) -> bool:
        return self._entries >= BATCH_PAIRS or self._bytes >= BATCH_BYTES

    @property
    def empty(self) -> bool:
        return not (self._rows or self._entries)

    def take(self) -> ReadBatch:
        """The batch gathered so far; the builder is empty afterwards."""
        statements = [columns.to_arrow() for columns in (self._feedback, self._principles, self._rated)]
        feedback, principles, rated = (table if table.num_rows else None for table in statements)
        batch = ReadBatch(
            self._pairs.to_arrow(),
            self._rejects.to_arrow(),
            self._rows,
            feedback,
            principles,
            rated,
            self._images.take(),
            self._dialogues,
        )
        self._clear()
        return batch


class _Columns:
    """Rows of one schema as flat lists, so that no object of a row stays behind for the garbage collector to visit."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._columns: dict[str, list[Any]] = {name: [] for name in schema.names if name != "messages"}
        self._offsets, self._roles, self._contents = [0], list[str](), list[str]()

    def add(self, values: tuple[Any, ...], turns: Sequence[dict[str, str]] = ()) -> None:
        """`values`: of the columns in order, without `messages`."""
        for column, cell in zip(self._columns.values(), values, strict=True):
            column.append(cell)
        for turn in turns:
            self._roles.append(turn["role"])
            self._contents.append(turn["content"])
        self._offsets.append(len(self._roles))

    def to_arrow(self) -> pa.RecordBatch:
        arrays = [
            self._messages(field.type) if field.name == "messages" else pa.array(self._columns[field.name], field.type)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _messages(self, kind: pa.ListType) -> pa.ListArray:
        texts = [pa.array(self._roles, pa.string()), pa.array(self._contents, pa.string())]
        turns = pa.StructArray.from_arrays(texts, fields=list(kind.value_type))
        return pa.ListArray.from_arrays(pa.array(self._offsets, pa.int32()), turns, type=kind)


def _goes_on(response: ResponseForm) -> bool:
    """Whether the user speaks in it."""
    return not isinstance(response, str) and any(turn["role"] == "user" for turn in response)


def _apart(said: list[dict[str, Any]] | None, content: tuple[str, ...]) -> list[dict[str, Any]] | None:
    """What is said several times in one row of the file, each time with an origin of its own. `content`: what makes two
    of them equal, beside the origin."""
    if not said or len(said) == 1:
        return said or None
    times: Counter[tuple[Any, ...]] = Counter()
    for index, one in enumerate(said):
        origin = one.get("origin") or ""
        key = (origin, *(one[name] for name in content))
        times[key] += 1
        if times[key] > 1:
            said[index] = one | {"origin": f"{origin}#{times[key]}"}
    return said


def meta_json(meta: Mapping[str, Any]) -> str | None:
    """Metadata as standard JSON: NaN and infinities become null. Raises RowError for bad Unicode."""
    if not meta:
        return None
    try:
        text = _encode(meta)
    except ValueError:
        text = json.dumps(_finite(meta), ensure_ascii=False, default=str)
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise RowError("a lone surrogate: not valid Unicode", field="meta") from error
    return text


def _finite(node: Any) -> Any:
    if isinstance(node, float):
        return node if math.isfinite(node) else None
    if isinstance(node, dict):
        return {key: _finite(child) for key, child in node.items()}
    if isinstance(node, list | tuple):
        return [_finite(child) for child in node]
    return node
