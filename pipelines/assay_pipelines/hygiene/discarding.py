"""Discarding comparisons by a rule, each with its reason, in short units of work.

A comparison that was restored after a rule had discarded it is not discarded by that rule again.
"""

from typing import TYPE_CHECKING

from assay.store.database import registered
from assay.workspace import Workspace

if TYPE_CHECKING:
    import pyarrow as pa

_PAGE = 50_000


def discard(
    workspace: Workspace, rows: "pa.Table", rule: str, run_id: str | None, *, leave: tuple[str, ...] = ("gold",)
) -> int:
    """`rows`: comparison_id, reason, and `basis` where it is more than the comparison's own text. Comparisons in the
    pools `leave` stay. Returns how many were discarded now."""
    total = 0
    basis = "i.basis" if "basis" in rows.column_names else "[]"
    for low in range(0, rows.num_rows, _PAGE):
        with workspace.store.unit() as db, registered(db, "incoming_reasons", rows.slice(low, _PAGE)):
            row = db.execute(
                f"""INSERT INTO decisions (comparison_id, pool, rule, reason, basis, run_id)
                   SELECT i.comparison_id, 'discarded', $rule, i.reason, {basis}, $run
                   FROM incoming_reasons i LEFT JOIN (
                       SELECT comparison_id, arg_max(pool, "position") AS pool, bool_or(rule = $rule) AS decided
                       FROM decisions WHERE comparison_id IN (SELECT comparison_id FROM incoming_reasons)
                       GROUP BY comparison_id
                   ) d ON d.comparison_id = i.comparison_id
                   WHERE NOT list_contains($leave, coalesce(d.pool, 'unverified'))
                     AND NOT coalesce(d.decided, false)""",
                {"rule": rule, "run": run_id, "leave": [*leave, "discarded"]},
            ).fetchone()
        total += int(row[0]) if row else 0
    return total
