"""Which comparisons by what is known of them: attributes, and the fields that their source kept beside each pair.

Leaves out: pools, sources and categories (`assay.data.snapshots`), where the fields come from (importers).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assay.store.database import Connection

#: Rows that are looked at for what fields there are, and values that are named of each.
SAMPLE, MOST_VALUES = 50_000, 40


@dataclass(frozen=True, slots=True)
class FieldFilter:
    """`name`: of an attribute (`attribute`), or of a field of the source's. Any of `values` matches, as text."""

    name: str
    values: tuple[str, ...]
    attribute: bool = False


@dataclass(frozen=True, slots=True)
class FieldValues:
    """`values`: the most frequent ones in a sample of the store, and how often."""

    name: str
    attribute: bool
    values: tuple[tuple[str, int], ...]


def field_conditions(filters: Sequence[FieldFilter]) -> tuple[str, dict[str, Any]]:
    """SQL condition over `p.comparison_id`, and its parameters; every filter has to match."""
    parts, parameters = ["true"], dict[str, Any]()
    for number, wanted in enumerate(filters):
        key, values = f"field_{number}", f"field_{number}_values"
        parameters |= {key: wanted.name, values: list(wanted.values)}
        if wanted.attribute:
            parts.append(
                f"""EXISTS (SELECT 1 FROM attributes t WHERE t.comparison_id = p.comparison_id AND t.name = ${key}
                            AND list_contains(${values}, t.value ->> '$'))"""
            )
        else:
            parts.append(
                f"""EXISTS (SELECT 1 FROM origins o WHERE o.comparison_id = p.comparison_id
                            AND list_contains(${values}, o.meta ->> ('$."' || ${key} || '"')))"""
            )
    return " AND ".join(parts), parameters


def known_fields(db: Connection) -> list[FieldValues]:
    """Attributes, then fields of sources, both by name. Lists and objects are left out, and what is different for
    nearly every comparison, as ids are."""
    rows = db.execute(
        f"""WITH sampled AS (SELECT meta FROM origins WHERE meta IS NOT NULL LIMIT {SAMPLE}),
              fields AS (
                SELECT false AS attribute, name, meta ->> ('$."' || name || '"') AS value
                FROM (SELECT meta, unnest(json_keys(meta)) AS name FROM sampled)
                WHERE json_type(meta, '$."' || name || '"') NOT IN ('ARRAY', 'OBJECT', 'NULL')
                UNION ALL SELECT true, name, value ->> '$' FROM attributes
                WHERE name IN ('task_category', 'objectivity', 'controversiality')),
              counted AS (SELECT attribute, name, value, count(*) AS number FROM fields
                          WHERE value IS NOT NULL AND length(value) <= 200 GROUP BY ALL)
            SELECT attribute, name, list((value, number) ORDER BY number DESC, value)[:{MOST_VALUES}]
            FROM counted GROUP BY attribute, name
            HAVING count(*) <= greatest(20, sum(number) / 5) ORDER BY attribute DESC, name"""
    ).fetchall()
    return [FieldValues(name, attribute, tuple((v, n) for v, n in values)) for attribute, name, values in rows]
