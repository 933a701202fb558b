"""What a reload takes over at once, what it names for a restart, and servers that have no configuration to read."""

from __future__ import annotations

import asyncio
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from assay.errors import BadInputError, ConflictError, ForbiddenError
from assay_serving.model_config import ModelConfig
from assay_serving.server.core.reload import FIXED, ConfigChange, ModelChanges, Reloader, change_of
from assay_serving.server.core.settings import ServeConfig, ServerSettings

RUNNING = ServeConfig((ModelConfig("rm"),))


def another(value: Any) -> Any:
    """A valid value of the same setting."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int | float) else ("x",)


VALUES: dict[str, Any] = {each.name: another(getattr(RUNNING.settings, each.name)) for each in fields(ServerSettings)}
OTHER_SETTINGS = ServerSettings(**(VALUES | {"keys_file": "a-file", "cache_path": "a-file"}))


def test_every_setting_is_taken_over_or_named() -> None:
    read = replace(RUNNING, settings=OTHER_SETTINGS, port=9, models=(ModelConfig("other"),))
    change = change_of(RUNNING, read)
    assert set(change.changed) == {each.name for each in fields(ServerSettings)} - FIXED
    assert set(change.needs_restart) == {"port"} | FIXED
    for each in fields(ServerSettings):
        expected = OTHER_SETTINGS if each.name not in FIXED else RUNNING.settings
        assert getattr(change.config.settings, each.name) == getattr(expected, each.name), each.name
    assert change.config.port == RUNNING.port
    assert (change.before, change.config.models) == (RUNNING.models, read.models)


def test_new_settings_that_contradict_the_old_ones_are_refused() -> None:
    read = replace(RUNNING, settings=ServerSettings(max_body_bytes=1 << 20, max_buffered_bytes=1 << 20))
    with pytest.raises(BadInputError, match="max_buffered_bytes"):
        change_of(RUNNING, read)  # the body's limit stays 16 MiB until a restart


def test_one_reload_at_a_time_and_a_failure_leaves_the_old_configuration() -> None:
    read = replace(RUNNING, settings=ServerSettings(max_items=3))

    async def work() -> None:
        began, go_on = asyncio.Event(), asyncio.Event()

        async def apply(change: ConfigChange) -> ModelChanges:
            began.set()
            await go_on.wait()
            raise BadInputError("not this one")

        reloader = Reloader(RUNNING, lambda: read, apply)
        first = asyncio.create_task(reloader.reload("a"))
        await began.wait()
        with pytest.raises(ConflictError):
            await reloader.reload("b")
        go_on.set()
        with pytest.raises(BadInputError):
            await first
        assert reloader.config is RUNNING
        with pytest.raises(ForbiddenError):
            await Reloader(RUNNING, None, apply).reload("c")

    asyncio.run(work())


def test_the_unit_reloads_by_the_signal() -> None:
    unit = Path(__file__).resolve().parents[3] / "examples" / "serving" / "assay-serve.service"
    assert "ExecReload=/bin/kill -HUP $MAINPID" in unit.read_text().splitlines()
