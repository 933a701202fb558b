"""Cleaning: structural rules that discard comparisons no one should train on, each with its reason.

Covers: the rules, as SQL over the whole store, applied in order; a comparison gets the first reason only. Leaves out:
duplicates and contradictions (`assay_pipelines.deduplication`), opinions on quality (curation).

Comparisons in pool gold are left alone: a person or a verifier has judged them. Running twice changes nothing; a
comparison that somebody put back after a rule had discarded it is not discarded by that rule again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.errors import BadInputError
from assay.progress import Advance, silent
from assay_pipelines.normalisation import blank, same_text

if TYPE_CHECKING:
    import duckdb

CONTROL = r"[\x00-\x08\x0B\x0C\x0E-\x1F\x7F]"


@dataclass(frozen=True)
class CleanConfig:
    """`max_characters`: longer responses are discarded, 0 = no limit. `control_characters`: whether texts with ASCII
    control characters (not tab, newline, return) are."""

    max_characters: int = 0
    control_characters: bool = True

    def __post_init__(self) -> None:
        if self.max_characters < 0:
            raise BadInputError("must not be negative", field="max_characters")

    def rules(self) -> list[Rule]:
        rules = [
            Rule("empty_prompt", "the prompt has no text", f"list_bool_and([{blank('m.content')} for m in messages])"),
            Rule(
                "prompt_end",
                "the prompt does not end before the assistant's turn",
                "messages[-1].role NOT IN ('user', 'tool')",
            ),
            Rule("empty_response", "a response has no text", f"{blank('a.content')} OR {blank('b.content')}"),
            Rule(
                "identical_responses",
                "the responses differ in case or white space only",
                f"{same_text('a.content')} = {same_text('b.content')}",
            ),
        ]
        if self.max_characters:
            rules.append(
                Rule(
                    "long_response",
                    f"a response is longer than {self.max_characters} characters",
                    f"greatest(length(a.content), length(b.content)) > {int(self.max_characters)}",
                )
            )
        if self.control_characters:
            texts = "a.content || b.content || array_to_string([m.content for m in messages], '')"
            rules.append(
                Rule("control_characters", "a text has control characters", f"regexp_matches({texts}, '{CONTROL}')")
            )
        return rules


@dataclass(frozen=True)
class Rule:
    """`condition`: SQL over prompts (messages) and the responses a and b."""

    name: str
    reason: str
    condition: str


def clean(
    db: duckdb.DuckDBPyConnection, config: CleanConfig, run_id: str | None, *, advance: Advance = silent
) -> dict[str, int]:
    """Apply the rules inside the caller's unit; returns rule -> comparisons discarded now. `advance` per rule."""
    discarded: dict[str, int] = {}
    for rule in config.rules():
        row = db.execute(
            f"""INSERT INTO decisions (comparison_id, pool, rule, reason, run_id)
                SELECT c.comparison_id, 'discarded', $rule, $reason, $run
                FROM comparisons c
                JOIN prompts p USING (prompt_id)
                JOIN responses a ON a.response_id = c.response_a
                JOIN responses b ON b.response_id = c.response_b
                LEFT JOIN current_decisions d ON d.comparison_id = c.comparison_id
                WHERE coalesce(d.pool, '') NOT IN ('discarded', 'gold')
                  AND NOT EXISTS (SELECT 1 FROM decisions e
                                  WHERE e.comparison_id = c.comparison_id AND e.rule = $rule AND e.pool = 'discarded')
                  AND ({rule.condition})""",
            {"rule": rule.name, "reason": rule.reason, "run": run_id},
        ).fetchone()
        discarded[rule.name] = int(row[0]) if row else 0
        advance(1)
    return discarded
