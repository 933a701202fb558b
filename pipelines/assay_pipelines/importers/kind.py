"""The registry of importers: the name of every layout that `assay data import --format` reads.

Leaves out: how one is chosen (`recognition`), the layouts themselves (`formats`).
"""

from pathlib import Path
from typing import TYPE_CHECKING

from assay.registry import Kind

if TYPE_CHECKING:
    from assay_pipelines.importers.layout import RecordLayout

_FORMATS = "assay_pipelines.importers.formats."
_PUBLISHED = "assay_pipelines.importers.adapters.published:"


def _published(*names: str) -> dict[str, str]:
    """Adapters by the names of their files, with spaces between."""
    return {name: _PUBLISHED + name.replace("-", "_") for name in " ".join(names).split()}


#: `auto` tries them in this order: those of a single publisher first, general ones last.
IMPORTERS: "Kind[RecordLayout]" = Kind(
    "importer",
    "Reads the records of one data layout as preference pairs or statements about responses.",
    {
        "label-studio": _FORMATS + "label_studio:LabelStudioLayout",
        "label-studio-min": _FORMATS + "label_studio:LabelStudioMinLayout",
        "oasst-trees": _FORMATS + "oasst:OasstTreesLayout",
        "oasst-messages": _FORMATS + "oasst:OasstMessagesLayout",
        **_published(
            "helpsteer3-principle helpsteer3-edit-quality helpsteer3-edit helpsteer3-feedback helpsteer3-preference",
            "helpsteer2-preference helpsteer2 shp webgpt pku-saferlhf pku-saferlhf-safety nectar openai-tldr",
            "openai-tldr-axis arena-140k arena-conversations mt-bench-human pandalm alpaca-eval llmbar judgelm",
            "alpaca-eval-soft",
            "stack-exchange-paired stack-exchange-preferences prometheus-preference prometheus-feedback beavertails",
            "arena judgebench nemo-rl ultrafeedback-raw",
        ),
        "processbench": _FORMATS + "published_steps:ProcessBenchLayout",
        "prm800k": _FORMATS + "published_steps:Prm800kLayout",
        "math-shepherd": _FORMATS + "published_steps:MathShepherdLayout",
        "trl-stepwise": _FORMATS + "stepwise:StepwiseLayout",
        **_published(
            "ultrafeedback-binarized ultrafeedback-argilla rewardbench-2 rm-bench rewardbench-1 distilabel-orca-dpo",
            "distilabel distilabel-dpo distilabel-capybara-dpo distilabel-math-dpo assay-judgments rlhflow verl",
            "llama-factory-sharegpt llama-factory-kto-sharegpt llama-factory-kto llama-factory-alpaca",
            "llama-factory-output-list kto-messages orca-dpo oasst-ranked hh-red-team hh",
        ),
        "normalised": _FORMATS + "normalised:NormalisedLayout",
        **_published("skywork"),
        "trl": _FORMATS + "trl:TrlLayout",
        **_published("trl-unpaired"),
        "rated-responses": _FORMATS + "rated_responses:RatedResponsesLayout",
    },
    requires=("matches", "parse", "describe"),
    option="--format",
)

#: Names of families: the records show which member applies. Of `trl`, the first where they do not.
FAMILIES: dict[str, tuple[str, ...]] = {
    "trl": ("trl", "trl-unpaired", "trl-stepwise"),
    "trl-explicit": ("trl",),
    "trl-implicit": ("trl",),
    "helpsteer3": tuple(name for name in IMPORTERS.members if name.startswith("helpsteer3-")),
    "ultrafeedback": ("ultrafeedback-raw", "ultrafeedback-binarized", "ultrafeedback-argilla"),
    "rewardbench": ("rewardbench-1", "rewardbench-2"),
    "label-studio": ("label-studio", "label-studio-min"),
    "llama-factory": tuple(name for name in IMPORTERS.members if name.startswith("llama-factory-")),
}


def layout_names() -> list[str]:
    """Names of layouts and of families."""
    return sorted({*IMPORTERS.names(), *FAMILIES})


def create_layout(name: str) -> "RecordLayout":
    """The layout of a name, of `module:Name` or `file.py:Name`, or of an adapter's file, `file.yaml`.

    Raises BadInputError for an unknown name or a faulty adapter; NotFoundError for a file that is not there.
    """
    if name.endswith((".yaml", ".yml")):
        from assay_pipelines.importers.adapters.loading import adapter_class

        return adapter_class(Path(name).expanduser().resolve())()
    layout: RecordLayout = IMPORTERS.create(name, folder=Path())
    return layout
