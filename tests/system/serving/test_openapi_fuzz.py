"""Every route of the description, every dialect included, with bodies made from it and against it (schemathesis).

A reply is never a 5xx but a stated 503 or 504, and is what the description says of its status: no undocumented one, the
right media type, a body of the right shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.process import RunningServer, running_server
from assay_serving.server.core.settings import ServerSettings

CHECKS = [content_type_conformance, response_schema_conformance, status_code_conformance]
STATED = (503, 504)
EXAMPLES = 5


@pytest.fixture(scope="module")
def fuzzed_server(tiny_reward_model: Path) -> Iterator[RunningServer]:
    scorer = TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", served_as="rm"))
    limits = ServerSettings(max_items=64, max_body_bytes=200_000, request_timeout_s=20.0)
    with running_server({"rm": scorer}, settings=limits) as running:
        yield running


@pytest.mark.slow
def test_no_body_breaks_a_route(fuzzed_server: RunningServer) -> None:
    schema: Any = schemathesis.openapi.from_url(fuzzed_server.url + "/openapi.json")
    tried, faults = set(), []
    for found in schema.get_all_operations():
        operation = found.ok()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            if mode is GenerationMode.NEGATIVE and only_names(operation):
                continue
            try:
                try_operation(operation, mode)
            except Unsatisfiable:
                continue  # a route without parameters has no wrong ones
            except (FailureGroup, ExceptionGroup) as fault:
                faults.append(f"{operation.method} {operation.path}: {shown(fault)}")
            tried.add(operation.path)
    assert {"/v1/score", "/get_reward", "/classify", "/v1/chat/completions"} <= tried
    assert not faults, "\n\n".join(faults)


def only_names(operation: Any) -> bool:
    """Whether all it takes is a name in its path, where any text is one: a wrong one is sought in vain."""
    places = [
        (parameter.location, parameter.definition["schema"].get("type")) for parameter in operation.iter_parameters()
    ]
    return not operation.body and bool(places) and set(places) == {("path", "string")}


def try_operation(operation: Any, mode: GenerationMode) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        response = case.call(timeout=120)
        checks = CHECKS if response.status_code in STATED else [not_a_server_error, *CHECKS]
        case.validate_response(response, checks=checks)

    ask()


def shown(fault: BaseException) -> str:
    """The failures, and the request that shows them."""
    return str(fault) + "".join(f"\n{note}" for note in getattr(fault, "__notes__", ()))
