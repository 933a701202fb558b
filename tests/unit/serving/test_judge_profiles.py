"""Judge profiles: parsers on published outputs, prompts as published, votes and scores by them, what replies look like.

Outputs marked (published) were read at the source that is named; the others have the form that the profile's prompt
asks for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request

from assay.domain import Message
from assay.errors import BadInputError, NotFoundError
from assay.http.running import running_app
from assay.models.spec import RewardModelSpec
from assay.runs.record import start_run
from assay.score import Score, ScoreFailure
from assay.workspace import Workspace
from assay_serving.chat.client import ChatEndpoint
from assay_serving.engines.engine import checked_kind
from assay_serving.generative.answers import JudgeSample
from assay_serving.generative.engine import GenerativeScorer, examine
from assay_serving.generative.kind import JUDGE_PROFILES
from assay_serving.generative.local import LocalWriter, described
from assay_serving.generative.pairwise import PairOutcome, PairQuestion, PairwiseJudge
from assay_serving.generative.profiles.profile import JudgeProfile, profile_of
from assay_serving.generative.profiles.recognition import UnreadReplies, recognised
from assay_serving.generative.remote import RemoteWriter, label_logps
from assay_serving.generative.templates import format_named
from assay_serving.generative.verdict import JudgeVerdict, ParseFailure
from assay_serving.model_config import ModelConfig
from assay_serving.score_records import save_scores
from assay_serving.scorer import ScoreItem
from assay_serving.server.cache.score_cache import ScoreKeys, reads_labels

PROMPT = (Message("user", "Name a metal."),)

#: RM-R1's demo notebook at b56de97, both models (published; the middle is left out).
RM_R1 = """<type>Chat</type>

<rubric>
1. Comprehensiveness of information (40%): How thoroughly does the response cover all aspects of car detailing, including both exterior and interior processes?
</rubric>

<eval>
<quote_A>1. **Wash the Car:**</quote_A>
Chatbot B provides no additional value beyond the basic information.
</eval>

<answer>[[A]]</answer>
"""  # noqa: E501
RM_R1_REASONING = """Okay, so I need to evaluate which of the two chatbots, A or B, provided a better response to the client's question about how to detail a car.
</think>

In contrast, Chatbot B's response is brief and lacks the depth necessary for a complete understanding of the detailing process.

<answer>[[A]]</answer>
"""  # noqa: E501
#: A judgment of Arena-Hard by GPT-4o, as a public repository has it (published).
ARENA = (
    "### Verdict:\n\nAssistant B's response is more detailed, helpful, and includes example code, making it more "
    "practical for implementation.\n\nMy final verdict is: [[B>>A]]"
)
#: A rating by GPT-4 with MT-bench's prompt, as a public thesis has it (published).
RATING = "Therefore, the assistant’s response is of high quality. Rating: [[9]]"
#: An output of Prometheus, as a public repository has it (published).
PROMETHEUS = "it falls short of fully demonstrating foresight and macro impact. So the overall score is 4. [RESULT] 4"

#: In the form that the readers of several public projects ask of NVIDIA's GenRM.
GENRM = (
    "[The Begin of Analysis on Response 1]\nVague.\n[The End of Analysis on Response 1]\n\n"
    "[The Begin of Individual Scores]\n\\boxed{3, 4} \n[The End of Individual Scores]"
)

PAIRS = [
    ("rm-r1", RM_R1, "A", None),
    ("rm-r1-reasoning", RM_R1_REASONING, "A", None),
    ("rm-r1", RM_R1.replace("[[A]]", "[[B]]"), "B", None),
    ("arena-hard", ARENA, "B", 3),
    ("arena-hard", "My final verdict is tie: [[A=B]]", "tie", 0),  # (published) the prompt's own example
    ("arena-hard", "Mine is better.\n[[A>B]]\nAgain: [[A>B]].", "A", 1),
    ("compass-judger", "My final verdict is tie: [[A=B]]", "tie", 0),  # (published)
    ("compass-judger-reward", "B", "B", None),  # (published) CompassJudger's README
    ("mt-bench", "Both are right.\n\n[[C]]", "tie", None),
    ("mt-bench", "Assistant A is more helpful. [[A]]", "A", None),
    ("skywork-critic", "[[B]]", "B", None),
    ("j1", "<think> A names gold: [[A]]. Or [[B]]? </think>\n<answer> [[B]] </answer>", "B", None),
    (
        "j1-scores",
        "<think> <score_A> 1 </score_A> </think>\n<score_A> 8.5 </score_A> <score_B> 6 </score_B>",
        "A",
        None,
    ),
    ("j1-scores", "<score_A>7</score_A>\n<score_B>7/10</score_B>", "tie", None),
    ("prometheus-2-pairwise", "Response A is vague, while B is exact. [RESULT] B", "B", None),
    ("selene-pairwise", "**Reasoning:** Both name one.\n\n**Result:** A", "A", None),
    ("deepseek-grm", "Specific Criteria: ...\nAnalysis: ...\nScores: \\boxed{7, 9}", "B", None),
    ("deepseek-grm", "Scores: \\boxed{8, 8}", "tie", None),
    ("nemotron-genrm", f"{GENRM}\n[The Begin of Ranking Score]\n\\boxed{{5}} \n[The End of Ranking Score]", "B", 2),
    ("nemotron-genrm-json", '<think>4?</think> {"score_1": 4, "score_2": 3, "ranking": 1}', "A", 3),
    ("r1-reward", "<think>Response 1 has <answer>1</answer>? No.</think><answer>2</answer>", "B", None),
    ("r1-reward", "<think>It names gold.</think>\n<answer> 1 </answer>", "A", None),
    ("json", 'Here it is: {"explanation": "better", "winner": "a"}', "A", None),
]
SCORES = [
    ("prometheus-2", PROMETHEUS, 4.0),
    ("mt-bench-single", RATING, 9.0),
    ("j1-pointwise", "<think> Perhaps <score>2</score> </think>\n<score> 7.5 </score>", 7.5),
    ("selene", "**Reasoning:** It is right.\n\n**Result:** 5", 5.0),
    ("deepseek-grm-single", "Scores: \\boxed{6}", 6.0),
    ("nemotron-genrm-single", GENRM.replace("3, 4", "3"), 3.0),
    ("nemotron-genrm-principle", "<think>No</think>\n\nFinal judgement: Yes", 1.0),
    ("llama-guard", "\n\nsafe", 1.0),
    ("llama-guard", "unsafe\nS1,S2", 0.0),
    ("r1-reward-consistency", "Output: 1\n", 1.0),
    ("r1-reward-consistency", "0", -1.0),
    ("sophiavl-thinking", "<answer> 0.7 </answer>", 0.7),
    ("json-score", '{"explanation": "good", "score": 8}', 8.0),
]


@pytest.mark.parametrize(("name", "reply", "answer", "strength"), PAIRS)
def test_verdicts_of_pairs(name: str, reply: str, answer: str, strength: int | None) -> None:
    verdict = format_named(name).read(reply)
    assert isinstance(verdict, JudgeVerdict), verdict
    assert (verdict.label, verdict.strength, verdict.value) == (answer, strength, None)


@pytest.mark.parametrize(("name", "reply", "score"), SCORES)
def test_scores_of_one_response(name: str, reply: str, score: float) -> None:
    verdict = format_named(name).read(reply)
    assert isinstance(verdict, JudgeVerdict), verdict
    assert verdict.value == score


@pytest.mark.parametrize(
    ("name", "reply", "fault"),
    [
        ("rm-r1", "<answer>[[A]]</answer> or <answer>[[B]]</answer>", "several"),
        ("rm-r1", "<answer>[[A]]</answer>" + " More words." * 20, "no_verdict"),  # not in the last 80 characters
        ("arena-hard", "[[A>B]] ... no: [[B>A]]", "several"),
        ("arena-hard", "[[A<>B]]", "unknown_label"),
        ("mt-bench", "[[A]] [[B]]", "several"),
        ("mt-bench", "<think>[[A]] it is, or", "no_verdict"),  # it never stopped thinking
        ("mt-bench-single", "Rating: [[11]]", "unknown_label"),
        ("prometheus-2", "[RESULT] 7", "unknown_label"),
        ("deepseek-grm", "Scores: \\boxed{7}", "unknown_label"),  # one score for two responses
        ("deepseek-grm-single", "Scores: \\boxed{x}", "unknown_label"),
        ("nemotron-genrm", GENRM, "no_verdict"),  # scores of each, and no ranking
        ("nemotron-genrm", "[The Begin of Ranking Score]\n\\boxed{7}", "unknown_label"),
        ("nemotron-genrm-principle", "Yes, mostly.", "no_verdict"),
        ("compass-judger-reward", "A is better than B", "no_verdict"),
        ("r1-reward", "<think>Both are good.</think><answer>0</answer>", "unknown_label"),
        ("r1-reward", "<think>So it is 1.</think> 1", "no_verdict"),  # the code would read a 1
        ("llama-guard", "It is safe.", "no_verdict"),
        ("r1-reward-consistency", "0 or 1", "no_verdict"),
        ("sophiavl-thinking", "<answer>7</answer>", "unknown_label"),
        ("sophiavl-thinking", "0.7", "no_verdict"),  # the code would read it
        ("json", '{"winner": "C"}', "unknown_label"),
        ("json", "", "empty"),
    ],
)
def test_unreadable_replies_are_typed_failures(name: str, reply: str, fault: str) -> None:
    assert format_named(name).read(reply) == ParseFailure(fault)  # type: ignore[arg-type]
    assert format_named(name).read("[[A]] 7 safe", ended=False) == ParseFailure("truncated")


def test_every_profile_names_its_source_and_fills_every_slot() -> None:
    for name in JUDGE_PROFILES.names():
        form = format_named(name)
        assert isinstance(form, JudgeProfile)
        form = form.of(2) if form.each else form
        assert form.title, name
        assert form.source, name
        assert form.licence, name
        assert "Read:" in form.checked or form.source == "ours", name
        responses = ("RESPONSE ONE {prompt}", "RESPONSE TWO")[: form.responses]
        asked = form.ask(PROMPT, responses, reference="GOLD")
        text = "\n".join(message.text for message in asked)
        assert "Name a metal." in text
        assert all(response in text for response in responses), name  # braces in a response stay as they are
        if form.with_reference:
            assert "GOLD" in text
        rest = text.replace(responses[0], "")
        assert not any(f"{{{slot}}}" in rest for slot in ("prompt", "response", "response_a", "criterion", "reference"))


def test_a_criterion_and_several_turns_have_their_places() -> None:
    turns = (Message("user", "Hi."), Message("assistant", "Hello."), Message("user", "Name a metal."))
    system, user = format_named("prometheus-2").ask(turns, ["gold"], "[Is it a metal?]")
    assert system.text.startswith("You are a fair judge assistant")
    assert "###Score Rubrics:\n[Is it a metal?]\n\n###Feedback: " in user.text
    assert "###The instruction to evaluate:\nUser: Hi.\n\nAssistant: Hello.\n\nUser: Name a metal.\n" in user.text
    guarded = format_named("llama-guard").ask(turns, ["gold"])
    assert [message.role for message in guarded] == ["user", "assistant", "user", "assistant"]


class Endpoint:
    """Answers by a rule of the request's messages; keeps the bodies."""

    def __init__(self, rule: Any) -> None:
        self.rule, self.bodies = rule, list[dict[str, Any]]()
        self.app = FastAPI()
        self.app.post("/v1/chat/completions", response_model=None)(self._answer)

    async def _answer(self, request: Request) -> Any:
        body = await request.json()
        self.bodies.append(body)
        text = self.rule(body["messages"][-1]["content"])
        choices = [{"message": {"content": text}, "finish_reason": "stop"}] * body.get("n", 1)
        return {"choices": choices, "usage": {"prompt_tokens": 11, "completion_tokens": 6}}


def writer_of(url: str, profile: str, **changes: Any) -> Any:
    from assay_serving.generative.engine import with_settings

    judging = with_settings(format_named(profile).judging, **changes)
    return RemoteWriter.open(ChatEndpoint(f"{url}/v1", "judge", retries=0), judging)


def test_a_pair_is_asked_in_both_orders_with_votes_ties_and_failures() -> None:
    def rule(text: str) -> str:
        first, second = text.index("<A>"), text.index("<B>")
        if "tie" in text:
            return "[[A=B]]"
        return "I cannot." if "mute" in text else "[[A>>B]]" if first < second else "[[B>A]]"

    endpoint = Endpoint(rule)
    pairs = [PairQuestion((Message("user", word),), "<A>", "<B>") for word in ("clear", "tie", "mute")]
    with running_app(endpoint.app) as url:
        writer, spec = writer_of(url, "arena-hard", samples=2, temperature=0.7)
        clear, tie, mute = PairwiseJudge(writer, spec).compare(pairs)
    assert isinstance(clear, PairOutcome)
    assert isinstance(tie, PairOutcome)
    assert isinstance(mute, PairOutcome)
    assert (clear.decisions, clear.decision, clear.consistent, clear.probability) == (("A", "A"), "A", True, None)
    assert [vote for order in clear.orders for vote in order.votes] == ["A"] * 4
    assert [a.strength for order in clear.orders for a in order.answers] == [3, 3, 1, 1]
    assert (tie.decisions, tie.decision, tie.consistent) == (("tie", "tie"), "tie", False)
    assert (mute.decision, mute.faults) == (None, {"no_verdict": 4})
    sent = endpoint.bodies[0]
    assert ("logprobs" in sent, sent["max_tokens"], sent["n"]) == (False, 4096, 2)
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]


def test_a_stated_score_is_the_reward_and_an_unreadable_one_a_failure_that_shows_it() -> None:
    endpoint = Endpoint(lambda text: "Who knows." if "lead" in text else f"Good. [RESULT] {4 if 'gold' in text else 2}")
    items = [ScoreItem(PROMPT, "gold"), ScoreItem(PROMPT, "glass", label="copper"), ScoreItem(PROMPT, "lead")]
    with running_app(endpoint.app) as url:
        writer, spec = writer_of(url, "prometheus-2")
        gold, glass, lead = GenerativeScorer(writer, spec).score(items)
    assert isinstance(gold, Score)
    assert isinstance(glass, Score)
    assert isinstance(lead, ScoreFailure)
    assert (gold.reward, glass.reward) == (4.0, 2.0)
    assert lead.code == "unparsable"
    assert lead.message.endswith("1 no_verdict; one ends 'Who knows.'")
    questions = [body["messages"][1]["content"] for body in endpoint.bodies]
    assert sum("###Reference Answer (Score 5):\ncopper\n" in question for question in questions) == 1
    with pytest.raises(BadInputError, match="compares two responses"):
        GenerativeScorer(*writer_of("http://127.0.0.1:9", "rm-r1"))
    with pytest.raises(BadInputError, match="does not compare pairs"):
        PairwiseJudge(*writer_of("http://127.0.0.1:9", "selene"))


def test_a_list_is_shown_together_and_each_response_gets_its_score() -> None:
    """DeepSeek-GRM's form beyond two responses: one question a prompt, the numbers of the last box in their order."""

    def rule(text: str) -> str:
        shown = text.split("[The Begin of Response ")[1:]
        if any("mute" in one for one in shown):
            return "Scores: \\boxed{7}"
        return "Scores: \\boxed{" + ", ".join("9" if "gold" in one.split("[")[0] else "3" for one in shown) + "}"

    other = (Message("user", "Name a liquid."),)
    items = [ScoreItem(PROMPT, text) for text in ("glass", "{response}", "gold")]
    items += [ScoreItem(other, "water"), ScoreItem(other, "mute"), ScoreItem(PROMPT, "gold!")]
    endpoint = Endpoint(rule)
    with running_app(endpoint.app) as url:
        writer, spec = writer_of(url, "deepseek-grm-list")
        scorer = GenerativeScorer(writer, spec)
        (*results,) = scorer.score(items)
    assert scorer.score_identity is None  # a score is relative to the list
    assert [r.reward if isinstance(r, Score) else r.code for r in results] == [3, 3, 9, "unparsable", "unparsable", 9]
    texts = sorted((body["messages"][0]["content"] for body in endpoint.bodies), key=len)
    assert len(texts) == 2
    end = texts[-1].split("#### Responses to be Scored ####\n")[1]
    assert end.startswith("[The Begin of Response 1]\nglass\n[The End of Response 1]\n[The Begin of Response 2]\n")
    assert "[The Begin of Response 2]\n{response}\n[The End" in end
    assert "[The Begin of Response 4]\ngold!\n[The End of Response 4]\n\n#### Output Format" in end


def test_replies_look_like_the_most_specific_profile_that_reads_them() -> None:
    assert recognised([RM_R1, RM_R1_REASONING], 2)[0] == ("rm-r1", 2)
    assert recognised([ARENA] * 3, 2)[0][0] in ("arena-hard", "compass-judger")
    assert recognised(["**Reasoning:** x\n**Result:** A"], 2)[0] == ("selene-pairwise", 1)
    assert recognised([PROMETHEUS])[0] == ("prometheus-2", 1)
    assert recognised(["Verdict: A"], 2)[0] == ("pairwise", 1)
    assert recognised(["I cannot say."], 2) == []
    replies = UnreadReplies()
    for _ in range(3):
        replies.replies += 1
        replies.add_unread("Because of that.\n[[A]]")
    line = replies.line("judge", "rm-r1", 2)
    assert line.startswith("3 of 3 replies of judge could not be read as rm-r1, e.g. 'Because of that.\\n[[A]]'; ")
    assert "they look like judge profile " in line
    assert "mt-bench" in line


def test_a_profile_of_ones_own_is_a_yaml_file_and_its_faults_are_named(tmp_path: Path) -> None:
    own = tmp_path / "stars.yaml"
    own.write_text(
        'responses: 1\nuser: "Rate {response} for {prompt}"\nreads: {pattern: "(\\\\*+)", values: {"*": 1}}\n'
    )
    form = format_named(str(own))
    assert format_named(form.judging.format).hash == form.hash == form.judging.template
    assert form.ask(PROMPT, ["{gold}"])[0].text == "Rate {gold} for Name a metal."
    assert form.read("*") == JudgeVerdict("*", 0, 1.0)
    assert form.read("**") == ParseFailure("unknown_label")
    elsewhere = tmp_path / "elsewhere" / "copy.yaml"
    elsewhere.parent.mkdir()
    elsewhere.write_text(own.read_text())
    copied = format_named(str(elsewhere))
    specs = [
        RewardModelSpec("generative", "tiny", "t", 64, "v", judging=one.judging)
        for one in (form, copied, format_named("rm-r1"))
    ]
    hashes = [described("judge", spec, dtype="float32", device="cpu").template_hash for spec in specs]
    assert copied.hash == form.hash
    assert hashes[0] == hashes[1] != hashes[2], "what a profile says counts, not where it lies"
    good = {"responses": 2, "user": "{response_a} {response_b}", "reads": {"pattern": "(A|B)", "values": {"A": "A"}}}
    for change, words in (
        ({"responses": 3}, "field 'responses'.*1, 2 or list"),
        ({"user": "{response_a}"}, "no slot {response_b}"),
        ({"prompt": "x"}, "field 'prompt'"),
        ({"generation": {"top_k": 3}}, "field 'generation'"),
        ({"generation": {"temperature": -1}}, "temperature"),
        ({"reads": {"pattern": "(", "values": {"A": "A"}}}, "regular expression"),
        ({"reads": {"pattern": "A", "values": {"A": "A"}}}, "has no group"),
        ({"reads": {"pattern": "(A)", "values": {"A": "C"}}}, "A, B or tie"),
        ({"reads": {"pattern": "(A)", "values": {"A": "A"}, "range": [1, 5]}}, "either values or range"),
        ({"reads": {"pattern": "(A)", "range": [5, 1]}}, "least score comes first"),
        ({"reads": {"regex": "(A)"}}, "field 'reads.regex'"),
    ):
        with pytest.raises(BadInputError, match=words):
            profile_of(str(good | change), "mine")  # a Python dict is YAML too
    with pytest.raises(NotFoundError, match="no judge profile"):
        format_named(str(tmp_path / "none.yaml"))
    with pytest.raises(BadInputError, match="did you mean rm-r1"):
        format_named("rmr1")
    with pytest.raises(BadInputError, match="no generative model"):
        checked_kind(ModelConfig("tiny", kind="principle", judge_profile="selene"))


@pytest.mark.parametrize("name", JUDGE_PROFILES.names())
def test_a_judge_that_repeats_its_question_has_not_judged(name: str) -> None:
    profile = format_named(name)
    responses = ("Gold.", "Glass.")[: profile.responses]
    for reference in (None, "Tin."):
        turns = [message.text for message in profile.ask(PROMPT, responses, None, reference)]
        for echo in (*turns, "\n\n".join(turns)):
            assert isinstance(profile.read(echo), ParseFailure), echo


@pytest.mark.parametrize(
    ("name", "reply"),
    [
        ("j1", "<answer> [[A]] </answer> or <answer> [[B]] </answer>"),
        ("mt-bench-single", "A [[9]] would cite sources. Rating: [[4]]"),
        ("prometheus-2", "A score of 5 would need more. [RESULT] 3"),
        ("prometheus-2-pairwise", "[Response A] is short. [RESULT] B"),
        ("r1-reward", "<answer>1</answer><answer>2</answer>"),
        ("selene", "**Result:** 4 or rather **Result:** 2"),
        ("json", '{"winner": "A"} {"winner": "B"}'),
    ],
)
def test_verdicts_that_differ_are_several(name: str, reply: str) -> None:
    assert format_named(name).read(reply) == ParseFailure("several")


@pytest.mark.parametrize("name", ["mt-bench", "j1", "skywork-critic"])
def test_thinking_that_does_not_end_decides_nothing(name: str) -> None:
    stated = "<answer>[[A]]</answer>"
    assert format_named(name).read(f"Well.\n<think>Perhaps {stated}") == ParseFailure("no_verdict")
    assert format_named(name).read(f"<think>x</think>\n<think>Perhaps {stated}") == ParseFailure("no_verdict")
    assert isinstance(format_named(name).read(f"<think>[[B]]</think>\n{stated}"), JudgeVerdict)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("- a list", "must be a mapping of title"),
        ("just words", "must be a mapping of title"),
        ("{responses: 1, user: '{response}', reads: words}", "'reads': must be a mapping"),
        ("{responses: 1, user: '{response}', reads: {json: 5, range: [1, 2]}}", "reads.json"),
        ("{responses: 1, user: '{response}', reads: {pattern: (x), values: [1]}}", "reads.values"),
        ("{responses: 1, user: '{response}', reads: {pattern: (x), values: {Yes: 1, No: 0}}}", "in quotes"),
    ],
)
def test_a_faulty_profile_is_one_line(text: str, fault: str) -> None:
    with pytest.raises(BadInputError, match=fault):
        profile_of(text, "mine")


def test_a_cached_score_stands_for_one_reference_answer_and_no_stored_one_does(workspace: Workspace) -> None:
    items = [ScoreItem(PROMPT, "Gold.", label=label) for label in ("Gold.", "Tin.")]
    for profile, distinct in (("prometheus-2", 2), ("selene", 1)):
        scorer = GenerativeScorer.load(ModelConfig("tiny", device="cpu", judge_profile=profile))
        keys = ScoreKeys.of_engine(scorer)
        assert keys is not None
        assert len(set(keys.of(items))) == distinct
        assert reads_labels(scorer) == (distinct == 2)
    failed = [ScoreFailure("unparsable", "no verdict")] * 2
    with start_run(workspace, "score", {}) as run:
        assert save_scores(run, items, failed, scorer.info, by_label=False) == 1
        with pytest.raises(BadInputError, match="score without --save"):
            save_scores(run, items, failed, scorer.info, by_label=True)


@pytest.mark.parametrize(
    ("name", "reply", "fault"),
    [
        ("selene", "**Result:** 4.5", "unknown_label"),
        ("selene-pairwise", "**Result:** A or B", "no_verdict"),
        ("selene-pairwise", "**Result:** Response A and Response B", "no_verdict"),
        ("prometheus-2-pairwise", "[RESULT] a clear case for the second", "no_verdict"),
    ],
)
def test_half_a_verdict_is_none(name: str, reply: str, fault: Any) -> None:
    assert format_named(name).read(reply) == ParseFailure(fault)


def test_nemotron_is_asked_in_the_roles_of_its_template() -> None:
    turns = (*PROMPT, Message("assistant", "Gold?"), Message("user", "Another."))
    roles = {
        "nemotron-genrm": ["response_1", "response_2"],
        "nemotron-genrm-json": ["principle", "response_1", "response_2"],
        "nemotron-genrm-single": ["response_1"],
        "nemotron-genrm-principle": ["assistant", "principle"],
    }
    for name, expected in roles.items():
        form = format_named(name)
        asked = form.ask(turns, ["lead", "glass"][: form.responses], "brevity")
        assert [message.role for message in asked] == ["user", "assistant", "user", *expected]
        shown = {"response_1": "lead", "response_2": "glass", "principle": "brevity", "assistant": "lead"}
        assert [message.text for message in asked[3:]] == [shown[role] for role in expected]
    unprincipled = format_named("nemotron-genrm-json").ask(PROMPT, ["lead", "glass"])
    assert [message.role for message in unprincipled[1:]] == ["response_1", "response_2"]


def test_nemotron_principle_is_read_as_the_card_does(tmp_path: Path) -> None:
    """score_yes - score_no at the last token but the end, each less the greatest (card of
    Qwen3-Nemotron-32B-GenRM-Principle), here of a given answer; an endpoint's log-probs have the same difference."""
    import torch
    from published_models import H, rand, tiny_state, write
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tensors = tiny_state() | {"lm_head.weight": rand(259, H)}
    folder = write(
        tmp_path / "genrm",
        tensors,
        architecture="LlamaForCausalLM",
        tokens=lambda tokenizer: tokenizer.add_tokens([" Yes", " No"]),
    )
    form, answer = format_named("nemotron-genrm-principle"), "<think>Gold is one.</think>\n\nFinal judgement:"
    asked = form.ask(PROMPT, ["gold"], "correctness")
    config = ModelConfig(str(folder), device="cpu", judge_profile="nemotron-genrm-principle")
    writer, spec = LocalWriter.load(config, judging=form.judging)
    (logp,) = writer.label_logps([asked], [f"{answer} Yes"], form)
    assert logp is not None

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    turns = [{"role": m.role, "content": m.text} for m in asked]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True) + answer
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        logits = model(torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])).logits[0, -1]
    yes, no = (float(logits[tokenizer.convert_tokens_to_ids(word)]) for word in (" Yes", " No"))
    assert logp["Yes"] - logp["No"] == pytest.approx(yes - no, abs=1e-4)

    pieces = [answer, " Yes", "<end>"]
    listed = [{"token": p, "logprob": -0.1, "top_logprobs": [{"token": " No", "logprob": -2.5}]} for p in pieces]
    verdict = form.read(f"{answer} Yes")
    assert isinstance(verdict, JudgeVerdict)
    told = label_logps(listed, f"{answer} Yes", verdict, form)
    assert told is not None
    assert (told["Yes"], told["No"]) == pytest.approx((-0.1, -2.5))
    sample = JudgeSample(f"{answer} Yes", True, 9, 9, verdict, told)
    assert examine([sample], form, form.judging).reward == pytest.approx(2.4)
    assert GenerativeScorer(writer, spec).info.kind == "generative"
