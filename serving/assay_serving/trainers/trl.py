"""A reward function for TRL (`GRPOTrainer`, `RLOOTrainer`, `AsyncGRPOTrainer`): `reward_funcs=AssayReward(url)`.

TRL calls it with the lists of prompts and completions and with the other columns of the data set by name, awaits it
concurrently with other asynchronous reward functions, and accepts None for a completion without a reward, which is left
out of its group's mean and has no advantage. This module imports neither TRL nor torch nor the server.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from assay.errors import BackendError, BadInputError, BusyError
from assay.score import Score, ScoreFailure, ScoreResult
from assay_serving.client import AsyncRewardClient
from assay_serving.client.protocol import cut
from assay_serving.scorer import ScoreItem
from assay_serving.trainers.conversations import label_of, prompt_and_response, references_of

logger = logging.getLogger("assay.trainers")


class AssayReward:
    """Rewards of one model of a server. Can be pickled: connections are made where it is called, one set a process and
    event loop.

    A completion without a score gets None, never a number: the metric `NAME/failed` is their share, and the
    reasons are in the completions table, column `NAME/error`. An error of all completions (no such model, wrong key)
    raises, because a training without rewards should stop; a server that is gone or full until `deadline` gives None
    for that step with `keep_going`, and raises without.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        principle: str | None = None,
        name: str | None = None,
        use: str = "reward",
        principle_column: str | None = None,
        label_column: str | None = None,
        references_column: str | None = None,
        keep_going: bool = True,
        **options: Any,
    ) -> None:
        """`name`: of its metrics, `assay_MODEL` unless given. `use`: "reward" or the calibrated "probability".

        `principle_column`, `label_column`, `references_column`: columns of the data set that say by which principle
        each completion is judged, what a verifier checks against, and which responses a relative reward compares with.
        Other `options` are those of `AsyncRewardClient` (api_key, timeout, deadline, retries, ca, ...); the priority is
        bulk, and 256 items go into one request, unless they say otherwise.
        """
        if use not in ("reward", "probability"):
            raise BadInputError(f"{use!r} is not one of reward, probability", field="use")
        if principle is not None and principle_column is not None:
            raise BadInputError("give either principle or principle_column", field="principle")
        self.__name__ = name or f"assay_{model or 'reward'}"  # what TRL calls its metrics
        self.principle, self.use, self.keep_going = principle, use, keep_going
        self.principle_column, self.label_column = principle_column, label_column
        self.references_column = references_column
        settings: dict[str, Any] = {"priority": "bulk", "max_items_per_request": 256} | options
        self.client = AsyncRewardClient(url, model=model, **settings)

    async def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        *,
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """One reward or None per completion, in order. Columns that are not asked for are ignored."""
        results = await self.score(prompts, completions, **columns)
        rewards = [self._reward(result) for result in results]
        failed = [self._reason(result) for result in results]
        if any(failed):
            counted = Counter(result.code for result in results if isinstance(result, ScoreFailure))
            reasons = ", ".join(f"{count} {code}" for code, count in counted.most_common()) or "no probability"
            first = next(reason for reason in failed if reason)
            logger.warning("%s: no reward for %d of %d completions (%s), the first: %s", self.__name__,
                           len(failed) - failed.count(None), len(failed), reasons, first)  # fmt: skip
        if log_metric is not None and results:
            log_metric(f"{self.__name__}/failed", sum(map(bool, failed)) / len(failed))
            truncated = sum(isinstance(result, Score) and result.truncated for result in results)
            log_metric(f"{self.__name__}/truncated", truncated / len(results))
        if log_extra is not None:
            log_extra(f"{self.__name__}/error", failed)
        return rewards

    async def score(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[ScoreResult]:
        """One result per completion, in order, with all that the server says of it."""
        results: list[ScoreResult | None] = []
        items: list[ScoreItem] = []
        principles = self._column(columns, self.principle_column, len(completions))
        labels = self._column(columns, self.label_column, len(completions))
        references = self._column(columns, self.references_column, len(completions))
        for index, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
            try:
                before, response = prompt_and_response(prompt, completion)
                item = ScoreItem(
                    before,
                    response,
                    self.principle if self.principle_column is None else principles[index],
                    label=label_of(labels[index]),
                    references=references_of(references[index]),
                )
            except BadInputError as error:
                results.append(ScoreFailure(error.code, str(error)))
            else:
                results.append(None)
                items.append(item)
        scored = iter(await self._score_items(items))
        return [result if result is not None else next(scored) for result in results]

    async def _score_items(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        runs = cut(items, self.client.settings.max_items_per_request)
        replies = await asyncio.gather(*(self.client.score(run) for run in runs), return_exceptions=True)
        results: list[ScoreResult] = []
        for run, answered in zip(runs, replies, strict=True):
            if not isinstance(answered, BaseException):
                results += answered
            elif isinstance(answered, BusyError | BackendError) and self.keep_going:
                results += [ScoreFailure(answered.code, str(answered))] * len(run)
            else:
                raise answered
        return results

    def _column(self, columns: dict[str, Any], name: str | None, length: int) -> Sequence[Any]:
        if name is None:
            return [None] * length
        if name not in columns:
            raise BadInputError(f"the data set has no column {name!r} for {self.__name__}")
        column: Sequence[Any] = columns[name]
        return column

    def _reward(self, result: ScoreResult) -> float | None:
        if isinstance(result, ScoreFailure):
            return None
        return result.reward if self.use == "reward" else result.probability

    def _reason(self, result: ScoreResult) -> str | None:
        if isinstance(result, ScoreFailure):
            return f"{result.code}: {result.message}"
        return "the model is not calibrated" if self._reward(result) is None else None
