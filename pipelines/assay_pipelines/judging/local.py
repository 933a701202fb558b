"""A local transformers model as judge: a chat server in this process, from the first question until `close`.

Nothing constrains what it writes: an answer that cannot be read is a failure (`bad_answer`, after one re-ask), counted
in `assay judge report`.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.models.loading import resolve_model
from assay.models.spec import weights_digest
from assay.runs.record import locate_model
from assay.system.closable import Closable
from assay.workspace import Workspace
from assay_pipelines.judging.judge import OnResult
from assay_pipelines.judging.openai_compatible import LlmJudge, LlmJudgeConfig
from assay_pipelines.llm.budget import Spending
from assay_pipelines.llm.configuration import EndpointConfig, Structured
from assay_pipelines.llm.endpoint import ModelCaller
from assay_pipelines.llm.questions import Question

_NOWHERE = "http://127.0.0.1/v1"  # until the server runs


class LocalJudge(LlmJudge, Closable):
    """`model`: a folder, a hub id, `smollm2`, `tiny`, or a policy of the workspace. A context manager."""

    def __init__(
        self,
        model: str,
        workspace: Workspace,
        *,
        device: str = "auto",
        dtype: str = "auto",
        max_tokens: int = 256,
        temperature: float = 0.0,
        top_p: float = 1.0,
        structured: Structured = "none",
        repairs: int = 1,
        **settings: Any,
    ) -> None:
        self._source = locate_model(workspace, model, kinds=("policy",))[0]
        folder = Path(resolve_model(self._source))
        self.version = weights_digest(folder) if folder.is_dir() else "hub"
        self._device, self._dtype = device, dtype
        self._running = ExitStack()
        self._started = False
        called = Path(model).name if Path(model).expanduser().is_dir() else model
        endpoint = EndpointConfig(
            _NOWHERE,
            called,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            structured=structured,
            repairs=repairs,
            send_seed=True,
            concurrency=2,
            timeout=600.0,
            retries=1,
        )
        super().__init__(LlmJudgeConfig(endpoint, **settings), workspace)

    @property
    def config(self) -> Mapping[str, Any]:
        return {**super().config, "version": self.version}

    def judge_within(
        self, questions: Sequence[Question], on_result: OnResult, *, spending: Spending, run_id: str | None
    ) -> str | None:
        self.start()
        return super().judge_within(questions, on_result, spending=spending, run_id=run_id)

    def start(self) -> None:
        """Load the model and serve it, once."""
        if self._started:
            return
        from assay.http.running import running_app
        from assay_serving.chat.app import create_chat_app
        from assay_serving.chat.generation import ChatModel, QueuedModel

        settings = self.settings.endpoint
        loaded = ChatModel.load(self._source, device=self._device, dtype=self._dtype, served_as=settings.model)
        url = self._running.enter_context(running_app(create_chat_app(QueuedModel(loaded))))
        self.settings = replace(self.settings, endpoint=replace(settings, base_url=f"{url}/v1"))
        self.endpoint = ModelCaller(self.settings.endpoint, self.prompts)
        self._started = True

    def close(self) -> None:
        self._running.close()
        self._started = False
