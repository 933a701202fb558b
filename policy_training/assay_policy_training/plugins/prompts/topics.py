"""What the generated prompts are about: everyday topics, and the tasks that can be asked of any of them.

Covers: our own topics, each with words that answers about it tend to use (so that requiring one is easy and
forbidding one is not), and our own task forms. Leaves out: constraints and their mixing (`constrained`).
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Topic:
    """`name` reads well after "about"; `words` are single lowercase words that belong to it."""

    name: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PromptTask:
    """`text` holds `{topic}`; a `listing` task asks for several items, any other for running text."""

    name: str
    text: str
    listing: bool = False


TASKS: tuple[PromptTask, ...] = (
    PromptTask("fact", "Tell me a fact about {topic}."),
    PromptTask("tip", "Give a beginner one tip about {topic}."),
    PromptTask("describe", "Describe {topic}."),
    PromptTask("child", "Explain {topic} to a child."),
    PromptTask("why", "Say why people care about {topic}."),
    PromptTask("question", "Write a question that a student might ask about {topic}."),
    PromptTask("slogan", "Write a slogan for a museum about {topic}."),
    PromptTask("title", "Suggest a title for a book about {topic}."),
    PromptTask("message", "Write a text message to a friend about {topic}."),
    PromptTask("opening", "Write the opening of a story about {topic}."),
    PromptTask("words", "List things that have to do with {topic}.", listing=True),
    PromptTask("reasons", "Give reasons to learn about {topic}.", listing=True),
    PromptTask("ideas", "Suggest activities for a school day about {topic}.", listing=True),
)


def _parse(line: str) -> Topic:
    name, words = line.split(": ")
    return Topic(name, tuple(words.split()))


#: From `topics.txt`, a topic a line.
TOPICS: tuple[Topic, ...] = tuple(
    _parse(line) for line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
)
