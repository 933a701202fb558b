"""The plug-in of an online loop: after each step it buys labels, refits the reward, and lets it take over or not.

Covers: the order of these within a step, limits, orders from outside, alarms and what they lead to, its metrics and
its state. Leaves out: asking (`purchase`), fitting (`refit`), the comparison (`shadow`), the policy training, which
calls this between a step and its checkpoint.

Metrics of a step: labels_spent, labels_waiting, labels_cost, contradictions, refits, swaps, seconds_supervision,
seconds_training (so far, without pauses); ensemble_agreement and ensemble_spread, means over the step's pairs, where
the reward is an ensemble; swap_level and swap_scale where the step ends with a swap: the next version rewards as level
+ scale x this one.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from assay import ids
from assay.errors import BadInputError
from assay.runs.record import Run, find_artifact
from assay.system.graceful_stop import stop_requested
from assay_pipelines.online.candidate_pairs import CandidatePairs, candidate_pairs, member_rewards, sequence_logp
from assay_pipelines.online.config import LoopConfig
from assay_pipelines.online.journal import Control
from assay_pipelines.online.purchase import LabelLimits, LabelPurchase
from assay_pipelines.online.refit import Refit, RewardVersion, TrainingPair
from assay_pipelines.online.reward_host import RewardHost
from assay_pipelines.online.selectors.candidates import Candidates
from assay_pipelines.online.selectors.disagreement import agreement
from assay_pipelines.online.selectors.kind import Selector
from assay_pipelines.online.shadow import compare
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.plugins.protocols import Course, RewardSource, StepReport
from assay_policy_training.training.checkpoint import checkpoints, step_of
from assay_policy_training.training.checkpoint_choice import at_most
from assay_serving.scorer import ScoreItem

log = logging.getLogger(__name__)
PAUSE_S = 0.5  #: between two looks at an order to go on


@dataclass(frozen=True)
class InitialPairs:
    """Pairs that every fit reads beside the labels. `data`: their snapshot or file."""

    data: str
    pairs: tuple[TrainingPair, ...]


class OnlineLabelling:
    """S16. `version`: the reward model at the beginning. `other`: a second reward, for selectors that need one."""

    def __init__(
        self,
        config: LoopConfig,
        purchase: LabelPurchase,
        selector: Selector,
        refit: Refit,
        host: RewardHost,
        version: RewardVersion,
        *,
        initial: InitialPairs | None = None,
        other: RewardSource | None = None,
    ) -> None:
        self.config, self.purchase, self.selector = config, purchase, selector
        self.refit, self.host, self.version = refit, host, version
        self.initial, self.other = initial, other
        self.refits = self.swaps = self.fresh = self.owed = self.actions = 0
        self.seconds = 0.0  #: of training so far
        self._since = time.monotonic()
        self.quiet_until = 0
        self.good: int | None = None
        self.penalised = False
        self.spent: str | None = None
        self._course, self._step = Course(), 0
        self._row: Mapping[str, float] = {}
        self._order, self._refused = Control(), ""
        self._missing = False  #: whether it was said that no step has the configured alarm

    @property
    def needs(self) -> frozenset[str]:
        """Columns of a batch, as `PolicyLoop` supplies them."""
        penalty = self.config.alarm.action == "penalty" and self.config.alarm.kl > 0
        return frozenset({"logp_ref"}) if penalty or "logp_ref" in self.selector.needs else frozenset()

    def measure(self, report: StepReport) -> dict[str, float]:
        now = time.monotonic()
        self.seconds, self._since = self.seconds + now - self._since, now
        self._course, self._step, self._row = Course(), report.step, report.metrics
        control = self._obey(report.step)
        began = time.monotonic()  # a pause is no supervision
        new = self.purchase.collect(report.step)
        owed = self.owed
        count = owed + (self.config.labels.count if report.step % self.config.labels.every == 0 else 0)
        batch = self._batch(report)
        pairs = candidate_pairs(batch, self.purchase.rows.keys()) if batch is not None else None
        members = member_rewards(batch) if batch is not None else None
        scored = batch is not None and any(batch.scores)  # else nothing tells one pair from another
        if count and scored and batch is not None and pairs is not None and self._may_buy(report.step, control):
            self.owed -= owed
            candidates = self._candidates(batch, pairs, members)
            limits = LabelLimits.of(self.config.budget, control)
            new += self.purchase.buy(report.step, self.selector, pairs, candidates, count, limits)
        self.fresh += sum(not row.held_out and row.label in ("A", "B") for row in new)
        swap = self._refit(report) if self.fresh >= self.config.labels.refit_after else {}
        metrics = {
            "labels_spent": float(len(self.purchase.labelled)),
            "labels_waiting": float(len(self.purchase.waiting)),
            "labels_cost": self.purchase.cost,
            "contradictions": float(self.purchase.contradictions),
            "refits": float(self.refits),
            "swaps": float(self.swaps),
            **(_ensemble(members, pairs) if members is not None and pairs is not None else {}),
            **swap,
        }
        return metrics | {"seconds_supervision": time.monotonic() - began, "seconds_training": self.seconds}

    def course(self) -> Course:
        """Heeds the step's alarm, which a metric that reads the others has measured after this plug-in."""
        self._heed(self._step, self._row)
        return self._course

    def shape(self, batch: RolloutBatch) -> RolloutBatch:
        """After an alarm whose action is a penalty: less reward by KL and by length."""
        if not self.penalised:
            return batch
        alarm = self.config.alarm
        reward = batch.scored_reward - alarm.length * batch.lengths
        if alarm.kl:
            gap = ((batch.logp_mu - batch.scored_logp_ref).double() * batch.mask).sum(1)
            reward = reward - alarm.kl * gap
        return batch.with_(reward=reward)

    def _obey(self, step: int) -> Control:
        """Waits while the order is to pause."""
        journal = self.purchase.journal
        control = self._ordered(step)
        if control.state == "pause":
            journal.event(step, "paused")
            while (control := self._ordered(step)).state == "pause" and not stop_requested():
                time.sleep(PAUSE_S)
            self._since = time.monotonic()
            journal.event(step, "continued")
        if control.state == "stop":
            journal.event(step, "stopped")
            self._course = Course(stop="stopped by an order from outside")
        return control

    def _ordered(self, step: int) -> Control:
        """The order from outside. One that cannot be read is an event, and the one before it counts."""
        journal = self.purchase.journal
        try:
            self._order, self._refused = Control.read(journal.folder), ""
        except BadInputError as error:
            if self._refused != str(error):
                self._refused = str(error)
                journal.event(step, "order_refused", why=self._refused)
        return self._order

    def _may_buy(self, step: int, control: Control) -> bool:
        """Whether the limits leave anything. The first time that they do not is an event."""
        limits = LabelLimits.of(self.config.budget, control)
        journal = self.purchase.journal
        minutes = journal.reply(step, "minutes")
        if minutes is None:
            minutes = self.seconds / 60
            if limits.minutes is not None:
                journal.keep_reply(step, minutes=minutes)
        reached = limits.reached(
            labels=len(self.purchase.rows), money=self.purchase.committed, step=step, minutes=minutes
        )
        if reached is not None and self.spent is None:
            journal.event(step, "budget", reached=reached, then=self.config.budget.when_spent)
            if self.config.budget.when_spent == "stop":
                self._course = replace(self._course, stop=f"the budget of labels is spent ({reached})", good=None)
        self.spent = reached
        return reached is None

    def _heed(self, step: int, row: Mapping[str, float]) -> None:
        """An alarm of this step, if there is one, and what it leads to."""
        plan, journal = self.config.alarm, self.purchase.journal
        metric = plan.metric or ("alarm" if "alarm" in row else "overoptimised")
        value = row.get(metric)
        if value is None:
            if plan.metric is not None and not self._missing:
                self._missing = True
                log.warning("an alarm is awaited from %r, which step %d does not have", plan.metric, step)
            return
        good = int(row.get(f"{metric}_good_step", step))
        if value <= 0.5:
            self.good = good
            self._course = replace(self._course, good=None if self._course.stop else good)
            return
        if step < self.quiet_until:
            return
        self.actions, self.quiet_until = self.actions + 1, step + plan.cooldown
        figures = {name: v for name, v in row.items() if name.startswith(metric)}
        action = "stop" if self.actions > plan.most and plan.action != "ignore" else plan.action
        journal.event(step, "alarm", action=action, **figures)
        if action == "stop":
            self._course = Course(f"{metric} at step {step}", good=self.good)
        elif action == "return":
            self.owed += plan.labels
            if self.good is not None:
                if at_most([step_of(path) for path in checkpoints(journal.folder)], self.good) is not None:
                    journal.event(step, "returned", good=self.good)
                self._course = Course(self._course.stop, take_up=self.good, good=self.good)
        elif action == "label":
            self.owed += plan.labels
        elif action == "penalty" and not self.penalised:
            self.penalised = True
            journal.event(step, "penalty", kl=plan.kl, length=plan.length)

    def _batch(self, report: StepReport) -> RolloutBatch | None:
        """The rows that may be asked about: those trained on, where log-probs of the reference are needed."""
        return report.trained if "logp_ref" in self.selector.needs else report.batch

    def _candidates(self, batch: RolloutBatch, pairs: CandidatePairs, members: Any) -> Candidates:
        needs, states, heads = self.selector.needs, self.refit.features, self.version.heads
        parts = None if self.other is None else self.other.score(batch.items, batch.responses).parts.values()
        return Candidates(
            pairs.first,
            pairs.second,
            pairs.prompt_numbers,
            np.asarray(batch.scored_reward.numpy(), dtype=np.float64),
            members=members,
            other=None if parts is None else np.sum([part.numpy() for part in parts], axis=0, dtype=np.float64),
            features=states.matrix(_items(batch)) if states is not None and needs & {"features", "posterior"} else None,
            logp=sequence_logp(batch.logp_mu, batch.mask),
            logp_ref=sequence_logp(batch.logp_ref, batch.mask) if batch.logp_ref is not None else None,
            posterior=None if heads is None else heads.posterior,
        )

    def _refit(self, report: StepReport) -> dict[str, float]:
        """A version on all labels so far, which takes over unless something speaks against it; the swap's metrics."""
        step, journal = report.step, self.purchase.journal
        began = time.monotonic()
        try:
            version = fitted_version(self.refit, self.purchase, self.initial, self.version)
        except BadInputError as error:  # as a rule too few labels: the next ones are tried again with these
            journal.event(step, "kept", model=self.version.name, why=str(error))
            return {}
        self.fresh, self.refits = 0, self.refits + 1
        held_out = [pair for row in self.purchase.labelled if row.held_out and (pair := TrainingPair.of(row))]
        batch = report.batch
        comparison = compare(self.version.scorer, version.scorer, _items(batch), _prompt_ids(batch), held_out)
        figures = {"labels": len(self.purchase.labelled), "model": version.name, **comparison.to_dict()}
        journal.event(step, "refit", seconds=round(time.monotonic() - began, 3), **figures)
        objection = "it is the same" if version.name == self.version.name else comparison.objection(self.config.swap)
        if objection is not None:
            journal.event(step, "kept", model=self.version.name, refused=version.name, why=objection)
            return {}
        before, self.version = self.version.name, version
        self.host.swap(version)
        self.swaps += 1
        link_version(self.purchase.run, version)
        journal.event(step, "swap", model=version.name, version=version.scorer.info.version, before=before)
        return {"swap_level": comparison.level, "swap_scale": comparison.scale}

    def state_dict(self) -> dict[str, Any]:
        names = ("refits", "swaps", "fresh", "owed", "actions", "quiet_until", "good", "penalised", "spent", "seconds")
        state = {name: getattr(self, name) for name in names}
        return state | {
            "model": self.version.reference(self.purchase.run.workspace),
            "logs": self.purchase.journal.sizes(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        journal = self.purchase.journal
        journal.cut(state["logs"])
        self.purchase.load(journal.label_rows())
        for name in state.keys() - {"model", "logs"}:
            setattr(self, name, state[name])
        if state["model"] != self.version.reference(self.purchase.run.workspace):
            self.version = self.refit.load(self.purchase.run.workspace.models / state["model"])
            self.host.swap(self.version)
            link_version(self.purchase.run, self.version)
        self._since = time.monotonic()


def fitted_version(
    refit: Refit,
    purchase: LabelPurchase,
    initial: InitialPairs | None,
    before: RewardVersion | None = None,
) -> RewardVersion:
    """Fitted on all labels that are trained on, as a recorded run that reads their snapshot."""
    rows = [row for row in purchase.labelled if not row.held_out]
    inputs: dict[str, str] = {}
    if any(row.label is not None for row in rows):
        inputs[purchase.record.snapshot(rows, purchase.run.id).id] = "snapshot"
    if initial is not None:
        inputs[initial.data] = "snapshot" if initial.data.startswith("s-") else "file"
    labelled = [pair for row in rows if (pair := TrainingPair.of(row)) is not None]
    pairs = [*(initial.pairs if initial is not None else ()), *labelled]
    return refit.fitted(pairs, inputs, before)


def link_version(run: Run, version: RewardVersion) -> None:
    """The run's rollouts are scored by it from now on."""
    if (artifact := find_artifact(run.workspace, version.name, ("reward_model",))) is not None:
        run.link("input", "artifact", artifact[1])


def _items(batch: RolloutBatch) -> list[ScoreItem]:
    return [ScoreItem(prompt, text) for prompt, text in zip(batch.prompts, batch.responses, strict=True)]


def _prompt_ids(batch: RolloutBatch) -> Sequence[str]:
    return [ids.prompt_id(prompt) for prompt in batch.prompts]


def _ensemble(members: Any, pairs: CandidatePairs) -> dict[str, float]:
    """Means over pairs of which every member knows both responses."""
    differences = members[pairs.first] - members[pairs.second]
    differences = differences[~np.isnan(differences).any(axis=1)]
    if not len(differences):
        return {}
    return {
        "ensemble_agreement": float(agreement(differences).mean()),
        "ensemble_spread": float(differences.std(axis=1).mean()),
    }
