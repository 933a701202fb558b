"""Loading, unloading and replacing models while a server runs, on the orders of administrators.

Covers: orders as JSON objects, one change per name at a time, loading off the event loop, a first score before a model
gets requests, retiring the replaced model, deciding swaps. Leaves out: HTTP (`http.admin_routes`), the two models of a
swap (`swap`), permissions (`auth.middleware`).

A change continues when the client that ordered it disconnects. A change that fails leaves everything as it was.
"""

import asyncio
import gc
import logging
import re
import sys
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from assay.domain import Message
from assay.errors import AssayError, BackendError, BadInputError, ConflictError, NotFoundError
from assay.score import ScoreFailure
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import Loader
from assay_serving.scorer import ModelInfo, ScoreItem, Scorer
from assay_serving.server.cache.score_cache import ScoreCache
from assay_serving.server.core.reload import ModelChanges
from assay_serving.server.core.scoring_backend import Client
from assay_serving.server.core.settings import ServerSettings
from assay_serving.server.metrics.engine_metrics import EngineMetrics
from assay_serving.server.models.missing_models import reason_of
from assay_serving.server.models.model_access import check_plan
from assay_serving.server.models.model_registry import ModelRegistry
from assay_serving.server.models.served_model import ServedModel
from assay_serving.server.rollout.score_gauges import ScoreGauges
from assay_serving.server.rollout.swap import Swap
from assay_serving.server.rollout.swap_policy import SwapPolicy

logger = logging.getLogger("assay.serving")

T = TypeVar("T")
Plans = list[dict[str, Any]]
#: Awaited by a change when nothing of it can fail any more, with the version that it will serve ("": none); what
#: follows takes effect at once. Raises what keeps it from happening, e.g. that another replica cannot follow.
Commit = Callable[[str], Awaitable[None]]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}")
_RESERVED = ("swap", "promote", "abort", "reference")  # ends of administrators' routes
_DECISIONS = {"promote": "promoted", "abort": "aborted"}
_UNABLE = "its engine does not return from a call"
_PAUSE_S = 0.1  # between two looks at a swap
_BETWEEN_COMPARISONS_S = 1.0
_OTHER_WORK = 10  # times as long as a comparison took, before the next one


async def at_once(version: str) -> None:
    """The commit of a change that nothing else has to agree to."""


class ModelLifecycle:
    """Changes the registry. Used on the event loop only. `on_plans` gets the plans of all models after every
    change, also after a swap that decided itself. `on_decision` gets the order of such a swap in place of executing it,
    again and again until it is given."""

    def __init__(
        self,
        registry: ModelRegistry,
        settings: ServerSettings,
        metrics: EngineMetrics,
        cache: ScoreCache,
        *,
        workspace: Path | None = None,
        on_plans: Callable[[Plans], None] = lambda plans: None,
        on_decision: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._metrics = metrics
        self._cache = cache
        self._workspace = workspace
        self._on_plans = on_plans
        self._on_decision = on_decision
        self._changing: dict[str, str] = {}  # name: the change in progress
        self._swaps: dict[str, Swap] = {}
        self._ended: dict[str, dict[str, Any]] = {}  # the last swap's report of each name
        self._retiring: dict[str, int] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        metrics.registry.register(ScoreGauges(lambda: registry.live, self.swaps))

    def serve(self, name: str, scorer: Scorer, plan: ModelConfig | None = None) -> ServedModel:
        """Serve a loaded model under a free name."""
        served = self._served(name, scorer, plan)
        self._registry.put(name, served)
        return served

    def plans(self) -> Plans:
        """How to load the models again, missing ones included; without those that were passed in as scorers."""
        plans: list[tuple[str, ModelConfig | None]] = [(served.name, served.plan) for served in self._registry.live]
        plans += [(missing.name, missing.plan) for missing in self._registry.missing]
        return [{**plan.to_dict(), "served_as": name} for name, plan in plans if plan is not None]

    def swaps(self) -> list[Swap]:
        """Those in progress."""
        return list(self._swaps.values())

    async def execute(self, order: Mapping[str, Any], commit: Commit = at_once) -> dict[str, Any]:
        """The order's outcome, with the `plans` of all models after it. `commit`: of an order that changes something.

        Raises BadInputError, NotFoundError, ForbiddenError, ConflictError (another change of the name is in progress),
        BackendError (it cannot be loaded).
        """
        action, name = order.get("action"), order.get("name")
        if action in ("load", "unload", "swap", "promote", "abort", "reference", "status", "swap_status"):
            if name is not None and not isinstance(name, str):
                raise BadInputError("must be text", field="name")
            if name is None and action not in ("load", "status"):
                raise BadInputError("is missing", field="name")
        client = Client(**order.get("client", {}))
        if client.models is not None:
            if action in ("load", "swap"):  # what is loaded under a name of the key may be any other model
                raise client.refusal("orders to load a model")
            if name is not None:
                self._registry.find(name, client)
        outcome: dict[str, Any]
        if action == "load":
            outcome = await self._uncancelled(self._load(name, _plan_of(order), commit))
        elif action == "unload":
            outcome = await self._uncancelled(self._unload(str(name), commit))
        elif action == "swap":
            policy = SwapPolicy.from_dict(order.get("terms", {}))
            outcome = await self._uncancelled(self._swap(str(name), _plan_of(order), policy, commit))
        elif action in _DECISIONS:
            decision = self._decide(
                str(name), _DECISIONS[action], order.get("why", "by hand"), order.get("version"), commit
            )
            outcome = await self._uncancelled(decision)
        elif action == "reference":
            statistics = self._registry.find(str(name)).live.statistics
            await commit("")
            statistics.set_reference()
            outcome = {"model": self._described(str(name))}
        elif action == "swap_status":
            outcome = {"swap": await self._swap_status(str(name))}
        elif action == "status":
            names = [each for each in self._registry if client.may_use(each)] if name is None else [name]
            outcome = {
                "models": [self._described(each) for each in names],
                "not_ready": [
                    {"name": missing.name, "reason": missing.reason, "plan": missing.plan.public_settings()}
                    for missing in self._registry.missing
                    if client.may_use(missing.name)
                ],
                "changing": {each: change for each, change in self._changing.items() if client.may_use(each)},
            }
        else:
            raise BadInputError(f"no such order: {str(action)[:40]!r}", field="action")
        return {**outcome, "plans": self.plans()}

    async def reload(
        self,
        settings: ServerSettings,
        before: Sequence[ModelConfig],
        after: Sequence[ModelConfig],
        commit: Commit = at_once,
    ) -> ModelChanges:
        """Serve what a configuration file names now: `before` and `after` are its models until now and from now on.
        Models that it never named, which administrators loaded, stay.

        All models are loaded before the first change. Raises what `execute` raises, and then nothing has changed.
        """
        return await self._uncancelled(self._reload(settings, before, after, commit))

    async def _reload(
        self, settings: ServerSettings, before: Sequence[ModelConfig], after: Sequence[ModelConfig], commit: Commit
    ) -> ModelChanges:
        old, new = await asyncio.to_thread(lambda: (self._names(before, lenient=True), self._names(after)))
        differing = {name: plan for name, plan in new.items() if old.get(name) != plan}
        removed = [name for name in old if name not in new and name in self._registry]
        forgotten = [name for name in old if name not in new and self._registry.find_missing(name) is not None]
        opened: dict[str, Scorer] = {}
        with ExitStack() as changes:
            for name in (*differing, *removed):
                changes.enter_context(self._change(name, "reloading the configuration"))
            served = {name: self._single(name) for name in (*differing, *removed) if name in self._registry}
            for name, plan in differing.items():
                opened[name] = await self._open(name, plan)
                if name in served:
                    _check_kind(name, served[name].info, opened[name].info, plan.reference)
            await commit("+".join(opened[name].info.version for name in differing))
            self._apply(settings)  # nothing fails from here on
            for name, plan in differing.items():
                if name in served:
                    self._replace(served[name], self._served(name, opened.pop(name), plan, candidate=True))
                    self._ended.pop(name, None)
                else:
                    self.serve(name, opened.pop(name), plan)
        for name in forgotten:
            self._registry.remove(name)
        for name in removed:
            self._remove(served[name])
        self._changed()
        return ModelChanges(
            tuple(name for name in differing if name not in served),
            tuple(name for name in differing if name in served),
            (*removed, *forgotten),
        )

    def _names(self, plans: Sequence[ModelConfig], *, lenient: bool = False) -> dict[str, ModelConfig]:
        """Plans by the name that each is served under. `lenient`: also of those that are not there any more."""
        by_name: dict[str, ModelConfig] = {}
        for plan in plans:
            try:
                name = Loader(self._workspace).resolve(plan).name
            except AssayError:
                if not lenient:
                    raise
                name = plan.name
            if name in by_name:
                raise BadInputError(f"two models would be served as {name!r}", field="models")
            by_name[name] = plan
        return by_name

    def _apply(self, settings: ServerSettings) -> None:
        self._settings = settings
        for served in (*self._registry.live, *(swap.new for swap in self.swaps())):
            served.queue.settings = settings

    def _remove(self, served: ServedModel) -> asyncio.Task[None]:
        """Refuse new requests from now on, and retire it when those in flight are answered."""

        async def retire(change: ExitStack) -> None:
            with change:
                await self._retire(served)
                self._metrics.remove(served.name)
                logger.warning("unloaded %s", served.name)

        with ExitStack() as change:
            change.enter_context(self._change(served.name, "unloading"))
            self._registry.remove(served.name)
            self._ended.pop(served.name, None)
            task = asyncio.create_task(retire(change.pop_all()), name=f"unload-{served.name}")
            self._keep(task)
        return task

    async def stop(self) -> None:
        """Cancel changes and comparisons; models that are not in the registry drop what waits for them."""
        for swap in self.swaps():
            await swap.stop()
            await swap.new.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _load(self, served_as: str | None, plan: ModelConfig, commit: Commit) -> dict[str, Any]:
        allowed, name = await self._resolve_missing(served_as, plan) or await self._resolve(plan)
        name = served_as or name
        if not _NAME.fullmatch(name) or name.rpartition("/")[2] in _RESERVED:
            raise BadInputError("a name has letters, digits and . _ / - only; give another", field="name")
        if name in self._registry:
            raise ConflictError(f"{name} is served already: swap it, or load this one under another name")
        with self._change(name, "loading"):
            scorer = await self._open(name, allowed)
            await commit(scorer.info.version)
            self.serve(name, scorer, allowed)
        self._changed()
        logger.warning("loaded %s, version %s", name, scorer.info.version)
        return {"model": self._described(name)}

    async def _unload(self, name: str, commit: Commit) -> dict[str, Any]:
        if self._registry.find_missing(name) is not None:
            with self._change(name, "unloading"):
                await commit("")
                self._registry.remove(name)
            self._changed()
            logger.warning("%s will not be served any more", name)
            return {"unloaded": name}
        with self._change(name, "unloading"):
            served = self._single(name)
            await commit("")
        task = self._remove(served)
        self._changed()
        await task
        return {"unloaded": name}

    async def _swap(self, name: str, plan: ModelConfig, policy: SwapPolicy, commit: Commit) -> dict[str, Any]:
        self._single(name)
        allowed, _ = await self._resolve(plan)
        with self._change(name, "loading its successor"):
            old = self._single(name)
            allowed = _successor(allowed, old.plan)
            scorer = await self._open(name, allowed)
            before, after = old.info, scorer.info
            _check_kind(name, before, after, plan.reference)
            await commit(after.version)
            new = self._served(name, scorer, allowed, candidate=True)
            del scorer
            if policy.mode == "now":
                self._replace(old, new)
                logger.warning("swapped %s from version %s to %s", name, before.version, after.version)
                self._ended[name] = {"name": name, **policy.to_dict(), "state": "promoted", "why": "at once"}
                return {"swap": self._ended[name], "model": self._described(name)}
            swap = Swap(old, new, policy, self._metrics)
            swap.start()
            self._swaps[name] = swap
            self._registry.put(name, swap)
        self._keep(asyncio.create_task(self._watch(name, swap), name=f"swap-{name}"))
        logger.warning("%s of %s began: version %s beside %s", policy.mode, name, after.version, before.version)
        return {"swap": await self._swap_status(name)}

    async def _decide(
        self, name: str, state: str, why: str, version: str | None = None, commit: Commit = at_once
    ) -> dict[str, Any]:
        """`version`: of the only new model that this is about; another swap of the name may have begun since."""
        if name not in self._registry:
            raise NotFoundError(f"no such model; served: {', '.join(self._registry) or 'none'}")
        if name not in self._swaps or version not in (None, self._swaps[name].new.info.version):
            raise ConflictError(f"no swap of {name} is going on")
        with self._change(name, "deciding its swap"):
            swap = self._swaps[name]
            await swap.compare()
            await commit(swap.new.info.version)
            del self._swaps[name]
            # Whatever the figures, one of the two has the name from now on; the figures are by the new one's own name.
            self._ended[name] = {**swap.report(), "state": state, "why": why}
            if state == "promoted":
                self._replace(swap.old, swap.new)
            else:
                self._registry.put(name, swap.old)
                self._later(swap.new)
                self._changed()
        await swap.stop()
        logger.warning(
            "swap of %s: %s, %s; version %s answers", name, state, why, self._registry.find(name).live.info.version
        )
        return {"swap": self._ended[name]}

    def _replace(self, old: ServedModel, new: ServedModel) -> None:
        """New requests go to `new` from now on; `old` answers those in flight."""
        new.take_over()
        self._registry.put(new.name, new)
        self._later(old)
        self._changed()

    async def _watch(self, name: str, swap: Swap) -> None:
        """Decide a swap by its policy, and keep its comparison up to date."""
        loop = asyncio.get_running_loop()
        compared, due = 0, 0.0
        while self._swaps.get(name) is swap:
            if swap.pairs.total == compared:
                await swap.changed.wait()
                if self._swaps.get(name) is not swap:
                    return
            swap.changed.clear()
            excess = swap.failure_excess()
            if not swap.new.able or excess > swap.policy.max_failure_rate:
                why = f"it fails on {excess:.1%} of items more than the old one" if swap.new.able else _UNABLE
                await self._conclude(name, "abort", why, swap)
                compared = 0
            elif swap.pairs.total > compared and loop.time() >= due:
                compared, began = swap.pairs.total, loop.time()
                await swap.compare()
                due = loop.time() + max(_BETWEEN_COMPARISONS_S, _OTHER_WORK * (loop.time() - began))
                required = swap.conditions()
                if required and compared >= swap.policy.min_items and all(condition.met for condition in required):
                    await self._conclude(name, "promote", "every condition holds", swap)
                    compared = 0
            await asyncio.sleep(_PAUSE_S)

    async def _conclude(self, name: str, action: str, why: str, swap: Swap) -> None:
        """Decide the swap, or leave it to `on_decision`. Nothing happens while another change of the name is going
        on."""
        version = swap.new.info.version
        if self._on_decision is None:
            with suppress(ConflictError):
                await self._decide(name, _DECISIONS[action], why, version)
        else:
            self._on_decision({"action": action, "name": name, "why": why, "version": version})
            await asyncio.sleep(_BETWEEN_COMPARISONS_S)
        swap.changed.set()

    async def _swap_status(self, name: str) -> dict[str, Any]:
        self._registry.find(name)
        if (swap := self._swaps.get(name)) is not None:
            await swap.compare()
            return {**swap.report(), "state": "going on"}
        if name in self._ended:
            return self._ended[name]
        raise NotFoundError(f"{name} has not been swapped since the server started")

    def _described(self, name: str) -> dict[str, Any]:
        served = self._registry.find(name).live
        swap = self._swaps.get(name)
        return {
            "name": name,
            "info": served.info.to_dict(),
            "plan": served.plan.public_settings() if served.plan is not None else None,
            "in_flight": served.in_flight,
            "waiting_items": served.queue.waiting,
            "retiring": self._retiring.get(name, 0),
            "swap": swap.policy.mode if swap is not None else None,
            "scores": served.statistics.to_dict(),
        }

    def _served(self, name: str, scorer: Scorer, plan: ModelConfig | None, *, candidate: bool = False) -> ServedModel:
        served = ServedModel(name, scorer, self._settings, self._metrics, plan, candidate=candidate, cache=self._cache)
        served.start()
        return served

    def _single(self, name: str) -> ServedModel:
        entry = self._registry.find(name)
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

    async def _resolve(self, plan: ModelConfig) -> tuple[ModelConfig, str]:
        """The plan of a model that may be loaded, and the name it has by itself."""

        def find() -> tuple[ModelConfig, str]:
            allowed = check_plan(plan, self._settings.model_folders, self._workspace)
            loader = Loader(self._workspace)
            name = loader.resolve(plan).name
            if plan.reference != allowed.reference:
                allowed = replace(allowed, aliases=(*allowed.aliases, plan.reference))
            loader.resolve(allowed)
            return allowed, name

        return await asyncio.to_thread(find)

    async def _resolve_missing(self, served_as: str | None, plan: ModelConfig) -> tuple[ModelConfig, str] | None:
        """As `_resolve`, for the name of a missing model: by the plan that it was served by before."""
        missing = self._registry.find_missing(plan.reference)
        if missing is None or served_as not in (None, missing.name):
            return None
        await asyncio.to_thread(Loader(self._workspace).resolve, missing.plan)
        return missing.plan, missing.name

    async def _open(self, name: str, plan: ModelConfig) -> Scorer:
        limit = asyncio.timeout(self._settings.load_timeout_s)
        try:
            async with limit:
                return await asyncio.to_thread(open_checked, name, plan, self._workspace)
        except AssayError:
            raise
        except Exception as error:
            if limit.expired():  # the thread cannot be ended; what it loads after all is dropped
                within = f"within {self._settings.load_timeout_s:g} s"
                raise BackendError(f"{plan.reference} is not loaded {within}") from error
            logger.error("loading %s failed\n%s", name, "".join(traceback.format_exception(error)))
            raise BackendError(f"{plan.reference} cannot be loaded: {reason_of(error)}") from error

    def _later(self, served: ServedModel) -> None:
        """Retire it in the background when its last request is answered."""
        self._retiring[served.name] = self._retiring.get(served.name, 0) + 1
        self._keep(asyncio.create_task(self._retire_replaced(served), name=f"retire-{served.name}"))

    async def _retire_replaced(self, served: ServedModel) -> None:
        name, counted_as = served.name, served.queue.name
        try:
            await self._retire(served)
        finally:
            self._retiring[name] -= 1
            if counted_as != name:
                self._metrics.remove(counted_as)

    async def _retire(self, served: ServedModel) -> None:
        await served.retire()
        del served
        await asyncio.to_thread(_free_memory)

    def _changed(self) -> None:
        self._on_plans(self.plans())

    async def _uncancelled(self, work: Coroutine[Any, Any, T]) -> T:
        """The work's result; cancelling this call does not cancel the work."""
        task = asyncio.create_task(work)
        self._keep(task)
        return await asyncio.shield(task)

    def _keep(self, task: asyncio.Task[Any]) -> None:
        """Reference the task until it ends; log an error that nothing else awaits."""
        self._tasks.add(task)

        def ended(done: asyncio.Task[Any]) -> None:
            self._tasks.discard(done)
            if not done.cancelled() and (error := done.exception()) is not None and not isinstance(error, AssayError):
                logger.error("a change of models failed\n%s", "".join(traceback.format_exception(error)))

        task.add_done_callback(ended)


def _check_kind(name: str, before: ModelInfo, after: ModelInfo, reference: str) -> None:
    """Raises BadInputError for a successor of another kind."""
    if after.kind != before.kind:
        raise BadInputError(
            f"{name} is a {before.kind} model and {reference} is {after.kind}: its clients would have to "
            "send other requests; load it under another name",
            field="reference",
        )


def open_checked(name: str, plan: ModelConfig, workspace: Path | None) -> Scorer:
    """The loaded model, checked by a first score. Raises BackendError where there is none."""
    try:
        scorer = Loader(workspace).open_served(plan)
    except (MemoryError, RuntimeError) as error:
        from assay.models.devices import is_out_of_memory

        if isinstance(error, MemoryError) or is_out_of_memory(error):
            raise BackendError(f"no room for {name}: the memory ran out while it was loaded") from error
        raise
    if scorer.info.kind != "generative":  # their first score takes too long
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
    """The plan with the names and policy templates of the model that it replaces, which clients use, and its tools."""
    if before is None:
        return plan
    names = dict.fromkeys((*plan.aliases, before.reference, *before.aliases))
    templates, tools = plan.policy_templates or before.policy_templates, plan.tools or before.tools
    return replace(plan, aliases=tuple(names), policy_templates=templates, tools=tools)


def _free_memory() -> None:
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
