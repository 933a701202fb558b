"""Rollouts as replies, sorted by reward or group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from assay.browsing.messages import ShownMessage
from assay_web.runs.replies import SampleReply

#: By reward, those without one last; `group`: the responses to one prompt together.
Order: TypeAlias = Literal["best", "worst", "group"]


def samples_of(
    rows: Sequence[Mapping[str, Any]], order: Order, *, limit: int, offset: int
) -> tuple[int, list[SampleReply]]:
    """The total, and the samples of one page."""
    if order == "group":
        chosen = sorted(rows, key=lambda row: str(row.get("uid")))
    else:
        scored = [row for row in rows if row.get("reward") is not None]
        scored.sort(key=lambda row: float(row["reward"]), reverse=order == "best")
        chosen = [*scored, *(row for row in rows if row.get("reward") is None)]
    return len(chosen), [_sample(row) for row in chosen[offset : offset + limit]]


def _sample(row: Mapping[str, Any]) -> SampleReply:
    return SampleReply(
        uid=str(row.get("uid", "")),
        prompt=[ShownMessage(turn["role"], turn["content"]) for turn in row.get("prompt", ())],
        response=row.get("response", ""),
        reward=row.get("reward"),
        parts=row.get("parts", {}),
        advantage=row.get("advantage"),
        verified=row.get("verified"),
        tokens=row.get("tokens", 0),
        truncated=bool(row.get("truncated")),
        trained=bool(row.get("trained")),
        failures=[f"{failure['code']}: {failure['message']}" for failure in row.get("failures", ())],
    )
