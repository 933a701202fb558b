"""Stage 1 of Skywork-Reward-V2. Every step happens once (`state`), so the loop can be killed anywhere and run again.

seed -> people, judges;  then per iteration: train on silver, choose on gold -> predict gold
-> retrieve around its errors -> people and judges label -> decide
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from assay.browsing.candidates import Candidate, candidates_by_id, decided_meanwhile
from assay.data.pair_attributes import PairAttributes
from assay.data.snapshots import create_snapshot, load_pairs
from assay.errors import BadInputError
from assay.runs.progress_bar import progress_bar
from assay.runs.progress_file import noted
from assay.runs.record import Run
from assay.statistics.intervals import wilson
from assay.store.database import Connection
from assay.store.records import Decision, Evidence, insert_decisions
from assay_pipelines.annotation.votes import basis_of
from assay_pipelines.curation.loop.choosing import choose_for_judges, choose_seed
from assay_pipelines.curation.loop.config import Stage1Config
from assay_pipelines.curation.loop.demonstrations import demonstrations
from assay_pipelines.curation.loop.labelling import MEASURED, Asked, ask_judges, silver_decisions, voter_weights
from assay_pipelines.curation.loop.parts import Parts
from assay_pipelines.curation.loop.people import CollectedAnswers, vote_counts
from assay_pipelines.curation.loop.reward_models import LoopModel
from assay_pipelines.curation.loop.state import Loop, PausedError, StepOutcome, Target
from assay_pipelines.curation.reliability.estimates import reliabilities
from assay_pipelines.judging.judging_models import record_models
from assay_pipelines.llm.annotators import annotator_of
from assay_pipelines.llm.questions import Question, load_questions, questions_of


@dataclass
class Stage1Report:
    """`iterations`: what each came to, the seed first. `waiting`: for people, with the queue's name; `stopped`: by a
    budget or by judges that all fail. Running it again resumes. `model`: the artifact of the model that is best on
    gold, `model_name` its name in the workspace."""

    loop: str
    iterations: list[dict[str, Any]] = field(default_factory=list)
    waiting: str | None = None
    stopped: str | None = None
    model: str | None = None
    model_name: str | None = None
    models: list[dict[str, Any]] = field(default_factory=list)


def run_stage1(config: Stage1Config, parts: Parts, run: Run) -> Stage1Report:
    """Begin the loop, or resume it. Raises BadInputError where the pool is empty."""
    loop = Loop.open(parts.workspace, config, run.id)
    report = Stage1Report(config.name)
    most = 3 + 4 * config.iterations + 2  # the seed's steps, the iterations', and the two at the end
    with noted(f"loop {config.name}", most, unit="steps") as step_done:
        try:
            _run_steps(replace(loop, step_done=step_done), parts, run, report)
        except PausedError as pause:
            report.waiting, report.stopped = pause.waiting, pause.stopped
    return report


def _run_steps(loop: Loop, parts: Parts, run: Run, report: Stage1Report) -> None:
    config = loop.config
    seeded = loop.once(0, "targets", lambda: _seed(loop, parts))
    report.iterations.append({"iteration": 0, **seeded, **_label(loop, parts, 0, None)})
    for iteration in range(1, config.iterations + 1):
        trained = loop.once(iteration, "train", lambda i=iteration: _train(loop, parts, run, i))  # type: ignore[misc]
        model = parts.load(trained["model"], load_pairs(loop.workspace, trained["gold"]))
        record_models(run, [model.scorer.info])
        targets = loop.once(iteration, "targets", lambda i=iteration, m=model: _retrieve(loop, parts, i, m))  # type: ignore[misc]
        done = {"iteration": iteration, **_brief(trained), **targets}
        if not targets["people"] + targets["judges"]:
            report.iterations.append(done)
            break
        report.iterations.append({**done, **_label(loop, parts, iteration, model)})
    last = report.iterations[-1]["iteration"] + 1
    trained = loop.once(last, "final", lambda: _train(loop, parts, run, last))
    chosen = loop.once(last, "publish", lambda: _publish(loop, parts, run, last))
    report.models, report.model, report.model_name = chosen["models"], chosen["artifact"], chosen.get("name")


def _seed(loop: Loop, parts: Parts) -> StepOutcome:
    """Comparisons for people and for judges, spread over the categories."""
    config = loop.config
    chosen = choose_seed(loop.workspace, config.pool, config.people.seed + config.seed, seed=config.random_seed)
    if not chosen:
        raise BadInputError("the loop's pool is empty: no unverified comparison matches", field="sources")
    attributes = parts.attributes_of(chosen, loop.run_id)
    for_people = _easy_first(chosen, attributes, {})[: config.people.seed]
    people_ids = set(for_people)
    targets = [Target(c, "people", {"seed": True}) for c in for_people]
    targets += [Target(c, "judges", {"seed": True}) for c in chosen if c not in people_ids]
    return _targets(loop, 0, targets)


def _train(loop: Loop, parts: Parts, run: Run, iteration: int) -> StepOutcome:
    """A reward model on what is silver by now, chosen on gold."""
    config = loop.config
    name = f"{config.name}-i{iteration}"
    pools = ("silver",) if config.train_on == "silver" else ("silver", "gold")
    _check_labels(loop)
    # a training that was killed had fixed them already, and others may have decided since
    silver = create_snapshot(loop.workspace, f"{name}-train", config.labelled(*pools), run.id, keep=True)
    gold = create_snapshot(loop.workspace, f"{name}-gold", config.labelled("gold"), run.id, keep=True)
    for snapshot in (silver, gold):
        run.link("input", "snapshot", snapshot.id)
    pairs, gold_pairs = load_pairs(loop.workspace, silver.name), load_pairs(loop.workspace, gold.name)
    # gold that is trained on cannot choose: it would take the model that has learnt it by heart
    choosers = gold_pairs if config.train_on == "silver" else []
    trained = parts.models.train(run, name, silver.name, pairs, choosers)
    quality = _accuracy(LoopModel(parts.models.load(trained), parts.uncalibrated).probabilities(gold_pairs))
    fitted = {"trained_on": trained["pairs"], "left_out": trained["left_out"]}
    return StepOutcome({"model": trained, "gold": gold.name, **fitted, "gold_accuracy": quality})


def _check_labels(loop: Loop) -> None:
    """Raises BadInputError where nothing is silver to train on, or nothing gold to find errors on."""
    condition, values = loop.config.labelled("gold", "silver").where()
    with loop.workspace.store.unit() as db:
        query = f"SELECT p.pool, count(*) FROM pools p WHERE {condition} AND p.label IN ('A', 'B') GROUP BY p.pool"
        counts = dict(db.execute(query, values).fetchall())
    if not counts.get("gold"):
        raise BadInputError(
            "the loop has no gold pair to find a model's errors on: people labelled none with A or B (people.seed is "
            f"{loop.config.people.seed}); let people label more, or verify some first: assay curate verify"
        )
    if not counts.get("silver"):
        raise BadInputError(
            "the loop has no silver pair to train on: judges, source and model agreed on none of the seed "
            f"(seed is {loop.config.seed})"
        )


def _retrieve(loop: Loop, parts: Parts, iteration: int, model: LoopModel) -> StepOutcome:
    """Around the errors on gold: k unverified neighbours of each gold pair, more the worse it is predicted."""
    config = loop.config
    gold = load_pairs(loop.workspace, f"{config.name}-i{iteration}-gold")
    p = {g.comparison_id: q for g, q in zip(gold, model.probabilities(gold), strict=True) if q is not None}
    limit = config.per_iteration or config.k_max * len(p)
    if config.choose != "errors":
        with loop.workspace.store.unit() as db:
            worth = reliabilities(db)
        neighbours = choose_for_judges(
            loop.workspace,
            config.pool,
            limit,
            "contradiction" if config.choose == "contradictions" else "uncertain",
            worth,
            model=model,
            judges=[annotator_of(judge).id for judge in parts.judges],
            exclude=loop.looked_at(),
            seed=config.random_seed,
        )
    else:
        parts.embed(config.pool, loop.run_id)
        neighbours = parts.around(p, config, loop.run_id, exclude=loop.looked_at())
    neighbours = neighbours[:limit]
    candidates = candidates_by_id(loop.workspace, [f.comparison_id for f in neighbours])
    attributes = parts.attributes_of([c.comparison_id for c in candidates], loop.run_id)
    unsure = {c: 1 - abs(2 * q - 1) for c, q in model.p_a(candidates).items()}
    order = _easy_first([c.comparison_id for c in candidates], attributes, unsure)
    for_people = set(order[: config.people.per_iteration])
    why = {f.comparison_id: f.why for f in neighbours}
    targets = [Target(c, "people", {**why[c], "uncertainty": unsure.get(c)}) for c in order if c in for_people]
    targets += [Target(c, "judges", why[c]) for c in order if c not in for_people]
    wrong = sum(q <= 0.5 for q in p.values())
    outcome = _targets(loop, iteration, targets)
    return StepOutcome({**outcome.payload, "gold_predicted": len(p), "gold_wrong": wrong}, outcome.write)


def _label(loop: Loop, parts: Parts, iteration: int, model: LoopModel | None) -> dict[str, Any]:
    """Gold from annotators, silver from judges. What annotators cannot decide is discarded, never put to a judge."""
    targets = loop.targets(iteration)
    return {
        **loop.once(iteration, "people", lambda: _ask_people(loop, parts, iteration, targets)),
        **loop.once(iteration, "judges", lambda: _ask_judges(loop, parts, iteration, targets, model)),
    }


def _ask_people(loop: Loop, parts: Parts, iteration: int, targets: Sequence[Target]) -> StepOutcome:
    people_targets = [t for t in targets if t.route == "people"]
    if not people_targets:
        return StepOutcome({"people_asked": 0})
    candidates = candidates_by_id(loop.workspace, [t.comparison_id for t in people_targets])
    questions = questions_of(loop.workspace, candidates)
    if parts.preverify is not None:
        parts.preverify(questions, loop.run_id)
    queue = f"{loop.config.name}-i{iteration}"
    collected = parts.people.ask(queue, questions, {t.comparison_id: t.why for t in people_targets}, loop.run_id)
    if collected.open and loop.config.people.policy == "wait":
        raise PausedError(waiting=f"{collected.open} of {collected.questions} comparisons in queue {queue!r}")
    all_decisions = gold_decisions(collected, iteration, _near(people_targets))
    # what was decided while people looked at it (a leak found, a queue resolved by hand) stays decided
    unverified = {c.comparison_id for c in candidates if c.pool == "unverified"}
    decisions = [d for d in all_decisions if d.comparison_id in unverified]
    counts = Counter(d.rule for d in decisions)
    sources = {c.comparison_id: c.source_label for c in candidates}
    gold = [d for d in decisions if d.pool == "gold"]
    differ = [d for d in gold if sources[d.comparison_id] in ("A", "B") and d.label != sources[d.comparison_id]]
    return StepOutcome(
        {
            "people_asked": len(people_targets),
            "people_open": collected.open,
            "people_votes": sum(len(result.votes) for result in collected.answers.values()),
            "gold": len(gold),
            "gold_against_source": len(differ),
            "undecided": counts["people_undecided"],
            "conflicts": counts["people_conflict"],
            "people_overtaken": len(all_decisions) - len(decisions),
        },
        _writer(loop, candidates, decisions),
    )


def gold_decisions(
    collected: CollectedAnswers, iteration: int, near: Mapping[str, Sequence[Evidence]]
) -> list[Decision]:
    """Gold of what annotators decided, with the margin of their votes; what they could not decide is discarded. `near`:
    why each was asked, by comparison id."""
    decisions = []
    for comparison, result in collected.answers.items():
        basis = [*basis_of(result), *near.get(comparison, ())]
        if result.outcome is None or result.outcome == "undecided" or result.outcome == "answered":
            rule = f"people_{result.outcome or 'conflict'}"
            reason = f"people could not decide: {vote_counts(result)}"
            decisions.append(Decision(comparison, "discarded", None, rule, reason, None, iteration, basis))
        else:
            reason = f"people: {vote_counts(result)}"
            decisions.append(
                Decision(comparison, "gold", result.outcome, "people", reason, result.margin, iteration, basis)
            )
    return decisions


def _ask_judges(
    loop: Loop, parts: Parts, iteration: int, targets: Sequence[Target], model: LoopModel | None
) -> StepOutcome:
    config = loop.config
    comparison_ids = [t.comparison_id for t in targets if t.route == "judges"]
    candidates = [c for c in candidates_by_id(loop.workspace, comparison_ids) if c.pool == "unverified"]
    weights = _voter_weights(loop, parts, iteration)
    examples = {}
    if parts.judges:
        examples = demonstrations(
            loop.workspace,
            parts.encoder,
            [c.comparison_id for c in candidates],
            config.labelled("gold"),
            loop.run_id,
            most=config.demonstrations,
            responses=parts.embed_responses,
        )
    questions = questions_of(loop.workspace, candidates, examples)
    asking = _ask(loop, parts, questions)
    decisions = silver_decisions(
        loop.workspace,
        parts.judges,
        candidates,
        source_votes=config.source_votes,
        model_p=model.p_a(candidates) if model is not None and config.model_votes else {},
        iteration=iteration,
        weights=weights,
        model_version=model.scorer.info.version if model is not None else None,
        near=_near(targets),
        voter_model=config.voter_model,
    )
    sources = {c.comparison_id: c.source_label for c in candidates}
    differ = [d for d in decisions if sources[d.comparison_id] in ("A", "B") and d.label != sources[d.comparison_id]]
    return StepOutcome(
        {
            "judges_asked": len(comparison_ids),
            "silver": len(decisions),
            "silver_against_source": len(differ),
            "judging": [asdict(report) for report in asking.reports],
            "weights": weights,
        },
        _writer(loop, candidates, decisions),
    )


def _voter_weights(loop: Loop, parts: Parts, iteration: int) -> dict[str, float] | None:
    """How much each voter's answer counts, None where all count alike. For `accuracy` the judges are asked about the
    loop's gold first, without neighbours: a gold pair's nearest neighbour is itself."""
    if loop.config.judge_weights not in ("reliability", "accuracy"):
        return None
    if loop.config.judge_weights == "accuracy":
        condition, values = loop.config.labelled("gold").where()
        with loop.workspace.store.unit() as db:
            rows = db.execute(
                f"""SELECT p.comparison_id FROM pools p WHERE {condition} AND p.label IN ('A', 'B')
                    ORDER BY p.comparison_id LIMIT {MEASURED}""",
                values,
            ).fetchall()
        _ask(loop, parts, load_questions(loop.workspace, [row[0] for row in rows]))
    trained = loop.done(iteration, "train")
    accuracy = trained["gold_accuracy"] if trained is not None else None
    model = None
    if accuracy and loop.config.model_votes and loop.config.train_on == "silver":  # else it has learnt gold by heart
        model = (round(accuracy["value"] * accuracy["pairs"]), accuracy["pairs"])
    return voter_weights(loop.workspace, parts.judges, model=model) or None


def _ask(loop: Loop, parts: Parts, questions: Sequence[Question]) -> Asked:
    """Raises PausedError where the budget is spent or no judge answers."""
    asking = ask_judges(loop.workspace, parts.judges, questions, loop.run_id, parts.spending, counting=progress_bar)
    if asking.stopped or (questions and asking.silent):
        raise PausedError(stopped=asking.stopped or asking.silent)
    return asking


def _publish(loop: Loop, parts: Parts, run: Run, last: int) -> StepOutcome:
    """Of all models of the loop the one that is best on the gold there is now becomes a model of the workspace; where
    they were trained on gold, the last."""
    gold = load_pairs(loop.workspace, f"{loop.config.name}-i{last}-gold")
    models = []
    for iteration in range(1, last + 1):
        step = loop.done(iteration, "final" if iteration == last else "train")
        if step is not None:
            scorer = LoopModel(parts.models.load(step["model"]), parts.uncalibrated)
            quality = _accuracy(scorer.probabilities(gold))
            models.append({"iteration": iteration, **_brief(step), "gold_accuracy": quality})
    measured = [m for m in models if m["gold_accuracy"] is not None]
    if not measured:
        raise BadInputError("no gold pair can be scored by any of the loop's models: all are too long", field="model")
    best = measured[-1]  # where gold was trained on its accuracy there says nothing: the model with the most labels
    if loop.config.train_on == "silver":
        best = max(measured, key=lambda m: (m["gold_accuracy"]["value"], m["iteration"]))
    step = loop.done(best["iteration"], "final" if best["iteration"] == last else "train")
    assert step is not None
    trained = load_pairs(loop.workspace, step["model"]["snapshot"])
    artifact = parts.models.publish(run, step["model"], loop.config.name, trained)
    return StepOutcome(
        {
            "models": models,
            "best": best["iteration"],
            "artifact": artifact,
            "name": _name_of(loop, artifact),
        }
    )


def _name_of(loop: Loop, artifact: str) -> str | None:
    """Of a model of the workspace: a taken name becomes NAME-v2, and a full training has its iteration's name."""
    with loop.workspace.store.unit() as db:
        row = db.execute("SELECT name FROM artifacts WHERE artifact_id = ?", [artifact]).fetchone()
    return row[0] if row else None


def _near(targets: Sequence[Target]) -> dict[str, list[Evidence]]:
    """The gold comparison whose error led to each target; none for the seed."""
    return {t.comparison_id: [Evidence("retrieved near", t.why["gold"])] for t in targets if "gold" in t.why}


def _targets(loop: Loop, iteration: int, targets: Sequence[Target]) -> StepOutcome:
    routes = Counter(t.route for t in targets)
    payload = {"people": routes["people"], "judges": routes["judges"]}
    return StepOutcome(payload, lambda db: loop.save_targets(db, iteration, targets))


def _writer(loop: Loop, candidates: Sequence[Candidate], decisions: Sequence[Decision]) -> Any:
    """Writes the decisions on comparisons that were not decided otherwise since they were read."""

    def write(db: Connection) -> None:
        overtaken = decided_meanwhile(db, candidates)
        insert_decisions(db, [d for d in decisions if d.comparison_id not in overtaken], loop.run_id)

    return write


def _easy_first(ids: Sequence[str], attributes: Mapping[str, PairAttributes], unsure: Mapping[str, float]) -> list[str]:
    """Objective and of low controversiality first; in each half the most informative, i.e. the least sure, first."""

    def key(comparison: str) -> tuple[bool, float]:
        described = attributes.get(comparison)
        return (described is not None and not described.easy_for_people, -unsure.get(comparison, 0.0))

    return sorted(ids, key=key)


def _accuracy(probabilities: Sequence[float | None]) -> dict[str, Any] | None:
    """On the pairs that could be scored; a probability of exactly 1/2 is wrong."""
    scored = [p for p in probabilities if p is not None]
    if not scored:
        return None
    right = sum(p > 0.5 for p in scored)
    interval = wilson(right, len(scored))
    return {"value": right / len(scored), "low": interval.low, "high": interval.high, "pairs": len(scored)}


def _brief(trained: Mapping[str, Any]) -> dict[str, Any]:
    """Pairs that were fitted, how many more were left out, and the accuracy on gold."""
    model = trained["model"]
    return {"trained_on": model["pairs"], "left_out": model.get("left_out"), "gold_accuracy": trained["gold_accuracy"]}
