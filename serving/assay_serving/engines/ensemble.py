"""Several reward models as one: combined rewards, and their spread as the uncertainty of every score.

Covers: members brought to one scale on a common set, the description file `ensemble.yaml`. Leaves out: the ways to
combine (`aggregation`), averaging weights (`assay merge`), loading one member (`assay_serving.model_loader`).

A member with a larger scale would dominate every minimum and variance, so members are standardised unless the file has
`scale: raw`. Errors that all members share, for example from the same pretraining, do not show in the spread.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import yaml
from annotated_types import Ge, Gt, Lt

from assay.errors import BadInputError
from assay.models.calibration import Calibration
from assay.models.contamination import BenchmarkUse, union, uses_from
from assay.runs.progress_bar import Advance, silent
from assay.score import CRITIQUE, MEMBER, Score, ScoreFailure, ScorePart, ScoreResult
from assay.settings import check_settings
from assay.system.atomic_files import replacing
from assay_serving.engines.aggregation import Combine, Floats, MemberAggregation, Variance
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import UNLIMITED, ModelInfo, ReadInOtherWays, ReadsRendered, Repeatable, ScoreItem, Scorer

if TYPE_CHECKING:
    from assay.models.chat.rendered_text import PolicyTemplate
    from assay_serving.engines.engine import ModelLoader

FILE = "ensemble.yaml"
KIND = "ensemble"
Scale = Literal["standardised", "raw"]


@dataclass(frozen=True)
class EnsembleMember:
    """One model: reward' = (reward - mean) / std. `version`: of the checkpoint that mean and std were measured on."""

    model: str
    mean: float = 0.0
    std: float = 1.0
    version: str | None = None


@dataclass(frozen=True)
class EnsembleSpec:
    """`combine`, `weight`, `beta`, `variance`: see `MemberAggregation`. `contamination`: of the members and the
    calibration.
    `scale`: "standardised" members carry mean and std, of the responses of `standardised_on`.
    """

    members: tuple[EnsembleMember, ...]
    combine: Combine = "mean"
    weight: Annotated[float, Ge(0), Lt(math.inf)] = 0.5
    beta: Annotated[float, Gt(0), Lt(math.inf)] = 1.0
    variance: Variance = "population"
    scale: Scale = "standardised"
    standardised_on: str = ""
    calibration: Calibration | None = None
    contamination: tuple[BenchmarkUse, ...] = ()

    def __post_init__(self) -> None:
        if len(self.members) < 2:
            raise BadInputError(f"an ensemble has at least two members, not {len(self.members)}", field="members")
        check_settings(self)
        for member in self.members:
            if not (member.std > 0 and math.isfinite(member.std) and math.isfinite(member.mean)):
                raise BadInputError(f"{member.model} needs a finite mean and a positive std", field="members")
        if self.scale == "standardised" and not self.standardised_on:
            raise BadInputError(
                "members must be on one scale: make the file with `assay ensemble`, or set `scale: raw` if they are",
                field="standardised_on",
            )

    @classmethod
    def read(cls, path: Path) -> EnsembleSpec:
        """Raises BadInputError naming the file for anything that is not a description of an ensemble."""
        with description_of(path, KIND, "an ensemble") as payload:
            listed = payload.pop("members", [])
            members = tuple(EnsembleMember(m) if isinstance(m, str) else EnsembleMember(**m) for m in listed)
            return cls(members, **payload)

    def write(self, path: Path) -> None:
        """Write the description, whole or not at all."""
        write_description(path, KIND, asdict(self))

    def calibrated(self, calibration: Calibration) -> EnsembleSpec:
        return replace(self, calibration=calibration)

    def contaminated(self, uses: Iterable[BenchmarkUse]) -> EnsembleSpec:
        return replace(self, contamination=union(self.contamination, uses))

    def standardised(self, rewards: Floats) -> Floats:
        """Rewards [B, k] on the common scale."""
        means, stds = (np.array([getattr(m, name) for m in self.members]) for name in ("mean", "std"))
        return np.asarray((rewards - means) / stds)

    @property
    def aggregation(self) -> MemberAggregation:
        return MemberAggregation(self.combine, self.weight, self.beta, self.variance)


class EnsembleScorer:
    """A `Scorer` over its members. Where one member fails on an item the item fails: a combination of the others
    would be another model's score."""

    def __init__(self, spec: EnsembleSpec, members: Sequence[Scorer], *, name: str) -> None:
        """Raises BadInputError where a member is not the checkpoint that its scale was measured on."""
        if len(members) != len(spec.members):
            raise BadInputError(f"{name} describes {len(spec.members)} members, {len(members)} were loaded")
        for described, member in zip(spec.members, members, strict=True):
            if described.version is not None and described.version != member.info.version:
                raise BadInputError(
                    f"{name}: member {described.model} has version {member.info.version}, its scale was measured on "
                    f"{described.version}; rebuild the ensemble with: assay ensemble"
                )
        self.spec, self.members = spec, tuple(members)
        self._aggregation = spec.aggregation
        infos = [member.info for member in members]
        together = info_of_parts(name, infos, version=_version(spec, infos), kind="scalar")
        self._info = replace(
            together,
            contamination=union(spec.contamination, together.contamination),
            calibrated=spec.calibration is not None,
            calibration=spec.calibration.id if spec.calibration is not None else None,
            curve=spec.calibration.curve if spec.calibration is not None else None,
        )

    @classmethod
    def load(cls, config: ModelConfig, loader: ModelLoader) -> EnsembleScorer:
        """From a description file, or a folder that holds one. A member's path may be relative to the file."""
        path = Path(config.reference).expanduser()
        file = path / FILE if path.is_dir() else path
        spec = EnsembleSpec.read(file)
        opened = []
        for member in spec.members:
            beside = (file.parent / member.model).resolve()
            opened.append(loader.load(config.part(str(beside) if beside.exists() else member.model)))
        return cls(spec, opened, name=config.served_as or (path.name if path.is_dir() else path.stem))

    @property
    def info(self) -> ModelInfo:
        return self._info

    def other_ways(self) -> Iterator[tuple[str, EnsembleScorer]]:
        """For each way that all members support: the ensemble of the members read in that way."""
        ways = [dict(m.other_ways()) if isinstance(m, ReadInOtherWays) else {} for m in self.members]
        for name in ways[0]:
            if all(name in way for way in ways):
                yield name, EnsembleScorer(self.spec, [way[name] for way in ways], name=self._info.name)

    @property
    def score_identity(self) -> str | None:
        """See `Repeatable`: the members' own; how they are combined is in the version."""
        identities = [m.score_identity if isinstance(m, Repeatable) else None for m in self.members]
        return None if None in identities else json.dumps(identities)

    def expect(self, policies: Sequence[PolicyTemplate]) -> None:
        """Let all members that can read rendered texts by these policies' templates too."""
        for member in self.members:
            if isinstance(member, ReadsRendered):
                member.expect(policies)

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """See `Scorer.score`. `uncertainty`: deviation over the members on the common scale; `tokens`: the largest
        count of any member."""
        progress = _SharedProgress(on_progress, len(self.members))
        by_member = [member.score(items, progress) for member in self.members]
        results: list[ScoreResult] = []
        for row in zip(*by_member, strict=True):
            results.append(self._result(row))
        return results

    def _result(self, row: Sequence[ScoreResult]) -> ScoreResult:
        for member, result in zip(self.members, row, strict=True):
            if isinstance(result, ScoreFailure):
                return ScoreFailure(result.code, f"member {member.info.name}: {result.message}", self._info.name)
        scores = [result for result in row if isinstance(result, Score)]
        rewards = self.spec.standardised(np.array([[score.reward for score in scores]]))
        reward = float(self._aggregation.combined(rewards)[0])
        if not math.isfinite(reward):
            return ScoreFailure("non_finite", f"the ensemble's reward is {reward}", self._info.name)
        calibration = self.spec.calibration
        return Score(
            reward=reward,
            model=self._info.name,
            version=self._info.version,
            template_hash=self._info.template_hash,
            tokens=max(score.tokens for score in scores),
            truncated=any(score.truncated for score in scores),
            probability=calibration.probability(reward) if calibration is not None else None,
            uncertainty=float(self._aggregation.spread(rewards)[0]),
            principle=scores[0].principle,
            calibration=self._info.calibration,
            parts=(
                *(
                    ScorePart(f"{MEMBER}{number}", score.reward, value, model=score.model, version=score.version)
                    for number, (score, value) in enumerate(zip(scores, rewards[0].tolist(), strict=True))
                ),
                *self._common_parts(scores),
            ),
        )

    def _common_parts(self, scores: Sequence[Score]) -> Iterator[ScorePart]:
        """The ratings that every member gives by name: mean and deviation over the members, in the ratings' units."""
        by_name = [{p.name: p.value for p in score.parts if p.value is not None} for score in scores]
        for name in by_name[0]:
            if not name.startswith((MEMBER, CRITIQUE)) and all(name in parts for parts in by_name):
                values = np.array([[parts[name] for parts in by_name]], dtype=float)
                mean = float(values.mean())
                yield ScorePart(name, mean, mean, uncertainty=float(self._aggregation.spread(values)[0]))


def standardised_members(
    names: Sequence[str], scorers: Sequence[Scorer], items: Sequence[ScoreItem], advance: Advance = silent
) -> tuple[tuple[EnsembleMember, ...], int]:
    """Each member's mean and (population) deviation over the items that all of them can score, and their number.

    Raises BadInputError for fewer than two such items, and for a member that gives them all the same reward.
    """
    by_member = [scorer.score(items, advance) for scorer in scorers]
    rows = [
        [result.reward for result in row if isinstance(result, Score)]
        for row in zip(*by_member, strict=True)
        if all(isinstance(result, Score) for result in row)
    ]
    if len(rows) < 2:
        raise BadInputError(f"all members can score {len(rows)} of the {len(items)} responses; a scale needs two")
    rewards = np.array(rows, dtype=float)
    members = []
    for name, scorer, column in zip(names, scorers, rewards.T, strict=True):
        if not column.std() > 0:
            raise BadInputError(f"{name} gives all {len(column)} responses the same reward: it has no scale")
        members.append(EnsembleMember(name, float(column.mean()), float(column.std()), scorer.info.version))
    return tuple(members), len(rows)


class _SharedProgress:
    """Progress of k passes over the same items as one pass: an item is done when all members have scored one."""

    def __init__(self, on_progress: Advance, members: int) -> None:
        self._tell, self._members, self._done, self._told = on_progress, members, 0, 0

    def __call__(self, steps: int) -> None:
        self._done += steps
        finished = self._done // self._members
        if finished > self._told:
            self._tell(finished - self._told)
            self._told = finished


def info_of_parts(name: str, infos: Sequence[ModelInfo], *, version: str, kind: str) -> ModelInfo:
    """The description of a model that scores with these: without any, it has no template and no length limit."""
    templates = sorted({info.template_hash for info in infos})
    failed = next((info.parity for info in infos if info.parity.startswith("failed")), None)

    def joined(attribute: str) -> str:
        return ", ".join(sorted({getattr(info, attribute) for info in infos} - {""}))

    return ModelInfo(
        name=name,
        version=version,
        kind=kind,
        template_hash=templates[0] if len(templates) == 1 else digest(templates),
        max_length=min((info.max_length for info in infos), default=UNLIMITED),
        parity=failed or ("passed" if all(info.parity == "passed" for info in infos) else "unchecked"),
        dtype=joined("dtype"),
        device=joined("device"),
        attention=joined("attention"),
        contamination=union(*(info.contamination for info in infos)),
    )


def _version(spec: EnsembleSpec, infos: Sequence[ModelInfo]) -> str:
    settings = asdict(replace(spec, calibration=None))
    del settings["contamination"]  # no more than the calibration does it change a reward
    settings["members"] = [[info.version, m.mean, m.std] for info, m in zip(infos, spec.members, strict=True)]
    settings.pop("standardised_on")
    return digest(settings)


@contextmanager
def description_of(path: Path, kind: str, what: str) -> Iterator[dict[str, Any]]:
    """The fields of a YAML file that says `kind: kind`, without it, calibration and contamination read. Within the
    block errors become BadInputError that names the file."""
    try:
        payload: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(payload, dict) or payload.pop("kind", None) != kind:
            raise BadInputError(
                f"not {what}: it must have `kind: {kind}`" + (" or `kind: composed`" if kind == KIND else "")
            )
        calibration = payload.pop("calibration", None)
        payload["calibration"] = Calibration.from_dict(calibration) if calibration else None
        payload["contamination"] = uses_from(payload.pop("contamination", None))
        yield payload
    except BadInputError as error:
        raise error if error.file else BadInputError(str(error), file=path) from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError, TypeError, ValueError, KeyError) as error:
        raise BadInputError(f"not {what}: {str(error).splitlines()[0]}", file=path) from error


def write_description(path: Path, kind: str, fields: dict[str, Any]) -> None:
    """Inverse of `description_of`: whole or not at all."""
    # Through JSON: plain lists and numbers, which any YAML reader takes.
    text = yaml.safe_dump(json.loads(json.dumps({"kind": kind, **fields})), sort_keys=False, allow_unicode=True)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def digest(content: object) -> str:
    """Identity of JSON-ready content."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
