"""Clients of a reward server. Light: imports neither torch nor transformers nor the server."""

from assay_serving.client.asynchronous import AsyncRewardClient
from assay_serving.client.blocking import RewardClient
from assay_serving.client.principles import PrincipleUse
from assay_serving.client.remote import RemoteScorer
from assay_serving.preference import Preference, Ranking

__all__ = ["AsyncRewardClient", "Preference", "PrincipleUse", "Ranking", "RemoteScorer", "RewardClient"]
