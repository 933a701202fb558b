"""The kinds of plug-ins that serving can be extended by, for `assay plugins` and the registry."""

from typing import Any

from assay.models.adapters.kind import MODEL_ADAPTERS
from assay.registry import Kind
from assay_serving.engines.engine import ENGINES, SCORERS
from assay_serving.generative.kind import JUDGE_PROFILES
from assay_serving.server.dialects import DIALECTS
from assay_serving.tools.kind import TOOLS
from assay_serving.verifiers.catalogue import VERIFIERS

KINDS: tuple[Kind[Any], ...] = (DIALECTS, ENGINES, JUDGE_PROFILES, MODEL_ADAPTERS, SCORERS, TOOLS, VERIFIERS)
