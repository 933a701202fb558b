"""What a stage would ask of judges and people, and what that would cost, before anything is asked.

Stage 1: its next step exactly where known, later iterations by their bounds; stage 2: at most every labelled pair. No
models are loaded; retries and what `not_counted` names are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from assay.browsing.candidates import count_candidates
from assay.data.snapshots import Selection
from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_pipelines.curation.loop.building import spent_by
from assay_pipelines.curation.loop.choosing import choose_seed
from assay_pipelines.curation.loop.config import Stage1Config
from assay_pipelines.curation.loop.labelling import MEASURED
from assay_pipelines.judging.config import judge_entries, judge_of
from assay_pipelines.judging.estimating import estimate
from assay_pipelines.llm.questions import Demonstration, Question, iter_questions, load_questions

READ = 2_000  #: questions that are read for an exact estimate
SAMPLE = 40  #: questions whose length stands for those that are not known yet


@dataclass(frozen=True, slots=True)
class JudgeCost:
    """Without retries. `questions`: at most. `tokens`: in and out, as is to be expected of them. `cost`: None where no
    prices are given; 0 for judges that cost nothing."""

    judge: str
    kind: str
    questions: int
    calls: int = 0
    tokens: int = 0
    cost: float | None = 0.0


@dataclass(frozen=True)
class StageEstimate:
    """`people`: comparisons put before people. `known`: whether the questions are known, not bounds of what a loop will
    choose. `spent`: so far, of `budget` where there is one. `not_counted`: what is asked beside."""

    judges: list[JudgeCost]
    people: int = 0
    known: bool = True
    spent: float = 0.0
    budget: float | None = None
    not_counted: list[str] = field(default_factory=list)

    @property
    def calls(self) -> int:
        return sum(judge.calls for judge in self.judges)

    @property
    def tokens(self) -> int:
        return sum(judge.tokens for judge in self.judges)

    @property
    def cost(self) -> float | None:
        """None where a judge that is called has no prices. The budget may stop before."""
        costs = [judge.cost for judge in self.judges if judge.calls or judge.cost]
        stated = [cost for cost in costs if cost is not None]
        return sum(stated) if len(stated) == len(costs) else None


def estimate_stage1(workspace: Workspace, config: Stage1Config) -> StageEstimate:
    """Of going on with the loop from where it is, or of beginning it, to its last iteration."""
    done, targets = _progress(workspace, config.name)
    exact: dict[str, list[str]] = {"judges": [], "people": []}
    later = {"judges": 0, "people": 0}
    counted = True
    ended = any(step == "publish" for _, step in done)  # a loop that has published asks no more questions
    for iteration in range(config.iterations + 1):
        chosen = targets.get(iteration)
        if chosen is None and iteration == 0:
            seed = choose_seed(workspace, config.pool, config.people.seed + config.seed, seed=config.random_seed)
            chosen = {"people": seed[: config.people.seed], "judges": seed[config.people.seed :]}
        for route in ("people", "judges"):
            if ended or (iteration, route) in done:
                continue
            if chosen is not None:
                exact[route] += chosen[route]
                continue
            counted = False
            most = config.per_iteration or config.k_max * (config.people.seed + iteration * config.people.per_iteration)
            people = min(most, config.people.per_iteration)
            later[route] += people if route == "people" else most - people
    remaining = max(0, count_candidates(workspace, config.pool) - len(exact["judges"]) - len(exact["people"]))
    judges = []
    for route, path in (("judges", config.judges), ("people", None if config.people.queue else config.people.judges)):
        more = min(later[route], remaining)
        if path is not None:
            questions = load_questions(workspace, exact[route])
            judges += _costs(workspace, path, questions, more, config.pool, config.demonstrations, config.random_seed)
    not_counted = []
    if config.attributes:
        not_counted.append("attributes: a call for each comparison")
    if config.judge_weights == "accuracy":
        not_counted.append(f"the judges' accuracy: a question to each judge for each gold pair, up to {MEASURED}")
    if config.preverify:
        not_counted.append("checks of the responses before people see them: a call for each response")
    people = len(exact["people"]) + min(later["people"], remaining)
    spent = spent_by(workspace, config.name)
    return StageEstimate(judges, people if config.people.queue else 0, counted, spent, config.max_cost, not_counted)


def estimate_stage2(
    workspace: Workspace, selection: Selection, judges: str | None, *, budget: float | None = None
) -> StageEstimate:
    """Of asking about every pair of the selection: at most these are doubted; a dry run of the stage says how many."""
    most = count_candidates(workspace, selection)
    costs = _costs(workspace, judges, [], most, selection, 0, 0) if judges is not None else []
    return StageEstimate(costs, known=False, budget=budget)


def estimate_judging(
    workspace: Workspace, selection: Selection, judges: str, *, limit: int | None = None, budget: float | None = None
) -> tuple[int, StageEstimate]:
    """Of `assay judge run --judges FILE`, and the comparisons it looks at: what the judges have not answered yet, where
    that is little enough to be read; else at most as much as there is."""
    looked_at = count_candidates(workspace, selection)
    looked_at = looked_at if limit is None else min(looked_at, limit)
    if looked_at > READ:
        costs = _costs(workspace, judges, [], looked_at, selection, 0, 0)
        return looked_at, StageEstimate(costs, known=False, budget=budget)
    questions = [question for page in iter_questions(workspace, selection, limit=limit) for question in page]
    return looked_at, StageEstimate(_costs(workspace, judges, questions, 0, selection, 0, 0), budget=budget)


def _progress(workspace: Workspace, loop: str) -> tuple[set[tuple[int, str]], dict[int, dict[str, list[str]]]]:
    """(iteration, step) that have happened, and each iteration's targets by route."""
    with workspace.store.unit() as db:
        done = db.execute("SELECT iteration, step FROM loop_steps WHERE loop = ?", [loop]).fetchall()
        rows = db.execute(
            "SELECT iteration, route, comparison_id FROM loop_targets WHERE loop = ? ORDER BY iteration, place", [loop]
        ).fetchall()
    targets: dict[int, dict[str, list[str]]] = {}
    for iteration, route, comparison in rows:
        targets.setdefault(iteration, {"people": [], "judges": []})[route].append(comparison)
    return {(iteration, step) for iteration, step in done}, targets


def _costs(
    workspace: Workspace,
    path: str,
    exact: Sequence[Question],
    more: int,
    pool: Selection,
    demonstrations: int,
    seed: int,
) -> list[JudgeCost]:
    """`exact`: what will be asked; `more`: of others of the pool, at most."""
    costs = []
    sample: list[Question] = []
    if more:
        sample = _with_demonstrations(
            load_questions(workspace, choose_seed(workspace, pool, SAMPLE, seed=seed)), demonstrations
        )
    for number, entry in enumerate(judge_entries(Path(path)), start=1):
        if not isinstance(entry, dict):
            raise BadInputError("must be a list of judges", file=path, field="judges")
        kind = str(entry.get("kind"))
        if kind != "openai":
            name = str(entry.get("name") or entry.get("model") or f"{kind} {number}")
            costs.append(JudgeCost(name, kind, len(exact) + more))
            continue
        judge = judge_of(entry, workspace, Path(path).parent)
        exact_estimate = estimate(workspace, judge, exact)
        mean = estimate(workspace, judge, sample) if more and sample else None
        calls, tokens, cost = exact_estimate.calls, exact_estimate.tokens, exact_estimate.cost
        if mean is not None and mean.questions:
            share = more / mean.questions
            calls += round(mean.calls * share)
            tokens += round(mean.tokens * share)
            cost = None if mean.cost is None or cost is None else cost + mean.cost * share
        costs.append(JudgeCost(exact_estimate.judge, kind, exact_estimate.questions + more, calls, tokens, cost))
    return costs


def _with_demonstrations(questions: list[Question], most: int) -> list[Question]:
    """Each with others of the sample in the place of the labelled neighbours it will be shown: as long, on average."""
    examples = tuple(Demonstration(q.prompt, q.response_a, q.response_b, "A") for q in questions[:most])
    return [replace(question, demonstrations=examples) for question in questions]
