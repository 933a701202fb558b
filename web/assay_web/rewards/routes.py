"""Every route of the area rewards."""

from __future__ import annotations

from fastapi import APIRouter

from assay_web.rewards.bias_routes import router as bias
from assay_web.rewards.disagreement_routes import router as disagreement
from assay_web.rewards.leaderboard_routes import router as leaderboard
from assay_web.rewards.playground_routes import router as playground

router = APIRouter()
for part in (playground, leaderboard, bias, disagreement):
    router.include_router(part)
