"""The registry of exporters: the name of every format that `assay data export --format` writes."""

from typing import TYPE_CHECKING

from assay.registry import Kind

if TYPE_CHECKING:
    from assay_pipelines.exporters.job import ExportFormat

_EXPORTERS = "assay_pipelines.exporters."
EXPORTERS: "Kind[ExportFormat]" = Kind(
    "exporter",
    "Writes selected pairs or labels of responses in the format of another tool; an `ExportFormat`.",
    {
        "trl": _EXPORTERS + "pair_rows:TRL",
        "trl-implicit": _EXPORTERS + "pair_rows:TRL_IMPLICIT",
        "openrlhf": _EXPORTERS + "pair_rows:OPENRLHF",
        "llama-factory": _EXPORTERS + "llama_factory:LLAMA_FACTORY",
        "llama-factory-alpaca": _EXPORTERS + "llama_factory:LLAMA_FACTORY_ALPACA",
        "kto": _EXPORTERS + "single_responses:KTO",
        "stepwise": _EXPORTERS + "single_responses:STEPWISE",
        "nemo-rl": _EXPORTERS + "pair_rows:NEMO_RL",
        "verl": _EXPORTERS + "verl:VERL",
        "hf": _EXPORTERS + "hugging_face:HUGGING_FACE",
        "helpsteer3": _EXPORTERS + "helpsteer3:HELPSTEER3_PRINCIPLES",
        "helpsteer3-preference": _EXPORTERS + "helpsteer3:HELPSTEER3_PREFERENCES",
        "ratings": _EXPORTERS + "single_responses:RATINGS",
        "steps": _EXPORTERS + "single_responses:STEPS",
        "turns": _EXPORTERS + "single_responses:TURNS",
        "label-studio": _EXPORTERS + "label_studio:LABEL_STUDIO",
    },
    requires=("endings", "write", "unit", "needs"),
    option="--format",
)
