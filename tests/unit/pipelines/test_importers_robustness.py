"""Whatever stands in a row, a layout gives rows that Arrow takes or a reason; it never fails and never stops a file."""

from __future__ import annotations

import contextlib
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published_rows import PUBLISHED_ROWS

from assay.data.json_lines import RowError
from assay.store.intake import LABELS
from assay.store.media import MediaFolder
from assay_pipelines.importers.images import RowImages
from assay_pipelines.importers.kind import IMPORTERS
from assay_pipelines.importers.layout import JoinedLayout
from assay_pipelines.importers.recognition import recognise
from assay_pipelines.importers.rows import BatchBuilder

USER = [{"role": "user", "content": "Why?"}]
PAIR = {"chosen": "x", "rejected": "y"}
STEER = {"domain": "d", "language": "l", "context": USER}
RATED = {"Rating": "3", "Rationale": "r"}
COMPLETION = {"model": "m", "response": "r", "annotations": {"honesty": RATED, "helpfulness": [RATED]}, "critique": "c"}
VOTE = {"id": 1, "completed_by": 1, "was_cancelled": False}
RESULTS = [
    {"type": "choices", "value": {"choices": ["A>B"]}},
    {"type": "pairwise", "value": {"selected": "left"}},
    {"type": "textarea", "value": {"text": ["t"]}},
]
TASK = {"prompt": "p", "answer1": "a", "answer2": "b"}
EXAMPLES: dict[str, dict[str, Any]] = {
    "label-studio": {"id": 1, "data": TASK, "annotations": [{**VOTE, "result": RESULTS}], "predictions": []},
    "label-studio-min": {**TASK, "annotator": 1, "annotation_id": 2, "comparison": {"selected": "left"}},
    "helpsteer3-principle": {**STEER, "response": "r", "principle": "p", "fulfilment": "Yes"},
    "helpsteer3-edit-quality": {**STEER, "good_edited_response": "g", "bad_edited_response": "b", "feedback": ["f"]},
    "helpsteer3-edit": {**STEER, "original_response": "o", "edited_response": "e", "feedback": ["f"]},
    "helpsteer3-feedback": {**STEER, "response1": "1", "response2": "2", "feedback1": ["f"], "feedback2": ["g"]},
    "helpsteer3-preference": {
        **STEER,
        "response1": "1",
        "response2": "2",
        "overall_preference": -1,
        "individual_preference": [{"score": 1, "reasoning": "r"}],
    },
    "arena": {
        "prompt": '["p"]',
        "response_a": '["a"]',
        "response_b": '["b"]',
        "winner_model_a": 1,
        "winner_model_b": 0,
        "winner_tie": 0,
    },
    "judgebench": {"question": "q", "response_A": "a", "response_B": "b", "label": "A>B", "source": "s"},
    "nemo-rl": {"context": USER, "completions": [{"rank": 0, "completion": USER}, {"rank": 1, "completion": "y"}]},
    "ultrafeedback-raw": {"instruction": "i", "completions": [COMPLETION, {**COMPLETION, "response": "s"}]},
    "trl-stepwise": {"prompt": "p", "completions": ["a", "b"], "labels": [True, False]},
    "ultrafeedback-binarized": {"prompt": "p", **PAIR, "score_chosen": 8.0, "score_rejected": 2.0},
    "ultrafeedback-argilla": {"prompt": "p", **PAIR, "chosen-rating": 5.0, "rejected-rating": 2.0},
    "hh-red-team": {"transcript": "t", "min_harmlessness_score_transcript": 1.0, "task_description": "d"},
    "alpaca-eval-soft": {
        "prompt": "p",
        "baseline": {"system": "b", "text": "y"},
        "responses": [{"system": "a", "text": "x", "preference": 0.9}],
    },
    "oasst-messages": {
        "message_id": "m",
        "parent_id": None,
        "message_tree_id": "m",
        "text": "t",
        "role": "prompter",
        "rank": None,
        "labels": {"name": ["quality"], "value": [0.5], "count": [3]},
    },
    "rewardbench-2": {"prompt": "p", "chosen": ["x"], "rejected": ["y", "z"], "num_correct": 1, "subset": "Ties"},
    "rm-bench": {"prompt": "p", "chosen": ["x", "y", "z"], "rejected": ["1", "2", "3"], "id": 1},
    "rewardbench-1": {"prompt": "p", **PAIR, "chosen_model": "a", "rejected_model": "b", "subset": "s"},
    "assay-judgments": {
        "prompt": USER,
        "response_a": "a",
        "response_b": "b",
        "annotator": "n",
        "kind": "human",
        "answer": "A",
    },
    "rlhflow": {
        "messages": [
            {"role": "user", "content": "[CONTEXT] c [RESPONSE A] a [RESPONSE B] b \n"},
            {"role": "assistant", "content": "A"},
        ]
    },
    "verl": {"data_source": "d", "prompt": USER, "reward_model": {}, "extra_info": {"comparisons": [PAIR]}},
    "hh": {"chosen": "\n\nHuman: h\n\nAssistant: a", "rejected": "\n\nHuman: h\n\nAssistant: b"},
    "normalised": {"prompt": USER, "responses": ["x", "y"], "label_type": "human", "ratings": {"gold": "A"}},
    "skywork": {"chosen": [*USER, {"role": "assistant", "content": "a"}], "rejected": USER, "source": "s"},
    "trl": {"prompt": "p", **PAIR, "margin": 1.0},
    "trl-unpaired": {"prompt": "p", "completion": "c", "label": True},
    **{name: rows[0] for name, rows in PUBLISHED_ROWS.items()},
    "processbench": {"id": "m-1", "problem": "p", "steps": ["a", "b"], "label": 1, "final_answer_correct": False},
    "prm800k": {
        "labeler": "w",
        "question": {"problem": "p"},
        "label": {"steps": [{"completions": [{"text": "a", "rating": 1}], "chosen_completion": 0}]},
    },
    "math-shepherd": {"input": "p Step 1: a ки\nStep 2: b ки", "label": "p Step 1: a +\nStep 2: b -", "task": "MATH"},
    "rated-responses": {"prompt": "p", "responses": ["a", "b", "c"], "scores": [1, 2.5, None]},
}
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 4)
    | st.floats()
    | st.sampled_from(["", "x", "A", "\ud800", "N/A", "[]"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "content", "a"]), inner),
    max_leaves=4,
)


def places(value: Any) -> list[list[Any]]:
    """The path of everything in a record."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [[key, *rest] for key, item in inside for rest in ([], *places(item))]


@pytest.mark.slow
def test_every_layout_has_an_example_that_it_recognises() -> None:
    assert set(EXAMPLES) == set(IMPORTERS.members)
    for name, record in EXAMPLES.items():
        assert IMPORTERS.create(name).matches(record), name
        recognised = recognise([record], mapped=False)
        assert IMPORTERS.name_of(type(recognised)) == name


@pytest.mark.parametrize("name", EXAMPLES)
@settings(max_examples=15)
@given(data=st.data())
def test_a_broken_value_is_a_reason(name: str, data: st.DataObject) -> None:
    record = copy.deepcopy(EXAMPLES[name])
    for _ in range(data.draw(st.integers(0, 2))):
        path = data.draw(st.sampled_from(places(record)))
        inner: Any = record
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = data.draw(JSON)
    layout = IMPORTERS.create(name)
    layout.matches(record)
    layout.describe([record])
    builder = BatchBuilder("source", "file", RowImages(MediaFolder(Path("media")), None))
    with contextlib.suppress(RowError):
        if isinstance(layout, JoinedLayout):
            for rated in layout.completions(record):
                json.dumps(rated.turns)
                json.dumps((rated.stem, rated.completion))
        for item in layout.parse(record):
            if isinstance(item, RowError):
                assert item.reason
            else:
                builder.add(1, item)
    batch = builder.take()
    assert batch.rows == 0
    assert all(label in LABELS for label in batch.pairs.column("label").to_pylist() if label is not None)
