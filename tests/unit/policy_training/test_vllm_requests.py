"""What rollouts ask of a vLLM server, what they make of its answers, and how a server is started.

The server here is a real one that gives fixed answers; a real vLLM is in `test_vllm_sampler.py`.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from async_training import recipe_with, trainer
from recorded_engines import MODELS, VERSION, Answer, Elsewhere, elsewhere

from assay.compute.actors import ActorLostError
from assay.domain import Message
from assay.errors import BackendError, BadInputError
from assay.models.published_weights import adapter_weights
from assay_policy_training.core.config import Asynchrony
from assay_policy_training.core.policy import Lora, Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.samplers.vllm.launch import Launch, launched
from assay_policy_training.plugins.samplers.vllm.policy_engine import VllmSampler
from assay_policy_training.plugins.samplers.vllm.server import ServerEngine, VllmServerSampler
from assay_policy_training.plugins.samplers.vllm.worker import PolicyWorker
from assay_policy_training.rollouts.actor import check_sampler
from assay_serving.vllm.connection import RemoteSettings

CPU = torch.device("cpu")
ITEMS = [PromptItem((Message("user", text),)) for text in ("hi", "and you?")]
SAMPLING = Sampling(max_new_tokens=5, max_prompt_tokens=64, temperature=0.5, prune_log_ratio=-2.0)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy("tiny", device=CPU, max_prompt_tokens=64)


def completion(body: dict[str, Any]) -> tuple[int, bytes]:
    """Rows of one to n tokens; a token that is the only one allowed has log-prob 0."""
    rows = []
    for index in reversed(range(body["n"])):  # a server may answer in any order
        allowed = body.get("allowed_token_ids")
        ids = allowed or [7 + index] * (1 + index)
        logps = [0.0 if allowed else -0.5] * len(ids)
        rows.append({"index": index, "token_ids": ids, "logprobs": {"token_logprobs": logps}})
    return 200, json.dumps({"choices": rows}).encode()


def worker(received: dict[str, torch.Tensor] | None = None, missing: Sequence[str] = ()) -> Answer:
    """One that remembers which weights it took, in place of vLLM's own with its model."""
    taken, own = list[str | None]([None]), PolicyWorker()

    def answer(body: dict[str, Any]) -> tuple[int, bytes]:
        method, arguments = body["method"], body.get("kwargs", {})
        if method == "begin_policy":
            own.begin_policy(arguments["adapter"] or {"whole": "model"})
        elif method == "take_bucket":
            own.take_bucket(**arguments)
        elif method == "end_policy":
            taken[0] = arguments["key"]
            if received is not None:
                received.update(own.policy_tensors)  # type: ignore[attr-defined]
        reports = {"policy_key": taken[0], "end_policy": {"missing": list(missing)}}
        return 200, json.dumps({"results": [reports.get(method)]}).encode()

    return answer


def routes(**changed: Answer) -> dict[str, Answer]:
    known: dict[str, Answer] = {
        "/version": lambda _: (200, VERSION),
        "/v1/models": lambda _: (200, MODELS),
        "/v1/completions": completion,
        "/health": lambda _: (200, b""),
        "/collective_rpc": worker(),
        "/reset_prefix_cache": lambda _: (200, b'{"success":true}'),
    }
    return known | {f"/{name.replace('__', '/')}": answer for name, answer in changed.items()}


def opened(policy: Policy, server: Elsewhere, **options: Any) -> VllmSampler:
    return VllmServerSampler(url=server.url, timeout=240.0, **options).open(policy, SAMPLING)


def test_what_is_asked_and_what_is_made_of_it(policy: Policy) -> None:
    with elsewhere(routes()) as server:
        batch = opened(policy, server).rollout(ITEMS, 3, seed=1, version=4)
        asked = [body for path, body in server.posted if path == "/v1/completions" and "allowed_token_ids" not in body]
    assert len(asked) == 2
    asked.sort(key=lambda body: len(body["prompt"]))
    for body, item in zip(asked, ITEMS, strict=True):
        assert body["prompt"] == list(policy.renderer.encode(item.prompt).ids)
        assert (body["n"], body["max_tokens"], body["temperature"], body["logprobs"]) == (3, 5, 0.5, 0)
        assert body["min_p"] == pytest.approx(0.1353353)
        assert body["stop_token_ids"] == sorted(policy.end_ids)
        assert body["ignore_eos"]
        assert body["return_token_ids"]
    assert asked[0]["seed"] != asked[1]["seed"]
    assert batch.lengths.tolist() == [1, 2, 3, 1, 2, 3]
    assert batch.tokens[2].tolist()[:3] == [9, 9, 9]
    assert batch.logp_mu[batch.mask].tolist() == [-0.5] * 12
    assert batch.version.tolist() == [4] * 6


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"version": lambda _: (404, b"")}, "no vLLM server"),
        ({"version": lambda _: (200, b'{"version":"0.8.5"}')}, "not supported"),
        (
            {"v1__completions": lambda _: (200, b'{"choices":[{"index":0,"token_ids":[5],"logprobs":{"token_logprobs":'
             b'[-7.1]}}]}')},
            "--logprobs-mode processed_logprobs",
        ),
        ({"v1__completions": lambda _: (200, b'{"choices":[{"index":0,"text":"x"}]}')}, "does not answer as vLLM"),
        ({"v1__completions": lambda _: (400, b'{"error":{"message":"no"}}')}, "gives no rollouts.*no"),
    ],
)  # fmt: skip
def test_a_server_that_is_not_the_right_one_is_refused(
    policy: Policy, changed: dict[str, Answer], message: str
) -> None:
    with elsewhere(routes(**changed)) as server, pytest.raises(BackendError, match=message):
        opened(policy, server)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"collective_rpc": lambda _: (404, b'{"detail":"Not Found"}')}, "VLLM_SERVER_DEV_MODE=1.*PolicyWorker"),
        ({"reset_prefix_cache": lambda _: (500, b"")}, "does not forget its prefix cache"),
        ({"collective_rpc": worker(missing=["b", "a"])}, "lacks 2 of the policy's weights, a first"),
        ({}, r"does not have the policy's weights \(version 3\): log-prob -0.5 where the trainer finds -"),
    ],
)
def test_weights_that_do_not_arrive_are_an_error(policy: Policy, changed: dict[str, Answer], message: str) -> None:
    with elsewhere(routes(**changed)) as server:
        sampler = opened(policy, server)
        with pytest.raises(BackendError, match=message):
            sampler.publish(policy, 3)


def test_a_server_gets_the_policys_weights_from_memory(policy: Policy) -> None:
    received: dict[str, torch.Tensor] = {}
    with elsewhere(routes(collective_rpc=worker(received))) as server:
        opened(policy, server, tolerance=99.0).publish(policy, 3)
        methods = [body["method"] for path, body in server.posted if path == "/collective_rpc"]
    assert methods == ["begin_policy", "take_bucket", "end_policy", "policy_key"]
    state = policy.model.state_dict()
    assert received.keys() == state.keys() - {"lm_head.weight"}  # which is tied
    assert all(torch.equal(values, state[name]) for name, values in received.items())


def test_a_launched_servers_adapter_is_asked_for_by_its_name_and_wakes_in_parts(policy: Policy) -> None:
    """The base stays: the adapter's tensors alone come, and keys and values get memory after the weights."""
    lora, received = Policy("tiny", device=CPU, max_prompt_tokens=64, lora=Lora(rank=2)), dict[str, torch.Tensor]()
    said = lambda _: (200, b"Success")  # noqa: E731
    more = {f"/{each}": said for each in ("sleep?level=1", "wake_up?tags=weights", "wake_up?tags=kv_cache")}
    answers = {**routes(collective_rpc=worker(received)), **more, "/v1/load_lora_adapter": said}
    with elsewhere(answers) as server:
        engine = ServerEngine(RemoteSettings(server.url), sleep_level=1)
        sampler = VllmSampler(lora, SAMPLING, engine, adapters=True, tolerance=99.0)
        for version in (1, 2):
            sampler.release()
            sampler.publish(lora, version)
        posted = [path if path != "/collective_rpc" else body["method"] for path, body in server.posted][1:]
        models = [body["model"] for path, body in server.posted if path == "/v1/completions"]
    weights = ["begin_policy", "take_bucket", "end_policy"]
    woken = ["/sleep?level=1", "/wake_up?tags=weights", *weights, "/wake_up?tags=kv_cache"]
    after = ["/reset_prefix_cache", "/v1/completions", "policy_key"]
    assert posted == [*woken, "/v1/load_lora_adapter", *after, *woken, *after]
    assert received.keys() == dict(adapter_weights(lora.model)).keys()
    assert models == ["rm", "policy-adapter", "policy-adapter"]


def test_a_server_that_is_gone_or_was_started_again_is_told_from_one_that_refuses(
    policy: Policy, tmp_path: Path
) -> None:
    with elsewhere(routes()) as server:
        sampler = opened(policy, server, tolerance=99.0)
        sampler.publish(policy, 1)
        assert len(sampler.rollout(ITEMS, 2, seed=0, version=1)) == 4
        server.routes["/collective_rpc"] = worker()
        with pytest.raises(ActorLostError, match="started again, without the weights"):
            sampler.rollout(ITEMS, 2, seed=0, version=1)
        server.routes["/v1/completions"] = lambda _: (400, b'{"error":{"message":"no"}}')
        with pytest.raises(BackendError, match="gives no rollouts") as refused:
            sampler.rollout(ITEMS, 2, seed=0, version=1)
        assert not isinstance(refused.value, ActorLostError)
        server.routes["/v1/completions"] = lambda _: (500, b"")
        server.routes["/health"] = lambda _: (503, b"")
        with pytest.raises(ActorLostError, match="gives no rollouts"):
            sampler.rollout(ITEMS, 2, seed=0, version=1)
    with pytest.raises(ActorLostError, match="gives no rollouts"):
        sampler.rollout(ITEMS[:1], 2, seed=0, version=1)
    with pytest.raises(ActorLostError, match="cannot be reached"):
        VllmServerSampler(urls=(server.url,)).for_actor(0)


def test_actors_without_a_server_each_are_refused_before_work_starts(tmp_path: Path) -> None:
    def begun(*urls: str, **asynchrony: Any) -> None:
        recipe = replace(recipe_with(actors=2, **asynchrony), sampler=VllmServerSampler(urls=urls))
        with closing(trainer(recipe, tmp_path)):
            pass

    older = lambda _: (200, b'{"version":"0.8.5"}')  # noqa: E731
    other = lambda _: (200, b'{"version":"0.33.0"}')  # noqa: E731
    with elsewhere(routes()) as one, elsewhere(routes()) as two, elsewhere(routes()) as three:
        with pytest.raises(BadInputError, match=r"sampler.urls': 1 different servers for 2 actors"):
            begun(one.url)
        with pytest.raises(BadInputError, match=r"1 different servers for 2 actors"):
            begun(one.url, one.url + "/")
        with pytest.raises(BadInputError, match=r"asynchrony.window': only the transformers sampler"):
            begun(one.url, two.url, window=4)
        with pytest.raises(BackendError, match=r"http://127.0.0.1:9 cannot be reached"):
            begun(one.url, "http://127.0.0.1:9")
        two.routes["/version"] = older
        with pytest.raises(BackendError, match=r"vLLM 0.8.5 .* is not supported"):
            begun(one.url, two.url)
        two.routes["/version"] = other
        with pytest.raises(BadInputError, match=r"different versions of vLLM: .* 0.32.0, .* 0.33.0"):
            begun(one.url, two.url)
        begun(one.url, three.url, staleness=1)
        plans = [VllmServerSampler(urls=(one.url, three.url)).for_actor(index) for index in range(2)]
        assert [(plan.url, plan.urls, plan.folder) for plan in plans] == [
            (server.url, (), None) for server in (one, three)
        ]
    assert not (tmp_path / "metrics.jsonl").exists()


def test_an_engine_of_the_trainer_takes_no_actors(policy: Policy) -> None:
    asynchrony = Asynchrony(actors=1)
    with elsewhere(routes()) as server, pytest.raises(BadInputError, match="give each a server"):
        check_sampler(opened(policy, server), asynchrony)
    with pytest.raises(BadInputError, match="several servers are for rollout actors"):
        VllmServerSampler(urls=("http://a", "http://b")).open(policy, SAMPLING)


def test_rows_that_do_not_fit_are_refused_before_they_are_asked_for(policy: Policy) -> None:
    with elsewhere(routes()) as server:
        sampler = opened(policy, server)
        sampler.sampling = Sampling(max_new_tokens=510)
        with pytest.raises(BadInputError, match=r"do not fit.*takes 512"):
            sampler.rollout(ITEMS, 2, seed=0, version=0)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({}, "sampler.url"),
        ({"url": "http://a", "launch": True}, "sampler.url"),
        ({"url": "http://a", "urls": ("http://b",)}, "sampler.url"),
        ({"launch": True, "tolerance": 0.0}, "sampler.tolerance"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInputError, match=field):
        VllmServerSampler(**settings)


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="name the Python of vLLM's environment"):
        launched(Launch(python="", model="tiny"))
    program = tmp_path / "python"
    program.write_text(
        f'#!{sys.executable}\nimport sys, os\nprint(os.environ["PYTHONPATH"])\nsys.exit("no such flag")\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(BackendError, match=r"ended with status 1.*no such flag"):
        launched(Launch(python=str(program), model="tiny"))


#: In vLLM's place: ready at once, with a process of its own beside it (vLLM's engine); both ignore a request to end.
STAND_IN = """
import os, signal, sys, time

if sys.argv[1] == "-c":  # asked for vLLM's version
    sys.exit()
from http.server import BaseHTTPRequestHandler, HTTPServer

signal.signal(signal.SIGTERM, signal.SIG_IGN)
engine = os.fork()
if engine == 0:
    time.sleep(600)
    os._exit(0)
with open(os.environ["PIDS"], "w") as file:
    file.write(f"{os.getpid()} {engine}")


class Ready(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()


HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Ready).serve_forever()
"""
TRAINER = """
import sys, time
from assay_policy_training.plugins.samplers.vllm import launch
from assay_policy_training.plugins.samplers.vllm import policy_engine
from assay_policy_training.plugins.samplers.vllm.launch import Launch, launched

launch.END_S = 1.0
server = launched(Launch(python=sys.argv[1], model="tiny"), wait_s=240)
print("ready", flush=True)
if sys.argv[2] == "wait":
    time.sleep(600)
"""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.is_file() or status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "ended"])
def test_a_launched_server_ends_with_its_trainer(how: str, tmp_path: Path) -> None:
    """The server and its engine, also where the trainer has no chance to end them."""
    program, pids = tmp_path / "python", tmp_path / "pids"
    program.write_text(f"#!{sys.executable}\n{STAND_IN}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER, str(program), "wait" if how == "killed" else "end"],
        env={**os.environ, "PIDS": str(pids)},
        stdout=subprocess.PIPE,
    )
    assert trainer.stdout is not None
    started: list[int] = []
    try:
        assert trainer.stdout.readline() == b"ready\n"
        started = [int(pid) for pid in pids.read_text().split()]
        assert len(started) == 2
        if how == "killed":
            assert all(map(alive, started))
            trainer.kill()
        trainer.wait(240)
        deadline = time.monotonic() + 240
        while any(map(alive, started)) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not any(map(alive, started))
    finally:
        trainer.kill()
        trainer.stdout.close()
        for pid in started:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_the_command_line_of_a_server() -> None:
    line = Launch(python="py", model="tiny", max_model_len=64, arguments=("--max-num-seqs", "8")).command(8100)
    assert line[:3] == ["py", "-m", "vllm.entrypoints.openai.api_server"]
    assert line[line.index("--logprobs-mode") + 1] == "processed_logprobs"
    assert line[line.index("--generation-config") + 1] == "vllm"
    assert line[line.index("--worker-extension-cls") + 1].endswith(".PolicyWorker")
    assert line[-2:] == ["--max-num-seqs", "8"]
    assert os.path.isdir(line[line.index("--model") + 1])
