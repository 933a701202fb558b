"""Clients of a reward server. Light: imports neither torch nor transformers nor the server."""

from assay_serving.client.asynchronous import AsyncRewardClient
from assay_serving.client.blocking import RewardClient
from assay_serving.client.remote import RemoteScorer

__all__ = ["AsyncRewardClient", "RemoteScorer", "RewardClient"]
