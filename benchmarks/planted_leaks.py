"""Leaks of benchmark prompts as they occur in preference data: verbatim, embedded, disguised, edited, paraphrased.

Each class is a function (prompt, carrier texts, random source) -> the text that leaks, or None where the class does
not apply to that prompt. Leaves out: the data and the measure (`contamination_recall`).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

#: "Answer this please" and its like, in ten languages.
PREFIXES = (
    "Por favor, responda con cuidado a lo siguiente:",
    "Bitte beantworten Sie die folgende Aufgabe so gut wie möglich:",
    "Réponds à la demande ci-dessous en détail, s'il te plaît :",
    "Пожалуйста, ответьте на следующий вопрос подробно:",
    "请仔细回答下面的问题：",
    "次の質問に丁寧に答えてください。",
    "다음 질문에 자세히 답해 주세요:",
    "कृपया नीचे दिए गए प्रश्न का उत्तर दें:",
    "يرجى الإجابة على السؤال التالي:",
    "Proszę odpowiedzieć na poniższe pytanie:",
)
NAMES = ("Oswin", "Marisela", "Tadeusz", "Priyanka", "Kofi", "Ingrid", "Rashida", "Bartholomew", "Yumiko", "Caoimhe")
ZERO_WIDTH = "\u200b\u200c\u200d\u2060\ufeff\u00ad"
#: Letters of other scripts that look the same; the encoder of text in a browser shows no difference.
LOOK_ALIKES = str.maketrans("aeopcxyisjhABEKMHOPCTXvw", "аеорсхуіѕјһАВЕКМНОРСТХνѡ")
SYNONYMS = {
    "write": "compose",
    "create": "produce",
    "explain": "clarify",
    "describe": "give a description of",
    "provide": "supply",
    "give": "offer",
    "make": "build",
    "generate": "come up with",
    "show": "demonstrate",
    "find": "determine",
    "use": "employ",
    "using": "with the help of",
    "help": "assist",
    "need": "require",
    "want": "would like",
    "ensure": "make sure",
    "include": "contain",
    "including": "such as",
    "discuss": "talk about",
    "compare": "contrast",
    "implement": "code up",
    "solve": "work out",
    "how many": "what number of",
    "how do i": "what is the way to",
    "how can i": "what is a way for me to",
    "how to": "the way to",
    "what are": "can you list",
    "what is": "can you tell me",
    "why": "for what reason",
    "about": "regarding",
    "because": "since",
    "however": "but",
    "also": "in addition",
    "must": "has to",
    "should": "ought to",
    "only": "solely",
    "big": "large",
    "large": "big",
    "small": "little",
    "best": "most suitable",
    "good": "fine",
    "different": "various",
    "important": "significant",
    "new": "fresh",
    "short": "brief",
    "detailed": "thorough",
    "entire": "whole",
    "all": "every one of the",
    "each": "every",
    "many": "numerous",
    "people": "persons",
    "person": "individual",
    "following": "below",
    "example": "sample",
    "response": "reply",
    "answer": "reply",
    "question": "query",
    "story": "tale",
    "task": "job",
    "problem": "issue",
    "way": "manner",
    "start": "begin",
    "end": "finish",
    "like": "similar to",
    "please": "kindly",
    "keep": "retain",
    "get": "obtain",
    "buy": "purchase",
    "do not": "don't",
    "cannot": "can't",
    "it is": "it's",
    "i am": "i'm",
    "happens": "occurs",
    "true": "correct",
}
_SYNONYM = re.compile(
    r"\b(" + "|".join(sorted(map(re.escape, SYNONYMS), key=len, reverse=True)) + r")\b", re.IGNORECASE
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]{2,}\b")
_NUMBER = re.compile(r"(?<![\w.])\d{1,6}(?![\w.]*\d)")

Leak = Callable[[str, "list[str]", random.Random], "str | None"]


def words(text: str) -> int:
    return len(text.split())


def verbatim(prompt: str, carriers: list[str], chance: random.Random) -> str | None:
    return prompt


def embedded(prompt: str, carriers: list[str], chance: random.Random) -> str | None:
    before, after = chance.sample(carriers, 2)
    return f"{before}\n\n{prompt} {after}" if chance.random() < 0.7 else f"{before} {prompt}"


def foreign_prefix(prompt: str, carriers: list[str], chance: random.Random) -> str | None:
    return f"{chance.choice(PREFIXES)} {prompt}"


def changed_name_or_number(prompt: str, carriers: list[str], chance: random.Random) -> str | None:
    """One name (everywhere) or one number replaced; both where the prompt has 40 words or more."""
    names, numbers = sorted(set(_NAME.findall(prompt))), _NUMBER.findall(prompt)
    if (not names and not numbers) or words(prompt) < 6:
        return None
    changed = prompt
    if names and (not numbers or words(prompt) >= 40 or chance.random() < 0.5):
        old = chance.choice(names)
        changed = re.sub(rf"\b{old}\b", chance.choice([n for n in NAMES if n != old]), changed)
    if numbers and (changed == prompt or words(prompt) >= 40):
        old = chance.choice(numbers)
        changed = re.sub(rf"\b{old}\b", str(int(old) + chance.randint(1, 97)), changed)
    return changed


def paraphrase(prompt: str, carriers: list[str], chance: random.Random) -> str | None:
    """Every second known word by a synonym, a polite frame, sentences after the first in another order; None where
    under a tenth of the words change or the prompt is mostly code."""
    if words(prompt) > 120 or sum(c in "{}<>=_\\|;" for c in prompt) > words(prompt) // 4:
        return None
    changed = _SYNONYM.sub(lambda m: SYNONYMS[m[0].lower()] if chance.random() < 0.75 else m[0], prompt)
    sentences = _SENTENCE.split(changed)
    if len(sentences) > 2:
        tail = sentences[1:]
        chance.shuffle(tail)
        changed = " ".join([sentences[0], *tail])
    kept = set(prompt.lower().split())
    if sum(word not in kept for word in changed.lower().split()) < max(1, words(prompt) // 10):
        return None
    frames = ("Could you help me with this? {}", "{} Thanks in advance!", "I was wondering: {}", "{}")
    return chance.choice(frames).format(changed)


def reworded(prompt: str, carriers: list[str], chance: random.Random) -> str | None:
    """A heavier paraphrase: every known word by a synonym, function words dropped, all sentences in another order; None
    where under a fifth of the words change."""
    if words(prompt) > 120 or sum(c in "{}<>=_\\|;" for c in prompt) > words(prompt) // 4:
        return None
    changed = _SYNONYM.sub(lambda m: SYNONYMS[m[0].lower()], prompt)
    changed = re.sub(r"\b(the|a|an|of|that|which|do|does|are|is|please) ", "", changed, flags=re.IGNORECASE)
    sentences = _SENTENCE.split(changed)
    chance.shuffle(sentences)
    changed = " ".join(sentences)
    kept = set(changed.lower().split())
    if sum(word not in kept for word in prompt.lower().split()) < max(2, words(prompt) // 5):
        return None
    return chance.choice(("Quick one: {}", "{}", "{} I would appreciate it.")).format(changed)


def markdown(prompt: str, carriers: list[str], chance: random.Random) -> str | None:
    """A heading, emphasis on some words, a link, sentences as a list or a quotation."""
    lines = []
    for sentence in _SENTENCE.split(prompt):
        marked = [
            chance.choice(("**{}**", "_{}_", "`{}`", "[{}](https://example.org/page)")).format(word)
            if chance.random() < 0.2
            else word
            for word in sentence.split(" ")
        ]
        lines.append(chance.choice(("- ", "1. ", "> ", "")) + " ".join(marked))
    return "## Task\n\n" + "\n".join(lines)


def zero_width(prompt: str, carriers: list[str], chance: random.Random) -> str | None:
    return "".join(c + chance.choice(ZERO_WIDTH) if c.isalpha() and chance.random() < 0.3 else c for c in prompt)


def look_alikes(prompt: str, carriers: list[str], chance: random.Random) -> str | None:
    """Letters of other scripts, full-width forms or mathematical letters."""
    style = chance.randrange(3)

    def letter(c: str) -> str:
        if style == 0:
            return c.translate(LOOK_ALIKES)
        if not (c.isascii() and c.isalpha()):
            return c
        if style == 1:
            return chr(ord(c) + 0xFEE0)
        return chr(0x1D400 + ord(c) - 65 if c.isupper() else 0x1D41A + ord(c) - 97)

    return "".join(letter(c) if chance.random() < 0.5 else c for c in prompt)


def passage(prompt: str, carriers: list[str], chance: random.Random) -> str | None:
    """The second half of a prompt of 40 words or more, within another text."""
    parts = prompt.split(" ")
    if len(parts) < 40:
        return None
    return f"{chance.choice(carriers)}\n\n" + " ".join(parts[len(parts) // 2 :])


#: Classes of a leak in the first user turn.
LEAKS: dict[str, Leak] = {
    "verbatim": verbatim,
    "embedded": embedded,
    "foreign_prefix": foreign_prefix,
    "changed_name_or_number": changed_name_or_number,
    "paraphrase": paraphrase,
    "reworded": reworded,
    "markdown": markdown,
    "zero_width": zero_width,
    "look_alikes": look_alikes,
    "passage": passage,
}
