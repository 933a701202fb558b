"""A fake OpenAI-compatible endpoint for the judges' prompts: a real HTTP server with stated preferences.

with fake_endpoint(longer_wins(), faults=once("429")) as fake:
    judge = LlmJudge(LlmJudgeConfig(EndpointConfig(fake.base_url, "fake")), workspace)
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from assay.http.running import running_app
from assay.ids import digest, fraction
from assay_pipelines.llm.images import text_of
from assay_serving.chat.app import create_chat_app
from assay_serving.chat.scripted import ReceivedRequest, ScriptedChat

_SECTION = re.compile(r"^=== (?P<title>.+?) \[(?P<mark>[0-9a-f]{8})\]\n", re.MULTILINE)


@dataclass(frozen=True)
class JudgeRequest(ReceivedRequest):
    """A request made with our prompts."""

    @property
    def task(self) -> str:
        if "You describe a pair" in self.body["messages"][0]["content"]:
            return "attributes"
        return "correctness" if "Response to check" in self.sections else "judge"

    @cached_property
    def sections(self) -> Mapping[str, str]:
        """The last text under each title, by its mark."""
        text = text_of(self.body["messages"][1]["content"])
        marks = list(_SECTION.finditer(text))
        return {
            match["title"]: text[match.end() : following.start()].rstrip("\n")
            for match, following in itertools.pairwise(marks)
        }

    @property
    def candidates(self) -> tuple[str, str]:
        return self.sections["Candidate 1"], self.sections["Candidate 2"]


Rule: TypeAlias = Callable[[JudgeRequest], Mapping[str, Any]]


def longer_wins(*, position_bias: float = 0.0, seed: int = 0) -> Rule:
    """Judges by length; with chance `position_bias` takes Candidate 1 whatever it is. Attributes and checks are
    constant."""
    return prefers(lambda text: len(text), position_bias=position_bias, seed=seed)


def prefers(worth: Callable[[str], float], *, accuracy: float = 1.0, position_bias: float = 0.0, seed: int = 0) -> Rule:
    """Judges by `worth`; the better one wins with chance `accuracy`, drawn from the pair and not from its order."""

    def rule(request: JudgeRequest) -> Mapping[str, Any]:
        if request.task == "attributes":
            return {
                "task_category": "chat",
                "objectivity": "objective",
                "controversiality": "low",
                "desired": "A helpful answer.",
                "guideline": "Prefer the longer one.",
            }
        if request.task == "correctness":
            text = request.sections["Response to check"]
            return {"reasoning": "By its worth.", "verdict": "correct" if worth(text) > 0 else "incorrect"}
        first, second = request.candidates
        pair = digest("\x1f".join(sorted((first, second))))
        if fraction(seed, "position", pair, request.key) < position_bias:
            return {"reasoning": "It came first.", "verdict": "1", "strength": 1, "confidence": 0.6}
        one, other = worth(first), worth(second)
        if one == other:
            return {"reasoning": "They are equal.", "verdict": "tie", "strength": 0, "confidence": 0.5}
        right = fraction(seed, "accuracy", pair) < accuracy
        verdict = "1" if (one > other) == right else "2"
        return {"reasoning": "By its worth.", "verdict": verdict, "strength": 2, "confidence": 0.9}

    return rule


@dataclass
class FakeEndpoint(ScriptedChat[JudgeRequest]):
    request_type: Callable[[int, int, str, Mapping[str, Any]], JudgeRequest] = JudgeRequest
    base_url: str = ""


@contextmanager
def fake_endpoint(rule: Rule, *, port: int = 0, **settings: Any) -> Iterator[FakeEndpoint]:
    """Run a fake; `settings` are the other fields of `FakeEndpoint`."""
    fake = FakeEndpoint(rule, **settings)
    with running_app(create_chat_app(fake), port=port) as url:
        fake.base_url = f"{url}/v1"
        yield fake
