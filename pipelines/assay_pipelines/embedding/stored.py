"""Vectors of comparisons in the store: missing ones are encoded page by page, stored ones read in blocks.

The text is the attributes, then the turns of the prompt, newest first: Skywork-Reward-V2 embeds (x, attributes), and an
encoder with a short window should lose the oldest turns. With `responses`, the two responses are encoded separately and
averaged in, so that the vector does not depend on their order and neither displaces the prompt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import chain
from typing import TYPE_CHECKING, overload

from assay.browsing.pair_pages import SHARD, selected_pages
from assay.compute.executor import Executor
from assay.compute.job import JobSpec
from assay.compute.local import LocalExecutor
from assay.compute.scratch_store import row_pages, scratch
from assay.compute.stage import import_stage, map_stage, open_stage
from assay.data.pair_attributes import PairAttributes
from assay.data.snapshots import CATEGORIES, Selection
from assay.ids import digest
from assay.runs.progress_bar import Advance, silent
from assay.store.database import Connection, registered
from assay.workspace import Workspace
from assay_pipelines.embedding.encoder import Encoder
from assay_pipelines.embedding.encoder_loader import open_encoder

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

PAGE = SHARD
WITH_RESPONSES = "+responses"

_ATTRIBUTES = ", ".join(f"'{field.name}'" for field in fields(PairAttributes))
# Whose attributes count is settled as in `assay.data.pair_attributes`: a person's, else the latest run's.
_TEXTS = f"""
    WITH described AS (
        SELECT t.comparison_id, array_to_string(list(t.name || ': ' || (t.value->>'$')
                   ORDER BY list_position([{_ATTRIBUTES}], t.name)), chr(10)) AS attributes
        FROM attributes t JOIN wanted USING (comparison_id) JOIN annotators n USING (annotator_id)
        LEFT JOIN runs r ON r.run_id = t.run_id
        WHERE t.name IN ({_ATTRIBUTES})
        GROUP BY t.comparison_id, t.annotator_id
        QUALIFY row_number() OVER (PARTITION BY t.comparison_id ORDER BY
            min(if(n.kind = 'human', 0, 1)), max(r.started_at) DESC NULLS LAST, t.annotator_id) = 1
    ), texts AS (
        SELECT c.comparison_id,
               coalesce(d.attributes || chr(10), '') || array_to_string(
                   [m.role || ': ' || m.content for m in list_reverse(p.messages)], chr(10)) AS head,
               if($responses, a.content, NULL) AS a, if($responses, b.content, NULL) AS b
        FROM comparisons c JOIN wanted USING (comparison_id)
        JOIN prompts p ON p.prompt_id = c.prompt_id
        JOIN responses a ON a.response_id = c.response_a
        JOIN responses b ON b.response_id = c.response_b
        LEFT JOIN described d ON d.comparison_id = c.comparison_id
        WHERE {{near}}
    )
    SELECT *, left(sha256(head || chr(31) || coalesce(a || chr(31) || b, '')), 32) AS digest FROM texts"""
# Those without a vector of this text. Equal texts are adjacent, so that a shard encodes each once.
_MISSING = f"""
    SELECT t.* FROM ({_TEXTS}) t LEFT JOIN embeddings e ON e.ref = t.comparison_id AND e.encoder = $space
    WHERE e.ref IS NULL OR e.digest IS DISTINCT FROM t.digest ORDER BY sha256(t.head), t.comparison_id"""

_PLACES = "SELECT ref, vector FROM embeddings WHERE encoder = $space AND rowid BETWEEN $low AND $high"
_MOST = 8  #: the table is read whole for this share of it, one in so many


def space_name(encoder: Encoder, *, responses: bool = False) -> str:
    """The name under which vectors are stored: the encoder, and whether the responses are included."""
    return encoder.name + (WITH_RESPONSES if responses else "")


@dataclass(frozen=True)
class EmbedReport:
    """Counts of comparisons. `space`: what `load_vectors` takes. `texts`: different texts encoded for `embedded`."""

    space: str
    selected: int = 0
    stored_before: int = 0
    embedded: int = 0
    texts: int = 0


class TextEncoding:
    """Job: the vector of each comparison's text. `encoder`: as `open_encoder` takes it, or an encoder."""

    def __init__(self, encoder: str | Encoder, device: str = "auto") -> None:
        self._reference, self._device = encoder, device

    def open(self) -> None:
        reference = self._reference
        self._encoder = open_encoder(reference, self._device) if isinstance(reference, str) else reference

    def map(self, shard: pa.Table) -> pa.Table:
        return _encode(self._encoder, shard)


def embed_comparisons(
    workspace: Workspace,
    encoder: Encoder,
    which: Selection | Sequence[str],
    run_id: str | None,
    *,
    responses: bool = False,
    page: int = PAGE,
    advance: Advance = silent,
    executor: Executor | None = None,
    reference: str = "",
    device: str = "auto",
) -> EmbedReport:
    """Encode the comparisons without a vector of their present text. Those of a selection are shards
    (`assay.compute.stage`) of `page` comparisons, so that an interrupted pass resumes where it stopped.

    `advance` counts comparisons, those stored before in one step. `executor`: where a selection's shards are encoded,
    elsewhere by the encoder that `reference` and `device` open. The store is not held while the encoder works.
    """
    space = space_name(encoder, responses=responses)
    values = {"space": space, "responses": responses}
    counts: Counter[str] = Counter()

    def write(db: Connection, shard: pa.Table, result: pa.Table) -> Counter[str]:
        texts = {text for name in ("head", "a", "b") for text in shard.column(name).to_pylist() if text is not None}
        _store(db, space, result, run_id)
        return Counter(embedded=shard.num_rows, texts=len(texts))

    if not isinstance(which, Selection):
        ids = list(dict.fromkeys(which))
        for start in range(0, len(ids), PAGE):
            with workspace.store.unit() as db:
                selected = _want(db, ids[start : start + PAGE])
                missing = db.sql(_MISSING.format(near="true"), params=values).to_arrow_table()
            counts["selected"] += selected
            advance(selected - missing.num_rows)
            for low in range(0, missing.num_rows, page):
                texts = missing.slice(low, page)
                vectors = _encode(encoder, texts)
                with workspace.store.unit() as db:
                    counts.update(write(db, texts, vectors))
                advance(texts.num_rows)
    else:
        selection = which

        def export() -> Iterator[pa.Table]:
            with scratch(workspace) as temporary:
                pages = selected_pages(workspace, temporary, selection)
                counts["selected"] = pages.items
                for table in pages.rows(_MISSING, values):
                    yield from (table.slice(start, page) for start in range(0, table.num_rows, page))

        arguments = {"encoder": reference or encoder.name, "device": device}
        spec = JobSpec(f"{__name__}:TextEncoding", arguments, encoder.name, gpus=float(device != "cpu"))
        here = TextEncoding(encoder) if executor is None or not reference else None
        if here is not None:
            here.open()
        question = {"selection": asdict(which), "space": space}
        resumed = True
        while resumed:  # then what has come into the selection since
            with open_stage(workspace, "embedding", spec, question, export) as stage:
                counts["selected"] = counts["selected"] or stage.rows
                advance(counts["selected"] - stage.rows - counts["embedded"])
                mapped = map_stage(stage, executor or LocalExecutor(), opened=here, advance=advance)
                counts.update(import_stage(workspace, stage, mapped, write, run_id))
            resumed = stage.resumed
    before = counts["selected"] - counts["embedded"]
    return EmbedReport(space, counts["selected"], before, counts["embedded"], counts["texts"])


def load_vectors(workspace: Workspace, space: str, ids: Sequence[str]) -> tuple[list[str], npt.NDArray[np.float32]]:
    """(ids, [n, dimension]) of those of `ids` that have a vector, in the given order.

    `space`: of `EmbedReport`; an encoder's name is that of its vectors without responses.
    """
    import numpy as np
    import pyarrow as pa

    with workspace.store.unit() as db, registered(db, "wanted", pa.table({"ref": pa.array(ids, pa.string())})):
        rows: pa.Table = db.sql(
            "SELECT e.ref, e.vector FROM embeddings e JOIN wanted USING (ref) WHERE e.encoder = ?", params=[space]
        ).to_arrow_table()
    vectors = _matrix(rows.column("vector"))
    row_of = {ref: number for number, ref in enumerate(rows.column("ref").to_pylist())}
    available = [ref for ref in ids if ref in row_of]
    return available, vectors[np.array([row_of[ref] for ref in available], dtype=np.int64)]


def embed_texts(
    workspace: Workspace,
    encoder: Encoder,
    texts: Mapping[str, str],
    run_id: str | None,
    *,
    page: int = PAGE,
    advance: Advance = silent,
) -> None:
    """Store a vector under each name, replacing the one that this encoder stored before."""
    import pyarrow as pa

    names = sorted(texts)
    for start in range(0, len(names), page):
        part = names[start : start + page]
        heads = [texts[name] for name in part]
        empty = pa.nulls(len(part), pa.string())
        columns = {"comparison_id": part, "head": heads, "a": empty, "b": empty, "digest": list(map(digest, heads))}
        encoded = _encode(encoder, pa.table(columns))
        with workspace.store.unit() as db:
            _store(db, encoder.name, encoded, run_id)
        advance(len(part))


class StoredVectors:
    """The vectors of a space, read in blocks on every call (`assay_pipelines.embedding.index.Vectors`).

    `ids` are sorted; `which` limits them, comparisons without a vector are left out and counted in `missing`.
    """

    def __init__(self, workspace: Workspace, space: str, which: Selection | Sequence[str]) -> None:
        self._workspace, self._space = workspace, space
        with workspace.store.unit() as db:
            _want(db, which)
            rows: pa.Table = db.sql(
                """SELECT w.comparison_id AS id, len(e.vector) AS dimension FROM wanted w
                   LEFT JOIN embeddings e ON e.ref = w.comparison_id AND e.encoder = ? ORDER BY 1""",
                params=[space],
            ).to_arrow_table()
        embedded = rows.filter(rows.column("dimension").is_valid())
        self.ids = _Names(embedded.column("id"))
        self.missing = rows.num_rows - embedded.num_rows
        self.dimension = int(embedded.column("dimension")[0].as_py()) if embedded.num_rows else 0

    def blocks(self, size: int) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]]:
        """(positions in `ids`, their vectors), up to `size` at a time, each read in a short unit of work."""
        import numpy as np

        unread = np.ones(len(self.ids), dtype=bool)
        with self._workspace.store.unit() as db:
            stored = int(db.execute("SELECT count(*) FROM embeddings").fetchall()[0][0])
        if _MOST * len(self.ids) >= stored:  # by place in the table: looking for ids costs a scan a block
            for rows in row_pages(self._workspace, "embeddings", _PLACES, page=size, space=self._space):
                positions = self.ids.positions(rows.column("ref"))
                new = np.flatnonzero(positions >= 0)
                new = new[unread[positions[new]]]
                unread[positions[new]] = False
                if len(new):
                    yield positions[new], _matrix(rows.column("vector"))[new]
        left = np.flatnonzero(unread)  # also what was written again meanwhile, and so has another place
        for start in range(0, len(left), size):
            part = left[start : start + size]
            available, vectors = load_vectors(self._workspace, self._space, [self.ids[int(p)] for p in part])
            embedded = set(available)
            yield np.array([p for p in part if self.ids[int(p)] in embedded], dtype=np.int64), vectors

    def take(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        return load_vectors(self._workspace, self._space, [self.ids[int(p)] for p in positions])[1]


class _Names(Sequence[str]):
    """Sorted ids in one array, a third of the memory of as many strings; the order of UTF-8 is that of strings."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        import numpy as np

        self._names = np.concatenate([np.empty(0, dtype="S1"), *map(_bytes, column.chunks)])

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        names = self._names[at]
        return [name.decode() for name in names] if isinstance(at, slice) else names.decode()

    def positions(self, column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
        """Where each id is, -1 for one that is not."""
        import numpy as np

        names = _Names(column)._names
        places = np.minimum(np.searchsorted(self._names, names), len(self._names) - 1)
        return np.where(self._names[places] == names, places, -1)


def _bytes(names: pa.Array) -> npt.NDArray[np.bytes_]:
    import pyarrow as pa

    return names.cast(pa.binary()).to_numpy(zero_copy_only=False).astype("S")  # type: ignore[no-any-return]


def _want(db: Connection, which: Selection | Sequence[str]) -> int:
    """The temporary table `wanted(comparison_id)`, and how many there are of them in the store."""
    import pyarrow as pa

    if isinstance(which, Selection):
        condition, values = which.where()
        db.execute(
            f"""CREATE OR REPLACE TEMP TABLE wanted AS SELECT p.comparison_id FROM pools p
                LEFT JOIN {CATEGORIES} g ON g.prompt_id = p.prompt_id WHERE {condition}""",
            values,
        ).fetchall()
    else:
        with registered(db, "given", pa.table({"comparison_id": pa.array(which, pa.string())})):
            db.execute("CREATE OR REPLACE TEMP TABLE wanted AS SELECT DISTINCT comparison_id FROM given").fetchall()
    return int(db.execute("SELECT count(*) FROM wanted").fetchall()[0][0])


def _encode(encoder: Encoder, texts: pa.Table) -> pa.Table:
    """(ref, vector, digest) of a table of comparison_id, head, a, b (null without responses) and digest."""
    import numpy as np
    import pyarrow as pa

    heads, first, second = (texts.column(name).to_pylist() for name in ("head", "a", "b"))
    row_of: dict[str, int] = {}
    for text in chain.from_iterable(zip(heads, first, second, strict=True)):
        if text is not None:
            row_of.setdefault(text, len(row_of))
    encoded = encoder.encode(list(row_of))
    vectors = encoded[[row_of[text] for text in heads]].astype(np.float32)
    if heads and first[0] is not None:
        answers = encoded[[row_of[text] for text in first]] + encoded[[row_of[text] for text in second]]
        combined = vectors + answers / 2
        lengths = np.linalg.norm(combined, axis=1, keepdims=True)
        vectors = np.where(lengths > 1e-6, combined / np.maximum(lengths, 1e-6), vectors).astype(np.float32)
    n, dimension = vectors.shape
    offsets = pa.array(np.arange(0, (n + 1) * dimension, dimension, dtype=np.int32))
    lists = pa.ListArray.from_arrays(offsets, pa.array(vectors.reshape(-1)))
    return pa.table({"ref": texts.column("comparison_id"), "vector": lists, "digest": texts.column("digest")})


def _store(db: Connection, space: str, vectors: pa.Table, run_id: str | None) -> None:
    values = {"space": space, "run": run_id}
    with registered(db, "encoded", vectors):
        # One scan of a narrow column; ON CONFLICT costs more than that, in spite of its index.
        replaced = db.execute(
            """CREATE OR REPLACE TEMP TABLE replaced AS
               SELECT ref FROM embeddings SEMI JOIN encoded USING (ref) WHERE encoder = $space""",
            {"space": space},
        ).fetchall()[0][0]
        if replaced:
            db.execute(
                """UPDATE embeddings SET vector = m.vector, digest = m.digest, run_id = $run
                   FROM encoded m WHERE embeddings.ref = m.ref AND embeddings.encoder = $space""",
                values,
            )
        db.execute(
            """INSERT INTO embeddings (ref, encoder, vector, digest, run_id)
               SELECT ref, $space, vector, digest, $run FROM encoded ANTI JOIN replaced USING (ref)""",
            values,
        )


def _matrix(column: pa.ChunkedArray) -> npt.NDArray[np.float32]:
    """[n, dimension] of a column of lists of one length."""
    import numpy as np

    n = len(column)
    if not n:
        return np.empty((0, 0), dtype=np.float32)
    flat = np.concatenate([np.asarray(chunk.flatten(), dtype=np.float32) for chunk in column.chunks])
    return flat.reshape(n, -1)
