"""The registry of importers: the name of every layout that `assay data import --format` reads.

Leaves out: how one is chosen (`recognition`), the layouts themselves (`formats`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.registry import Kind

if TYPE_CHECKING:
    from assay_pipelines.importers.layout import RecordLayout

_FORMATS = "assay_pipelines.importers.formats."
#: `auto` tries them in this order: those of a single publisher first, general ones last.
IMPORTERS: Kind[RecordLayout] = Kind(
    "importer",
    "Reads the records of one data layout as preference pairs or statements about responses.",
    {
        "label-studio": _FORMATS + "label_studio:LabelStudioLayout",
        "label-studio-min": _FORMATS + "label_studio:LabelStudioMinLayout",
        "helpsteer3-principle": _FORMATS + "helpsteer3:PrincipleLayout",
        "helpsteer3-edit-quality": _FORMATS + "helpsteer3:EditQualityLayout",
        "helpsteer3-edit": _FORMATS + "helpsteer3:EditLayout",
        "helpsteer3-feedback": _FORMATS + "helpsteer3:FeedbackLayout",
        "helpsteer3-preference": _FORMATS + "helpsteer3:PreferenceLayout",
        "arena": _FORMATS + "arena:ArenaLayout",
        "judgebench": _FORMATS + "benchmarks:JudgeBenchLayout",
        "nemo-rl": _FORMATS + "ranked:RankedLayout",
        "ultrafeedback-raw": _FORMATS + "ultrafeedback:UltraFeedbackLayout",
        "trl-stepwise": _FORMATS + "stepwise:StepwiseLayout",
        "ultrafeedback-binarized": _FORMATS + "ultrafeedback:UltraFeedbackBinarizedLayout",
        "rewardbench-2": _FORMATS + "benchmarks:RewardBench2Layout",
        "rm-bench": _FORMATS + "benchmarks:RmBenchLayout",
        "rewardbench-1": _FORMATS + "benchmarks:RewardBenchLayout",
        "assay-judgments": _FORMATS + "judgments:JudgmentsLayout",
        "rlhflow": _FORMATS + "rlhflow:RlhflowLayout",
        "verl": _FORMATS + "verl:VerlLayout",
        "hh": _FORMATS + "hh:HhLayout",
        "normalised": _FORMATS + "normalised:NormalisedLayout",
        "skywork": _FORMATS + "trl:SkyworkLayout",
        "trl": _FORMATS + "trl:TrlLayout",
        "trl-unpaired": _FORMATS + "unpaired:UnpairedLayout",
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
    "ultrafeedback": ("ultrafeedback-raw", "ultrafeedback-binarized"),
    "rewardbench": ("rewardbench-1", "rewardbench-2"),
    "label-studio": ("label-studio", "label-studio-min"),
}


def layout_names() -> list[str]:
    """Names of layouts and of families."""
    return sorted({*IMPORTERS.names(), *FAMILIES})
