"""The kinds of plug-ins that the data pipelines can be extended by, for `assay plugins` and the registry."""

from typing import Any

from assay.registry import Kind
from assay_pipelines.annotation.question_types.question_type import QUESTION_TYPES
from assay_pipelines.embedding.encoder import ENCODERS
from assay_pipelines.exporters.kind import EXPORTERS
from assay_pipelines.importers.kind import IMPORTERS
from assay_pipelines.judging.kind import JUDGES
from assay_pipelines.online.label_sources.kind import LABEL_SOURCES
from assay_pipelines.online.selectors.kind import SELECTORS
from assay_pipelines.principles.kind import PRINCIPLE_EXTRACTORS

KINDS: tuple[Kind[Any], ...] = (
    IMPORTERS,
    EXPORTERS,
    ENCODERS,
    PRINCIPLE_EXTRACTORS,
    JUDGES,
    QUESTION_TYPES,
    SELECTORS,
    LABEL_SOURCES,
)
