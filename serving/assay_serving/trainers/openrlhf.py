"""A reward function for OpenRLHF: name this file in `--reward.remote_url` instead of the URL of `/get_reward`.

Compared with the URL, a batch is one request over keep-alive connections, retries have a deadline, and errors give a
reason. It uses the same route, so texts are read in the same way (docs/serving/dialects.md).

A sample without a score raises, which stops the training: OpenRLHF has no missing rewards. With `failure_reward` such
samples get that number and are 1 in the log `failed`.
"""

import os
from collections.abc import Sequence
from functools import cache
from typing import Any
from urllib.parse import urlencode

from assay.errors import BackendError, BadInputError, NotFoundError
from assay_serving.client import RewardClient

URL, MODEL, FAILURE = "ASSAY_REWARD_URL", "ASSAY_REWARD_MODEL", "ASSAY_FAILURE_REWARD"
ROUTE = "/get_reward"
_PER_REQUEST = 256


def reward_func(queries: list[str], prompts: list[str], labels: list[Any], **_: Any) -> dict[str, Any]:
    """OpenRLHF's entry: {"rewards", "scores", "extra_logs": {...}} as tensors [B], by the server that $ASSAY_REWARD_URL
    names ($ASSAY_REWARD_MODEL, $ASSAY_API_KEY, $ASSAY_FAILURE_REWARD)."""
    # Imported here: Ray copies this function without its module.
    from assay_serving.trainers.openrlhf import from_environment

    return from_environment()(queries, prompts, labels)


class OpenRLHFReward:
    """The reward function with arguments, for a file of your own whose `reward_func` calls it. Can be pickled."""

    def __init__(self, url: str, *, model: str | None = None, failure_reward: float | None = None, **options: Any):
        """`options`: those of `RewardClient` (api_key, deadline, retries, ...)."""
        self.failure_reward = failure_reward
        self.route = ROUTE + (f"?{urlencode({'model': model})}" if model is not None else "")
        self.client = RewardClient(url, **options)

    def __call__(
        self, queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], **_: Any
    ) -> dict[str, Any]:
        """Raises an AssayError where a sample has no score and there is no `failure_reward`."""
        import torch

        rows: list[tuple[float, float, bool]] = []
        for start in range(0, len(queries), _PER_REQUEST):
            run = slice(start, start + _PER_REQUEST)
            rows += self._rewards(queries[run], prompts[run], labels[run])
        rewards, scores, failed = ([row[column] for row in rows] for column in range(3))
        return {
            "rewards": torch.tensor(rewards, dtype=torch.float32),
            "scores": torch.tensor(scores, dtype=torch.float32),
            "extra_logs": {"failed": torch.tensor(failed, dtype=torch.float32)},
        }

    def _rewards(
        self, queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any]
    ) -> list[tuple[float, float, bool]]:
        """(reward, score, failed) of each."""
        try:
            body = {"query": list(queries), "prompts": list(prompts), "labels": list(labels)}
            return self._request(body)
        except (BadInputError, BackendError) as error:
            if self.failure_reward is None or isinstance(error, NotFoundError):
                raise
            if len(queries) == 1:
                return [(self.failure_reward, self.failure_reward, True)]
        # One failed sample fails the reply to its batch: request each sample alone.
        rows = []
        for query, prompt, label in zip(queries, prompts, labels, strict=True):
            rows += self._rewards([query], [prompt], [label])
        return rows

    def _request(self, body: dict[str, Any]) -> list[tuple[float, float, bool]]:
        response = self.client.post(self.route, body, key=str(body["prompts"][0]).encode("utf-8", "surrogatepass"))
        try:
            payload = response.json()
            rows = zip(payload["rewards"], payload["scores"], body["query"], strict=True)
            return [(float(reward), float(score), False) for reward, score, _ in rows]
        except (ValueError, KeyError, TypeError) as error:
            raise BackendError(f"{response.url} did not answer as OpenRLHF's reward server: {error}") from error


@cache
def from_environment() -> OpenRLHFReward:
    """Raises BadInputError where $ASSAY_REWARD_URL is not set."""
    url, failure = os.environ.get(URL), os.environ.get(FAILURE)
    if not url:
        raise BadInputError(f"set ${URL} to the server's address, e.g. http://127.0.0.1:8000")
    try:
        return OpenRLHFReward(url, model=os.environ.get(MODEL), failure_reward=float(failure) if failure else None)
    except ValueError as error:
        raise BadInputError(f"not a number: {failure!r}", field=FAILURE) from error
