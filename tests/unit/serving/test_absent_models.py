"""Models that could not be loaded again: their names, what callers are told, giving them up. No processes here."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from assay.domain import Message
from assay.errors import BackendError, BadInputError, BusyError, NotFoundError
from assay_serving.engine_process.engine import load, load_again
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ScoreItem
from assay_serving.server.core.scoring_backend import ScoreRequest
from assay_serving.server.core.settings import ServerSettings
from assay_serving.server.in_process import InProcessBackend
from assay_serving.server.models.missing_models import MissingModel, reason_of

PATIENCE_S = 240.0
ITEMS = (ScoreItem((Message("user", "Name a metal."),), "Gold."),)
SHARED = "models/both"


@pytest.fixture(scope="module")
def scorer(tiny_reward_model: Path) -> TransformersScorer:
    return TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", served_as="rm"))


def with_absent(scorer: TransformersScorer, tiny: Path, told: list[Any]) -> InProcessBackend:
    """`rm` is live and `gone` is not; one alias belongs to both."""
    plans = {"rm": ModelConfig(str(tiny), "rm", aliases=(SHARED,))}
    gone = MissingModel("gone", ModelConfig("models/gone", "gone", aliases=(SHARED, "old-name")), "its disk is gone")
    return InProcessBackend({"rm": scorer}, ServerSettings(), plans=plans, missing=[gone], on_plans=told.append)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE_S))


def test_no_other_model_is_taken_for_it_until_it_is_given_up(
    scorer: TransformersScorer, tiny_reward_model: Path
) -> None:
    told: list[Any] = []

    async def work() -> None:
        host = with_absent(scorer, tiny_reward_model, told)
        await host.start()

        async def answered_by(model: str | None) -> str:
            return (await host.score(ScoreRequest(ITEMS, model))).model

        try:
            assert host.ready
            assert await host.missing_models() == {"gone": "its disk is gone"}
            for name in ("gone", "models/gone", "old-name"):
                with pytest.raises(BusyError, match=r"gone is not ready: .* its disk is gone") as refused:
                    await answered_by(name)
                assert refused.value.retry_after
            with pytest.raises(BadInputError, match="name one of rm, gone"):
                await answered_by(None)
            with pytest.raises(NotFoundError):
                await answered_by(SHARED)  # of two models, as before the one was lost
            assert [plan["served_as"] for plan in host.plans()] == ["rm", "gone"]
            with pytest.raises(NotFoundError):  # by its plan, which names no model that there is
                await host.manage({"action": "load", "plan": {"reference": "gone"}})
            with pytest.raises(BusyError):
                await host.manage({"action": "swap", "name": "gone", "plan": {"reference": "gone"}})
            assert await host.manage({"action": "unload", "name": "gone"}) == {
                "unloaded": "gone",
                "plans": host.plans(),
            }
            assert [[plan["served_as"] for plan in plans] for plans in told] == [["rm"]]
            assert await host.missing_models() == {}
            assert await answered_by(None) == await answered_by(SHARED) == "rm"
            with pytest.raises(NotFoundError):
                await answered_by("gone")
        finally:
            await host.stop()

    run(work())


def test_a_restart_loads_what_it_can_and_nothing_at_all_is_an_error(
    tiny_reward_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = ModelConfig(str(tiny_reward_model), "good", device="cpu")
    bad = ModelConfig(str(tmp_path / "nothing"), "bad", device="cpu")
    (scorers, plans), (absent,) = load_again(load, (bad, good), None)
    assert list(scorers) == ["good"]
    assert plans == {"good": good}
    assert (absent.name, absent.plan) == ("bad", bad)
    assert f"bad is not served any more: it cannot be loaded again: {absent.reason}" in caplog.text
    with pytest.raises(BackendError, match="no model can be loaded again: bad: "):
        load_again(load, (bad,), None)
    assert load_again(load, (), None) == (({}, {}), [])


def test_any_librarys_error_leaves_one_model_out(tiny_reward_model: Path, caplog: pytest.LogCaptureFixture) -> None:
    def load_some(plans: tuple[ModelConfig, ...], workspace: Path | None) -> Any:
        if plans[0].served_as == "bad":
            raise RuntimeError("shapes differ\nof a thousand tensors")
        return load(plans, workspace)

    plans = tuple(ModelConfig(str(tiny_reward_model), name, device="cpu") for name in ("bad", "good"))
    (scorers, _), (absent,) = load_again(load_some, plans, None)
    assert list(scorers) == ["good"]
    assert absent.reason == "RuntimeError: shapes differ"
    assert "load_some" in caplog.text  # where, for a fault that nobody foresaw


def test_reasons_are_one_line() -> None:
    assert reason_of(BadInputError("two\nlines", file="f")) == "f: two lines"
    assert reason_of(FileNotFoundError(2, "No such file or directory", "x/y")) == "x/y: No such file or directory"
    assert reason_of(MemoryError()) == "MemoryError"
    assert reason_of(ValueError("long" * 100 + "\nmore")) == f"ValueError: {'long' * 50}"
