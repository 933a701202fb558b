"""What deploy/ starts: valid manifests, commands that exist, a token wherever Ray listens."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from assay.cli.main import _command

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
MANIFESTS = [path for path in sorted(DEPLOY.glob("kubernetes/**/*.yaml")) if path.name != "kustomization.yaml"]
KUBERNETES = "1.37"


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in MANIFESTS:
        for document in yaml.safe_load_all(path.read_text()):
            yield path.name, document


def pod_specs(node: Any) -> Iterator[dict[str, Any]]:
    """The pod specs anywhere in a manifest."""
    if isinstance(node, dict):
        if "containers" in node:
            yield node
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from pod_specs(child)


def ray_specs(document: dict[str, Any]) -> dict[str, Any] | None:
    spec: dict[str, Any] | None = {
        "RayCluster": lambda: document["spec"],
        "RayJob": lambda: document["spec"]["rayClusterSpec"],
    }.get(document["kind"], lambda: None)()
    return spec


def commands() -> Iterator[tuple[str, list[str]]]:
    """The words after `assay` of every command that deploy/ runs."""
    for name, document in documents():
        for spec in pod_specs(document):
            yield from ((name, container["args"]) for container in spec["containers"] if "args" in container)
        if document["kind"] == "RayJob":
            yield name, shlex.split(document["spec"]["entrypoint"])[1:]
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    for service in compose["services"].values():
        if "command" in service:
            yield "compose.yaml", [re.sub(r"\$\{\w+:-(\w+)\}", r"\1", word) for word in service["command"]]
    yield "train.sbatch", ["train", "bt", "--parallel", "fsdp", "--resume", "last", "--data", "mine"]


def test_manifests_are_valid() -> None:
    """By the published schemas; Ray's own kinds have none in a package: their pods are checked."""
    checked = 0
    for name, document in documents():
        if document["apiVersion"].startswith("ray.io/"):
            for number, spec in enumerate(pod_specs(document)):
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{number}"}, "spec": spec}
                kubernetes_validate.validate(pod, KUBERNETES, strict=True)
        else:
            named = {**document, "metadata": {"name": "generated", **document["metadata"]}}
            kubernetes_validate.validate(named, KUBERNETES, strict=True)
        checked += 1
        assert document["metadata"].keys() & {"name", "generateName"}, name
    assert checked >= 9
    listed = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text())["resources"]
    assert sorted(listed) == [path.name for path in MANIFESTS if path.parent.name == "kubernetes"]


def test_ray_listens_only_with_a_token() -> None:
    """The fields are those of KubeRay's reference (ray.io/v1)."""
    found = 0
    for name, document in documents():
        spec = ray_specs(document)
        if spec is None:
            continue
        found += 1
        assert spec.keys() == {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs"}, name
        assert spec["authOptions"] == {"mode": "token", "secretName": "assay-ray"}, name
        assert spec["headGroupSpec"]["rayStartParams"]["dashboard-host"] == "127.0.0.1", name
        constraints = (DEPLOY.parent / ".ci" / "constraints.txt").read_text()
        assert f"\nray=={spec['rayVersion']}\n" in constraints, name
    assert found == 2
    script = (DEPLOY / "slurm" / "ray.sbatch").read_text()
    assert script.index("RAY_AUTH_MODE=token") < script.index("ray start")
    assert script.count("ray start") == script.count("--node-ip-address")


def test_every_container_is_unprivileged_and_mounts_what_its_pod_has() -> None:
    for name, document in documents():
        for spec in pod_specs(document):
            volumes = {volume["name"] for volume in spec["volumes"]}
            assert spec["securityContext"]["runAsNonRoot"], name
            for container in (*spec["containers"], *spec.get("initContainers", ())):
                assert {mount["name"] for mount in container["volumeMounts"]} <= volumes, name
                assert container["securityContext"]["allowPrivilegeEscalation"] is False, name


def test_commands_are_ones_that_assay_has() -> None:
    seen = list(commands())
    assert len(seen) >= 7
    for name, words in seen:
        command, rest = _command(""), list(words)
        while rest and hasattr(command, "commands"):
            command = command.commands[rest.pop(0)]
        known = {option for parameter in command.params for option in parameter.opts}
        options = {word.partition("=")[0] for word in rest if word.startswith("--")}
        assert options, (name, words)
        assert options <= known, (name, words)


@pytest.mark.parametrize("script", sorted(DEPLOY.glob("slurm/*")), ids=lambda path: path.name)
def test_scripts_are_sound(script: Path) -> None:
    checker = shutil.which("shellcheck", path=str(Path(sys.executable).parent))
    assert checker is not None
    done = subprocess.run([checker, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("starts", [True, False])
def test_bulk_work_runs_on_the_clusters_head_and_not_without_one(starts: bool, tmp_path: Path) -> None:
    """With stand-ins for Slurm and Ray, since there is no Slurm here."""
    (tmp_path / "bin").mkdir()
    for name, line in {
        "scontrol": "echo n1",
        "srun": f'case "$*" in *hostname*) echo 10.0.0.1;; *) {"exec sleep 60" if starts else "exit 1"};; esac',
        "ray": "exit 0" if starts else "exit 1",
        "python": "exit 0",
        "assay": 'echo "$@"',
    }.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{line}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    environment = os.environ | {"ASSAY_WORKSPACE": str(tmp_path), "ASSAY_VENV": str(tmp_path)}
    environment |= {"SLURM_JOB_NODELIST": "n1", "SLURM_JOB_ID": "7"}
    command = ["bash", str(DEPLOY / "slurm" / "ray.sbatch"), "curate", "consistency"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode == 0) == starts, done.stderr
    assert done.stdout == ("curate consistency --on ray:10.0.0.1:20007\n" if starts else "")
