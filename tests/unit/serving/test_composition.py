"""The file of a composed reward: read strictly, every mistake one line that names the place, its identity."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.errors import BadInputError
from assay_serving.composition.combining import Gate, WeightedSum
from assay_serving.composition.description import ComposedSpec
from assay_serving.composition.shaping import Clip, Par
from assay_serving.model_reference import is_composed, is_ensemble, kind_of, known_spec

TEXT = """\
kind: composed
parts:
  - name: helpful
    model: models/rm
    shaping:
      - {kind: clip, low: 0, high: 1}
      - {kind: par, references: [1, 2.5]}
  - name: short
    constraints: [{kind: max_words, limit: 60}]
    measure: passed
steps:
  quality: {kind: weighted_sum, weights: {helpful: 1, short: 2}}
combine: {kind: gate, of: quality, open: short, above: 0.5, floor: -1}
"""


def read(text: str, folder: Path) -> ComposedSpec:
    path = folder / "composed.yaml"
    path.write_text(text)
    return ComposedSpec.read(path)


def test_a_file_is_read_as_it_says(tmp_path: Path) -> None:
    spec = read(TEXT, tmp_path)
    helpful, short = spec.parts
    assert helpful.shaping == (Clip(0.0, 1.0), Par((1.0, 2.5)))
    assert short.checks()[0].to_dict() == {"kind": "max_words", "limit": 60}
    assert spec.combine == Gate("quality", "short", -1.0, above=0.5)
    assert spec.steps == {"quality": WeightedSum({"helpful": 1.0, "short": 2.0})}
    assert spec.weights == {"helpful": 1.0, "short": 2.0}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("low: 0", "low: 2", "'parts.helpful.shaping.0': low (2) must be below high (1)"),
        ("low: 0", "low: x", "'parts.helpful.shaping.0.low': must be a number, not 'x'"),
        ("low: 0", "low: 1e-3", "write 1.0e-6"),
        ("low: 0", "low: true", "'parts.helpful.shaping.0.low': must be a number, not True"),
        ("low: 0", "lwo: 0", "'parts.helpful.shaping.0.lwo': unknown key"),
        ("kind: clip", "kind: clop", "one of 'par', 'centre'"),
        ("kind: clip, ", "", "its `kind` is missing"),
        ("above: 0.5", "above: .nan", "'combine.above': must be a finite number"),
        ("above: 0.5", "above: 0.5, at_least: 1", "'combine': needs exactly one of above and at_least"),
        ("of: quality", "of: qualty", "combine: 'qualty' is no part and no step above"),
        ("{helpful: 1, short: 2}", "{helpful: 1, quality: 2}", "steps.quality: 'quality' is no part"),
        ("{helpful: 1, short: 2}", "{short: 2}", "'helpful' is used nowhere"),
        ("of: quality", "of: helpful", "'quality' is used nowhere"),
        ("quality: {", "helpful: {", "is a part's name"),
        ("name: short", "name: combine", "is the name of the reward itself"),
        ("name: short", "name: helpful", "two are named 'helpful'"),
        ("name: short", "name: very short", "is no name"),
        ("name: short", "name: 3", "'parts.1.name': must be a text, not 3"),
        ("model: models/rm", "model: models/rm\n    on_failure: skip", "'parts.helpful.on_failure': unknown key"),
        ("model: models/rm", "constraints: label\n    principle: x", "principle is for models"),
        ("model: models/rm", "version: x", "exactly one of model and constraints"),
        ("model: models/rm", "model: models/rm\n    measure: passed", "measure is for constraints"),
        ("[{kind: max_words, limit: 60}]", "[]", "at least one, or label"),
        ("limit: 60", "limit: -1", "'parts.short': constraints: field 'limit'"),
        ("max_words", "max_wrds", "no verifier is named 'max_wrds'"),
        ("short: 2}", "short: 2, short: 3}", "line 12: 'short' is given twice"),
        ("[1, 2.5]", "itm", "'parts.helpful.shaping.1.references': must be 'item', not 'itm'"),
        ("[1, 2.5]", "[]", "needs at least one reference"),
        ("parts:", "prts:", "'parts': is missing"),
        ("combine:", "cmbine:", "'cmbine': unknown key"),
        ("kind: composed", "kind: composde", "it must say `kind: composed`"),
        ("kind: composed", "kind: [", "not a composed reward"),
        ("low: 0", "low: 2001-01-01", "not a composed reward"),
    ],
)
def test_a_wrong_file_is_one_line_that_names_the_place(old: str, new: str, said: str, tmp_path: Path) -> None:
    assert TEXT.count(old) >= 1
    with pytest.raises(BadInputError) as caught:
        read(TEXT.replace(old, new), tmp_path)
    assert said in str(caught.value)
    assert "composed.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_several_parts_need_a_combination_and_one_does_not(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="combine: missing"):
        read(TEXT.partition("steps:")[0], tmp_path)
    alone = "kind: composed\nparts: [{name: rm, model: models/rm}]\n"
    assert read(alone, tmp_path).combine is None


def test_the_identity_is_of_the_function_and_the_parts_versions_only(tmp_path: Path) -> None:
    versions = {"helpful": "1", "short": "2"}
    spec = read(TEXT, tmp_path)
    same = read("# a comment\n" + TEXT.replace("models/rm", "elsewhere/rm"), tmp_path)
    assert same.digest(versions) == spec.digest(versions)
    assert spec.digest(versions | {"helpful": "3"}) != spec.digest(versions)
    for old, new in (("above: 0.5", "above: 0.6"), ("high: 1", "high: 2"), ("short: 2", "short: 3"), ("60", "61")):
        assert read(TEXT.replace(old, new), tmp_path).digest(versions) != spec.digest(versions)


def test_composed_files_are_told_from_ensembles(tmp_path: Path) -> None:
    composed, ensemble = tmp_path / "c.yaml", tmp_path / "e.yaml"
    composed.write_text(TEXT)
    ensemble.write_text("kind: ensemble\nmembers: [a, b]\nscale: raw\n")
    assert (is_composed(str(composed)), is_ensemble(str(composed)), kind_of(str(composed))) == (True, False, "composed")
    assert (is_composed(str(ensemble)), is_ensemble(str(ensemble)), kind_of(str(ensemble))) == (False, True, "ensemble")
    assert known_spec(str(composed)) is None
    assert not is_composed(str(tmp_path / "none.yaml"))
    folder = tmp_path / "reward"
    folder.mkdir()
    (folder / "composed.yaml").write_text(TEXT)
    assert is_composed(str(folder))
    composed.write_text(TEXT + "]")  # not YAML, and still to be told by the reader of composed rewards
    assert is_composed(str(composed))
