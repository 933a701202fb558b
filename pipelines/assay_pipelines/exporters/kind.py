"""The registry of exporters: the name of every format that `assay data export --format` writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.registry import Kind

if TYPE_CHECKING:
    from assay_pipelines.exporters.job import ExportFormat

_EXPORTERS = "assay_pipelines.exporters."
EXPORTERS: Kind[ExportFormat] = Kind(
    "exporter",
    "Writes selected pairs in the format of another tool; an `ExportFormat`.",
    {
        "trl": _EXPORTERS + "trl:TRL",
        "trl-implicit": _EXPORTERS + "trl:TRL_IMPLICIT",
        "openrlhf": _EXPORTERS + "openrlhf:OPENRLHF",
        "nemo-rl": _EXPORTERS + "nemo_rl:NEMO_RL",
        "verl": _EXPORTERS + "verl:VERL",
        "hf": _EXPORTERS + "hugging_face:HUGGING_FACE",
        "helpsteer3": _EXPORTERS + "helpsteer3:HELPSTEER3_PRINCIPLES",
        "helpsteer3-preference": _EXPORTERS + "helpsteer3:HELPSTEER3_PREFERENCES",
        "label-studio": _EXPORTERS + "label_studio:LABEL_STUDIO",
    },
    requires=("endings", "write", "unit", "needs"),
    option="--format",
)
