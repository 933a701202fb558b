"""A composed reward as a scorer: what is asked, what is not, failures, versions, what stays true of every batch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.domain import Message
from assay.errors import BackendError, BadInputError, NotFoundError
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScorePart, ScoreResult, score_from_dict
from assay.statistics.logistic import sigmoid
from assay_serving.client import RemoteScorer
from assay_serving.composition.checking import ConstraintScorer, constraints_of
from assay_serving.composition.composed import ComposedScorer
from assay_serving.composition.description import ComposedSpec
from assay_serving.composition.part_loader import PartLoader
from assay_serving.engines.engine import REWARD_SERVER
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import open_scorer
from assay_serving.process import running_server
from assay_serving.scorer import ModelInfo, Rendered, ScoreItem, Scorer
from assay_serving.server.core.settings import ServerSettings
from assay_serving.verifiers import NoCommas

PROMPT = (Message("user", "q"),)
SUM = "combine: {kind: weighted_sum, weights: {a: 1, b: 2}}"


class Letters:
    """Scores by the number of one letter, fails on a `?`, and keeps what it was asked."""

    def __init__(self, letter: str, *, uncertainty: float | None = None, kind: str = "scalar") -> None:
        self.letter, self.uncertainty = letter, uncertainty
        self.asked: list[ScoreItem] = []
        self.info = ModelInfo(letter, f"v-{letter}", kind, f"t-{letter}", 100, False, "passed", "float32", "cpu")

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        self.asked += items
        return [
            ScoreFailure("too_long", "a question mark", self.letter)
            if "?" in item.response
            else Score(
                float(item.response.count(self.letter)),
                self.letter,
                self.info.version,
                self.info.template_hash,
                tokens=len(item.response),
                truncated="~" in item.response,
                uncertainty=self.uncertainty,
                probability=0.75,
                principle=item.principle,
            )
            for item in items
        ]


class Gone(Letters):
    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        raise BackendError("nobody answers")


def parts(*lines: str) -> str:
    return "kind: composed\nparts:\n" + "".join(f"  - {line}\n" for line in lines)


A, B = "{name: a, model: a}", "{name: b, model: b}"


def composed(text: str, **scorers: Scorer) -> ComposedScorer:
    read = ComposedSpec.from_dict(yaml.safe_load(text))
    found = {
        part.name: scorers[part.name]
        if part.model is not None
        else ConstraintScorer(part.checks() if part.constraints != "label" else None, part.measure)
        for part in read.parts
    }
    return ComposedScorer(read, found, name="both")


def items(*responses: str, **more: object) -> list[ScoreItem]:
    return [ScoreItem(PROMPT, response, **more) for response in responses]  # type: ignore[arg-type]


def only(results: Sequence[ScoreResult]) -> Score:
    [score] = results
    assert isinstance(score, Score), score
    return score


def failed(results: Sequence[ScoreResult]) -> ScoreFailure:
    [failure] = results
    assert isinstance(failure, ScoreFailure), failure
    return failure


def test_a_weighted_sum_with_its_parts_in_the_reply() -> None:
    told: list[int] = []
    scorer = composed(parts(A, B) + SUM, a=Letters("a"), b=Letters("b"))
    score = only(scorer.score(items("aab~"), told.append))
    assert (score.reward, score.model, score.tokens, score.truncated) == (4.0, "both", 4, True)
    assert (score.probability, score.calibration, score.principle, score.uncertainty) == (None, None, None, None)
    assert score.parts == (ScorePart("a", 2.0, 2.0, 1.0, "a", "v-a"), ScorePart("b", 1.0, 1.0, 2.0, "b", "v-b"))
    assert sum(told) == 1
    assert score.version == scorer.info.version
    assert scorer.info.kind == "composed"
    assert score_from_dict(json.loads(json.dumps(score.to_dict()))) == score


def test_scores_without_parts_are_sent_as_before() -> None:
    score = only(Letters("a").score(items("a")))
    assert "parts" not in score.to_dict()
    assert score_from_dict(score.to_dict()) == score


def test_uncertainties_go_through_shapes_and_sums() -> None:
    text = parts("{name: a, model: a, shaping: [{kind: standardise, mean: 1, std: 2}]}", B) + SUM
    score = only(composed(text, a=Letters("a", uncertainty=0.8), b=Letters("b", uncertainty=0.3)).score(items("aaab")))
    assert score.reward == pytest.approx(3.0)
    assert score.uncertainty == pytest.approx((0.4**2 + 0.6**2) ** 0.5)
    verdict = "{name: b, constraints: [{kind: no_commas}]}"
    score = only(composed(parts(A, verdict) + SUM, a=Letters("a", uncertainty=0.8)).score(items("a")))
    assert (score.reward, score.uncertainty) == (3.0, 0.8)  # a verdict is sure


GATE = "combine: {kind: gate, of: a, open: b, above: 0.5, floor: -3}"


def test_what_a_closed_gate_leaves_out_is_never_asked() -> None:
    model = Letters("a")
    verdict = "{name: b, constraints: [{kind: no_commas}]}"
    closed, opened = composed(parts(A, verdict) + GATE, a=model).score(items("a, a", "aa"))
    assert [item.response for item in model.asked] == ["aa"]
    assert isinstance(closed, Score)
    assert closed.reward == -3.0
    assert closed.parts[0] == ScorePart("a", model="a", version="v-a", skipped="b closed the gate")
    assert closed.parts[1].reward == 0.0
    assert isinstance(opened, Score)
    assert (opened.reward, opened.parts[0].skipped) == (2.0, None)


def test_a_closed_gate_leaves_out_all_that_only_its_step_needs() -> None:
    text = (
        parts(A, B, "{name: c, constraints: [{kind: no_commas}]}")
        + "steps: {sum: {kind: weighted_sum, weights: {a: 1, b: 1}}}\n"
        + "combine: {kind: constraint, of: sum, where: c, at_least: 1, otherwise: -1}"
    )
    a, b = Letters("a"), Letters("b")
    score = only(composed(text, a=a, b=b).score(items("a, b")))
    assert score.reward == -1.0
    assert [part.skipped for part in score.parts] == ["c violates the constraint"] * 2 + [None]
    assert not a.asked
    assert not b.asked


def test_a_failing_part_fails_the_item_names_itself_and_no_other() -> None:
    scorer = composed(parts(A, B) + SUM, a=Letters("a"), b=Letters("b"))
    first, second = scorer.score(items("ab?", "ab"))
    assert isinstance(first, ScoreFailure)
    assert (first.code, first.message, first.model) == ("too_long", "part a: a question mark", "both")
    assert isinstance(second, Score)


def test_a_part_that_is_gone_fails_only_the_items_that_need_it() -> None:
    verdict = "{name: b, constraints: [{kind: no_commas}]}"
    closed, needed = composed(parts(A, verdict) + GATE, a=Gone("a")).score(items("x, y", "x"))
    assert isinstance(closed, Score)
    assert isinstance(needed, ScoreFailure)
    assert (needed.code, needed.message) == ("backend", "part a: nobody answers")


PAR = "{name: a, model: a, shaping: [{kind: par}]}"


def test_par_asks_for_the_items_references_once_each() -> None:
    model = Letters("a")
    scorer = composed(parts(PAR), a=model)
    found = scorer.score([*items("aaa", "a", references=("aa", "")), *items("aa", references=("aa",))])
    expected = [(sigmoid(1.0) + sigmoid(3.0)) / 2, (sigmoid(-1.0) + sigmoid(1.0)) / 2, 0.5]
    assert [score.reward for score in found if isinstance(score, Score)] == pytest.approx(expected)
    assert sorted(item.response for item in model.asked) == ["", "a", "aa", "aaa"]
    assert not any(item.references for item in model.asked)


def test_references_are_shaped_as_far_as_the_response_is() -> None:
    text = parts(
        "{name: a, model: a, shaping: [{kind: length_penalty, unit: characters, free: 2, rate: 1}, {kind: centre}]}"
    )
    score = only(composed(text, a=Letters("a")).score(items("aaaa", references=("aaaaaa",))))
    assert score.reward == (4 - 2) - (6 - 4)


def test_without_references_par_is_a_failure_and_no_number() -> None:
    scorer = composed(parts(PAR), a=Letters("a"))
    assert "the item has none" in failed(scorer.score(items("a"))).message
    broken = failed(scorer.score(items("a", references=("aa", "?"))))
    assert (broken.code, broken.message) == ("too_long", "part a: reference 2: a question mark")


def test_models_are_told_what_is_theirs() -> None:
    scalar, principled, fixed = Letters("a"), Letters("b", kind="principle"), Letters("c", kind="principle")
    text = parts(A, B, "{name: c, model: c, principle: brief}") + "combine: {kind: min, of: [a, b, c]}"
    score = only(composed(text, a=scalar, b=principled, c=fixed).score(items("abc", principle="kind", label="secret")))
    assert [m.asked[0].principle for m in (scalar, principled, fixed)] == [None, "kind", "brief"]
    assert not any(m.asked[0].label for m in (scalar, principled, fixed))
    assert score.principle == "kind"
    with pytest.raises(BadInputError, match="takes no principle"):
        composed(parts("{name: a, model: a, principle: brief}"), a=Letters("a"))


def test_one_part_without_shaping_keeps_what_its_model_says() -> None:
    assert only(composed(parts(A), a=Letters("a")).score(items("a"))).probability == 0.75
    clipped = parts("{name: a, model: a, shaping: [{kind: clip, low: 0}]}")
    assert only(composed(clipped, a=Letters("a")).score(items("a"))).probability is None


def test_two_parts_of_one_model_ask_it_once() -> None:
    model = Letters("a")
    text = parts(A, "{name: b, model: a, shaping: [{kind: sigmoid}]}") + SUM
    score = only(composed(text, a=model, b=model).score(items("aa")))
    assert score.reward == pytest.approx(2 + 2 * sigmoid(2.0))
    assert len(model.asked) == 1


def test_the_version_follows_the_parts() -> None:
    a, b = Letters("a"), Letters("b")
    scorer = composed(parts(A, B) + SUM, a=a, b=b)
    before = scorer.info.version
    b.info = replace(b.info, version="v-new")  # a server that changed its model
    score = only(scorer.score(items("ab")))
    assert score.version != before
    assert score.version == scorer.info.version
    assert score.parts[1].version == "v-new"
    assert composed(parts(A, B) + SUM, a=a, b=b).info.version == score.version


def test_a_part_may_be_of_one_version_only() -> None:
    text = parts("{name: a, model: a, version: v-a, shaping: [{kind: par, references: [1.0]}]}")
    model = Letters("a")
    scorer = composed(text, a=model)
    assert only(scorer.score(items("a"))).reward == 0.5
    model.info = replace(model.info, version="v-new")
    assert "its version is v-new" in failed(scorer.score(items("a"))).message
    with pytest.raises(BadInputError, match="measure what its shaping holds"):
        composed(text, a=model)


def test_labels_hold_constraints_and_a_wrong_label_is_a_failure() -> None:
    scorer = composed(parts("{name: b, constraints: label}"))
    label = json.dumps({"constraints": [{"kind": "no_commas"}, {"kind": "max_words", "limit": 2}]})
    assert only(scorer.score(items("a b c", label=label))).reward == 0.5
    assert only(scorer.score(items("a b", label=json.dumps({"kind": "no_commas"})))).reward == 1.0
    assert only(scorer.score(items("a b", label=label))).uncertainty == 0.0
    for wrong in (None, "{", "[]", "3", '"text"', "[3]", '[{"kind": "none"}]', '{"constraints": []}', "[" * 100_000):
        assert failed(scorer.score(items("a", label=wrong))).code == "bad_input"
    assert constraints_of('[{"kind": "no_commas"}]') == (NoCommas(),)


def test_a_rendered_conversation_is_for_models_only() -> None:
    rendered = ScoreItem((), "", rendered=Rendered(text="a"), references=("aa",))
    for text in (
        parts("{name: b, constraints: [{kind: no_commas}]}"),
        parts(PAR),
        parts("{name: a, model: a, shaping: [{kind: length_penalty, unit: characters}]}"),
    ):
        assert failed(composed(text, a=Letters("a")).score([rendered])).code == "bad_input"
    assert only(composed(parts(A), a=Letters("a")).score([rendered])).reward == 0.0


def test_tokens_need_a_tokenizer() -> None:
    text = parts("{name: a, model: a, shaping: [{kind: length_penalty}]}")
    with pytest.raises(BadInputError, match="no tokenizer here"):
        composed(text, a=Letters("a"))


def test_numbers_out_of_range_are_failures() -> None:
    text = parts("{name: a, model: a, shaping: [{kind: standardise, mean: 0, std: 1.0e-308}]}")
    assert failed(composed(text, a=Letters("a")).score(items("a" * 50))).code == "non_finite"


def test_a_reward_of_verdicts_alone_has_no_model() -> None:
    text = parts(
        "{name: a, constraints: [{kind: no_commas}], measure: passed}",
        "{name: b, constraints: [{kind: max_words, limit: 1}]}",
    )
    score = only(composed(text + "combine: {kind: product, of: [a, b]}").score(items("one")))
    assert (score.reward, score.tokens, score.parts[0].model) == (1.0, 0, "constraints")


KINDS = [
    SUM,
    GATE,
    "combine: {kind: min, of: [a, b]}",
    "combine: {kind: gated_sum, levels: [{of: b, above: 0}, {of: a}]}",
    "combine: {kind: constraint, of: a, where: b, at_least: 1, penalty: 0.5}",
    "combine: {kind: ensemble, of: [a, b]}",
]
texts = st.lists(st.text("ab?,", max_size=5), min_size=1, max_size=6)


@pytest.mark.parametrize("combination", KINDS)
@settings(max_examples=30)
@given(responses=texts)
def test_an_items_result_depends_on_the_item_alone(combination: str, responses: list[str]) -> None:
    scorer = composed(parts(PAR, B) + combination, a=Letters("a"), b=Letters("b"))
    asked = items(*responses, references=("ab", "b"))
    together = scorer.score(asked)
    assert together == [result for item in asked for result in scorer.score([item])]
    assert together == scorer.score(asked[::-1])[::-1]


@pytest.mark.parametrize("combination", KINDS)
@settings(max_examples=30)
@given(responses=texts)
def test_a_failing_part_never_becomes_a_number(combination: str, responses: list[str]) -> None:
    scorer = composed(parts(A, B) + combination, a=Gone("a"), b=Letters("b"))
    for result in scorer.score(items(*responses)):
        if isinstance(result, Score):  # only where the part was not needed
            assert result.parts[0].skipped is not None
            assert result.parts[0].reward is None
        else:
            assert result.message.startswith("part ")


class LettersLoader:
    def __init__(self, opened: list[str]) -> None:
        self.opened = opened

    def load(self, config: ModelConfig) -> Scorer:
        if config.engine == REWARD_SERVER:
            return Letters("s")
        if config.reference == "missing":
            raise NotFoundError("no model 'missing'")
        self.opened.append(config.reference)
        return Letters(Path(config.reference).name[0])

    def locate(self, reference: str) -> str:
        return reference


def part_loader(opened: list[str]) -> PartLoader:
    return PartLoader(ModelConfig("outer.yaml"), LettersLoader(opened))


def test_parts_are_found_beside_the_file_and_loaded_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    inner = tmp_path / "inner.yaml"
    inner.write_text(parts("{name: x, model: ./a}", "{name: y, model: b}") + "combine: {kind: min, of: [x, y]}")
    outer = tmp_path / "outer.yaml"
    outer.write_text(parts("{name: a, model: inner.yaml}", "{name: b, model: a}") + SUM)
    opened: list[str] = []
    scorer = part_loader(opened).read(outer)
    assert opened == [str(tmp_path / "a"), "b"]
    score = only(scorer.score(items("aab")))
    assert score.reward == 1 + 2 * 2
    assert [part.name for part in score.parts] == ["a", "a.x", "a.y", "b"]
    assert scorer.info.name == "outer"


def test_what_cannot_be_opened_names_file_and_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RM_KEY", raising=False)
    path = tmp_path / "c.yaml"
    for line, error, said in (
        ("{name: a, model: missing}", NotFoundError, "c.yaml, part a: no model 'missing'"),
        ("{name: a, model: c.yaml}", BadInputError, "is a part of itself"),
        ("{name: a, model: x, served: y}", BadInputError, "is for the URL of a reward server"),
        ("{name: a, model: 'http://x', correct: y}", BadInputError, "the server decides it"),
        ("{name: a, model: 'http://x', api_key_env: RM_KEY}", BadInputError, "the environment has no RM_KEY"),
        ("{name: a, model: x, version: other}", BadInputError, "the file takes other"),
    ):
        path.write_text(parts(line))
        with pytest.raises(error, match=said.replace(".", r"\.")) as caught:
            part_loader([]).read(path)
        assert "c.yaml" in str(caught.value)


def test_a_file_opens_like_any_model(tiny_reward_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "reward.yaml"
    path.write_text(
        parts(
            f"{{name: a, model: {tiny_reward_model}}}",
            f"{{name: b, model: {tiny_reward_model}, shaping: [{{kind: length_penalty, free: 3}}, {{kind: sigmoid}}]}}",
        )
        + SUM
    )
    scorer = open_scorer(ModelConfig(str(path), device="cpu"))
    assert isinstance(scorer, ComposedScorer)
    assert scorer.scorers["a"] is scorer.scorers["b"]
    plain = only(scorer.scorers["a"].score(items("Gold is a metal.")))
    score = only(scorer.score(items("Gold is a metal.")))
    tokens = len(scorer.scorers["a"].renderer.tokenizer("Gold is a metal.", add_special_tokens=False).input_ids)  # type: ignore[attr-defined]
    assert score.reward == pytest.approx(plain.reward + 2 * sigmoid(plain.reward - 0.01 * max(0, tokens - 3)))
    assert (score.template_hash, score.tokens) == (plain.template_hash, plain.tokens)
    assert scorer.score_identity is not None


def test_a_server_as_a_part_is_sent_no_key_of_ours_and_gives_up_before_we_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_API_KEY", "opens-this-server")
    monkeypatch.setenv("RM_KEY", "opens-that-one")
    with running_server({"a": Letters("a")}) as running:
        path = tmp_path / "reward.yaml"
        urls = f"{{name: a, model: '{running.url}'}}", f"{{name: b, model: '{running.url}', api_key_env: RM_KEY}}"
        path.write_text(parts(*urls) + SUM)
        scorer = open_scorer(ModelConfig(str(path)))
        assert isinstance(scorer, ComposedScorer)
        clients = [part.client.settings for part in scorer.scorers.values() if isinstance(part, RemoteScorer)]
        assert [settings.key for settings in clients] == ["", "opens-that-one"]
        assert all((settings.deadline or 1e9) < ServerSettings().engine_timeout_s for settings in clients)
        assert only(scorer.score(items("aab"))).reward == 2 + 2 * 2
