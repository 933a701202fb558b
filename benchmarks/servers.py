"""Servers as child processes, for the benchmarks that need one: ours, the plain one, vLLM's, one without a model.

Covers: starting, waiting until they answer, stopping them with all their children. Leaves out: what they are asked.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

HERE = Path(__file__).resolve().parent
START_S = 300.0


@contextmanager
def server(
    command: Sequence[str | Path],
    url: str,
    ready: str,
    environment: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """The command's process, once `url + ready` answers 200. Raises RuntimeError with what it said if it does not."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + START_S
            while not _answers(url + ready, headers or {}):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise RuntimeError(f"{command[0]} did not start: {log.read()[-3000:].decode(errors='replace')}")
                time.sleep(0.2)
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(20)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what is left of its group
            process.wait()


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


class ServerUrl(str):
    """Of a server that was started here; knows the process."""

    pid: int

    @classmethod
    def of(cls, url: str, process: subprocess.Popen[bytes]) -> ServerUrl:
        known = cls(url)
        known.pid = process.pid
        return known


@contextmanager
def assay_server(model: str | Path, *, workers: int, threads: int) -> Iterator[ServerUrl]:
    """`assay serve MODEL`, without its score cache; yields its URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "serve.yaml"
        settings = {"models": [{"reference": str(model)}], "port": port, "workers": workers}
        settings |= {"cache_entries": 0, "request_timeout_s": 900}  # 256 clients of a slow model wait longer
        config.write_text(json.dumps(settings))  # which is YAML, too
        command: list[str | Path] = [sys.executable, "-m", "assay", "serve", "--config", config]
        with server(command, url, "/readyz", {"OMP_NUM_THREADS": str(threads)}) as process:
            yield ServerUrl.of(url, process)


@contextmanager
def scripted_server(*options: str, key: str | None = None) -> Iterator[tuple[str, int]]:
    """`scripted_server.py OPTIONS`; yields its URL and its process. `key`: what it asks of its callers."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command: list[str | Path] = [sys.executable, HERE / "scripted_server.py", "--port", str(port), *options]
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with server(command, url, "/readyz", {"PYTHONPATH": str(HERE)}, headers) as process:
        yield url, process.pid


@contextmanager
def plain_server(model: str | Path, threads: int) -> Iterator[ServerUrl]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command: list[str | Path] = [sys.executable, HERE / "plain_server.py", model, str(port), str(threads)]
    with server(command, url, "/health", {"OMP_NUM_THREADS": str(threads)}) as process:
        yield ServerUrl.of(url, process)


@contextmanager
def vllm_server(python: str, model: str | Path, max_length: int, threads: int) -> Iterator[ServerUrl]:
    """vLLM's own OpenAI-style server on the pooling runner, float32, prefix caching as it comes."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--served-model-name", "rm"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--runner", "pooling", "--convert", "classify"]
    command += ["--dtype", "float32", "--max-model-len", str(max_length), "--max-num-seqs", "256", "--enforce-eager"]
    command += ["--enable-prefix-caching", "--pooler-config", '{"use_activation": false}']
    environment = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}",
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    with server(command, url, "/health", environment) as process:
        yield ServerUrl.of(url, process)


def _answers(url: str, headers: Mapping[str, str]) -> bool:
    try:
        return httpx.get(url, timeout=2.0, headers=headers).status_code == 200
    except httpx.TransportError:
        return False
