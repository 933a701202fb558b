"""A taskset of verifiers whose tasks are one turn: a word is to be reversed. Three rewards, one with a weight."""

from collections.abc import Iterable

import verifiers.v1 as vf

__all__ = ["ReverseTaskset"]


class ReverseConfig(vf.TasksetConfig):
    words: str = "gold,silver,iron,tin"
    broken: bool = False


class ReverseData(vf.TaskData):
    answer: str


class Reverse(vf.Task[ReverseData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float(_reply(trace) == self.data.answer)

    @vf.reward(weight=0.25)
    async def short(self, trace: vf.Trace) -> float:
        return 1 / (1 + len(_reply(trace)))

    @vf.reward
    async def vowels(self, trace: vf.Trace) -> float:
        if _reply(trace) == "crash":
            raise RuntimeError("the rubric is broken")
        return float("nan") if _reply(trace) == "nan" else sum(_reply(trace).count(letter) for letter in "aeiou") / 10


def _reply(trace: vf.Trace) -> str:
    replies = [node.message.content or "" for node in trace.nodes if node.sampled]
    return replies[-1].strip() if replies else ""


class ReverseTaskset(vf.Taskset[Reverse, ReverseConfig]):
    def load(self) -> Iterable[Reverse]:
        for word in self.config.words.split(","):
            data = ReverseData(prompt=f"Reverse {word}.", system_prompt="Say the word alone.", answer=word[::-1])
            yield Reverse(data, self.config.task)
