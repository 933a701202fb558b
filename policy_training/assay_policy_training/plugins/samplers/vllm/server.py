"""Rollouts from a vLLM server: `/v1/completions` with token ids, weights passed through a folder that both can read.

Covers: a running server, or one that is started here and ended with the process. Leaves out: what is the same in
process (`policy_engine`), starting (`launch`), what a server must be started with
(docs/policy-training/samplers.md).

Versions: tried with 0.32 on a CPU. Whether log-probs are of the distribution sampled (`logprobs_mode`
processed_logprobs, said to be there from 0.10 on) is not looked up but asked: of a token that is the only one allowed,
whose log-prob is then 0. A server that answers otherwise is refused when it is opened.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Gt

from assay.errors import BackendError, BadInputError
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.samplers.vllm import policy_engine
from assay_policy_training.plugins.samplers.vllm.launch import Launch, launched
from assay_policy_training.plugins.samplers.vllm.policy_engine import (
    EXTENSION,
    LOGPROBS_MODE,
    VllmCompletion,
    VllmSampler,
    needed_length,
)
from assay_serving.vllm.connection import Connection, RemoteSettings
from assay_serving.vllm.rows import Fault
from assay_serving.vllm.versions import flags_for
from assay_serving.vllm.vllm_server import model_card

CACHE_TRIES, CACHE_PAUSE_S = 20, 0.25


class ServerEngine:
    """See `PolicyEngine`. Raises BackendError where the server cannot be reached, is older than is known, or does not
    give log-probs of the distribution sampled."""

    def __init__(self, settings: RemoteSettings) -> None:
        self.where = settings.url
        self._connection = Connection(settings)
        version = self._connection.get("/version")
        if not isinstance(version, dict) or "version" not in version:
            raise BackendError(f"{settings.url} is no vLLM server: it has no /version")
        self.version = str(version["version"])
        flags_for(self.version)
        card = model_card(self._connection)
        self.model = str(card["id"])
        longest = card.get("max_model_len")
        self.max_length = int(longest) if longest else None
        self._require_processed()

    def complete(
        self, rows: Sequence[Sequence[int]], n: int, fields: Mapping[str, Any], seeds: Sequence[int]
    ) -> Iterator[list[VllmCompletion]]:
        """See `PolicyEngine.complete`: one request a row, `concurrency` of them at once."""

        def ask(row: Sequence[int], seed: int) -> list[VllmCompletion]:
            return self._complete({**fields, "prompt": list(row), "n": n, "seed": seed}, n)

        with ThreadPoolExecutor(self._connection.settings.concurrency, thread_name_prefix="rollouts") as threads:
            futures = [threads.submit(ask, row, seed) for row, seed in zip(rows, seeds, strict=True)]
            try:
                for future in futures:
                    yield future.result()
            finally:
                threads.shutdown(wait=False, cancel_futures=True)

    def reload(self, folder: Path) -> None:
        """See `PolicyEngine.reload`."""
        body = {"method": policy_engine.RELOAD, "kwargs": {"weights_path": str(folder.resolve())}}
        reply = self._connection.post("/collective_rpc", body)
        if isinstance(reply, Fault):
            raise BackendError(
                f"{self.where} does not take the weights ({reply.message}); start it with VLLM_SERVER_DEV_MODE=1 and "
                f"--worker-extension-cls {EXTENSION}, where it can read {folder.parent}"
            )
        for _ in range(CACHE_TRIES):  # blocks of a request that has just ended may still be held
            reply = self._connection.post("/reset_prefix_cache", {})
            if isinstance(reply, Fault) and "not JSON" not in reply.message:  # older versions answer nothing
                raise BackendError(f"{self.where} does not forget its prefix cache: {reply.message}")
            if isinstance(reply, Fault) or reply.get("success", True):
                return
            time.sleep(CACHE_PAUSE_S)
        raise BackendError(f"{self.where} does not forget its prefix cache: it is used by other requests")

    def close(self) -> None:
        self._connection.close()

    def _complete(self, fields: Mapping[str, Any], n: int) -> list[VllmCompletion]:
        body = {"model": self.model, "return_token_ids": True, "add_special_tokens": False, **fields}
        reply = self._connection.post("/v1/completions", body)
        if isinstance(reply, Fault):
            raise BackendError(f"{self.where} gives no rollouts: {reply.message}")
        try:
            choices = {int(choice["index"]): choice for choice in reply["choices"]}
            completions = [_completion(choices[index]) for index in range(n)]
        except (KeyError, TypeError, ValueError) as error:
            raise BackendError(f"{self.where} does not answer as vLLM: {type(error).__name__} {error}") from error
        if len(reply["choices"]) != n:
            raise BackendError(f"{self.where} gives {len(reply['choices'])} rows where {n} were requested")
        return completions

    def _require_processed(self) -> None:
        """A token that is the only one allowed has log-prob 0 under the distribution sampled."""
        fields = {"prompt": [1, 2, 3], "max_tokens": 1, "temperature": 1.0, "logprobs": 0, "ignore_eos": True}
        (only,) = self._complete({**fields, "allowed_token_ids": [5], "n": 1, "seed": 0}, 1)
        if only.ids != (5,) or abs(only.logps[0]) > 1e-3:
            raise BackendError(
                f"{self.where} (vLLM {self.version}) gives log-probs that are not of the distribution sampled; start "
                f"it with --logprobs-mode {LOGPROBS_MODE}"
            )


def _completion(choice: Mapping[str, Any]) -> VllmCompletion:
    ids, logps = choice["token_ids"], choice["logprobs"]["token_logprobs"]
    return VllmCompletion(tuple(int(token) for token in ids), tuple(float(logp) for logp in logps))


class VllmServerSampler(RecipeSettings, section="sampler"):
    """S2 by a vLLM server. `url` of a running one, or `launch: true` to start one with the policy's own weights.

    `folder`: through which weights are passed, readable for the server; a temporary one by default, of this machine.
    `tolerance`: of the check after each publishing, nats; half precision needs about 0.2.
    """

    url: str = ""
    model: str | None = None  #: the name it serves the policy under, needed where it serves several
    concurrency: int = 32  #: requests at once; each is a whole group
    timeout: float = 600.0  #: seconds of one request
    tolerance: Annotated[float, Gt(0)] = 1e-3
    folder: str | None = None
    launch: bool = False
    python: str = ""  #: of vLLM's environment, for `launch`; default $ASSAY_VLLM_PYTHON
    dtype: str = "float32"  #: for `launch`
    max_model_len: int | None = None  #: for `launch`; default: what the recipe's numbers need
    arguments: tuple[str, ...] = ()  #: for `launch`: more of vLLM's own

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.url) == self.launch:
            raise BadInputError("either the url of a running server, or launch: true", field="sampler.url")

    def open(self, policy: Policy, sampling: Sampling) -> VllmSampler:
        """Raises BackendError where there is no such server, or it does not start."""
        url = self.url
        if self.launch:
            longest = self.max_model_len or needed_length(policy, sampling)
            url = launched(
                Launch(
                    python=self.python or os.environ.get("ASSAY_VLLM_PYTHON", ""),
                    model=policy.name,
                    dtype=self.dtype,
                    max_model_len=longest,
                    cpu=policy.device.type == "cpu",
                    arguments=self.arguments,
                )
            ).url
        settings = RemoteSettings(
            url,
            model=self.model,
            timeout=self.timeout,
            deadline=self.timeout,
            concurrency=self.concurrency,
        )
        folder = None if self.folder is None else Path(self.folder).expanduser()
        return VllmSampler(policy, sampling, ServerEngine(settings), tolerance=self.tolerance, folder=folder)
