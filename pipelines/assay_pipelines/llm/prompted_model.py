"""A model with the prompts of one task, as attributes, checks and principles need it: its annotator and its calls."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from assay_pipelines.llm.annotators import Annotator, versioned
from assay_pipelines.llm.configuration import EndpointConfig
from assay_pipelines.llm.endpoint import ModelCall, ModelCaller
from assay_pipelines.llm.prompts import Prompts
from assay_pipelines.llm.replies import StrictAnswer

A = TypeVar("A", bound=StrictAnswer)


class PromptedModel:
    """Calls the model at `endpoint` with the prompts `TASK.system.md` and `TASK.user.md`.

    In the store it has the model's name, after `prefix`. `prompts`: a folder with other prompts. `identity`: further
    settings that determine its answers and, with the model and the prompts, identify the annotator.
    """

    def __init__(
        self,
        task: str,
        endpoint: EndpointConfig,
        prompts: Path | None,
        identity: Mapping[str, Any] | None = None,
        prefix: str = "",
    ) -> None:
        system, self._user = f"{task}.system.md", f"{task}.user.md"
        self.task = task
        self.prompts = Prompts(prompts)
        self.prompt_hash = self.prompts.hash(system, self._user)
        self.endpoint = ModelCaller(endpoint, self.prompts)
        self._system = self.prompts.render(system)
        self.config: Mapping[str, Any] = {
            **endpoint.identity(),
            "task": task,
            **(identity or {}),
            "prompts": self.prompt_hash,
        }
        self.annotator: Annotator = versioned("llm", f"{prefix}{endpoint.model_name}", self.config)

    def ask(
        self, ref: str, answer: type[A], order: Literal["AB", "BA"] | None = None, **variables: Any
    ) -> ModelCall[A]:
        """The call about `ref` (a comparison or a response) with `variables` in the user's prompt."""
        messages = (
            {"role": "system", "content": self._system},
            {"role": "user", "content": self.prompts.render(self._user, **variables)},
        )
        return ModelCall(self.task, ref, messages, answer, self.prompt_hash, order)
