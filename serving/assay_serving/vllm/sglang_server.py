"""An SGLang server as an engine: `/classify` for rewards, `/generate` for the next token.

Covers: which model it serves, the length limit. Leaves out: retries (`connection`), generative models, which are called
by chat completions (`assay_serving.generative.remote`).

Written from SGLang's sources (`http_server.py`, `io_struct.py`, 0.5) and never run against a real server: it needs a
GPU. `/v1/classify` is never used: it applies a soft-max to the one logit, so that every reward is 1.0. Which weights a
server has loaded cannot be verified: a digest of the model path and weight version that it reports is part of every
score's version.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assay.errors import BackendError
from assay.runs.progress_bar import Advance, silent
from assay_serving.vllm.connection import Connection, RemoteSettings, number
from assay_serving.vllm.rows import Fault, Row, RunningModel
from assay_serving.vllm.vllm_server import PROBES, identity, model_card


@dataclass
class SglangServerEngine:
    """The one model of a server."""

    connection: Connection
    model: str
    is_generation: bool
    running: RunningModel

    @classmethod
    def connect(cls, settings: RemoteSettings) -> "SglangServerEngine":
        """Reads the server's description. Raises BackendError where it cannot be reached or is no SGLang server."""
        connection = Connection(settings)
        try:
            info = connection.get("/get_model_info")
            if not isinstance(info, dict) or "model_path" not in info:
                raise BackendError(f"{settings.url} is no SGLang server: it has no /get_model_info")
            card = model_card(connection)
            longest = card.get("max_model_len")
            source = f"{info['model_path']} {info.get('weight_version')}"
            weights = identity("sglang", str(card["id"]), source)
            running = RunningModel("unknown", "remote", int(longest) if longest else None, weights)
        except BaseException:
            connection.close()
            raise
        return cls(connection, str(card["id"]), bool(info.get("is_generation", True)), running)

    def close(self) -> None:
        self.connection.close()

    def require_rewards(self) -> None:
        """Raises BackendError where the server generates, or does not return one number per row."""
        url = self.connection.settings.url
        if self.is_generation:
            raise BackendError(f"{url} generates text; start it with --is-embedding to score with a reward model")
        for answer in self.logits(PROBES):
            if isinstance(answer, Fault):
                raise BackendError(f"{url} gives no rewards: {answer.message}")

    def logits(self, rows: Sequence[Row], on_progress: Advance = silent) -> list[float | Fault]:
        """See `Classifier.logits`."""

        def read(reply: Any) -> list[float | Fault] | Fault:
            logits: list[float | Fault] = []
            for entry in _objects(reply):
                values = entry["embedding"]
                if len(values) != 1:
                    return Fault("backend", f"an embedding of {len(values)} numbers, not a reward")
                logits.append(number(values[0]))
            return logits

        def ask(part: Sequence[Row]) -> Sequence[float | Fault] | Fault:
            return self.connection.ask("/classify", {"input_ids": [list(row) for row in part]}, read, "not a reward")

        return self.connection.for_each_row(rows, ask, on_progress)

    def next_logps(
        self, rows: Sequence[Row], tokens: Sequence[int], on_progress: Advance = silent
    ) -> list[dict[int, float] | Fault]:
        """See `LanguageModel.next_logps`."""

        def read(reply: Any) -> list[dict[int, float] | Fault]:
            log_probs: list[dict[int, float] | Fault] = []
            for entry in _objects(reply):
                listed = entry["meta_info"]["output_token_ids_logprobs"][0]
                logps = {int(token): number(logp) for logp, token, *_ in listed}
                log_probs.append({token: logps[token] for token in tokens})
            return log_probs

        def ask(part: Sequence[Row]) -> Sequence[dict[int, float] | Fault] | Fault:
            body = {
                "input_ids": [list(row) for row in part],
                "sampling_params": {"max_new_tokens": 1, "temperature": 0.0},
                "return_logprob": True,
                "token_ids_logprob": [list(tokens) for _ in part],
            }
            return self.connection.ask("/generate", body, read, "no log-probs in the reply")

        return self.connection.for_each_row(rows, ask, on_progress)


def _objects(reply: Any) -> list[Any]:
    """A list of replies; SGLang answers a request of one row with one object."""
    return reply if isinstance(reply, list) else [reply]
