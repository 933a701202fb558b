"""Prompts and responses of a record, as an adapter's rules read them: text, templates, dialogues, messages.

Leaves out: what a message may be (`assay.data.conversation`).
"""

import re
from collections.abc import Callable
from typing import Any, TypeAlias

from assay.data.conversation import (
    DIVERGED,
    ResponseForm,
    Turns,
    prompt_turns,
    response_form_of,
    split_pair,
    text_of,
)
from assay.data.json_lines import RowError
from assay_pipelines.importers.adapters.paths import field_of, getter
from assay_pipelines.importers.adapters.schema import TEMPLATE_FIELD, ComparisonRule, DialogueRule, PromptRule
from assay_pipelines.importers.formats.columns import text_or_none
from assay_pipelines.importers.rows import not_empty

TurnsReader: TypeAlias = Callable[[Any], Turns]


def prompt_reader(rule: PromptRule | str) -> TurnsReader:
    """The turns of a record's prompt. Raises RowError."""
    if isinstance(rule, str):
        rule = PromptRule(text=rule)
    content = _content_reader(rule)
    field = field_of(rule.text or (rule.join[0] if rule.join else "prompt"))
    system, history = (getter(path) if path else None for path in (rule.system, rule.history))
    divide = dialogue_reader(rule.dialogue, field) if rule.dialogue else None

    def read(record: Any) -> Turns:
        value = content(record)
        if divide is not None and isinstance(value, str):
            turns = divide(value)
        else:
            turns = prompt_turns(as_messages(value), field)
        if history is not None:
            turns = [*_history(history(record), rule.history or ""), *turns]
        if system is not None and (text := text_or_none(system(record), rule.system or "")) is not None:
            turns = [{"role": "system", "content": text}, *(t for t in turns if t["role"] != "system")]
        return turns

    return read


def dialogue_reader(rule: DialogueRule, field: str) -> Callable[[str], Turns]:
    """Turns of a prompt with a mark before each; what stands before the first mark is the user's. A mark of the
    assistant at the end, where the response belongs, is left out.
    """
    divide = turns_reader(rule)

    def read(text: str) -> Turns:
        before, turns = divide(text)
        turns = [{"role": "user", "content": before}, *turns] if before else turns
        if turns and turns[-1] == {"role": "assistant", "content": ""}:
            turns.pop()
        if not turns:
            raise RowError("empty", field=field)
        if turns[-1]["role"] != "user":
            raise RowError("the dialogue does not end with the user's turn", field=field)
        return prompt_turns(turns, field)

    return read


def turns_reader(rule: DialogueRule) -> Callable[[str], tuple[str, Turns]]:
    """What stands before the first mark, and the turns after it, without the white space around them."""
    lead = rule.user[: len(rule.user) - len(rule.user.lstrip())]
    if not rule.assistant.startswith(lead):
        lead = ""
    user, assistant = (re.escape(mark.removeprefix(lead)) for mark in (rule.user, rule.assistant))
    marks = re.compile(f"{lead}(?:({user})|{assistant})")

    def divide(text: str) -> tuple[str, Turns]:
        before, *pieces = marks.split(lead + text.lstrip())
        turns: Turns = [
            {"role": "user" if mark else "assistant", "content": content.strip()}
            for mark, content in zip(pieces[::2], pieces[1::2], strict=True)
        ]
        return before.strip(), turns

    return divide


def response_of_value(value: object, field: str) -> ResponseForm:
    """A response given as text, as one message, or as a list of messages that ends with the assistant's."""
    value = as_messages(value)
    return not_empty(response_form_of([value] if isinstance(value, dict) else value, field), field)


def sides_reader(rule: ComparisonRule) -> Callable[[Any, Turns | None], tuple[Turns, ResponseForm, ResponseForm]]:
    """The prompt and the responses of the two sides of a record, whose prompt is given or begins both. Raises RowError
    where the user says other things."""
    first, second, fields = getter(rule.first), getter(rule.second), (field_of(rule.first), field_of(rule.second))
    divide = turns_reader(rule.dialogue) if rule.dialogue is not None else None

    def side(value: object, field: str) -> Any:
        if divide is not None:
            before, turns = divide(text_of(value, field))
            if before or not turns:
                raise RowError("not a dialogue with these marks", field=field)
            return turns
        return [value] if isinstance(value, dict) else as_messages(value)

    def read(record: Any, turns: Turns | None) -> tuple[Turns, ResponseForm, ResponseForm]:
        one, two = side(first(record), fields[0]), side(second(record), fields[1])
        if turns is not None and not (isinstance(one, list) and isinstance(two, list)):
            return turns, response_of_value(one, fields[0]), response_of_value(two, fields[1])
        try:
            turns, one, two = split_pair(turns, one, two)
        except RowError as error:
            field = {"chosen": fields[0], "rejected": fields[1]}.get(error.field or "", error.field)
            raise RowError(error.reason, field=field) from error
        if rule.last_turn_only and not (len(one) == len(two) == 1 or (isinstance(one, str) and isinstance(two, str))):
            raise RowError(DIVERGED, field=fields[1])
        return turns, one, two

    return read


def as_messages(value: object) -> Any:
    """Messages as they are, and a list of texts as turns that alternate."""
    if isinstance(value, list) and value and isinstance(value[0], str) and all(isinstance(text, str) for text in value):
        roles = ("user", "assistant")
        return [{"role": roles[place % 2], "content": text} for place, text in enumerate(value)]
    return value


def _content_reader(rule: PromptRule) -> Callable[[Any], Any]:
    if rule.text is not None:
        return getter(rule.text)
    if rule.join:
        getters = [(path, getter(path)) for path in rule.join]
        return lambda record: rule.separator.join(
            text for path, get in getters if (text := text_or_none(get(record), path)) is not None
        )
    templates = [(text, {path: getter(path) for path in TEMPLATE_FIELD.findall(text)}) for text in rule.template]

    def fill(record: Any) -> str | None:
        for text, getters in templates:
            texts = {path: text_or_none(get(record), path) for path, get in getters.items()}
            if all(value is not None for value in texts.values()):
                return TEMPLATE_FIELD.sub(lambda match: str(texts[match[1]]), text)  # noqa: B023
        raise RowError("no template applies: a field is missing", field=next(iter(templates[0][1]), "prompt"))

    return fill


def _history(value: object, field: str) -> Turns:
    turns: Turns = []
    if value is None:
        return turns
    if not isinstance(value, list):
        raise RowError("wrong type: not a list of pairs", field=field)
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2:
            raise RowError("an entry that is no question with its answer", field=field)
        turns.append({"role": "user", "content": text_of(pair[0], field)})
        turns.append({"role": "assistant", "content": text_of(pair[1], field)})
    return turns
