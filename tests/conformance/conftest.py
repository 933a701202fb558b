"""A reward server that other projects' code asks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.process import RunningServer, running_server


@pytest.fixture(scope="session")
def scorer(tiny_reward_model: Path) -> TransformersScorer:
    return TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", served_as="rm"))


@pytest.fixture(scope="session")
def server(scorer: TransformersScorer) -> Iterator[RunningServer]:
    with running_server({"rm": scorer}) as running:
        yield running
