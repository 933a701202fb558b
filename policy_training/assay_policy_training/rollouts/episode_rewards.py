"""The rewards that environments give: of episodes, and of turns summed over an episode, each part by its name.

A part that turns earn is a score with a value for each turn, so that what works on steps works on turns
(`process_grpo`, the shaper `turn_rewards`). Covers too: reward models that read an episode turn by turn. Leaves out:
rows whose episode failed, which have no reward from any source (`collector`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from assay.errors import BadInputError
from assay.score import NOT_APPLICABLE, STEP, Score, ScoreFailure, ScorePart
from assay_policy_training.core.prompt import EPISODE, PromptItem
from assay_policy_training.core.steps import with_step_values
from assay_policy_training.plugins.environments.conversation import EpisodeConversation, conversation_of
from assay_policy_training.plugins.environments.record import parts_of, turn_rewards
from assay_policy_training.plugins.protocols import Rewards
from assay_policy_training.rollouts.rewards import ModelReward, score_item
from assay_serving.scorer import ScoreItem

#: The part of a step in which no episode came to a reward.
NAMELESS = "environment"
#: The part whose values by turn are what an answer would have earned there (the sampler `forced_answers`).
FORCED_ANSWER = "forced_answer"


class EnvironmentReward:
    """S3. A part that an episode does not have does not apply to it; one that was cut before it had it lacks it."""

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        """Raises BadInputError for rows without an episode, and for an environment that rewards nothing."""
        if not all(EPISODE in item.meta for item in items):
            raise BadInputError("no environment gives rewards here: --set environment.kind=NAME", field="reward")
        records = [item.meta[EPISODE] for item in items]
        names = dict.fromkeys(name for record in records for name in (*record["parts"], *_earned(record)))
        if not names and any(record["ended"] == "done" for record in records):
            raise BadInputError(
                f"the environment {records[0]['environment']} gives no rewards: name another source", field="reward"
            )
        names = names or {NAMELESS: None}
        by_name = {name: [_part(record, name) for record in records] for name in names}
        if any("forced_answers" in record for record in records):
            by_name[FORCED_ANSWER] = [_forced_answers(record) for record in records]
            names[FORCED_ANSWER] = None
        failures = [
            tuple(part for parts in by_name.values() if isinstance(part := parts[row], ScoreFailure))
            for row in range(len(records))
        ]
        scores: list[dict[str, Score]] = [
            {name: part for name in names if isinstance(part := by_name[name][row], Score)}
            for row in range(len(records))
        ]
        parts = {
            name: torch.tensor([_number(part) for part in row], dtype=torch.float64) for name, row in by_name.items()
        }
        return Rewards(parts, failures, scores)


class ConversationReward(ModelReward):
    """S3: a reward model that reads an episode as the conversation it is. A score of a process reward model has a value
    for each turn."""

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        """Raises BadInputError for rows without an episode."""
        if not all(EPISODE in item.meta for item in items):
            raise BadInputError("turns: reads episodes, and there is no environment: environment.kind", field="reward")
        conversations = [conversation_of(item.prompt, item.meta[EPISODE]) for item in items]
        requests = [
            self._request(item, conversation)
            for item, conversation in zip(items, conversations, strict=True)
            if conversation is not None
        ]
        results = iter(self.scorer.score(requests) if requests else ())
        silent = ScoreFailure("no_turn", "the episode ended before the policy's first turn", self.name)
        return Rewards.of(self.name, [silent if one is None else next(results) for one in conversations])

    def _request(self, item: PromptItem, conversation: EpisodeConversation) -> ScoreItem:
        prompt, response = conversation
        if self.scorer.info.stepwise and isinstance(response, str):
            return ScoreItem.of_steps(prompt, [response])  # one turn is one step
        return replace(score_item(self.scorer.info.kind, item, ""), prompt=prompt, response=response)


def _earned(record: Mapping[str, Any]) -> list[str]:
    """The parts that the episode and its turns have."""
    return [*record["rewards"], *(name for turn in record["turns"] for name in turn["rewards"])]


def _part(record: Mapping[str, Any], name: str) -> float | Score | ScoreFailure:
    """The part of an episode; with the values of its turns, where turns earned it."""
    episode_part = parts_of(record["rewards"]).get(name)
    if not any(name in turn["rewards"] for turn in record["turns"]):
        cut = record["ended"] in ("turns", "tokens") and not record["rewards"]  # it did not say what was earned
        code, why = NOT_APPLICABLE, "the episode has no such part"
        if cut:
            code, why = "episode_cut", f"the limit on {record['ended']} ended the episode"
        return ScoreFailure(code, why, name) if episode_part is None else episode_part
    values = []
    for value in (*turn_rewards(record, name), *(() if episode_part is None else (episode_part,))):
        if isinstance(value, ScoreFailure):
            return value
        values.append(value)
    if episode_part is not None:  # the episode's own part of that name comes with its last turn
        values[-2:] = [sum(values[-2:])]
    parts = tuple(ScorePart(f"{STEP}{number}", value=value) for number, value in enumerate(values, start=1))
    return Score(sum(values), record["environment"], record["version"], "", 0, False, parts=parts)


def _forced_answers(record: Mapping[str, Any]) -> Score | ScoreFailure:
    """The value before the first turn, and after each; as a number, the episode's own reward."""
    if not (values := record.get("forced_answers")):
        return ScoreFailure("not_forced", "no answer was forced in one of its states", FORCED_ANSWER)
    start, *after = values
    return with_step_values(Score(after[-1], record["environment"], record["version"], "", 0, False), after, start)


def _number(part: float | Score | ScoreFailure) -> float:
    return torch.nan if isinstance(part, ScoreFailure) else part.reward if isinstance(part, Score) else part
