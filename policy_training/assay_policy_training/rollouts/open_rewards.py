"""From the names of what rewards to the sources that the trainer asks.

Covers: clients of reward servers, waited for and closed with the command; which server is told which key. Leaves out:
how a name is written (`reward_reference`), the sources themselves (`rewards`, `recorded`, `process_reward`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from urllib.parse import urlsplit

import typer

from assay.models.parallelism.distributed import is_follower
from assay_policy_training.plugins.protocols import RewardSource
from assay_policy_training.rollouts.process_reward import ProcessReward
from assay_policy_training.rollouts.reward_uri import ANSWER, RECORDED, ROW, STEPS, VERIFIER, parse_reward
from assay_policy_training.rollouts.rewards import ModelReward, RecordedReward, RowNumber, VerifierReward
from assay_policy_training.rollouts.thinking import AnswerPart
from assay_serving.client import RemoteScorer, RewardClient


def open_rewards(
    stack: ExitStack,
    references: Sequence[str],
    keys: Sequence[str | None],
    *,
    wait: float,
    deadline: float,
    option: str = "--reward",
) -> list[RewardSource]:
    """One source for each reference, asked with the key at its place; `stack` closes what they open.

    `wait`: seconds until a server must be ready, else BackendError. `deadline`: of one request with all its tries.
    `option`: what BadInputError names.
    """
    return [
        _open_reward(stack, reference, key, wait, deadline, option)
        for reference, key in zip(references, keys, strict=True)
    ]


def keys_of(references: Sequence[str], key: str | None) -> list[str | None]:
    """For each reward, the key it is asked with: that of the first server's host; another host is not told it."""
    hosts = [urlsplit(parse_reward(reference).url or "").netloc for reference in references]
    first = next((host for host in hosts if host), "")
    return [key if host == first else "" for host in hosts]


def _open_reward(
    stack: ExitStack, reference: str, api_key: str | None, wait: float, deadline: float, option: str
) -> RewardSource:
    named = parse_reward(reference, option)
    if named.form == VERIFIER:
        return VerifierReward()
    if named.form == RECORDED:
        return RecordedReward()
    if named.form == ROW:
        return RowNumber(named.name or "")
    # One failed request masks its rollouts; the step goes on with the others.
    client = RewardClient(named.url, model=named.model, api_key=api_key, deadline=deadline, failures_in_place=True)
    stack.enter_context(client)
    if not is_follower():
        typer.echo(f"asking {named.url} (waiting up to {wait:g} s until it is ready)", err=True)
    client.wait_until_ready(wait)
    scorer = RemoteScorer(client)
    if named.form == STEPS:
        return ProcessReward(scorer, name=named.name or "process")
    return ModelReward(scorer, name=named.name, answer=AnswerPart() if named.form == ANSWER else None)
