"""Rollouts from a vLLM server: `/v1/completions` with token ids, weights passed through a folder that both can read.

Covers: a running server, or one that is started here and ended with the process; one for each rollout actor; a server
that is gone, or was started again without the weights. Leaves out: what is the same in process (`policy_engine`),
starting (`launch`), what a server must be started with (docs/policy-training/samplers.md).

Versions: tried with 0.32 on a CPU. Whether log-probs are of the distribution sampled (`logprobs_mode`
processed_logprobs, said to be there from 0.10 on) is not looked up but asked: of a token that is the only one allowed,
whose log-prob is then 0. A server that answers otherwise is refused when it is opened.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Gt

from assay.compute.actors import ActorLostError
from assay.errors import BackendError, BadInputError
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.samplers.vllm import policy_engine
from assay_policy_training.plugins.samplers.vllm.completions import VllmCompletion
from assay_policy_training.plugins.samplers.vllm.launch import Launch, launched
from assay_policy_training.plugins.samplers.vllm.policy_engine import (
    EXTENSION,
    LOGPROBS_MODE,
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
    give log-probs of the distribution sampled; of its methods ActorLostError where it is gone."""

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
        self.at_once = settings.concurrency
        self._loaded: str | None = None  #: folder of the weights that it was given
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

    def confirm(self) -> None:
        """See `PolicyEngine.confirm`."""
        if self._loaded is not None:
            self._require_loaded(self._loaded)

    def reload(self, folder: Path) -> None:
        """See `PolicyEngine.reload`."""
        weights = str(folder.resolve())
        body = {"method": policy_engine.RELOAD, "kwargs": {"weights_path": weights}}
        reply = self._connection.post("/collective_rpc", body)
        if isinstance(reply, Fault):
            raise self._failed(
                f"{self.where} does not take the weights ({reply.message}); start it with VLLM_SERVER_DEV_MODE=1 and "
                f"--worker-extension-cls {EXTENSION}, where it can read {folder.parent}"
            )
        self._loaded = weights
        for _ in range(CACHE_TRIES):  # blocks of a request that has just ended may still be held
            reply = self._connection.post("/reset_prefix_cache", {})
            if isinstance(reply, Fault) and "not JSON" not in reply.message:  # older versions answer nothing
                raise self._failed(f"{self.where} does not forget its prefix cache: {reply.message}")
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
            raise self._failed(f"{self.where} gives no rollouts: {reply.message}")
        try:
            choices = {int(choice["index"]): choice for choice in reply["choices"]}
            completions = [_completion(choices[index]) for index in range(n)]
        except (KeyError, TypeError, ValueError) as error:
            raise BackendError(f"{self.where} does not answer as vLLM: {type(error).__name__} {error}") from error
        if len(reply["choices"]) != n:
            raise BackendError(f"{self.where} gives {len(reply['choices'])} rows where {n} were requested")
        return completions

    def _failed(self, message: str) -> BackendError:
        """ActorLostError for a server that is gone: another can do what it was to do."""
        return BackendError(message) if self._connection.healthy() else ActorLostError(message)

    def _require_loaded(self, weights: str) -> None:
        """What it generated, it generated with these, since it still has them: a server that was started again has its
        first weights."""
        reply = self._connection.post("/collective_rpc", {"method": policy_engine.LOADED})
        if isinstance(reply, Fault):
            raise self._failed(f"{self.where} does not say which weights it has: {reply.message}")
        if any(path != weights for path in reply.get("results") or [None]):
            raise ActorLostError(f"{self.where} was started again, without the weights that it was given")

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
    """S2 by a vLLM server. `url` of a running one, or `launch: true` to start one with the policy's own weights. With
    rollout actors, `urls`: of one server each, or `launch: true` to start one each.

    `folder`: through which weights are passed, readable for the server; a temporary one by default, of this machine.
    `tolerance`: of the check after each publishing, nats; half precision needs about 0.2.
    """

    url: str = ""
    urls: tuple[str, ...] = ()
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
        if bool(self.url) + bool(self.urls) + self.launch != 1:
            raise BadInputError(
                "either the url of a running server (for rollout actors: urls), or launch: true", field="sampler.url"
            )

    def check_actors(self, actors: int) -> None:
        """See `ActorEngines`."""
        urls = [url.rstrip("/") for url in self.urls or [self.url] if url]
        if not self.launch and len(set(urls[:actors])) < actors:
            raise BadInputError(
                f"{len(set(urls))} different servers for {actors} actors: each needs one, whose weights it replaces",
                field="sampler.urls",
            )
        versions: dict[str, str] = {}
        for url in urls[:actors]:
            with closing(self._engine(url)) as engine:
                versions[url] = engine.version
        if len(set(versions.values())) > 1:
            listed = ", ".join(f"{url} {version}" for url, version in versions.items())
            raise BadInputError(f"these servers are of different versions of vLLM: {listed}", field="sampler.urls")

    def for_actor(self, index: int, folder: Path) -> "VllmServerSampler":
        """See `ActorEngines`."""
        url = "" if self.launch else [*self.urls, self.url][index]
        if url:
            try:
                self._engine(url).close()
            except BackendError as error:
                raise ActorLostError(str(error)) from error
        root = folder if self.folder is None else Path(self.folder)
        return replace(self, url=url, urls=(), folder=str(root / f"actor-{index}"))

    def open(self, policy: Policy, sampling: Sampling) -> VllmSampler:
        """Raises BackendError where there is no such server, or it does not start."""
        if self.urls:
            raise BadInputError("several servers are for rollout actors: asynchrony.actors", field="sampler.urls")
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
        folder = None if self.folder is None else Path(self.folder).expanduser()
        return VllmSampler(policy, sampling, self._engine(url), tolerance=self.tolerance, folder=folder)

    def _engine(self, url: str) -> ServerEngine:
        return ServerEngine(
            RemoteSettings(
                url,
                model=self.model,
                timeout=self.timeout,
                deadline=self.timeout,
                concurrency=self.concurrency,
            )
        )
