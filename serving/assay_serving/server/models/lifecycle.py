"""Loading, unloading and replacing models while a server answers: the orders of administrators.

Covers: orders as JSON objects, one change of a name at a time, loading off the event loop, a first score before a model
is let near anybody, retiring the one that is replaced, deciding swaps. Leaves out: HTTP (`admin_routes`), the two
models of a swap (`swap`), who may give orders (`gate`).

A change goes on when whoever ordered it hangs up. What fails leaves everything as it was.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from assay.domain import Message
from assay.errors import AssayError, BackendError, BadInputError, ConflictError, NotFoundError
from assay.score import ScoreFailure
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import Loader
from assay_serving.scorer import ScoreItem, Scorer
from assay_serving.server.cache.memory_cache import ScoreCache
from assay_serving.server.core.settings import ServerSettings
from assay_serving.server.metrics.http_metrics import EngineMetrics
from assay_serving.server.models.memory_check import check_room
from assay_serving.server.models.missing_models import reason_of
from assay_serving.server.models.model_access import check_plan
from assay_serving.server.models.model_registry import Roster
from assay_serving.server.models.served_model import ServedModel
from assay_serving.server.rollout.score_gauges import ScoreGauges
from assay_serving.server.rollout.swap import Swap
from assay_serving.server.rollout.swap_policy import SwapTerms

logger = logging.getLogger("assay.serving")

T = TypeVar("T")
Plans = list[dict[str, Any]]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}")
_TAKEN = ("swap", "promote", "abort", "reference")  # ends of administrators' routes
_UNABLE = "its engine does not come back"
_PAUSE_S = 0.1  # between two looks at a swap
_BETWEEN_COMPARISONS_S = 1.0
_OTHER_WORK = 10  # times as long as a comparison took, before the next one


class Lifecycle:
    """Changes the roster. Used on the event loop only. `on_plans` gets the plans of all models after every change, also
    after one that nobody ordered (a swap that decided itself)."""

    def __init__(
        self,
        roster: Roster,
        settings: ServerSettings,
        metrics: EngineMetrics,
        cache: ScoreCache,
        *,
        workspace: Path | None = None,
        on_plans: Callable[[Plans], None] = lambda plans: None,
    ) -> None:
        self._roster = roster
        self._settings = settings
        self._metrics = metrics
        self._cache = cache
        self._workspace = workspace
        self._on_plans = on_plans
        self._changing: dict[str, str] = {}  # name: what is being done
        self._swaps: dict[str, Swap] = {}
        self._ended: dict[str, dict[str, Any]] = {}  # the last swap's report of each name
        self._retiring: dict[str, int] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        metrics.registry.register(ScoreGauges(lambda: roster.live, self.swaps))

    def serve(self, name: str, scorer: Scorer, plan: ModelConfig | None = None) -> ServedModel:
        """A model that is loaded, under a name that is free."""
        served = self._served(name, scorer, plan)
        self._roster.put(name, served)
        return served

    def plans(self) -> Plans:
        """How to load the models again, absent ones too; those that were given as scorers are not among them."""
        named: list[tuple[str, ModelConfig | None]] = [(served.name, served.plan) for served in self._roster.live]
        named += [(absent.name, absent.plan) for absent in self._roster.absent]
        return [{**plan.to_dict(), "served_as": name} for name, plan in named if plan is not None]

    def swaps(self) -> list[Swap]:
        """Those that go on."""
        return list(self._swaps.values())

    async def carry_out(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """The order's outcome, with the `plans` of all models after it.

        Raises BadInputError, NotFoundError, ConflictError (something else is going on with the name), BackendError (it
        cannot be loaded).
        """
        action, name = order.get("action"), order.get("name")
        if action in ("load", "unload", "swap", "promote", "abort", "reference", "status", "swap_status"):
            if name is not None and not isinstance(name, str):
                raise BadInputError("must be text", field="name")
            if name is None and action not in ("load", "status"):
                raise BadInputError("is missing", field="name")
        if action == "load":
            outcome = await self._unhurried(self._load(name, _plan_of(order)))
        elif action == "unload":
            outcome = await self._unhurried(self._unload(str(name)))
        elif action == "swap":
            terms = SwapTerms.from_dict(order.get("terms", {}))
            outcome = await self._unhurried(self._swap(str(name), _plan_of(order), terms))
        elif action == "promote":
            outcome = await self._unhurried(self._decide(str(name), "promoted", "by hand"))
        elif action == "abort":
            outcome = await self._unhurried(self._decide(str(name), "aborted", "by hand"))
        elif action == "reference":
            self._roster.find(str(name)).live.statistics.set_reference()
            outcome = {"model": self._described(str(name))}
        elif action == "swap_status":
            outcome = {"swap": await self._swap_status(str(name))}
        elif action == "status":
            names = list(self._roster) if name is None else [name]
            outcome = {
                "models": [self._described(each) for each in names],
                "not_ready": [
                    {"name": absent.name, "reason": absent.reason, "plan": absent.plan.shown()}
                    for absent in self._roster.absent
                ],
                "changing": dict(self._changing),
            }
        else:
            raise BadInputError(f"no such order: {str(action)[:40]!r}", field="action")
        return {**outcome, "plans": self.plans()}

    async def stop(self) -> None:
        """Give up changes and comparisons; models that are not in the roster drop what waits for them."""
        for swap in self.swaps():
            await swap.stop()
            await swap.new.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _load(self, wanted: str | None, plan: ModelConfig) -> dict[str, Any]:
        allowed, folder, name = await self._found_again(wanted, plan) or await self._found(plan)
        name = wanted or name
        if not _NAME.fullmatch(name) or name.rpartition("/")[2] in _TAKEN:
            raise BadInputError("a name has letters, digits and . _ / - only; give another", field="name")
        if name in self._roster:
            raise ConflictError(f"{name} is served already: swap it, or load this one under another name")
        with self._change(name, "loading"):
            scorer = await self._open(name, folder, allowed)
            self.serve(name, scorer, allowed)
        self._changed()
        logger.warning("loaded %s, version %s", name, scorer.info.version)
        return {"model": self._described(name)}

    async def _unload(self, name: str) -> dict[str, Any]:
        if self._roster.find_absent(name) is not None:
            with self._change(name, "unloading"):
                self._roster.remove(name)
            self._changed()
            logger.warning("%s is not to be served any more", name)
            return {"unloaded": name}
        served = self._single(name)
        with self._change(name, "unloading"):
            self._roster.remove(name)
            self._ended.pop(name, None)
            self._changed()
            await self._retire(served)
            self._metrics.forget(name)
        logger.warning("unloaded %s", name)
        return {"unloaded": name}

    async def _swap(self, name: str, plan: ModelConfig, terms: SwapTerms) -> dict[str, Any]:
        self._single(name)
        allowed, folder, _ = await self._found(plan)
        with self._change(name, "loading its successor"):
            old = self._single(name)
            allowed = _successor(allowed, old.plan)
            scorer = await self._open(name, folder, allowed)
            before, after = old.info, scorer.info
            if after.kind != before.kind:
                raise BadInputError(
                    f"{name} is a {before.kind} model and {plan.reference} is {after.kind}: its callers would have to "
                    "ask in another way; load it under another name",
                    field="reference",
                )
            new = self._served(name, scorer, allowed, candidate=True)
            del scorer
            if terms.mode == "now":
                self._replace(old, new)
                logger.warning("swapped %s from version %s to %s", name, before.version, after.version)
                self._ended[name] = {"name": name, **terms.to_dict(), "state": "promoted", "why": "at once"}
                return {"swap": self._ended[name], "model": self._described(name)}
            swap = Swap(old, new, terms, self._metrics)
            swap.start()
            self._swaps[name] = swap
            self._roster.put(name, swap)
        self._keep(asyncio.create_task(self._watch(name, swap), name=f"swap-{name}"))
        logger.warning("%s of %s began: version %s beside %s", terms.mode, name, after.version, before.version)
        return {"swap": await self._swap_status(name)}

    async def _decide(self, name: str, state: str, why: str, of: Swap | None = None) -> dict[str, Any]:
        """`of`: the only swap that this is meant for; another one of the name may have begun since."""
        if name not in self._roster:
            raise NotFoundError(f"no such model; served: {', '.join(self._roster) or 'none'}")
        if name not in self._swaps or (of is not None and self._swaps[name] is not of):
            raise ConflictError(f"no swap of {name} is going on")
        swap = self._swaps.pop(name)  # at once: nobody decides it a second time
        try:
            await swap.stop()
            await swap.compare()
        finally:  # whatever the figures, one of the two has the name afterwards
            self._ended[name] = {**swap.report(), "state": state, "why": why}
            if state == "promoted":
                self._replace(swap.old, swap.new)
            else:
                self._roster.put(name, swap.old)
                self._later(swap.new)
            self._changed()
        logger.warning(
            "swap of %s: %s, %s; version %s answers", name, state, why, self._roster.find(name).live.info.version
        )
        return {"swap": self._ended[name]}

    def _replace(self, old: ServedModel, new: ServedModel) -> None:
        """From this moment on new requests go to `new`; `old` answers those that it has."""
        new.take_over()
        self._roster.put(new.name, new)
        self._later(old)
        self._changed()

    async def _watch(self, name: str, swap: Swap) -> None:
        """Decide a swap by its terms, and keep its comparison fresh."""
        loop = asyncio.get_running_loop()
        compared, due = 0, 0.0
        while self._swaps.get(name) is swap:
            if swap.pairs.total == compared:
                await swap.changed.wait()
                if self._swaps.get(name) is not swap:
                    return
            swap.changed.clear()
            excess = swap.failure_excess()
            if not swap.new.able or excess > swap.terms.max_failure_rate:
                why = f"it fails on {excess:.1%} of items more than the old one" if swap.new.able else _UNABLE
                self._keep(asyncio.create_task(self._decide(name, "aborted", why, swap)))
                return
            if swap.pairs.total > compared and loop.time() >= due:
                compared, began = swap.pairs.total, loop.time()
                await swap.compare()
                due = loop.time() + max(_BETWEEN_COMPARISONS_S, _OTHER_WORK * (loop.time() - began))
                wanted = swap.conditions()
                if wanted and compared >= swap.terms.min_items and all(condition.met for condition in wanted):
                    self._keep(asyncio.create_task(self._decide(name, "promoted", "every condition holds", swap)))
                    return
            await asyncio.sleep(_PAUSE_S)

    async def _swap_status(self, name: str) -> dict[str, Any]:
        self._roster.find(name)
        if (swap := self._swaps.get(name)) is not None:
            await swap.compare()
            return {**swap.report(), "state": "going on"}
        if name in self._ended:
            return self._ended[name]
        raise NotFoundError(f"{name} has not been swapped since the server started")

    def _described(self, name: str) -> dict[str, Any]:
        served = self._roster.find(name).live
        swap = self._swaps.get(name)
        return {
            "name": name,
            "info": served.info.to_dict(),
            "plan": served.plan.shown() if served.plan is not None else None,
            "in_flight": served.in_flight,
            "waiting_items": served.queue.waiting,
            "retiring": self._retiring.get(name, 0),
            "swap": swap.terms.mode if swap is not None else None,
            "scores": served.statistics.to_dict(),
        }

    def _served(self, name: str, scorer: Scorer, plan: ModelConfig | None, *, candidate: bool = False) -> ServedModel:
        served = ServedModel(name, scorer, self._settings, self._metrics, plan, candidate=candidate, cache=self._cache)
        served.start()
        return served

    def _single(self, name: str) -> ServedModel:
        entry = self._roster.find(name)
        if not isinstance(entry, ServedModel):
            raise ConflictError(f"a swap of {name} is going on: promote or abort it first")
        return entry

    @contextmanager
    def _change(self, name: str, what: str) -> Iterator[None]:
        if name in self._changing:
            raise ConflictError(f"{name}: {self._changing[name]} is not done")
        self._changing[name] = what
        try:
            yield
        finally:
            del self._changing[name]

    async def _found(self, plan: ModelConfig) -> tuple[ModelConfig, str, str]:
        """The plan of a model that may be loaded, its folder, and the name it has by itself."""

        def find() -> tuple[ModelConfig, str, str]:
            allowed = check_plan(plan, self._settings.model_folders, self._workspace)
            loader = Loader(self._workspace)
            name = loader.resolve(plan).name
            if plan.reference != allowed.reference:
                allowed = replace(allowed, aliases=(*allowed.aliases, plan.reference))
            return allowed, loader.resolve(allowed).reference, name

        return await asyncio.to_thread(find)

    async def _found_again(self, wanted: str | None, plan: ModelConfig) -> tuple[ModelConfig, str, str] | None:
        """As `_found`, of an absent model that is called by its name: by the plan that it was served by before."""
        absent = self._roster.find_absent(plan.reference)
        if absent is None or wanted not in (None, absent.name):
            return None
        resolved = await asyncio.to_thread(Loader(self._workspace).resolve, absent.plan)
        return absent.plan, resolved.reference, absent.name

    async def _open(self, name: str, folder: str, plan: ModelConfig) -> Scorer:
        try:
            return await asyncio.to_thread(open_checked, name, folder, plan, self._workspace)
        except AssayError:
            raise
        except Exception as error:
            logger.error("loading %s failed\n%s", name, "".join(traceback.format_exception(error)))
            raise BackendError(f"{plan.reference} cannot be loaded: {reason_of(error)}") from error

    def _later(self, served: ServedModel) -> None:
        """Retire it when its last request is answered, without anybody waiting for that."""
        self._retiring[served.name] = self._retiring.get(served.name, 0) + 1
        self._keep(asyncio.create_task(self._retire_replaced(served), name=f"retire-{served.name}"))

    async def _retire_replaced(self, served: ServedModel) -> None:
        name, apart = served.name, served.queue.name
        try:
            await self._retire(served)
        finally:
            self._retiring[name] -= 1
            if apart != name:
                self._metrics.forget(apart)

    async def _retire(self, served: ServedModel) -> None:
        await served.retire()
        del served
        await asyncio.to_thread(_give_back_memory)

    def _changed(self) -> None:
        self._on_plans(self.plans())

    async def _unhurried(self, work: Coroutine[Any, Any, T]) -> T:
        """The work's result; cancelling the wait does not cancel the work."""
        task = asyncio.create_task(work)
        self._keep(task)
        return await asyncio.shield(task)

    def _keep(self, task: asyncio.Task[Any]) -> None:
        """Hold the task until it ends; an error that nobody waits for is logged."""
        self._tasks.add(task)

        def ended(done: asyncio.Task[Any]) -> None:
            self._tasks.discard(done)
            if not done.cancelled() and (error := done.exception()) is not None and not isinstance(error, AssayError):
                logger.error("a change of models failed\n%s", "".join(traceback.format_exception(error)))

        task.add_done_callback(ended)


def open_checked(name: str, folder: str, plan: ModelConfig, workspace: Path | None) -> Scorer:
    """The loaded model, after it has given a first score. Raises BackendError where it cannot."""
    if plan.engine == "transformers":
        check_room(name, folder, dtype=plan.dtype, device=plan.device)
    try:
        scorer = Loader(workspace).open_served(plan)
    except (MemoryError, RuntimeError) as error:
        from assay.models.devices import is_out_of_memory

        if isinstance(error, MemoryError) or is_out_of_memory(error):
            raise BackendError(f"no room for {name}: the memory ran out while it was loaded") from error
        raise
    if scorer.info.kind != "generative":  # a first answer of those takes too long
        principle = "correctness" if scorer.info.kind == "principle" else None
        [first] = scorer.score([ScoreItem((Message("user", "Name a metal."),), "Gold.", principle)])
        if isinstance(first, ScoreFailure) and first.code in ("backend", "non_finite"):
            raise BackendError(f"{plan.reference} is loaded but gives no score: {first.message}")
    return scorer


def _plan_of(order: Mapping[str, Any]) -> ModelConfig:
    plan = order.get("plan")
    if not isinstance(plan, Mapping):
        raise BadInputError("is missing: which model to load", field="plan")
    return ModelConfig.from_dict(plan)


def _successor(plan: ModelConfig, before: ModelConfig | None) -> ModelConfig:
    """Callers know the old model by its names and render in its policies' templates: the new one answers to both."""
    if before is None:
        return plan
    names = dict.fromkeys((*plan.aliases, before.reference, *before.aliases))
    return replace(plan, aliases=tuple(names), policy_templates=plan.policy_templates or before.policy_templates)


def _give_back_memory() -> None:
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
