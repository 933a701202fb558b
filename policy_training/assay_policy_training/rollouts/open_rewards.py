"""From the names of rewards to the sources that the trainer calls.

Covers: clients of reward servers, waited for and closed with the command; which server receives which API key; implicit
rewards and provers, loaded here. Leaves out: how a name is written (`reward_uri`), the sources themselves (`rewards`).
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from urllib.parse import urlsplit

import typer

from assay.errors import BadInputError
from assay.models.parallelism.distributed import is_follower, local_device
from assay.models.readings import implicit_parts
from assay_policy_training.plugins.protocols import RewardSource
from assay_policy_training.rollouts.episode_rewards import ConversationReward
from assay_policy_training.rollouts.functions.source import CallSettings, FunctionReward
from assay_policy_training.rollouts.outage import DEFAULT_LIMIT_S, WaitingScorer
from assay_policy_training.rollouts.reward_uri import (
    ANSWER,
    MEMBER,
    PARTS,
    PROVER,
    REWARDS,
    STEPS,
    TURNS,
    RewardReference,
    parse_reward,
)
from assay_policy_training.rollouts.rewards import AnswerPart, ModelReward, PartsReward, ProcessReward
from assay_serving.client import RemoteScorer, RewardClient
from assay_serving.client.connection import split_urls
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer
from assay_serving.scorer import UNLIMITED, Scorer

LOADING_S = 60.0  #: for which a server that answers that it is not ready is waited for at the start
UNREACHABLE_S = 2.5  #: for an address where nothing answers


def open_rewards(
    stack: ExitStack,
    references: Sequence[str],
    keys: Sequence[str | None],
    *,
    wait: float | None,
    deadline: float,
    outage: float = DEFAULT_LIMIT_S,
    option: str = "--reward",
    calls: CallSettings | None = None,
    device: str = "auto",
) -> list[RewardSource]:
    """One source for each reference, with the API key of the same index; `stack` closes what they open.

    `wait`: seconds until a server must be ready, else BackendError; None: 60 for one that is loading, and 3 for an
    address that does not answer. `deadline`: seconds of one request with its retries; `outage`: for which a server
    that answered before is waited for. `option`: what BadInputError names. `calls`: of reward functions.
    `device`: of models that are loaded here, which `recorded_reward` located.
    """

    def opened(target: RewardReference, key: str | None) -> Scorer:
        if implicit_parts(target.url) is not None:
            return load_scorer(ModelConfig(target.url, device=str(local_device(device))))
        return _served(stack, target, key, wait, deadline, outage)

    return [
        _open_reward(stack, parse_reward(reference, option), key, opened, option, calls, device)
        for reference, key in zip(references, keys, strict=True)
    ]


def keys_of(references: Sequence[str], key: str | None) -> list[str | None]:
    """For each reward its API key: `key` for the first server (or servers) and others at its host, none for other
    hosts."""
    hosts = [{urlsplit(url).netloc for url in split_urls(parse_reward(reference).url)} for reference in references]
    first = next((of for of in hosts if of != {""}), {""})
    return [key if of <= first else "" for of in hosts]


def _open_reward(
    stack: ExitStack,
    target: RewardReference,
    key: str | None,
    opened: Callable[[RewardReference, str | None], Scorer],
    option: str,
    calls: CallSettings | None,
    device: str,
) -> RewardSource:
    if target.form == PROVER:
        return _prover(str(target.model), target.key or "", target.name or "process", device, option)
    if target.form == MEMBER:
        settings = {} if target.key is None else {"key": target.key}
        member = REWARDS.find(str(target.name), field=option)
        if callable(member) and not isinstance(member, type):
            function = FunctionReward(member, name=target.part, settings=calls)
            stack.callback(function.close)
            return function
        if target.part is not None:
            raise BadInputError(f"{target.name} is a class, which names its part itself", field=option)
        source: RewardSource = REWARDS.create(str(target.name), settings, field=option)
        return source
    scorer = opened(target, key)
    if target.form == STEPS:
        return ProcessReward(scorer, name=target.name or "process")
    if target.form == TURNS:
        return ConversationReward(scorer, name=target.name)
    if target.form == PARTS:
        return PartsReward(scorer, name=target.name)
    return ModelReward(scorer, name=target.name, answer=AnswerPart() if target.form == ANSWER else None)


def _prover(model: str, settings: str, name: str, device: str, option: str) -> RewardSource:
    from assay_policy_training.core.policy import Policy
    from assay_policy_training.rollouts.prefix_values import PrefixSettings, ProverReward

    try:
        chosen = PrefixSettings.read(settings)
    except BadInputError as error:
        raise BadInputError(f"prover:{model}: {error}", field=option) from error
    policy = Policy(model, device=local_device(device), max_prompt_tokens=UNLIMITED)
    return ProverReward(policy, chosen, name=name)


def _served(
    stack: ExitStack, target: RewardReference, key: str | None, wait: float | None, deadline: float, outage: float
) -> WaitingScorer:
    # One failed request masks its rollouts; the step continues with the others.
    client = RewardClient(target.url, model=target.model, api_key=key, deadline=deadline, failures_in_place=True)
    stack.enter_context(client)
    if not is_follower():
        limits = f"{LOADING_S:g} s while it loads, {UNREACHABLE_S:g} s where nothing answers"
        limits = limits if wait is None else f"{wait:g} s"
        typer.echo(f"connecting to {target.url} (waiting up to {limits})", err=True)
    client.wait_until_ready(LOADING_S if wait is None else wait, unreachable=UNREACHABLE_S if wait is None else None)
    return WaitingScorer(RemoteScorer(client), limit=outage)
