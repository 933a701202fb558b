"""Memory and time of a training before it starts: `assay plan` in a process of its own, once for each command.

A plan takes seconds of a processor, so one is made at a time, and not for longer than LONGEST_S: then what it would
take is unknown, which is said. Leaves out: the plan (`assay.planning`).
"""

import json
import os
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from assay.workspace import Workspace

PLANNED = ("train", "rl")  #: first words of commands that `assay plan` takes
LONGEST_S = 90.0
MOST = 64  #: plans that are kept


class PlanReply(BaseModel):
    """`needed`, `usable`: bytes at the peak and of the machine. `seconds_a_step`: at least. All null where it is not
    known, and then `why`."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    fits: bool | None = None
    needed: int | None = None
    usable: int | None = None
    seconds_a_step: float | None = None
    why: str | None = None


_PLANS: OrderedDict[tuple[str, ...], PlanReply] = OrderedDict()
_ONE = threading.Lock()


def plan_of(workspace: Workspace, arguments: Sequence[str]) -> PlanReply:
    """Of the training that `assay ARGUMENTS` is, on this machine."""
    key = (str(workspace.root), *arguments)
    if arguments[0] not in PLANNED:
        return PlanReply(why="what this takes is not known before it runs")
    if not _ONE.acquire(timeout=LONGEST_S):
        return PlanReply(why="other plans are being made: ask again in a minute")
    try:
        if (plan := _PLANS.get(key)) is None:
            plan = _made_anew(workspace, arguments)
            if plan.why is None:
                _PLANS[key] = plan
            while len(_PLANS) > MOST:
                _PLANS.popitem(last=False)
        return plan
    finally:
        _ONE.release()


def _made_anew(workspace: Workspace, arguments: Sequence[str]) -> PlanReply:
    command = [sys.executable, "-m", "assay.cli", "plan", "--no-changes", *arguments, "--json"]
    environment = {**os.environ, "ASSAY_WORKSPACE": str(workspace.root), "NO_COLOR": "1", "PYTHONSAFEPATH": "1"}
    try:
        ended = subprocess.run(
            command, cwd=workspace.root, env=environment, capture_output=True, text=True, timeout=LONGEST_S, check=False
        )
    except subprocess.TimeoutExpired:
        return PlanReply(why=f"the plan was not ready after {LONGEST_S:.0f} s")
    if ended.returncode != 0:
        lines = [line for line in ended.stderr.splitlines() if line.startswith("assay: ")]
        return PlanReply(why=lines[-1].removeprefix("assay: ") if lines else "the plan could not be made")
    plan = json.loads(ended.stdout.splitlines()[-1])
    return PlanReply(
        fits=plan["fits"],
        needed=plan["bytes"],
        usable=plan["usable_bytes"],
        seconds_a_step=sum(plan["seconds"].values()),
    )
