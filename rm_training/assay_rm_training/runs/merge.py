"""WARM: one reward model whose weights are the average of several (arXiv 2401.12187; details from memory and from a
re-implementation's code).

Covers: which checkpoints may be averaged, the average in float32, the barrier check on held-out pairs, the saved
checkpoint with its lineage. Leaves out: ensembles of predictions (`assay_serving.engines.ensemble`), training the
members.

Averaging works only where the members are linearly connected: same base, same head initialisation, moderate
fine-tuning. Members should differ in seed, data order and learning rate. Connectivity is measured: between any two
members the accuracy along the segment must not fall below the interpolation of the ends.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from assay import ids
from assay.data.pairs import load_pairs_or_file
from assay.domain import PreferencePair
from assay.errors import BadInputError, NotFoundError
from assay.models.chat.renderer import Renderer
from assay.models.contamination import union
from assay.models.devices import pick_device
from assay.models.loading import load_scalar_model, load_tokenizer
from assay.models.spec import RewardModelSpec, weights_digest
from assay.runs.model_run import model_folder, model_run
from assay.runs.progress_bar import progress_bar
from assay.runs.record import locate_model
from assay.score import Score
from assay.statistics.intervals import Interval, clustered_mean
from assay.workspace import Workspace
from assay_rm_training.checkpoints.card_sections import render_card
from assay_rm_training.checkpoints.checkpoint import SAMPLE, save_checkpoint
from assay_rm_training.model.trainable_model import TrainableModel
from assay_rm_training.run_settings import MergeConfig
from assay_rm_training.runs.contamination_lineage import as_uses, states_of_use, uses_of_model
from assay_rm_training.runs.recorded import add_model, inputs_of
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.scorer import ScoreItem

if TYPE_CHECKING:
    import torch

Floats = npt.NDArray[np.float64]
_IGNORED = ("_name_or_path", "dtype", "torch_dtype", "transformers_version", "use_cache")


@dataclass(frozen=True)
class Segment:
    """(1 - t) `first` + t `second`: its accuracy on the held-out pairs, that of the two ends interpolated, and their
    difference with a 95 % interval over prompts."""

    first: str
    second: str
    t: float
    accuracy: float
    interpolated: float
    gap: float
    interval: Interval | None

    @property
    def barrier(self) -> bool:
        """The accuracy lies significantly below the interpolation."""
        return self.interval is not None and self.interval.high < 0


@dataclass(frozen=True)
class MergedModel:
    """`accuracies`: member -> accuracy; `average`: that of the average; `gain`: of it over the members' mean."""

    path: Path | None
    artifact_id: str | None
    run_id: str
    pairs: int
    accuracies: dict[str, float]
    average: float
    gain: float
    gain_interval: Interval | None
    segments: tuple[Segment, ...]
    head_start: str | None

    @property
    def barriers(self) -> tuple[Segment, ...]:
        return tuple(segment for segment in self.segments if segment.barrier)

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": str(self.path) if self.path else None,
            "artifact_id": self.artifact_id,
            "run_id": self.run_id,
            "pairs": self.pairs,
            "members": self.accuracies,
            "average": self.average,
            "gain": self.gain,
            "gain_interval": self.gain_interval and asdict(self.gain_interval),
            "segments": [asdict(s) | {"barrier": s.barrier} for s in self.segments],
            "head_start": self.head_start,
        }


def weighted_weights(parts: Sequence[tuple[Path, float]]) -> "Iterator[tuple[str, torch.Tensor]]":
    """Sum of weight * tensor in float32 over checkpoints' safetensors, one tensor at a time. Raises BadInputError where
    names, shapes or integer tensors differ."""
    import torch
    from safetensors import safe_open

    with ExitStack() as stack:
        stored: list[dict[str, Any]] = []
        for folder, _ in parts:
            files = [file for file in sorted(folder.glob("*.safetensors")) if not file.name.startswith("assay.")]
            opened = [stack.enter_context(safe_open(file, framework="pt")) for file in files]
            stored.append({name: tensors for tensors in opened for name in tensors.keys()})  # noqa: SIM118
            if len(stored[-1]) != len(stored[0]):
                raise BadInputError(f"has {len(stored[-1])} weights, {parts[0][0]} has {len(stored[0])}", file=folder)
        for name, first in stored[0].items():
            total = first.get_tensor(name)
            exact = None if total.is_floating_point() else total
            total = total if exact is not None else total.float() * parts[0][1]
            for (folder, weight), tensors in zip(parts[1:], stored[1:], strict=True):
                tensor = tensors[name].get_tensor(name) if name in tensors else None
                if tensor is None or tensor.shape != total.shape:
                    raise BadInputError(
                        f"its weight {name!r} is not there, or of another shape, as {parts[0][0]} has it", file=folder
                    )
                if exact is None:
                    total.add_(tensor.float(), alpha=weight)
                elif not torch.equal(exact, tensor):
                    raise BadInputError(f"its integer weight {name!r} differs from {parts[0][0]}'s", file=folder)
            yield name, total


def check_members(folders: Sequence[Path]) -> list[RewardModelSpec]:
    """The members' specs. Raises NotFoundError for an unknown one, BadInputError naming what differs: kind, base,
    template, head, configuration."""
    specs: list[RewardModelSpec] = []
    for folder in folders:
        if not folder.is_dir():
            raise NotFoundError(f"{str(folder)!r} is neither a reward model of the workspace nor a folder")
        if (folder / "adapter_config.json").is_file():
            raise BadInputError(
                "holds adapters; fold them into the weights first: averages of A and B are not of A*B", file=folder
            )
        spec = RewardModelSpec.read(folder)
        if spec is None:
            raise BadInputError("has no spec, so its base is unknown", file=folder)
        if spec.kind != "scalar" or spec.ratings is not None or spec.stepwise is not None:
            what = "rating" if spec.ratings else "step" if spec.stepwise else spec.kind
            raise BadInputError(f"is a {what} reward model; scalar ones are averaged", file=folder)
        if spec.parity.startswith("failed"):
            raise BadInputError(f"does not give the scores it was trained to (parity {spec.parity})", file=folder)
        if (digest := weights_digest(folder)) != spec.version:
            raise BadInputError(f"its files have version {digest}, its spec says {spec.version}", file=folder)
        specs.append(spec)
    first = specs[0]
    for folder, spec in zip(folders[1:], specs[1:], strict=True):
        for name in ("base", "template_hash"):
            if getattr(spec, name) != getattr(first, name):
                raise BadInputError(
                    f"has {name} {getattr(spec, name)!r}, {folders[0].name} has {getattr(first, name)!r}: "
                    "weights of different initialisations have no meaningful average",
                    file=folder,
                )
        if spec.head_start and first.head_start and spec.head_start != first.head_start:
            raise BadInputError(
                f"its head started as {spec.head_start!r}, that of {folders[0].name} as {first.head_start!r}",
                file=folder,
            )
        ours, theirs = _config(folders[0]), _config(folder)
        if differing := sorted(key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key)):
            raise BadInputError(f"its config.json differs in {', '.join(differing)}", file=folder)
    return specs


def merge_models(workspace: Workspace, config: MergeConfig) -> MergedModel:
    """Check, average, measure, and save `workspace.models / config.name`, with progress on standard error.

    Raises BadInputError for members that cannot be averaged, a name that is taken, and pairs that nobody can score. A
    barrier is no exception: nothing is saved then, unless `allow_barrier`, and the outcome says so.
    """
    model_folder(workspace, config.name, force=config.force)  # fail before the pairs are read
    located = [locate_model(workspace, member) for member in config.members]
    folders = [Path(source).expanduser() for source, _ in located]
    specs = check_members(folders)
    pairs = load_pairs_or_file(workspace, config.data)[: config.limit or None]
    inputs = inputs_of(workspace, located, [config.data])
    with (
        model_run(workspace, "merge", config.name, asdict(config), force=config.force, inputs=inputs) as (run, target),
        ExitStack() as stack,
    ):
        names = list(config.members)
        device = pick_device(config.device)
        tokenizer = load_tokenizer(str(folders[0]))
        renderer = Renderer(tokenizer, max_length=min(spec.trained_length for spec in specs))
        import torch

        model = load_scalar_model(str(folders[0]), tokenizer, dtype=torch.float32, device=device)
        snapshots = {spec.snapshot for spec in specs}
        spec = replace(
            specs[0],
            trained_length=renderer.max_length,
            version="unsaved",
            calibration=None,
            length_corrections=(),
            parity="unchecked",
            parity_checks=(),
            contamination=union(
                *(uses_of_model(workspace, str(folder)) for folder in folders),
                as_uses(
                    states_of_use(workspace, config.data, pairs, "selection", None),
                    "selection",
                    config.data,
                    target.name,
                ),
            ),
            snapshot=snapshots.pop() if len(snapshots) == 1 else None,
            run_id=run.id,
        )
        points = sorted(set(config.points))
        segments_to_do = [(i, j, t) for i, j in combinations(range(len(names)), 2) for t in points]
        advance = stack.enter_context(
            progress_bar("merging", 2 * len(pairs) * (len(names) + len(segments_to_do) + 1), unit="responses")
        )

        def right(parts: Sequence[tuple[int, float]]) -> Floats:
            """1 where the model of these weights ranks the pair right, nan where it cannot score it: [N]."""
            weights = model.state_dict()
            with torch.no_grad():
                for name, values in weighted_weights([(folders[i], weight) for i, weight in parts]):
                    weights[name].copy_(values)
            return _right(TransformersScorer(model, renderer, spec, name=config.name), pairs, advance)

        members = [right([(i, 1.0)]) for i in range(len(names))]
        measured = {(i, j, t): right([(i, 1 - t), (j, t)]) for i, j, t in segments_to_do}
        average = right([(i, 1 / len(names)) for i in range(len(names))])  # last: the model keeps its weights
        everywhere: npt.NDArray[np.bool_] = np.asarray(
            ~np.isnan(np.stack([*members, *measured.values(), average])).any(axis=0)
        )
        if not everywhere.any():
            raise BadInputError(f"none of the {len(pairs)} pairs of {config.data} could be scored")
        groups = [ids.prompt_id(pair.prompt) for pair, scored in zip(pairs, everywhere, strict=True) if scored]
        scored = [column[everywhere] for column in members]
        segments = tuple(
            _segment(names, i, j, t, scored, column[everywhere], groups, config.seed)
            for (i, j, t), column in measured.items()
        )
        gains = average[everywhere] - np.mean(scored, axis=0)
        merged = MergedModel(
            None,
            None,
            run.id,
            len(groups),
            {name: float(column.mean()) for name, column in zip(names, scored, strict=True)},
            float(average[everywhere].mean()),
            float(gains.mean()),
            clustered_mean(gains.tolist(), groups),
            segments,
            specs[0].head_start,
        )
        if not merged.barriers or config.allow_barrier:
            sample = [ScoreItem(p.prompt, text) for p in pairs[: SAMPLE // 2] for text in (p.chosen, p.rejected)]
            card = render_card("merged", name=target.name, spec=spec, merged=merged, members=specs, data=config.data)
            spec, _ = save_checkpoint(
                TrainableModel(model, tokenizer, new_head=False), spec, renderer, target, sample=sample, card=card
            )
            merged = replace(merged, path=target, artifact_id=add_model(run, target, spec))
        run.metrics.update(merged.to_dict())
        return merged


def _segment(
    names: Sequence[str],
    i: int,
    j: int,
    t: float,
    members: Sequence[Floats],
    between: Floats,
    groups: Sequence[str],
    seed: int,
) -> Segment:
    interpolated = (1 - t) * members[i] + t * members[j]
    gaps = between - interpolated
    interval = clustered_mean(gaps.tolist(), groups)
    return Segment(
        names[i], names[j], t, float(between.mean()), float(interpolated.mean()), float(gaps.mean()), interval
    )


def _right(scorer: TransformersScorer, pairs: Sequence[PreferencePair], advance: Callable[[int], None]) -> Floats:
    scores = scorer.score([ScoreItem(p.prompt, text) for p in pairs for text in (p.chosen, p.rejected)], advance)
    correct = np.full(len(pairs), np.nan)
    for index, (chosen, rejected) in enumerate(zip(scores[::2], scores[1::2], strict=True)):
        if isinstance(chosen, Score) and isinstance(rejected, Score):
            correct[index] = float(chosen.reward > rejected.reward)
    return correct


def _config(folder: Path) -> dict[str, Any]:
    payload: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return {key: value for key, value in payload.items() if key not in _IGNORED}
