"""The base of evaluation results for every kind of model: metrics, and one record per item.

Covers: the two files of an evaluation. Leaves out: the metrics (`evaluation/pairs.py`,
`evaluation/principle.py`, `multi_objective.py`, `process_reward.py`, `generative/evaluation.py`).
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from assay.runs.coverage import Coverage
from assay.system.atomic_files import replacing
from assay_serving.scorer import ModelInfo


@dataclass(frozen=True)
class EvaluationReport(ABC):
    """Fields are metrics, except those excluded from `repr`, which the records are made of."""

    model: ModelInfo

    def to_dict(self) -> dict[str, Any]:
        """The metrics, JSON-ready."""
        reported = {field.name for field in fields(self) if field.repr}
        metrics = {name: value for name, value in asdict(self).items() if name in reported}
        return metrics | {"coverage": self.coverage.to_dict(), "warnings": self.warnings}

    @property
    @abstractmethod
    def coverage(self) -> Coverage:
        """How many of the items the metrics rest on."""

    @property
    def warnings(self) -> list[str]:
        """What must stand beside the figures."""
        return self.coverage.of_evaluation()

    def warning_rows(self) -> list[tuple[str, str]]:
        return [("WARNING", warning) for warning in self.warnings]

    @abstractmethod
    def item_records(self) -> Iterable[dict[str, Any]]:
        """One JSON-ready record per item, in the order of the data."""

    @abstractmethod
    def card_rows(self) -> list[tuple[str, str]]:
        """Rows of the model card's table."""

    def write(self, folder: Path) -> None:
        """`evaluation.json` and `items.jsonl` in `folder`, each atomically."""
        with replacing(folder / "evaluation.json") as temporary:
            temporary.write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")
        with replacing(folder / "items.jsonl") as temporary, temporary.open("w", encoding="utf-8") as stream:
            for record in self.item_records():
                stream.write(json.dumps(record, ensure_ascii=False) + "\n")

    def of(self, model: ModelInfo) -> Self:
        """The same metrics under another name and version of the model."""
        return replace(self, model=model)
