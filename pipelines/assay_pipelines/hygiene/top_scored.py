"""Selection by source and score: the best-scored share of each category, and pairs that a reward model agrees with.

Source: Skywork-Reward, arXiv 2410.18451, and its README (`skywork-80k.yaml` beside this module). Covers: discarding
what is not selected, with the reason; comparisons of sources that no rule names stay, and so does gold. Shares count
what an earlier selection discarded, which stays so: the same rules again change nothing.
Leaves out: scoring (`assay score --save`), decontamination (`assay data decontaminate`).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from assay.errors import BadInputError
from assay.store.scored_models import LAST_REWARDS
from assay.workspace import Workspace
from assay_pipelines.hygiene.discarding import discard

SHIPPED = {"skywork-80k": Path(__file__).with_name("skywork-80k.yaml")}
RULE = "selection by score"


@dataclass(frozen=True)
class SelectionRule:
    """`sources`: source -> what is taken off its scores; they are ranked together, by the mean over both responses of
    the `rating` (an aspect, as the source gave it) or of the rewards of the model `score`. `top`: share of a category,
    `top_of` for those it names. `agrees`: a model whose stored reward must be higher for the chosen response."""

    sources: Mapping[str, float]
    rating: str | None = None
    score: str | None = None
    top: float = 1.0
    top_of: Mapping[str, float] = field(default_factory=dict)
    agrees: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.sources, Mapping) or not isinstance(self.top_of, Mapping):
            raise BadInputError(
                "sources and top_of are tables: a source with what is taken off its scores", field="rules"
            )
        shares = (self.top, *self.top_of.values())
        for number in (*self.sources.values(), *shares):
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise BadInputError(f"not a number: {number!r}", field="rules")
        if not self.sources or not all(0 < share <= 1 for share in shares):
            raise BadInputError("names sources, and shares above 0 and at most 1", field="rules")
        if (min(shares) < 1) != ((self.rating is None) != (self.score is None)):
            raise BadInputError("a share below 1 needs one of rating and score, and nothing else does", field="rules")


def read_rules(name: str) -> tuple[list[SelectionRule], dict[str, int]]:
    """Of a file or a shipped name: the rules, and counts by source that are published for them."""
    path = SHIPPED.get(name) or Path(name).expanduser()
    try:
        payload: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(payload, dict) or not isinstance(payload.get("rules"), list):
            raise BadInputError("needs a list of rules", file=path, field="rules")
        rules = [SelectionRule(**entry) for entry in payload["rules"]]
        published = dict(payload.get("published") or {})
    except OSError as error:
        names = ", ".join(SHIPPED)
        raise BadInputError(f"cannot be read: {error.strerror} (shipped: {names})", file=path) from error
    except (ValueError, yaml.YAMLError, TypeError, KeyError, AttributeError) as error:
        raise BadInputError(f"not rules: {' '.join(str(error).split())}", file=path) from error
    sources = Counter(source for rule in rules for source in rule.sources)
    if twice := [source for source, count in sources.items() if count > 1]:
        raise BadInputError(f"more than one rule names {', '.join(twice)}", file=path, field="rules")
    return rules, published


_VALUES = {
    "rating": """SELECT response_id, avg(value) AS value FROM standing_response_judgments WHERE aspect = $name
                 GROUP BY 1""",
    "score": f"SELECT response_id, reward AS value FROM ({LAST_REWARDS.format(name='$name')})",
}
_PAIRS = """
    SELECT p.comparison_id, p.label, a.value AS a, b.value AS b, o.category,
           (a.value + b.value) / 2 - element_at($offsets::MAP(VARCHAR, DOUBLE), o.source)[1] AS mean
    FROM pools p JOIN (SELECT comparison_id, min(source) AS source, coalesce(min(category), '') AS category FROM origins
                       WHERE list_contains(map_keys($offsets::MAP(VARCHAR, DOUBLE)), source) GROUP BY 1) o
    USING (comparison_id)
    LEFT JOIN ({values}) a ON a.response_id = p.response_a LEFT JOIN ({values}) b ON b.response_id = p.response_b
    WHERE p.pool <> 'discarded' OR p.rule = $rule"""
_BELOW = """
    SELECT comparison_id, CASE WHEN mean IS NULL THEN 'a response has no score' ELSE
           format('score {{:.4g}} is not among the best {{:.0f}} % of {{}}', mean, 100 * share, category) END AS reason
    FROM (SELECT *, row_number() OVER (PARTITION BY category ORDER BY mean DESC NULLS LAST, comparison_id) AS place,
                 count(mean) OVER (PARTITION BY category) AS scored,
                 coalesce(element_at($top_of::MAP(VARCHAR, DOUBLE), category)[1], $top) AS share FROM ({pairs}))
    WHERE mean IS NULL OR place > round(share * scored)"""
_AGAINST = """
    SELECT comparison_id, CASE WHEN mean IS NULL THEN 'a response has no reward of ' || $name
           ELSE $name || ' does not prefer the chosen response' END AS reason
    FROM ({pairs}) WHERE NOT coalesce(CASE label WHEN 'A' THEN a > b WHEN 'B' THEN b > a END, false)"""


def select_by_score(workspace: Workspace, rules: list[SelectionRule], run_id: str) -> dict[str, tuple[int, int]]:
    """Discard what the rules do not select; comparisons by source, and how many of them stay. Raises BadInputError
    before anything is discarded for a rating or a model that no response of a rule's sources has, and where there is
    no comparison of any source."""
    for rule in rules:
        _require_values(workspace, rule)
    before = _counts(workspace, rules, "p.pool <> 'discarded' OR p.rule = $rule")
    if not before:
        with workspace.store.unit() as db:
            sources = [source for (source,) in db.execute("SELECT DISTINCT source FROM origins ORDER BY 1").fetchall()]
        raise BadInputError(
            f"no comparison is of a named source; there are {', '.join(sources) or 'none'}", field="rules"
        )
    for rule in rules:
        offsets = {source: float(offset) for source, offset in rule.sources.items()}
        if min((rule.top, *rule.top_of.values())) < 1:
            values = {
                "name": rule.rating or rule.score,
                "top": rule.top,
                "top_of": dict(rule.top_of),
                "offsets": offsets,
            }
            pairs = _PAIRS.format(values=_VALUES["rating" if rule.rating is not None else "score"])
            _discard(workspace, _BELOW.format(pairs=pairs), values, run_id)
        if rule.agrees is not None:
            pairs = _PAIRS.format(values=_VALUES["score"])
            _discard(workspace, _AGAINST.format(pairs=pairs), {"name": rule.agrees, "offsets": offsets}, run_id)
    after = _counts(workspace, rules, "p.pool <> 'discarded'")
    return {source: (before.get(source, 0), after.get(source, 0)) for rule in rules for source in rule.sources}


def _require_values(workspace: Workspace, rule: SelectionRule) -> None:
    for kind, name in (("rating", rule.rating), ("score", rule.score), ("score", rule.agrees)):
        if name is None:
            continue
        with workspace.store.unit() as db:
            pairs, present = db.execute(
                f"""SELECT count(*), count(v.value) FROM (
                        SELECT unnest([p.response_a, p.response_b]) AS response_id
                        FROM pools p JOIN origins o USING (comparison_id) WHERE list_contains($sources, o.source)
                    ) LEFT JOIN ({_VALUES[kind]}) v USING (response_id)""",
                {"name": name, "sources": list(rule.sources)},
            ).fetchone() or (0, 0)
        if pairs and not present:
            what = "rewards of the model" if kind == "score" else "the rating"
            sources = ", ".join(rule.sources)
            hint = "; assay score --save gives them, or leave the rule out until then" if kind == "score" else ""
            raise BadInputError(f"no response of {sources} has {what} {name!r}{hint}", field="rules")


def _discard(workspace: Workspace, query: str, values: dict[str, Any], run_id: str) -> None:
    with workspace.store.unit() as db:
        rows: Any = db.sql(query + " ORDER BY comparison_id", params=values | {"rule": RULE}).to_arrow_table()
    discard(workspace, rows, RULE, run_id)


def _counts(workspace: Workspace, rules: list[SelectionRule], which: str) -> dict[str, int]:
    with workspace.store.unit() as db:
        rows = db.execute(
            f"""SELECT o.source, count(DISTINCT p.comparison_id) FILTER ({which})
                FROM pools p JOIN origins o USING (comparison_id)
                WHERE list_contains($sources, o.source) AND (p.pool <> 'discarded' OR p.rule = $rule)
                GROUP BY 1 ORDER BY 1""",
            {"sources": [source for rule in rules for source in rule.sources], "rule": RULE},
        ).fetchall()
    return dict(rows)
