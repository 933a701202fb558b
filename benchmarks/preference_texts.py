"""Synthetic preference pairs for the scale benchmarks: distinct texts, made by the column.

Covers: JSON Lines with prompt, chosen and rejected (text or messages). Words follow a skewed distribution over an
invented vocabulary with some non-ASCII, quoted and broken-line words in it. Leaves out: meaning; do not train on it.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

WORDS = 20_000
CHUNK = 250_000
LETTERS = "etaoinshrdlucmfwypvbgkqjxz"
ODD = {50: "naïve", 70: '"quoted"', 90: "日本語", 110: "line\nbreak", 130: "back\\slash"}

Form = Literal["text", "messages"]
#: Words of each column, from and below: about 700 bytes a row.
SHORT = {"prompt": (8, 32), "chosen": (20, 55), "rejected": (20, 55)}


def write_pairs(
    path: Path, rows: int, *, form: Form = "text", seed: int = 0, lengths: Mapping[str, tuple[int, int]] = SHORT
) -> None:
    """Write `rows` rows to `path`. The first rows of a longer file are not those of a shorter one."""
    import duckdb
    import numpy as np
    import pyarrow as pa

    rng = np.random.default_rng([seed, rows])
    words = _vocabulary(rng)
    part = path.with_name(path.name + ".part")
    with path.open("wb") as out, duckdb.connect(config={"memory_limit": "2GB"}) as db:
        for start in range(0, rows, CHUNK):
            number = min(CHUNK, rows - start)
            table = pa.table({name: _texts(rng, words, number, *span) for name, span in lengths.items()})
            db.register("texts", table)
            db.execute(f"COPY ({_select(form)}) TO '{part}' (FORMAT json)")
            db.unregister("texts")
            with part.open("rb") as part_file:
                shutil.copyfileobj(part_file, out, 1 << 20)
    part.unlink()


def _select(form: Form) -> str:
    if form == "text":
        return "SELECT prompt, chosen, rejected FROM texts"
    expression = "[{{'role': '{role}', 'content': {column}}}] AS {column}"
    columns = (("user", "prompt"), ("assistant", "chosen"), ("assistant", "rejected"))
    return f"SELECT {', '.join(expression.format(role=role, column=column) for role, column in columns)} FROM texts"


def _vocabulary(rng: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    letters = np.array(list(LETTERS))
    share = 1 / np.arange(1, len(letters) + 1)
    lengths = rng.integers(2, 10, WORDS)
    drawn = "".join(rng.choice(letters, size=lengths.sum(), p=share / share.sum()))
    ends = lengths.cumsum()
    words = [drawn[end - length : end] for end, length in zip(ends, lengths, strict=True)]
    for position, word in ODD.items():
        words[position] = word
    return pa.array(words)


def _texts(rng: Any, words: Any, number: int, low: int, high: int) -> Any:
    """`number` texts of low to high-1 words."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    offsets = np.concatenate([[0], rng.integers(low, high, number).cumsum()]).astype(np.int32)
    chosen = (rng.random(offsets[-1]) ** 3 * len(words)).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), words.take(pa.array(chosen))), " ")
