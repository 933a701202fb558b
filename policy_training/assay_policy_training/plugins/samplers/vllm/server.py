"""Rollouts from a vLLM server: `/v1/completions` with token ids, weights passed bucket by bucket through memory that
both can read.

Covers: a running server, or one that is started here and ended with the process; one for each rollout actor, or for
each process of torchrun; sleep between rollouts; a server that is gone, or was started again without the weights.
Leaves out: what is the same in process (`policy_engine`), the memory between (`buckets`), starting (`launch`), what a
server must be started with (docs/policy-training/samplers.md).

Versions: tried with 0.32 on a CPU. Whether log-probs are of the distribution sampled (`logprobs_mode`
processed_logprobs, said to be there from 0.10 on) is not looked up but asked: of a token that is the only one allowed,
whose log-prob is then 0. A server that answers otherwise is refused when it is opened.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
from annotated_types import Gt

from assay.compute.actors import ActorLostError
from assay.errors import BackendError, BadInputError
from assay.models.devices import free_memory
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.samplers.vllm.buckets import Carrier, CudaCarrier, FileCarrier, buckets
from assay_policy_training.plugins.samplers.vllm.completions import PublishedWeights, VllmCompletion
from assay_policy_training.plugins.samplers.vllm.installed import require_installed, require_supported, vllm_python
from assay_policy_training.plugins.samplers.vllm.launch import Launch, launched, require_python
from assay_policy_training.plugins.samplers.vllm.memory import memory_share
from assay_policy_training.plugins.samplers.vllm.policy_engine import (
    EXTENSION,
    LOGPROBS_MODE,
    VllmSampler,
    adapter_rank,
    check_dtype,
    engine_dtype,
    needed_length,
    require_complete,
    sends_adapter,
)
from assay_serving.vllm.connection import Connection, RemoteSettings
from assay_serving.vllm.rows import Fault
from assay_serving.vllm.versions import flags_for
from assay_serving.vllm.vllm_server import model_card

ADAPTER_NAME = "policy-adapter"
CACHE_TRIES, CACHE_PAUSE_S = 20, 0.25


class ServerEngine:
    """See `PolicyEngine`. `folder`, `gpu`: see `FileCarrier` and `CudaCarrier`, which is for a server on that GPU.
    `sleep_level`: see `InProcessEngine`.

    Raises BackendError where the server cannot be reached, is of an unsupported version, or does not give log-probs of
    the distribution sampled; of its methods ActorLostError where it is gone."""

    def __init__(
        self,
        settings: RemoteSettings,
        *,
        folder: Path | None = None,
        gpu: torch.device | None = None,
        sleep_level: int = 0,
    ) -> None:
        self.where = settings.url
        self.folder, self.gpu, self.sleep_level = folder, gpu, sleep_level
        self._connection = Connection(settings)
        version = self._connection.get("/version")
        if not isinstance(version, dict) or "version" not in version:
            raise BackendError(f"{settings.url} is no vLLM server: it has no /version")
        self.version = str(version["version"])
        require_supported(self.version, settings.url)
        flags_for(self.version)  # warns of one that is newer than those known
        card = model_card(self._connection)
        self.model = str(card["id"])
        longest = card.get("max_model_len")
        self.max_length = int(longest) if longest else None
        self.at_once = settings.concurrency
        self._loaded: str | None = None  #: key of the weights that it was given
        self._asleep = self._has_adapter = False
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

    def load(self, weights: PublishedWeights) -> None:
        """See `PolicyEngine.load`."""
        self._wake("weights")
        self._rpc("begin_policy", adapter=weights.adapter)
        carrier: Carrier = FileCarrier(self.folder) if self.gpu is None else CudaCarrier(self.gpu)
        try:
            for entries, size in buckets(weights.tensors, carrier):
                self._rpc("take_bucket", entries=entries, size=size, location=carrier.location())
        finally:
            carrier.close()
        require_complete(self.where, self._rpc("end_policy", key=weights.key))
        self._wake("kv_cache")
        self._asleep = False
        if weights.adapter is not None and not self._has_adapter:
            self._name_adapter()
        self._loaded = weights.key
        self._forget_cache()

    def sleep(self) -> None:
        """See `PolicyEngine.sleep`."""
        if self.sleep_level and not self._asleep:
            self._ask(f"/sleep?level={self.sleep_level}", "does not sleep")
            self._asleep = True

    def _wake(self, part: str) -> None:
        if self._asleep:
            free_memory(torch.device("cuda"))  # what torch keeps of the update's tensors
            self._ask(f"/wake_up?tags={part}", "does not wake")

    def _name_adapter(self) -> None:
        """The worker has its tensors already, under the number that the server gives to the first name."""
        self._ask("/v1/load_lora_adapter", "takes no adapter", lora_name=ADAPTER_NAME, lora_path="in-memory")
        self._has_adapter = True

    def _ask(self, path: str, refusal: str, **body: Any) -> None:
        reply = self._connection.post(path, body)
        if isinstance(reply, Fault) and "not JSON" not in reply.message:  # some routes answer in words
            raise self._failed(f"{self.where} {refusal}: {reply.message}")

    def _rpc(self, method: str, **arguments: Any) -> list[dict[str, Any]]:
        reply = self._connection.post("/collective_rpc", {"method": method, "kwargs": arguments})
        if isinstance(reply, Fault):
            raise self._failed(
                f"{self.where} does not take the weights ({reply.message}); start it with VLLM_SERVER_DEV_MODE=1 and "
                f"--worker-extension-cls {EXTENSION}, on this machine or with a sampler.folder that both can read"
            )
        return [report for report in reply.get("results") or [] if isinstance(report, dict)]

    def _forget_cache(self) -> None:
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
        model = ADAPTER_NAME if self._has_adapter else self.model
        body = {"model": model, "return_token_ids": True, "add_special_tokens": False, **fields}
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
        reply = self._connection.post("/collective_rpc", {"method": "policy_key"})
        if isinstance(reply, Fault):
            raise self._failed(f"{self.where} does not say which weights it has: {reply.message}")
        if any(key != weights for key in reply.get("results") or [None]):
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
    rollout actors, or in several processes, `urls`: of one server each, or `launch: true` to start one each.

    `folder`: through which weights are passed to a server of another machine; of this one: shared memory.
    `adapters`: a launched server keeps the base and of LoRA gets the adapter alone; else merged weights.
    `tolerance`: of the check after each publishing, nats; default: the format's.
    """

    url: str = ""
    urls: tuple[str, ...] = ()
    model: str | None = None  #: the name it serves the policy under, needed where it serves several
    concurrency: int = 32  #: requests at once; each is a whole group
    timeout: float = 600.0  #: seconds of one request
    tolerance: Annotated[float | None, Gt(0)] = None
    folder: str | None = None
    launch: bool = False
    python: str = ""  #: of vLLM's environment, for `launch`; default $ASSAY_VLLM_PYTHON
    dtype: str = "auto"  #: that it computes in; auto: the format of the trainer's products
    adapters: bool = True
    sleep: bool = True  #: of a launched server on a GPU, between rollouts
    max_model_len: int | None = None  #: for `launch`; default: what the recipe's numbers need
    arguments: tuple[str, ...] = ()  #: for `launch`: more of vLLM's own

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.url) + bool(self.urls) + self.launch != 1:
            raise BadInputError(
                "either the url of a running server (for rollout actors: urls), or launch: true", field="sampler.url"
            )

    def check(self) -> None:
        """See `ChecksSampler`."""
        check_dtype(self.dtype)
        if self.launch:
            python = vllm_python(self.python)
            require_python(python)
            require_installed(python)
        for url in self.urls or [self.url] if not self.launch else ():
            self._engine(url).close()

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

    def for_actor(self, index: int) -> "VllmServerSampler":
        """See `ActorEngines`."""
        url = "" if self.launch else [*self.urls, self.url][index]
        if url:
            try:
                self._engine(url).close()
            except BackendError as error:
                raise ActorLostError(str(error)) from error
        folder = None if self.folder is None else str(Path(self.folder) / f"actor-{index}")
        return replace(self, url=url, urls=(), folder=folder)

    def open(self, policy: Policy, sampling: Sampling) -> VllmSampler:
        """Raises BackendError where there is no such server, or it does not start, BadInputError where the GPU has no
        room for it."""
        dtype, world = engine_dtype(policy, self.dtype), policy.parallel.world
        urls = self.urls or (self.url,)
        if not self.launch and (len(urls) != world or len(set(urls)) != world):
            raise BadInputError(
                "several servers are for rollout actors (asynchrony.actors) and for several processes, one each"
                if self.urls
                else f"{world} processes need a server each: urls, or launch: true",
                field="sampler.urls",
            )
        if self.launch:
            return self._launched(policy, sampling, dtype)
        engine = self._engine(urls[policy.parallel.rank])
        return VllmSampler(policy, sampling, engine, dtype=dtype, tolerance=self.tolerance)

    def _launched(self, policy: Policy, sampling: Sampling, dtype: str) -> VllmSampler:
        longest = self.max_model_len or needed_length(policy, sampling)
        on_gpu = policy.device.type == "cuda"
        sleeps, adapters = self.sleep and on_gpu, sends_adapter(policy, self.adapters)
        share = None
        if on_gpu and "--gpu-memory-utilization" not in self.arguments:
            share = memory_share(policy, sampling, longest, dtype, sleeps=sleeps)
            free_memory(policy.device)
        server = launched(
            Launch(
                python=vllm_python(self.python),
                model=policy.name,
                dtype=dtype,
                max_model_len=longest,
                gpu=(policy.device.index or 0) if on_gpu else None,
                adapter_rank=adapter_rank(policy.lora.rank) if adapters and policy.lora is not None else 0,
                memory_share=share,
                sleeps=sleeps,
                arguments=self.arguments,
            )
        )
        gpu = policy.device if on_gpu else None
        engine = self._engine(server.url, gpu=gpu, sleep_level=(1 if adapters else 2) if sleeps else 0)
        engine.sleep()
        return VllmSampler(policy, sampling, engine, dtype=dtype, adapters=adapters, tolerance=self.tolerance)

    def _engine(self, url: str, **options: Any) -> ServerEngine:
        settings = RemoteSettings(
            url,
            model=self.model,
            timeout=self.timeout,
            deadline=self.timeout,
            concurrency=self.concurrency,
        )
        return ServerEngine(settings, folder=None if self.folder is None else Path(self.folder).expanduser(), **options)
