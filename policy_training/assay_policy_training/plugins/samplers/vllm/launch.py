"""A vLLM server for rollouts, started in a separate environment and stopped with this process.

Covers: the flags and variables that a policy's server needs, waiting until it is ready, its log, ending the whole
process group, also where this process is killed (`parent_watchdog`). Leaves out: talking to it (`server`).
"""

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from assay.errors import BackendError, BadInputError
from assay.http.listening import claim_port
from assay.models.loading import resolve_model
from assay.system import parent_watchdog
from assay_policy_training.plugins.samplers.vllm import worker
from assay_policy_training.plugins.samplers.vllm.installed import require_supported, vllm_version
from assay_policy_training.plugins.samplers.vllm.policy_engine import LOGPROBS_MODE

START_S = 900.0
END_S = 20.0
SHOWN = 2000  #: characters of the log in an error
MODULE = "assay_vllm_worker"
#: A prompt that is read in two parts ends vLLM 0.32 on a CPU where its request has a seed ("CPU Generator does not use
#: offset"): prompts are read whole there, so a step must hold the longest.
BATCHED_TOKENS = 4096
#: Where the user's own environment does not say otherwise.
ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}
TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
#: Always: routes for weights, sleep and adapters, of a server that is for this run alone, on a loopback address.
ROUTES = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}


@dataclass(frozen=True)
class Launch:
    """What to start. `python`: of vLLM's environment, which needs nothing of Assay. `gpu`: the number of this process's
    GPU that it runs on; None: a processor. `adapter_rank`: room for an adapter of that rank; 0: none."""

    python: str
    model: str  #: as a policy names it: a folder, a hub id
    dtype: str = "float32"
    max_model_len: int | None = None
    gpu: int | None = None
    adapter_rank: int = 0
    memory_share: float | None = None  #: of the GPU
    sleeps: bool = False
    name: str = "policy"
    arguments: tuple[str, ...] = ()

    def command(self, port: int) -> list[str]:
        """The command line: also what docs/policy-training/samplers.md shows."""
        line = [self.python, "-m", "vllm.entrypoints.openai.api_server", "--model", resolve_model(self.model)]
        line += ["--served-model-name", self.name, "--host", "127.0.0.1", "--port", str(port), "--dtype", self.dtype]
        line += ["--logprobs-mode", LOGPROBS_MODE, "--generation-config", "vllm"]
        line += ["--worker-extension-cls", f"{MODULE}.{worker.PolicyWorker.__name__}"]
        line += [] if self.max_model_len is None else ["--max-model-len", str(self.max_model_len)]
        if self.adapter_rank:
            line += ["--enable-lora", "--max-loras", "1", "--max-lora-rank", str(self.adapter_rank)]
        line += [] if self.memory_share is None else ["--gpu-memory-utilization", str(self.memory_share)]
        line += ["--enable-sleep-mode"] if self.sleeps else []
        if self.gpu is None:
            batched_tokens = max(BATCHED_TOKENS, self.max_model_len or 0)
            line += ["--no-enable-chunked-prefill", "--max-num-batched-tokens", str(batched_tokens)]
            line += ["--enforce-eager"]  # compiling takes a minute and gains little
        return [*line, *self.arguments]

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Of the server, in that of this process: nothing of its Python, and the one GPU."""
        variables = {name: value for name, value in inherited.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        # What torchrun tells its processes is not for the server.
        variables = {
            name: value for name, value in variables.items() if name not in TORCHRUN and "TORCHELASTIC" not in name
        }
        if self.gpu is not None:
            visible = [each for each in inherited.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
            variables["CUDA_VISIBLE_DEVICES"] = visible[self.gpu] if visible else str(self.gpu)
        return {**ENVIRONMENT, **variables, **ROUTES}


class LaunchedServer:
    """A server of ours: its address, its log, its end. `process`: its guard, the leader of its group."""

    def __init__(self, url: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.url, self.process, self.log = url, process, log

    def stop(self) -> None:
        """End it and the processes it started; safe to call twice."""
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(END_S)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # its engine is a separate process
        self.process.wait()
        shutil.rmtree(self.log.parent, ignore_errors=True)
        atexit.unregister(self.stop)


def require_python(python: str) -> None:
    """Raises BadInputError where this is no Python."""
    if not python or shutil.which(python) is None:
        raise BadInputError(
            f"{python!r} is no Python; name that of vLLM's environment here or in $ASSAY_VLLM_PYTHON"
            if python
            else "name the Python of vLLM's environment here or in $ASSAY_VLLM_PYTHON",
            field="sampler.python",
        )


def launched(launch: Launch, *, wait_s: float = START_S) -> LaunchedServer:
    """A server that is ready; it ends with this process, however that ends.

    Raises as `require_python`, BackendError for an unsupported version, and with the end of its log where it does not
    become ready.
    """
    require_python(launch.python)
    if (installed := vllm_version(launch.python)) is not None:  # else its log says what is missing
        require_supported(installed, launch.python)
    folder = Path(tempfile.mkdtemp(prefix="assay-vllm-"))
    # The worker's module alone: the other environment must not see this one's packages.
    shutil.copyfile(worker.__file__, folder / f"{MODULE}.py")
    claimed = claim_port("127.0.0.1", 0)
    port = int(claimed.getsockname()[1])
    claimed.close()
    log = folder / "log"
    environment = launch.environment(os.environ) | {"PYTHONPATH": str(folder)}
    with log.open("wb") as stream:
        guard = [sys.executable, "-I", "-S", parent_watchdog.__file__, str(os.getpid())]
        process = subprocess.Popen(
            [*guard, *launch.command(port)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            cwd=folder,
            start_new_session=True,
        )
    server = LaunchedServer(f"http://127.0.0.1:{port}", process, log)
    atexit.register(server.stop)
    deadline = time.monotonic() + wait_s
    while not _ready(server.url):
        if process.poll() is not None or time.monotonic() > deadline:
            log_end = " ".join(log.read_text(errors="replace")[-SHOWN:].split())
            why = f"ended with status {process.returncode}" if process.poll() is not None else "is not ready"
            server.stop()
            raise BackendError(f"vLLM's server {why}: {log_end}")
        time.sleep(0.25)
    return server


def _ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=2.0, trust_env=False, verify=False).status_code == 200  # plain HTTP
    except httpx.HTTPError:
        return False
