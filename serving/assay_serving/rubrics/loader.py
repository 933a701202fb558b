"""Opening the file of a rubric reward: its scorers, one engine for those of one model.

Leaves out: opening one model (`assay_serving.composition.part_loader`).
"""

from pathlib import Path

from assay.errors import AssayError, BadInputError
from assay.workspace import Workspace
from assay_serving.composition.part_loader import PartLoader, named_models, resolved
from assay_serving.engines.engine import ModelLoader
from assay_serving.model_config import ModelConfig
from assay_serving.model_reference import is_composed, is_rubric, is_url
from assay_serving.rubrics.description import FILE, RubricSpec
from assay_serving.rubrics.grading import RubricScorer


class RubricLoader:
    """The scorer `rubric` of the transformers engine."""

    @classmethod
    def load(cls, config: ModelConfig, loader: ModelLoader) -> RubricScorer:
        """Raises BadInputError for a file that is wrong, or a scorer that cannot be one; errors of loading a scorer,
        with the file and its name in front."""
        path = Path(config.reference).expanduser()
        file = rubric_file(path)
        spec, parts = RubricSpec.read(file), PartLoader(config, loader)
        scorers = {}
        for part in spec.scorers:
            try:
                if part.model is not None and not is_url(part.model):
                    model = resolved(part.model, file, loader.locate)
                    if is_rubric(model) or is_composed(model):
                        raise BadInputError("the scorer of an item is one model, not a reward made of several")
                scorers[part.name] = parts.open(part, file)
            except AssayError as error:
                raise type(error)(f"{file}, scorer {part.name}: {error}") from error
        try:
            return RubricScorer(spec, scorers, name=config.served_as or (path.name if path.is_dir() else path.stem))
        except BadInputError as error:
            raise BadInputError(str(error), file=file) from error


def rubric_file(path: Path) -> Path:
    """The file at this path, or in this folder."""
    return (path / FILE if path.is_dir() else path).resolve()


def rubric_models(path: Path, workspace: Workspace | None) -> list[str]:
    """The folders, files and hub ids of a rubric's scorers, without opening them; those of servers left out."""
    file = rubric_file(path)
    return named_models(RubricSpec.read(file).scorers, file, workspace)
