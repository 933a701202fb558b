"""A counter, as a class of TRL's `environment_factory`; `faults` of a row says what goes wrong."""

from __future__ import annotations

import asyncio
import math
from typing import Any


class Counter:
    def __init__(self) -> None:
        self.count, self.faults = 0, ""

    def reset(self, *, initial: int = 0, faults: str = "", **columns: Any) -> str:
        self.count, self.faults, self.goal = initial, faults, columns.get("goal", 3)
        return f" The count is {initial}."

    def increment(self, by: int) -> str:
        """
        Increment the count.

        Args:
            by: How much to add.
        """
        if by < 0:
            raise ValueError("only upwards")
        self.count += by
        return f"now {self.count}"

    async def look(self) -> int:
        """
        Read the count.
        """
        await asyncio.sleep(0)
        return self.count

    def get_reward(self) -> float | None:
        if self.faults == "raise":
            raise RuntimeError("the referee is away")
        wrong = {"nan": math.nan, "none": None}
        return wrong[self.faults] if self.faults in wrong else float(self.count == self.goal)


class Waiting(Counter):
    async def get_reward(self) -> float | None:  # type: ignore[override]
        return super().get_reward()


class NoReset:
    """No environment."""


class Undescribed(Counter):
    def increment(self, by):  # type: ignore[no-untyped-def]
        return by
