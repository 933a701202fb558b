"""The inputs of a measure, from what the command line names: policies to sample, runs, files.

Covers: `[LABEL=]SOURCE[,SOURCE...]`; a run's rollouts and evaluation; samples generated for a measure, with the judged
records in the measure's own run. Leaves out: generating (`samples`).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from assay.errors import BadInputError
from assay.models.chat.options import ChatOptions
from assay.models.parallelism.distributed import local_device
from assay.runs.json_log import JsonLog
from assay.runs.record import Run, locate_model
from assay.workspace import Workspace
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.measures.kind import Reads
from assay_policy_training.measures.samples import Generation, PolicySample, generate, judged, read_samples
from assay_policy_training.measures.tilted import Choices, enumerated
from assay_policy_training.plugins.protocols import RewardSource
from assay_policy_training.rollouts.rewards import RecordedReward
from assay_policy_training.training.loop import ROLLOUTS_FILE
from assay_policy_training.training.run import EVALUATION_FILE

SAMPLES_FOLDER = "samples"  #: of the workspace


def parse_policies(texts: Sequence[str]) -> dict[str, list[str]]:
    """Label -> sources, in order. Raises BadInputError for none, and for two of one label."""
    policies: dict[str, list[str]] = {}
    for text in texts:
        label, equals, listed = text.partition("=")
        sources = [source for source in (listed if equals else text).split(",") if source]
        label = label if equals else Path(text.rstrip("/")).name
        if not sources or label in policies:
            raise BadInputError(f"{text!r}: give each policy a label of its own, LABEL=SOURCE", field="POLICIES")
        policies[label] = sources
    if not policies:
        raise BadInputError("name a policy, a run or a file: [LABEL=]SOURCE", field="POLICIES")
    return policies


@dataclass(frozen=True)
class Inputs:
    """Where inputs come from. `items`: prompts, read only where something is generated."""

    workspace: Workspace
    run: Run
    items: Callable[[], list[PromptItem]]
    rewards: Sequence[RewardSource]
    generation: Generation
    chat: ChatOptions
    device: str = "auto"
    pass_above: float | None = None
    on_prompts: Callable[[int], None] = lambda prompts: None

    def read(self, policies: Mapping[str, Sequence[str]], reads: Reads) -> dict[str, list[Any]]:
        """Label -> inputs of the kind that the measure reads. Raises BadInputError for a source that has none."""
        if reads == "evaluations":
            return {label: [self._evaluation(source) for source in sources] for label, sources in policies.items()}
        if reads == "choices":
            sources = self.rewards or [RecordedReward()]
            return {label: self._choices(label, listed, sources) for label, listed in policies.items()}
        return {
            label: [sample for source in sources for sample in self._samples(label, source)]
            for label, sources in policies.items()
        }

    def _evaluation(self, source: str) -> dict[str, Any]:
        path = self._file(source, EVALUATION_FILE)
        if path is None:
            raise BadInputError(f"{source!r} is no run and no file with an evaluation", field="POLICIES")
        try:
            payload = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BadInputError(f"no evaluation (assay rl --evaluate N writes it): {error}", file=path) from error
        if not isinstance(payload, dict) or not isinstance(payload.get("after"), dict):
            raise BadInputError("no evaluation of a policy training: it has no `after`", file=path)
        return payload

    def _choices(self, label: str, sources: Sequence[str], rewards: Sequence[RewardSource]) -> list[Choices]:
        if len(sources) > 1:
            raise BadInputError(f"{label}: one model, not {len(sources)}", field="POLICIES")
        items = self.items()
        self.on_prompts(len(items))
        return enumerated(self._policy(sources[0]), items, rewards)

    def _samples(self, label: str, source: str) -> list[PolicySample]:
        path = self._file(source, ROLLOUTS_FILE)
        if path is not None:
            self.run.link("input", "file", str(path))
            return read_samples(path, self.pass_above)
        items = self.items()
        with torch.no_grad():
            stored, responses = generate(
                self._policy(source), items, self.generation, self._folder(), on_prompts=self.on_prompts
            )
        self.run.link("input", "file", str(stored))
        records = list(judged(items, responses, self.rewards, self.pass_above))
        log = JsonLog(self.run.folder / f"{SAMPLES_FOLDER}-{label.replace('/', '_')}.jsonl")
        log.append(records)
        return [PolicySample.from_record(record, self.pass_above) for record in records]

    def _policy(self, source: str) -> Policy:
        location, artifact = locate_model(self.workspace, source, kinds=("policy",))
        if artifact is not None:
            self.run.link("input", "artifact", artifact)
        device = local_device(self.device)
        limit = self.generation.sampling.max_prompt_tokens
        return Policy(location, device=device, max_prompt_tokens=limit, chat=self.chat)

    def _folder(self) -> Path:
        folder = self.workspace.root / SAMPLES_FOLDER
        folder.mkdir(exist_ok=True)
        return folder

    def _file(self, source: str, name: str) -> Path | None:
        """The file that a source is, or the file `name` of the run that it is; None for a model."""
        path = Path(source).expanduser()
        if path.is_file():
            return path
        for folder in (self.workspace.runs / source, path):
            if (folder / name).is_file():
                return folder / name
        if (self.workspace.runs / source).is_dir():
            raise BadInputError(f"the run {source} has no {name}", field="POLICIES")
        return None
