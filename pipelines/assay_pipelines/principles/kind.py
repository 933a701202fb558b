"""The registry of principle extractors, which `assay principles extract --extractor` names."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from assay.registry import Kind

if TYPE_CHECKING:
    from assay_pipelines.principles.extraction import ExtractorOptions, PrincipleExtractor

_Factory: TypeAlias = "Callable[[ExtractorOptions], PrincipleExtractor]"
PRINCIPLE_EXTRACTORS: Kind[_Factory] = Kind(
    "principle_extractor",
    "Reads which principles a text of feedback speaks of; a function of `ExtractorOptions`.",
    {
        "openai": "assay_pipelines.principles.llm_extractor:openai_extractor",
        "lexicon": "assay_pipelines.principles.lexicon:lexicon_extractor",
    },
    makes=("name", "config", "page", "read"),
    option="--extractor",
)
