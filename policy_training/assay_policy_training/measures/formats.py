"""Shares of response formats, over the steps of a training where the samples are its rollouts.

After "Echo Chamber" (arXiv 2504.07912): reinforcement amplifies one format of the pretraining data, mostly the one that
is right most often. Covers: formats as regular expressions in YAML. Leaves out: formats by meaning.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import yaml

from assay.errors import BadInputError
from assay.statistics.intervals import bounds, share_interval
from assay_policy_training.measures.capability import mean_of
from assay_policy_training.measures.kind import Measured, Reads
from assay_policy_training.measures.samples import PolicySample

DEFAULT_FORMATS = Path(__file__).with_suffix(".yaml")
PROSE = "prose"  #: of a response that no expression occurs in


@dataclass(frozen=True)
class FormatShares:
    """A row for each policy, step and format: its share of the responses, and how often it is right. `file`: YAML of
    names and regular expressions, of which the first that matches counts (multi-line); the rest is prose. `every`:
    steps in one row.
    """

    reads: ClassVar[Reads] = "samples"

    file: str = ""
    every: int = 1

    def __post_init__(self) -> None:
        if self.every < 1:
            raise BadInputError("must be at least 1", field="every")

    def measure(self, policies: Mapping[str, Sequence[PolicySample]]) -> Measured:
        patterns = read_formats(Path(self.file).expanduser() if self.file else DEFAULT_FORMATS)
        table = []
        for label, samples in policies.items():
            by_step: dict[int | None, list[tuple[PolicySample, str]]] = defaultdict(list)
            for sample in samples:
                step = None if sample.step is None else sample.step // self.every * self.every
                by_step[step].append((sample, format_of(sample.response, patterns)))
            for step, rows in sorted(by_step.items(), key=lambda entry: -1 if entry[0] is None else entry[0]):
                for name in (*patterns, PROSE):
                    shares = [float(form == name) for _, form in rows]
                    low, high = bounds(share_interval(shares, [sample.prompt_id for sample, _ in rows]))
                    verdicts = [s.passed for s, form in rows if form == name and s.passed is not None]
                    row = {"policy": label, "step": step, "format": name, "share": mean_of(shares)}
                    row |= {"low": low, "high": high, "samples": len(rows)}
                    table.append(row | {"pass_rate": mean_of(verdicts), "judged": len(verdicts)})
        return Measured(table, {"formats": list(patterns)})


def format_of(response: str, patterns: Mapping[str, re.Pattern[str]]) -> str:
    return next((name for name, pattern in patterns.items() if pattern.search(response)), PROSE)


def read_formats(path: Path) -> dict[str, re.Pattern[str]]:
    """Name -> expression, in the file's order. Raises BadInputError for a file that is no such mapping."""
    try:
        payload = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInputError(f"no YAML file of formats: {error}", file=path, field="file") from error
    if not isinstance(payload, dict) or not payload:
        raise BadInputError("must be names of formats with a regular expression each", file=path, field="file")
    patterns = {}
    for name, text in payload.items():
        try:
            patterns[str(name)] = re.compile(text, re.MULTILINE)
        except (re.error, TypeError) as error:
            raise BadInputError(f"no regular expression: {error}", file=path, field=str(name)) from error
    return patterns
