"""Watches a held-out reward during training: does it still rise with the reward that is trained on?

Covers: a share of each step's rollouts scored by a held-out source (another reward model, a verifier), its mean, its
rank agreement with the reward trained on, the point from which it falls while the other rises (over-optimisation, as in
arXiv 2210.10760). Leaves out: ending the run (a stop rule on
`overoptimised`).

Rollouts that two rewards disagree about: candidates for human review. Covers: of a step's groups, the pair of responses
whose order the reward trained on and a held-out one see most differently. One of the two is wrong, and an annotator can
decide which. Leaves out: the queue (`assay_pipelines.annotation`).
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le
from torch import Tensor

from assay import ids
from assay.conversation.message import response_form
from assay.runs.json_log import JsonLog
from assay.statistics.rank_correlation import spearman
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.prompt import EPISODE
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.compositions.weighted import Composition
from assay_policy_training.plugins.environments.conversation import EpisodeConversation, conversation_of
from assay_policy_training.plugins.protocols import RewardSource, StepReport
from assay_policy_training.rollouts.rewards import composed, gather_rewards

SUSPECTS_FILE = "suspects.jsonl"


class WatchSettings(RecipeSettings, section="watch"):
    """`share`: of the groups of a step that are scored, whole groups. `window`: steps a mean is taken over. `sigmas`:
    by how many standard errors of the difference the held-out mean must lie below its best to count as falling.
    `suspects`: rollouts per step set aside for annotators, at most."""

    share: Annotated[float, Gt(0), Le(1)] = 0.5
    window: Annotated[int, Ge(1)] = 5
    sigmas: Annotated[float, Gt(0)] = 3.0
    suspects: Annotated[int, Ge(0)] = 2
    seed: int = 0


class HeldOutReward:
    """S16: scores a share of the rollouts with `sources`; writes suspicious ones to `folder/suspects.jsonl`."""

    def __init__(self, sources: Sequence[RewardSource], folder: Path, settings: WatchSettings | None = None) -> None:
        self.sources, self.settings = list(sources), settings or WatchSettings()
        self.log = JsonLog(folder / SUSPECTS_FILE)
        self.history: list[dict[str, float]] = []  #: a step each: step, proxy, held, error (of held), model (a number)
        self._models: list[str] = []  #: versions of the models that the newest rewards are of

    def measure(self, report: StepReport) -> dict[str, float]:
        """`held_out_reward_mean`, `_std`, `_missing`, `_rows`, `held_out_agreement`, `overoptimised` (0 or 1) and
        `overoptimised_good_step`, the last of the window with the best mean."""
        batch = report.batch
        valid = batch.valid.tolist()
        rows = [row for row in range(len(batch)) if valid[row] and self._is_selected(batch.uid[row], report.step)]
        if not rows:
            return {}
        part = batch.select(rows)
        scores = self._held_out_scores(part)
        present = ~scores.isnan()
        metrics = {"held_out_rows": float(len(rows)), "held_out_missing": float((~present).sum())}
        if not present.any():
            return metrics
        proxy, held_out = part.scored_reward[present], scores[present]
        spread = float(held_out.std()) if len(held_out) > 1 else 0.0
        metrics |= {"held_out_reward_mean": float(held_out.mean()), "held_out_reward_std": spread}
        if len(held_out) > 2 and math.isfinite(agreement := spearman(proxy.tolist(), held_out.tolist())):
            metrics["held_out_agreement"] = agreement
        error = _standard_error(
            held_out, [uid for uid, in_use in zip(part.uid, present.tolist(), strict=True) if in_use]
        )
        means = {"proxy": float(proxy.mean()), "held": float(held_out.mean()), "error": error}
        models = sorted({score.version for scores in part.scores for score in scores.values()})
        number = self.history[-1].get("model", 0.0) if self.history else 0.0
        self.history.append({"step": report.step, **means, "model": number + (models != self._models)})
        self._models = models
        metrics["overoptimised"] = float(overoptimised(self.history, self.settings.window, self.settings.sigmas))
        metrics["overoptimised_good_step"] = self._good_step()
        self.log.append(suspects(part, scores, step=report.step, most=self.settings.suspects))
        return metrics

    def _good_step(self) -> float:
        window, held_out = self.settings.window, [row["held"] for row in self.history]
        ends = range(min(window, len(held_out)), len(held_out) + 1)
        best = max(ends, key=lambda end: (fmean(held_out[max(0, end - window) : end]), end))
        return self.history[best - 1].get("step", 0.0)  # 0: of a checkpoint that did not hold steps

    def _is_selected(self, uid: str, step: int) -> bool:
        digest = hashlib.sha256(f"{self.settings.seed}/{step}/{uid}".encode()).digest()
        return int.from_bytes(digest[:8], "big") < self.settings.share * 2**64

    def _held_out_scores(self, part: RolloutBatch) -> Tensor:
        """[b] float64, the sum of the sources' parts."""
        return composed(Composition(), gather_rewards(self.sources, part.items, part.responses))

    def state_dict(self) -> dict[str, Any]:
        return {"history": self.history, "models": self._models, "suspects": self.log.sync()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.history, self._models = [dict(row) for row in state["history"]], list(state.get("models", ()))
        self.log.cut(int(state["suspects"]))


def overoptimised(history: Sequence[Mapping[str, float]], window: int, sigmas: float) -> bool:
    """Whether the held-out mean of the last `window` steps lies below that of an earlier window by `sigmas` standard
    errors of the difference, while the mean trained on is no lower than it was then. Of the steps since the reward
    model last changed alone: another one's rewards have another level and scale.

    `history`: a step each, with `proxy` and `held` (means), `error` (standard error of `held`) and `model` (a number).
    """
    if history:
        since = next(
            (n for n, row in enumerate(reversed(history)) if row.get("model") != history[-1].get("model")), None
        )
        history = history[len(history) - since :] if since is not None else history
    if len(history) < 2 * window:
        return False

    def mean(name: str, end: int) -> float:
        return sum(row[name] for row in history[end - window : end]) / window

    def error(end: int) -> float:
        return math.sqrt(sum(row["error"] ** 2 for row in history[end - window : end])) / window

    last = len(history)
    best = max(range(window, last - window + 1), key=lambda end: mean("held", end))
    fall = mean("held", best) - mean("held", last)
    noise = math.hypot(error(best), error(last))
    return fall > sigmas * noise and fall > 0 and mean("proxy", last) >= mean("proxy", best)


def _standard_error(values: Tensor, groups: Sequence[str]) -> float:
    """Of the mean of `values` [N]: rollouts of a prompt are alike, and each step has other prompts, so groups count as
    one observation each. One group alone says nothing of the others: its spread stands for theirs."""
    members: dict[str, list[float]] = {}
    for value, group in zip(values.tolist(), groups, strict=True):
        members.setdefault(group, []).append(value)
    means = [fmean(group_values) for group_values in members.values()]
    if len(means) > 1:
        return stdev(means) / math.sqrt(len(means))
    return float(values.std()) if len(values) > 1 else math.inf


@dataclass(frozen=True, order=True)
class _Pair:
    """Rows `a` and `b` of one group: the reward prefers a, the held-out one b. `doubt` grows with both differences."""

    doubt: float
    a: int
    b: int


def suspects(batch: RolloutBatch, held: Tensor, *, step: int, most: int) -> list[dict[str, Any]]:
    """At most `most` records, of different groups, the most doubtful first. `held` [B] float64, NaN = missing.

    `doubt` is the product of the two differences, each in deviations over the batch, plus the uncertainty (a standard
    deviation) that the model reports for its score of the preferred response.
    """
    reward = batch.scored_reward
    scales = _deviation(reward), _deviation(held)
    groups: dict[str, list[int]] = {}
    for row, uid in enumerate(batch.uid):
        if not (math.isnan(float(held[row])) or math.isnan(float(reward[row]))):
            groups.setdefault(uid, []).append(row)
    worst = [max(pairs) for rows in groups.values() if (pairs := list(_disagreements(batch, held, rows, scales)))]
    return [_record(batch, held, pair, step) for pair in sorted(worst, reverse=True)[:most]]


def _disagreements(batch: RolloutBatch, held: Tensor, rows: list[int], scales: tuple[float, float]) -> Iterator[_Pair]:
    for a, b in permutations(rows, 2):
        ahead = float(batch.scored_reward[a] - batch.scored_reward[b]) / scales[0]
        behind = float(held[b] - held[a]) / scales[1]
        if ahead > 0 and behind > 0 and batch.responses[a] != batch.responses[b] and _of_one_prompt(batch, a, b):
            yield _Pair(ahead * behind + _uncertainty(batch, a), a, b)


def _of_one_prompt(batch: RolloutBatch, a: int, b: int) -> bool:
    """An environment may tell two episodes of a prompt different things before their first turns."""
    return _conversation(batch, a).prompt == _conversation(batch, b).prompt


def _record(batch: RolloutBatch, held: Tensor, pair: _Pair, step: int) -> dict[str, Any]:
    rows = (pair.a, pair.b)
    conversations = [_conversation(batch, row) for row in rows]
    prompt = ids.prompt_id(conversations[0].prompt)
    return {
        "step": step,
        "uid": batch.uid[pair.a],
        "prompt": [message.to_dict() for message in conversations[0].prompt],
        "responses": [response_form(one.response) for one in conversations],
        "response_ids": [ids.response_id(prompt, one.response) for one in conversations],
        "rewards": [float(batch.scored_reward[row]) for row in rows],
        "held_out": [float(held[row]) for row in rows],
        "doubt": pair.doubt,
    }


def _conversation(batch: RolloutBatch, row: int) -> EpisodeConversation:
    """What the policy read and said, of an episode with all its turns."""
    record = batch.items[row].meta.get(EPISODE) if batch.items else None
    episode = None if record is None else conversation_of(batch.prompts[row], record)
    return episode or EpisodeConversation(batch.prompts[row], batch.responses[row])


def _deviation(values: Tensor) -> float:
    present = values[~values.isnan()]
    return (float(present.std()) if len(present) > 1 else 0.0) or 1.0


def _uncertainty(batch: RolloutBatch, row: int) -> float:
    """The largest standard deviation that a model reports for its score, 0 where none does."""
    stated = [score.uncertainty for score in batch.scores[row].values()] if batch.scores else []
    return max((value for value in stated if value is not None), default=0.0)
