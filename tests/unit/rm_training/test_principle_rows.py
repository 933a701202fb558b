"""Judged responses: the forms they are read in, what is refused, how they are divided."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.domain import Message
from assay.errors import BadInputError, NotFoundError
from assay.runs.record import start_run
from assay.store.feedback_intake import principle_schema, store_principle_judgments
from assay.workspace import Workspace
from assay_rm_training.data.principle_rows import (
    PrincipleRow,
    filtered_rows,
    load_rows_or_file,
    principle_key,
    prompt_key,
    read_principle_file,
    write_principle_rows,
)
from assay_rm_training.evaluation.principle_split import base_rates, divide, with_cells

STEER = {
    "domain": "general",
    "language": "English",
    "context": [{"role": "user", "content": "Name a metal."}],
    "response": "Gold.",
    "principle": "correctness",
    "fulfilment": "Yes",
}


def written(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(prompt: str = "q", principle: str = "clarity", fulfilled: bool = True, response: str = "a") -> PrincipleRow:
    return PrincipleRow((Message("user", prompt),), response, principle, fulfilled)


def test_helpsteer3_principle_and_our_own_form_say_the_same(tmp_path: Path) -> None:
    [steer] = read_principle_file(written(tmp_path / "a.jsonl", STEER))
    own = {"prompt": "Name a metal.", "response": "Gold.", "principle": "correctness", "fulfilment": True}
    [mine] = read_principle_file(written(tmp_path / "b.jsonl", own))
    assert (steer.prompt, steer.response, steer.principle, steer.fulfilled) == (
        mine.prompt,
        mine.response,
        mine.principle,
        mine.fulfilled,
    )
    assert steer.category == "general"


def test_parquet_and_gzip(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([STEER, STEER | {"fulfilment": "No"}]), tmp_path / "rows.parquet")
    with gzip.open(tmp_path / "rows.jsonl.gz", "wt") as stream:
        stream.write(json.dumps(STEER) + "\n")
    assert [r.fulfilled for r in read_principle_file(tmp_path / "rows.parquet")] == [True, False]
    assert len(read_principle_file(tmp_path / "rows.jsonl.gz")) == 1
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    with pytest.raises(BadInputError, match=r"broken\.parquet: cannot be read as Parquet"):
        read_principle_file(tmp_path / "broken.parquet")


def test_partially_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = read_principle_file(written(tmp_path / "a.jsonl", STEER, STEER | {"fulfilment": "partially"}))
    assert len(rows) == 1
    assert "1 rows judged partially" in caplog.text


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"fulfilment": "maybe"}, "field 'fulfilment': neither yes nor no"),
        ({"fulfilment": None}, "field 'fulfilment': missing"),
        ({"principle": " "}, "field 'principle': empty"),
        ({"principle": None}, "field 'principle': missing"),
        ({"response": None}, "field 'response': missing"),
        ({"context": None}, "field 'prompt': missing"),
        ({"weight": 0}, "field 'weight': not a positive number"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    path = written(tmp_path / "a.jsonl", STEER, STEER | changes)
    with pytest.raises(BadInputError, match="row 2") as caught:
        read_principle_file(path)
    assert says in str(caught.value)


def test_writing_and_reading_again(tmp_path: Path) -> None:
    rows = [row(), PrincipleRow((Message("user", "ä"),), "b", "x y", False, "s", "c", 0.5)]
    write_principle_rows(tmp_path / "out.jsonl", rows)
    assert read_principle_file(tmp_path / "out.jsonl") == rows


def test_what_a_filter_run_kept(workspace: Workspace) -> None:
    with pytest.raises(NotFoundError, match="assay principles filter"):
        filtered_rows(workspace)
    judged = [
        {
            "row": n,
            "messages": [{"role": "user", "content": f"Question {n}?"}],
            "response": f"Answer {n}.",
            "kind": "human",
            "voter": None,
            "source": "votes",
            "record_id": str(n),
            "category": "debate",
            "license": None,
            "language": "en",
            "principle": "clarity",
            "answer": "yes" if n % 2 else "no",
            "evidence": None,
        }
        for n in range(4)
    ]
    with start_run(workspace, "principles-filter", {}) as run, workspace.store.unit() as db:
        store_principle_judgments(db, pa.Table.from_pylist(judged, schema=principle_schema()), run.id)
        db.execute(
            """INSERT INTO principle_outcomes
               SELECT ?, judgment_id, if(r.content = 'Answer 3.', 'consensus', 'kept'), 'test', NULL
               FROM principle_judgments JOIN responses r USING (response_id)""",
            [run.id],
        )
    found = load_rows_or_file(workspace, "principles")
    assert found == load_rows_or_file(workspace, run.id)
    assert sorted((r.response, r.fulfilled, r.source, r.category) for r in found) == [
        ("Answer 0.", False, "votes", "debate"),
        ("Answer 1.", True, "votes", "debate"),
        ("Answer 2.", False, "votes", "debate"),
    ]
    with pytest.raises(NotFoundError, match="no such file"):
        load_rows_or_file(workspace, "nothing.jsonl")


def test_near_duplicates_have_one_key() -> None:
    assert principle_key("Clarity of the response.") == principle_key("response  CLARITY") == principle_key("clarity")
    assert principle_key("clarity") != principle_key("brevity")
    assert principle_key("It is the response") == principle_key("the response is it")  # nothing but empty words
    assert prompt_key((Message("user", "A  b\n"),)) == prompt_key((Message("user", "a B"),))
    assert prompt_key((Message("user", "a"),)) != prompt_key((Message("system", "a"),))


ROWS = [row(f"Q {p}", f"principle {c}", (p + c) % 3 > 0, f"a{p}{c}") for p in range(20) for c in range(10)]


@pytest.mark.slow
@given(st.integers(0, 50), st.floats(0.05, 0.5), st.floats(0.05, 0.5))
def test_no_side_sees_the_others_prompts_or_principles(seed: int, prompts: float, principles: float) -> None:
    kept, held = divide(ROWS, prompts=prompts, principles=principles, seed=seed)
    assert len(kept) + len(held) == len(ROWS)
    for found in with_cells(kept, held):
        seen_prompt = prompt_key(found.prompt) in {prompt_key(r.prompt) for r in kept}
        seen_principle = principle_key(found.principle) in {principle_key(r.principle) for r in kept}
        assert found.cell == (
            f"{'seen' if seen_prompt else 'unseen'} prompt, {'seen' if seen_principle else 'unseen'} principle"
        )
        assert not (seen_prompt and seen_principle)
    assert divide(list(reversed(ROWS)), prompts=prompts, principles=principles, seed=seed)[1] == held[::-1]


def test_the_shares_are_of_prompts_and_of_principles() -> None:
    kept, held = divide(ROWS, prompts=0.1, principles=0.2)
    assert len({r.prompt for r in kept}) == 18
    assert len({r.principle for r in kept}) == 8
    cells = [found.cell for found in with_cells(kept, held)]
    assert cells.count("unseen prompt, seen principle") == 2 * 8
    assert cells.count("seen prompt, unseen principle") == 18 * 2
    assert cells.count("unseen prompt, unseen principle") == 2 * 2


def test_rewordings_of_a_principle_stay_on_one_side() -> None:
    rows = [row(f"Q {n}", "The clarity" if n % 2 else "clarity!") for n in range(20)]
    rows += [row(f"Q {n}", f"other {c}") for n in range(20) for c in range(3)]
    for seed in range(8):
        _, held = divide(rows, prompts=0, principles=0.25, seed=seed)
        away = {r.principle for r in held}
        assert ("The clarity" in away) == ("clarity!" in away)


def test_base_rates_come_from_training_alone() -> None:
    trained = [
        row("a", "clarity", True),
        row("b", "Clarity", False),
        row("c", "brevity", True),
        row("d", "brevity", True),
    ]
    [clear, unknown] = with_cells(trained, [row("z", "clarity"), row("z", "depth")])
    assert clear.base_rate == 0.5
    assert unknown.base_rate == 0.75  # of all training rows
    assert [(r.principle, r.rows, r.yes) for r in base_rates(trained)] == [("brevity", 2, 2), ("clarity", 2, 1)]


@pytest.mark.parametrize("shares", [(1.0, 0.1), (0.1, -0.1)])
def test_shares_outside_the_range_are_refused(shares: tuple[float, float]) -> None:
    with pytest.raises(BadInputError, match="share"):
        divide(ROWS, prompts=shares[0], principles=shares[1])


def test_an_empty_side_is_refused() -> None:
    with pytest.raises(BadInputError, match="nothing held out"):
        divide([row(), row(response="b")], prompts=0.1, principles=0.1)
