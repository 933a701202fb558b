"""Parity with vLLM, where a vLLM environment is configured.

Covers: raw logits of token rows from vLLM in another virtual environment (`vllm_child.py` runs there), and the
comparison. Leaves out: serving with vLLM, and principle and generative models, whose rewards vLLM's classifier does not
give. `ASSAY_VLLM_PYTHON` names the Python of that environment; without it the check is not made.
"""

import json
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from assay.errors import BackendError, BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.spec import ParityCheck
from assay.score import Score, ScoreResult
from assay_rm_training.checkpoints.parity import TOLERANCE
from assay_serving.scorer import ScoreItem

log = logging.getLogger(__name__)

ENVIRONMENT = "ASSAY_VLLM_PYTHON"
NAME = "transformers = vLLM"
TIMEOUT_S = 600.0
_CHILD = Path(__file__).with_name("vllm_child.py")


def vllm_python() -> Path | None:
    """The interpreter that `ASSAY_VLLM_PYTHON` names, None where it is unset. Raises BadInputError for a wrong one."""
    configured = os.environ.get(ENVIRONMENT)
    if not configured:
        return None
    executable = shutil.which(Path(configured).expanduser())
    if executable is None:
        raise BadInputError(f"${ENVIRONMENT} names no program: {configured}")
    return Path(executable)


def vllm_check(
    folder: Path,
    renderer: Renderer,
    sample: Sequence[ScoreItem],
    scores: Sequence[ScoreResult],
    *,
    python: Path,
    tolerance: float = TOLERANCE,
) -> ParityCheck | None:
    """Compare `scores` of the checkpoint in `folder` with vLLM's.

    Returns None, with a warning, where vLLM cannot run the model.
    """
    rows, ours = [], []
    for item, score in zip(sample, scores, strict=True):
        if isinstance(score, Score) and not (encoded := renderer.encode(item.prompt, item.response)).images:
            rows.append(list(encoded.ids))
            ours.append(score.reward)
    if not rows and renderer.images is not None:
        log.warning("%s was not checked: vLLM is not given images", NAME)
        return None
    if not rows:
        return ParityCheck(NAME, False, 0.0, 0, "no response of the sample could be scored")
    try:
        theirs = vllm_rewards(folder, rows, python=python, max_length=renderer.max_length)
    except BackendError as error:
        log.warning("%s was not checked: %s", NAME, error)
        return None
    gaps = [abs(a - b) for a, b in zip(ours, theirs, strict=True)]
    wrong = [i for i, gap in enumerate(gaps) if not gap <= tolerance + tolerance * abs(ours[i])]
    detail = f"response {wrong[0] + 1}: {ours[wrong[0]]:.6g} != {theirs[wrong[0]]:.6g}" if wrong else ""
    return ParityCheck(NAME, not wrong, max(gaps), len(gaps), detail)


def vllm_rewards(folder: Path, rows: Sequence[Sequence[int]], *, python: Path, max_length: int) -> list[float]:
    """Raw logits of token rows under a `*ForSequenceClassification` with one label. Raises BackendError."""
    with tempfile.TemporaryDirectory(prefix="assay-vllm-") as scratch:
        request, reply = Path(scratch) / "rows.json", Path(scratch) / "rewards.json"
        longest = max([max_length, *(len(row) for row in rows)])
        request.write_text(json.dumps({"model": str(folder), "rows": rows, "max_length": longest}))
        environment = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_LOGGING_LEVEL": "ERROR",
        }
        environment.pop("PYTHONPATH", None)  # keep this environment's packages out of the other
        try:
            done = subprocess.run(
                [str(python), str(_CHILD), str(request), str(reply)],
                env=environment,
                cwd=scratch,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BackendError(f"vLLM did not answer: {error}") from error
        if done.returncode or not reply.is_file():
            last = [line for line in done.stderr.splitlines() if line.strip()][-1:] or [f"exit {done.returncode}"]
            raise BackendError(f"vLLM failed: {last[0].strip()[:300]}")
        rewards: list[float] = json.loads(reply.read_text())
    if len(rewards) != len(rows):
        raise BackendError(f"vLLM answered {len(rewards)} of {len(rows)} rows")
    return rewards
