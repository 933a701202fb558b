"""Cleaning: structural rules that discard comparisons unfit for training, the first that applies as the reason.

Comparisons in the gold pool are never discarded: a person or a verifier has judged them. Running twice changes nothing;
a comparison that was restored after a rule had discarded it is not discarded by that rule again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from assay.browsing.pair_pages import pair_pages
from assay.compute.scratch_store import scratch
from assay.runs.progress_bar import Advance, silent
from assay.settings import CheckedSettings, Help
from assay.store.database import registered
from assay.workspace import Workspace
from assay_pipelines.hygiene.discarding import discard
from assay_pipelines.hygiene.pair_keys import blank, same_text

CONTROL = r"[\x00-\x08\x0B\x0C\x0E-\x1F\x7F]"


@dataclass(frozen=True)
class CleanConfig(CheckedSettings):
    """Control characters are those of ASCII but tab, newline and return."""

    max_characters: Annotated[int, Ge(0), Help("Discard longer responses; 0 = no limit.")] = 0
    control_characters: Annotated[bool, Help("Discard texts with control characters.")] = True

    def rules(self) -> list[CleaningRule]:
        rules = [
            CleaningRule(
                "empty_prompt", "the prompt has no text", f"list_bool_and([{blank('m.content')} for m in messages])"
            ),
            CleaningRule(
                "prompt_end",
                "the prompt does not end before the assistant's turn",
                "messages[-1].role NOT IN ('user', 'tool')",
            ),
            CleaningRule("empty_response", "a response has no text", f"{blank('a')} OR {blank('b')}"),
            CleaningRule(
                "identical_responses",
                "the responses differ in case or white space only",
                f"{same_text('a')} = {same_text('b')}",
            ),
        ]
        if self.max_characters:
            rules.append(
                CleaningRule(
                    "long_response",
                    f"a response is longer than {self.max_characters} characters",
                    f"greatest(length(a), length(b)) > {int(self.max_characters)}",
                )
            )
        if self.control_characters:
            texts = [*(f"regexp_matches({side}, '{CONTROL}')" for side in ("a", "b"))]
            texts.append(f"list_bool_or([regexp_matches(m.content, '{CONTROL}') for m in messages])")
            rules.append(CleaningRule("control_characters", "a text has control characters", " OR ".join(texts)))
        return rules


@dataclass(frozen=True)
class CleaningRule:
    """`condition`: SQL over `messages` and the responses `a` and `b`."""

    name: str
    reason: str
    condition: str


def clean(
    workspace: Workspace, config: CleanConfig, run_id: str | None, *, advance: Advance = silent
) -> dict[str, int]:
    """Apply the rules; returns rule -> comparisons discarded now. `advance` by comparisons read."""
    rules = config.rules()
    flags = ", ".join(f"coalesce({rule.condition}, false) AS rule_{n}" for n, rule in enumerate(rules))
    broken = " OR ".join(f"rule_{n}" for n in range(len(rules)))
    discarded = {}
    with scratch(workspace) as scratch_db:
        pages = pair_pages(workspace, scratch_db)
        for page in pages.pages(only="pool <> 'gold'"):
            with registered(scratch_db.db, "page", page):
                rejected = scratch_db.db.sql(f"SELECT * FROM (SELECT comparison_id, {flags} FROM page) WHERE {broken}")
                scratch_db.append("broken", rejected.to_arrow_table())
            advance(page.num_rows)
        for n, rule in enumerate(rules):
            discarded[rule.name] = 0
            if scratch_db.has("broken"):
                query = f"SELECT comparison_id, $reason AS reason FROM broken WHERE rule_{n} ORDER BY comparison_id"
                rows = scratch_db.db.sql(query, params={"reason": rule.reason}).to_arrow_table()
                discarded[rule.name] = discard(workspace, rows, rule.name, run_id)
    return discarded
