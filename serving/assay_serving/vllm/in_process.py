"""vLLM in this process: a classifier, or a language model for the next token or for whole answers.

Covers: starting it for the checkpoint and the machine, one caller at a time, exact log-probs of named tokens, memory
and start-up failures as Assay's errors. Leaves out: differences between versions (`versions`), what rows stand for
(`scorers`, `writer`).

vLLM has its own environment (its pins clash with ours): Assay runs inside it (docs/serving/engines.md).
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from assay.errors import BackendError, BadInputError
from assay.models.loading import resolve_model
from assay.runs.progress_bar import Advance, silent
from assay_serving.generative.generation import Sampled, SamplingParams, stream_seed
from assay_serving.model_config import ModelConfig
from assay_serving.vllm.rows import Fault, Row, RunningModel, by_row, sampled
from assay_serving.vllm.versions import VllmFlags, flags_for, require_raw

log = logging.getLogger(__name__)

#: Settings of `vllm.LLM` that users may change, and their types. None runs code of a checkpoint.
OPTIONS: Mapping[str, type] = {
    "enable_prefix_caching": bool,
    "enforce_eager": bool,
    "gpu_memory_utilization": float,
    "kv_cache_memory_bytes": int,
    "max_num_batched_tokens": int,
    "max_num_seqs": int,
    "quantization": str,
    "tensor_parallel_size": int,
}
CPU_CACHE_BYTES = 1 << 30
AT_ONCE = 512  #: rows per call: progress is reported between calls, and one prompt's responses stay together
#: vLLM reads these when it is first imported.
ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
}
#: Set to 0, vLLM runs in our own process instead of a child of ours: it starts sooner (3.8 instead of 17 to 33 s for
#: 135M parameters on a CPU), but holds one model for its lifetime: closing one loses the state of all others.
CHILDREN = "VLLM_ENABLE_V1_MULTIPROCESSING"
_alone: list[str] = []  # the model that runs without a child process


class InProcessVllm:
    """A started vLLM. Safe to call from several threads: they take turns. If its child process has ended it is
    restarted, once per call."""

    def __init__(self, llm: Any, flags: VllmFlags, running: RunningModel, start: Callable[[], Any]) -> None:
        """`start` creates a new `llm`."""
        self._llm = llm
        self._start = start
        self._flags = flags
        self._lock = threading.Lock()
        self.running = running

    def close(self) -> None:
        """Free the memory. Not needed at the end of a process."""
        with self._lock:
            shut_down(self._llm)
            self._llm = None

    def logits(self, rows: Sequence[Row], on_progress: Advance = silent) -> list[float | Fault]:
        """See `Classifier.logits`."""
        return self._classified(rows, self._flags.raw(), on_progress)

    def activated(self, rows: Sequence[Row]) -> list[float | Fault]:
        """What vLLM answers by default."""
        return self._classified(rows, self._flags.activated(), silent)

    def next_logps(
        self, rows: Sequence[Row], tokens: Sequence[int], on_progress: Advance = silent
    ) -> list[dict[int, float] | Fault]:
        """See `LanguageModel.next_logps`: exact for every token, however unlikely."""
        params = import_module("vllm").SamplingParams
        if hasattr(params, "logprob_token_ids"):
            sampling_params = params(max_tokens=1, temperature=0.0, logprob_token_ids=list(tokens), detokenize=False)
            listed = self._listed(rows, sampling_params, on_progress)
            return [{token: row[token] for token in tokens} for row in listed]
        # vLLM lists the sampled token whatever its rank: a token that is the only one allowed is the sampled one.
        columns = []
        for token in tokens:
            only = params(max_tokens=1, temperature=0.0, allowed_token_ids=[token], logprobs=1, detokenize=False)
            columns.append([row[token] for row in self._listed(rows, only, silent)])
        on_progress(len(rows))
        return [dict(zip(tokens, values, strict=True)) for values in zip(*columns, strict=True)]

    def generate(
        self, rows: Sequence[Row], sampling: SamplingParams, *, samples: int, ends: Sequence[int], seed: int
    ) -> list[list[Sampled] | Fault]:
        """See `LanguageModel.generate`. Samples depend on the row, the sample's number and the seed only."""
        params = import_module("vllm").SamplingParams
        prompts: list[Row] = []
        sampling_params: list[Any] = []
        for row in rows:
            for sample in range(samples):
                prompts.append(row)
                sampling_params.append(
                    params(
                        max_tokens=sampling.max_new_tokens,
                        temperature=sampling.temperature,
                        top_p=sampling.top_p if sampling.temperature > 0 else 1.0,
                        seed=stream_seed(row, sample, seed) if sampling.temperature > 0 else None,
                        stop_token_ids=list(ends),
                        ignore_eos=True,  # `ends` has every end token
                        detokenize=False,
                    )
                )
        generated: list[Sampled | Fault] = []
        for output in self._run("generate", prompts, sampling_params):
            (completion,) = output.outputs
            generated.append(sampled(completion.token_ids, ends))
        return by_row(generated, samples)

    def _classified(self, rows: Sequence[Row], fields: Mapping[str, Any], on_progress: Advance) -> list[float | Fault]:
        params = import_module("vllm").PoolingParams(**fields)
        logits: list[float | Fault] = []
        for part in _parts(rows):
            for output in self._run("classify", part, None, pooling_params=params):
                values = output.outputs.probs
                if len(values) != 1:
                    raise BadInputError(f"the model has {len(values)} labels; a scalar reward model has one")
                logits.append(float(values[0]))
            on_progress(len(part))
        return logits

    def _listed(self, rows: Sequence[Row], params: Any, on_progress: Advance) -> list[dict[int, float]]:
        """The listed log-probs of the one token after each row."""
        log_probs: list[dict[int, float]] = []
        for part in _parts(rows):
            for output in self._run("generate", part, params):
                (listed,) = output.outputs[0].logprobs
                log_probs.append({int(token): float(entry.logprob) for token, entry in listed.items()})
            on_progress(len(part))
        return log_probs

    def _run(self, verb: str, rows: Sequence[Row], params: Any, **options: Any) -> list[Any]:
        """Raises BackendError: vLLM fails for all rows of a call, or for none."""
        prompts = [{"prompt_token_ids": list(row)} for row in rows]
        arguments = [prompts] if params is None else [prompts, params]
        with self._lock:
            for again in (True, False):
                try:
                    return list(getattr(self._llm, verb)(*arguments, use_tqdm=False, **options))
                except Exception as error:  # its errors have no common base in all versions
                    if not (again and type(error).__name__ == "EngineDeadError"):
                        raise BackendError(f"vLLM failed: {first_line(error)}") from error
                log.warning("vLLM's process has ended and is restarted")
                self._llm = None  # gives back what it holds
                self._llm = self._start()
        raise AssertionError("unreachable")


def start_classifier(config: ModelConfig, max_length: int, *, regression: bool) -> InProcessVllm:
    """vLLM with a `*ForSequenceClassification` of one label, checked to answer with logits.

    `regression`: whether the checkpoint's config says so. Raises BackendError where vLLM is not installed, is of an
    unknown version or cannot run the model, BadInputError for unknown options.
    """
    engine = _start(config, lambda flags: flags.classifying, max_length)
    probes = [[1, 2, 3, 4], [4, 3, 2, 1], [5, 6, 7]]
    try:
        raw, activated = engine.logits(probes), engine.activated(probes)
        require_raw(_numbers(raw), _numbers(activated), regression=regression, where=f"vLLM with {config.reference}")
    except BaseException:
        engine.close()
        raise
    return engine


def start_language_model(config: ModelConfig, max_length: int) -> InProcessVllm:
    """vLLM with a causal language model. `max_length`: of prompt and answer. Raises as `start_classifier`."""
    return _start(config, lambda flags: flags.generating, max_length)


def checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `OPTIONS`, with their types. Raises BadInputError for another name or value."""
    for name, value in options.items():
        expected = OPTIONS.get(name)
        if expected is None:
            raise BadInputError(f"vLLM in process has no option {name!r}: {', '.join(OPTIONS)}", field="engine_options")
        fits = isinstance(value, expected) or (expected is float and isinstance(value, int))
        if not fits or (expected is not bool and isinstance(value, bool)):
            raise BadInputError(f"{name} is {expected.__name__}, not {value!r}", field="engine_options")
    return dict(options)


class InstalledVllm:
    """The vLLM of this environment: its `flags`, the `device` that it runs on, and models started in it."""

    def __init__(self, elsewhere: str) -> None:
        """Raises BackendError where it is not installed, naming `elsewhere`, or is of an unknown version."""
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            self._module = import_module("vllm")
            self.device = str(import_module("vllm.platforms").current_platform.device_type)
        except ImportError as error:
            raise BackendError(
                f"vLLM is not in this environment ({first_line(error)}); it needs its own{elsewhere}"
            ) from error
        self.version = str(self._module.__version__)
        self.flags = flags_for(self.version)

    def start(self, name: str, *, dtype: str, max_length: int, **options: Any) -> Any:
        """A `vllm.LLM` with the model of this name. `options`: in place of the usual ones. Raises BackendError."""
        arguments: dict[str, Any] = {
            "dtype": dtype,
            "max_model_len": max_length,
            "trust_remote_code": False,
            "enable_prefix_caching": True,  # rows of one prompt share its computation
            "disable_log_stats": True,
            "use_tqdm_on_load": False,
        }
        if self.device == "cpu":
            arguments["enforce_eager"] = True  # compiling takes a minute and gains 3 to 7 %
            if self.flags.cache_bytes:
                arguments["kv_cache_memory_bytes"] = CPU_CACHE_BYTES
            else:
                os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(CPU_CACHE_BYTES >> 30))
        try:
            return self._module.LLM(model=resolve_model(name), **(arguments | options))
        except Exception as error:  # what goes wrong inside a start has no common base
            raise BackendError(f"vLLM {self.version} cannot run {name}: {first_line(error)}") from error


def process_model() -> str | None:
    """What vLLM runs in this very process, and not in a child of it."""
    return _alone[0] if _alone else None


def take_process(name: str) -> None:
    """Before a model is started without a child process. Raises BackendError where there is one."""
    if _alone:
        raise BackendError(f"{CHILDREN}=0 holds one model a process, and that is {_alone[0]}; leave it out")
    _alone.append(name)


def shut_down(llm: Any) -> None:
    """End the processes of a `vllm.LLM`."""
    core = getattr(getattr(llm, "llm_engine", None), "engine_core", None)
    if core is not None and hasattr(core, "shutdown"):
        core.shutdown()


def _start(config: ModelConfig, role: Callable[[VllmFlags], Mapping[str, str]], max_length: int) -> InProcessVllm:
    chosen = checked_options(config.engine_options)
    vllm = InstalledVllm(": in a new one, pip install vllm, and Assay with --no-deps; then this command there")
    if os.environ.get(CHILDREN) == "0":
        take_process(config.reference)
    if config.device not in ("auto", vllm.device):
        raise BadInputError(f"this vLLM runs on {vllm.device or 'nothing'}, not on {config.device}", field="device")
    options: dict[str, Any] = {"dtype": config.dtype, "max_length": max_length, **role(vllm.flags), **chosen}
    start = partial(vllm.start, config.reference, **options)
    llm = start()
    return InProcessVllm(llm, vllm.flags, RunningModel(_dtype_of(llm, config.dtype), vllm.device, max_length), start)


def _dtype_of(llm: Any, requested: str) -> str:
    config = getattr(getattr(llm, "llm_engine", None), "vllm_config", None)
    dtype = getattr(getattr(config, "model_config", None), "dtype", requested)
    return str(dtype).removeprefix("torch.")


def _parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for start in range(0, len(rows), AT_ONCE):
        yield rows[start : start + AT_ONCE]


def _numbers(logits: Sequence[float | Fault]) -> list[float]:
    return [value for value in logits if not isinstance(value, Fault)]


def first_line(error: BaseException) -> str:
    """Of an error's message; its type where it has none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
