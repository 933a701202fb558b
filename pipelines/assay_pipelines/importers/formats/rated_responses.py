"""Any number of responses to a prompt with what is said of each: best-of-n scores, ratings, labels, rankings, votes.

`responses` (or `completions`, `candidates`, `samples`, `outputs`, `generations`) is a list of texts, or `response` (or
`output`, `completion`) one text. What is said stands in columns of the names below, in the forms of `ratings`; all
other columns are metadata. A name with rating, score or reward in it is an aspect, too.
"""

import re
from collections.abc import Mapping
from typing import Any

from assay.data.json_lines import RowError
from assay_pipelines.importers.formats.columns import kind_of_annotator, leftover_meta, optional_text
from assay_pipelines.importers.formats.normalised import parse_responses
from assay_pipelines.importers.formats.ratings import BY_ANNOTATOR, EXPLANATIONS, RANKS
from assay_pipelines.importers.layout import RecordLayout
from assay_pipelines.importers.rows import Row

_SEVERAL = ("responses", "completions", "candidates", "samples", "outputs", "generations")
_ONE = ("response", "output", "completion", "answer")
_PROMPTS = ("prompt", "question", "instruction", "problem", "query")
_SAID = frozenset(
    {
        *BY_ANNOTATOR,
        *EXPLANATIONS,
        *RANKS,
        *("scores", "score", "ratings", "rating", "rewards", "reward", "labels", "votes", "correct", "is_correct"),
        *("aspects", "attributes", "likert", "acceptable", "quality", "overall", "helpfulness", "correctness"),
        *("coherence", "complexity", "verbosity", "harmlessness", "honesty", "truthfulness", "propositions"),
        *("instruction_following", "relevance", "accuracy", "factuality", "groundedness", "completeness", "clarity"),
        *("conciseness", "depth", "creativity", "fluency", "consistency", "engagingness", "safety", "toxicity"),
    }
)
_SAID_LIKE = re.compile(r"(?:\w+[_-])?(?:rating|score|reward|likert)s?(?:[_-]\w+)?", re.IGNORECASE)
_ABOUT = ("id", "source", "category", "license", "language", "lang", "annotator", "label_type", "aspect", "question")


class RatedResponsesLayout(RecordLayout):
    """Responses with ratings, scores or rankings."""

    title = "responses with ratings"
    mappable = True

    def matches(self, record: Mapping[str, Any]) -> bool:
        responses = _first(record, _SEVERAL)
        several = isinstance(record.get(responses), list) and all(isinstance(r, str) for r in record[responses])
        one = _first(record, _ONE)
        return bool(
            _first(record, _PROMPTS)
            and any(map(_says, record))
            and (several if responses else one and isinstance(record[one], str))
        )

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        prompt, several, one = (_first(record, names) for names in (_PROMPTS, _SEVERAL, _ONE))
        if not prompt or not (several or one):
            raise RowError("missing", field="responses" if prompt else "prompt")
        labels = {name: value for name, value in record.items() if _says(name)}
        nested = labels.pop("ratings", None)
        labels |= (
            nested if isinstance(nested, dict) and not _SAID & nested.keys() & labels.keys() else {"ratings": nested}
        )
        annotator = optional_text(record, "annotator")
        kinds = {"human": "human", "llm": "model"}
        label_type = record.get("label_type") or (kinds[kind_of_annotator(annotator)] if annotator else None)
        known = {*labels, *_ABOUT, "ratings", prompt, several or one, "meta"}
        meta = record.get("meta")
        return parse_responses(
            {
                **{name: record.get(name) for name in _ABOUT if name != prompt},
                "lang": record.get("language") or record.get("lang"),
                "prompt": record[prompt],
                "responses": record[several] if several else [record[one]],
                "ratings": labels,
                "label_type": label_type,
                "meta": {**leftover_meta(record, frozenset(known)), **(meta if isinstance(meta, dict) else {})},
            }
        )


def _says(name: str) -> bool:
    """Whether a column of that name holds labels."""
    return name in _SAID or _SAID_LIKE.fullmatch(name) is not None


def _first(record: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return next((name for name in names if record.get(name) is not None), "")
