"""Opening the parts of a composed reward: what each names, one scorer for parts that name the same model.

Leaves out: loading one model (`assay_serving.model_loader`).
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from assay.errors import AssayError, BadInputError
from assay.registry import absolute_name
from assay.runs.record import locate_model
from assay.workspace import Workspace
from assay_serving.composition.checking import ConstraintScorer
from assay_serving.composition.composed import ComposedScorer
from assay_serving.composition.description import FILE, ComposedSpec, PartSpec
from assay_serving.engines.engine import REWARD_SERVER, ModelLoader
from assay_serving.engines.length_corrected import with_correction
from assay_serving.model_config import ModelConfig
from assay_serving.model_reference import is_composed, is_url, known_spec
from assay_serving.scorer import Scorer

#: Seconds for one request to a server that is a part: it must fail before the server that waits for all parts gives up
#: its own engine (`ServerSettings.engine_timeout_s`).
PART_DEADLINE_S = 90.0


@dataclass
class PartLoader:
    """`config`: of the composed reward, whose device and limits its parts share."""

    config: ModelConfig
    loader: ModelLoader
    opened: dict[tuple[str | None, ...], Scorer] = field(default_factory=dict)

    @classmethod
    def load(cls, config: ModelConfig, loader: ModelLoader) -> ComposedScorer:
        """See `read`."""
        return cls(config, loader).read(Path(config.reference).expanduser(), name=config.served_as)

    def read(self, path: Path, *, name: str | None = None, above: tuple[Path, ...] = ()) -> ComposedScorer:
        """From a file, or a folder that holds one. `above`: files whose parts this is.

        Raises BadInputError for a file that is wrong or is a part of itself; errors of loading a part, with the
        file and the part in front.
        """
        file = (path / FILE if path.is_dir() else path).resolve()
        if file in above:
            raise BadInputError("is a part of itself", file=file)
        spec, inside = ComposedSpec.read(file), self
        if path.is_dir():
            inside = replace(self, config=replace(self.config, own_code=False))
        scorers = {}
        for part in spec.parts:
            try:
                scorers[part.name] = inside.open(part, file, (*above, file))
            except AssayError as error:
                raise type(error)(f"{file}, part {part.name}: {error}") from error
        try:
            return ComposedScorer(spec, scorers, name=name or (path.name if path.is_dir() else path.stem))
        except BadInputError as error:
            raise BadInputError(str(error), file=file) from error

    def open(self, part: PartSpec, file: Path, above: tuple[Path, ...] = ()) -> Scorer:
        """The scorer of a part of this file. Raises BadInputError for code that it may not name."""
        if part.code and not self.config.own_code:
            raise BadInputError(
                f"asks for the code {part.code[0]}: a folder or an order over the network runs none; "
                f"name {file.name} itself"
            )
        if part.model is None:
            fixed = part.checks() if part.constraints != "label" else None
            return ConstraintScorer(fixed, part.measure, programs=part.programs)
        if is_url(part.model):
            _refuse(
                part, ("correct", "model_kind", "question"), "is for models that are loaded here; the server decides it"
            )
            return self._once((part.model, part.served, part.api_key_env), lambda: self.loader.load(_server(part)))
        _refuse(part, ("served", "api_key_env"), "is for the URL of a reward server")
        model = resolved(part.model, file, self.loader.locate)
        if is_composed(model):
            return self._once((model,), lambda: self.read(Path(model), above=above))
        kind = absolute_name(part.model_kind, file.parent) if part.model_kind is not None else None
        config = self.config.part(model, kind=kind, question=part.question)
        plain = self._once((model, kind, part.question), lambda: self.loader.load(config))
        if part.correct is None:
            return plain
        return self._once(
            (model, kind, part.question, "correct", part.correct),
            lambda: with_correction(plain, known_spec(model), str(part.correct)),
        )

    def _once(self, key: tuple[str | None, ...], make: Callable[[], Scorer]) -> Scorer:
        if key not in self.opened:
            self.opened[key] = make()
        return self.opened[key]


def models_of(path: Path, workspace: Workspace | None) -> list[str]:
    """The folders, files and hub ids of a composed reward's models, without opening them; those of servers left out."""
    file = (path / FILE if path.is_dir() else path).resolve()
    return named_models(ComposedSpec.read(file).parts, file, workspace)


def named_models(parts: Sequence[PartSpec], file: Path, workspace: Workspace | None) -> list[str]:
    """As `models_of`, of these parts of the file."""
    models = [part.model for part in parts if part.model is not None and not is_url(part.model)]
    return [resolved(model, file, lambda name: locate_model(workspace, name)[0]) for model in models]


def resolved(model: str, file: Path, locate: Callable[[str], str]) -> str:
    """A path counts from the file's folder where something is there; a bare name is the workspace's, as always."""
    beside = file.parent / Path(model).expanduser()
    path_like = "/" in model or model.startswith((".", "~")) or beside.suffix in (".yaml", ".yml")
    if path_like:
        return str(beside) if beside.exists() else model
    located = locate(model)
    return str(beside) if located == model and beside.exists() else located


def _server(part: PartSpec) -> ModelConfig:
    # No key unless the file names one: $ASSAY_API_KEY is the one that opens this process's own server.
    options = {"model": part.served, "api_key": _key(part.api_key_env) or "", "deadline": PART_DEADLINE_S}
    return ModelConfig(str(part.model), engine=REWARD_SERVER, engine_options=options)


def _refuse(part: PartSpec, fields: Sequence[str], reason: str) -> None:
    for name in fields:
        if getattr(part, name) is not None:
            raise BadInputError(reason, field=name)


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    if not (key := os.environ.get(variable)):
        raise BadInputError(f"the environment has no {variable}", field="api_key_env")
    return key
