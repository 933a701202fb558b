"""Trains as the command does with both trackers, offline, and prints what each of them has: folder workspace pairs."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mlflow import MlflowClient
from wandb.proto import wandb_internal_pb2

from assay.cli.main import main
from assay.errors import BackendError
from assay.runs.trackers.mlflow import MlflowTracker

BLOCK = 32768


def records(content: bytes) -> Iterator[bytes]:
    """Of an offline run's file, as LevelDB logs are written: a header of 7 bytes, blocks of 32 KiB, in them pieces with
    checksum (4 bytes), length (2) and kind (whole, first, middle, last)."""
    place, parts = 7, b""
    while place + 7 <= len(content):
        left = BLOCK - place % BLOCK
        if left < 7:
            place += left
            continue
        length, kind = struct.unpack("<HB", content[place + 4 : place + 7])
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield parts
            parts = b""


def tracked_by_wandb(file: Path) -> dict[str, object]:
    run, history = {}, []
    for content in records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(content)
        if record.HasField("run"):
            run = {"id": record.run.run_id, "project": record.run.project}
        if record.HasField("history"):
            items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            history.append(items)
    return {**run, "history": history}


def tracked_by_mlflow() -> dict[str, object]:
    client = MlflowClient()
    experiment = client.get_experiment_by_name("assay")
    (run,) = client.search_runs([experiment.experiment_id])
    losses = client.get_metric_history(run.info.run_id, "train/loss")
    return {
        "name": run.info.run_name,
        "status": run.info.status,
        "lr": run.data.params["lr"],
        "metrics": sorted(run.data.metrics),
        "losses": [[metric.step, metric.value] for metric in losses],
    }


def failed_training(folder: Path) -> tuple[str, str]:
    """What MLflow has of a training that failed, and the error for a run that is deleted there."""
    tracker, client = MlflowTracker(folder, {}, 0), MlflowClient()
    tracker.failed = True
    tracker.close()
    experiment = client.get_experiment_by_name("assay")
    (run,) = client.search_runs([experiment.experiment_id], "attributes.run_name = 'failed'")
    client.delete_run(run.info.run_id)
    try:
        tracker.log({"loss": 1.0}, 1)
    except BackendError as error:
        return run.info.status, str(error)
    return run.info.status, ""


workspace, pairs = map(Path, sys.argv[1:])
train = ["train", "bt", "--base", "tiny", "--data", str(pairs), "--eval-data", str(pairs), "--eval-every", "1"]
train += ["--device", "cpu", "--batch-size", "2", "--lr", "0.001", "--track", "wandb", "--track", "mlflow"]
with suppress(SystemExit):
    main([*train, "--workspace", str(workspace)])
(folder,) = (workspace / "runs").glob("run-*")
(file,) = folder.glob("wandb/offline-run-*/*.wandb")
tracked = {"run": folder.name, "wandb": tracked_by_wandb(file), "mlflow": tracked_by_mlflow()}
print(json.dumps({**tracked, "failed": failed_training(folder.with_name("failed"))}))
