"""A reward function for verl: name this file in `reward.custom_reward_function.path`.

verl calls `compute_score` per sample and awaits the samples of a batch together; the server batches them. Its `remote`
manager takes no coroutine: there, name `compute_score_sync`. verl passes
no prompt, so the row's `extra_info` must contain it (`prompt_key`).

A sample without a score raises, which stops the training: verl has no missing rewards. With `failure_score`
such samples get that number and `failed: 1.0`. verl's `rate_limited` manager turns every exception into 0.0: use
another one, the server has rate limits.
"""

import asyncio
import threading
from collections.abc import Mapping
from functools import cache
from typing import Any

from assay.errors import BackendError, BadInputError
from assay.score import ScoreFailure
from assay_serving.client import AsyncRewardClient
from assay_serving.scorer import ScoreItem
from assay_serving.trainers.conversations import label_of, prompt_and_response

#: Where the prompt is looked for in `extra_info`, unless `prompt_key` names it.
PROMPT_KEYS = ("prompt", "raw_prompt", "question")

_threads = threading.local()


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any = None,
    extra_info: Mapping[str, Any] | None = None,
    reward_router_address: str | None = None,
    reward_model_tokenizer: Any = None,
    *,
    url: str | None = None,
    model: str | None = None,
    principle: str | None = None,
    prompt_key: str | None = None,
    failure_score: float | None = None,
    **options: Any,
) -> dict[str, float]:
    """{"score", "failed", "truncated", "tokens"}, the same keys for every sample.

    From `url` on, arguments are verl's `reward_kwargs`: `url` of the server (else `reward_router_address`), `model`,
    `principle`, and what `AsyncRewardClient` takes (api_key, deadline, retries, ...). The ground truth is the item's
    label. Raises BadInputError where the prompt is missing, AssayError where there is no score.
    """
    address = url or (f"http://{reward_router_address}" if reward_router_address else None)
    if address is None:
        raise BadInputError("name the server: reward_kwargs.url=http://HOST:PORT", field="url")
    prompt, response = prompt_and_response(_prompt(extra_info or {}, prompt_key), solution_str)
    settings = {"priority": "bulk", "max_concurrency": 64} | options
    client = _client(address, model, tuple(sorted(settings.items())))
    [result] = await client.score([ScoreItem(prompt, response, principle, label=label_of(ground_truth))])
    if isinstance(result, ScoreFailure):
        if failure_score is None:
            raise BackendError(
                f"no score for a sample of {data_source}: {result.code}: {result.message} "
                "(reward_kwargs.failure_score gives such samples a number)"
            )
        return {"score": float(failure_score), "failed": 1.0, "truncated": 0.0, "tokens": 0.0}
    return {
        "score": result.reward,
        "failed": 0.0,
        "truncated": float(result.truncated),
        "tokens": float(result.tokens),
    }


def compute_score_sync(*args: Any, **kwargs: Any) -> dict[str, float]:
    """`compute_score` for managers that take no coroutine (`remote`): one sample after the other in each of its worker
    processes, over a connection that is kept."""
    # Imported here: Ray copies this function without its module.
    from assay_serving.trainers.verl import compute_score, runner_of_thread

    return runner_of_thread().run(compute_score(*args, **kwargs))


def runner_of_thread() -> asyncio.Runner:
    """One event loop a thread, because connections belong to a loop."""
    if not hasattr(_threads, "runner"):
        _threads.runner = asyncio.Runner()
    runner: asyncio.Runner = _threads.runner
    return runner


def _prompt(extra_info: Mapping[str, Any], key: str | None) -> Any:
    for name in PROMPT_KEYS if key is None else (key,):
        if extra_info.get(name) is not None:
            return extra_info[name]
    names = " or ".join(map(repr, PROMPT_KEYS)) if key is None else repr(key)
    raise BadInputError(f"verl passes no prompt: put it into the rows as extra_info[{names}], or name its prompt_key")


@cache
def _client(url: str, model: str | None, settings: tuple[tuple[str, Any], ...]) -> AsyncRewardClient:
    """One client a process for these settings; it keeps connections for each event loop."""
    return AsyncRewardClient(url, model=model, **dict(settings))
