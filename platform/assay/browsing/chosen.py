"""Some comparisons of a large store, read without reading the store: the narrow columns of the large tables are looked
through, and the texts of these comparisons alone are read.

Covers: temporary tables and pieces of SQL about the comparisons in them. Leaves out: which comparisons, what is made of
them (`shown_pairs`, `candidates`).
"""

from collections.abc import Sequence

from assay.browsing.texts import locate
from assay.store.database import Connection

_CHOSEN = """
    CREATE OR REPLACE TEMP TABLE chosen AS
    SELECT rowid AS place, comparison_id, prompt_id, response_a, response_b FROM comparisons
    WHERE comparison_id IN (SELECT unnest($ids))"""
#: comparison_id, d: the decision in force, as the view current_decisions has it.
DECIDED = """
    SELECT comparison_id, arg_max({'pool': pool, 'label': label, 'rule': rule, 'reason': reason}, position) AS d
    FROM decisions SEMI JOIN chosen USING (comparison_id) GROUP BY comparison_id"""
#: comparison_id, label: what its sources say where they agree, as the view source_labels has it; judgments: their ids.
SAID = """
    SELECT comparison_id, if(min(answer) = max(answer), min(answer), NULL) AS label,
           list_sort(list(judgment_id)) AS judgments FROM (
        SELECT comparison_id, judgment_id,
               CASE WHEN answer IN ('A', 'B') THEN answer WHEN answer <> 'skip' THEN 'tie' END AS answer
        FROM judgments SEMI JOIN chosen USING (comparison_id) JOIN annotators USING (annotator_id)
        WHERE kind = 'source' AND answer <> 'skip'
    ) GROUP BY comparison_id"""
#: prompt_id, messages, conversation; response_id, content, turns (null: see `assay.conversation.message`).
ASKED = "SELECT prompt_id, messages, conversation FROM prompts WHERE rowid IN (SELECT place FROM at_prompts)"
ANSWERED = "SELECT response_id, content, turns FROM responses WHERE rowid IN (SELECT place FROM at_responses)"


def choose(db: Connection, comparison_ids: Sequence[str]) -> bool:
    """Make the temporary tables that the pieces of SQL above read; False where none of the ids is known.

    `chosen`: place (row number), comparison_id, prompt_id, response_a, response_b.
    """
    db.execute(_CHOSEN, {"ids": list(dict.fromkeys(comparison_ids))})
    ((low, high, total),) = db.execute(
        "SELECT min(place), max(place), (SELECT count(*) FROM comparisons) FROM chosen"
    ).fetchall()
    if low is None:
        return False
    span = (low / total, (high + 1) / total)
    locate(db, "prompts", "SELECT DISTINCT prompt_id FROM chosen", span)
    locate(db, "responses", "SELECT response_a FROM chosen UNION SELECT response_b FROM chosen", span)
    return True
