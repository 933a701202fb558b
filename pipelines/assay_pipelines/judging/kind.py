"""The registry of judges: the kinds that a file of judges and `assay judge run --judge` name.

Leaves out: reading files of judges (`config`), the judges (beside this module).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from assay.registry import Kind

if TYPE_CHECKING:
    from assay_pipelines.judging.judge import Judge

_CONFIG = "assay_pipelines.judging.config:"
#: A member is called with its settings, and with `workspace` or `folder` (of the file of judges) where it has such a
#: parameter; it returns a judge.
JUDGES: "Kind[Callable[..., Judge]]" = Kind(
    "judge",
    "Answers which of two responses is better, as an annotator of the store.",
    {
        "openai": _CONFIG + "openai_judge",
        "local": _CONFIG + "local_judge",
        "reward_model": _CONFIG + "reward_model_judge",
        "verifier": "assay_pipelines.judging.verifier:ConstraintJudge",
        "recorded": _CONFIG + "recorded_judge",
        "simulated": _CONFIG + "simulated_judge",
    },
    makes=("kind", "name", "config", "judge"),
    option="--judge",
)
