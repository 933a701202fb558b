"""Opening a model to score with, wherever it runs: the one way for the commands and for every other part.

Leaves out: what references stand for (`model_reference`), the engines (`engines.engine` lists them).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import BadInputError
from assay_serving.engines.engine import ENGINES, REWARD_SERVER, SCORERS
from assay_serving.model_config import ModelConfig
from assay_serving.model_reference import find_workspace, is_url, kind_of, known_spec, located, media_of
from assay_serving.scorer import ReadsRendered, Scorer

if TYPE_CHECKING:
    from assay.models.spec import Judging
    from assay_serving.generative.pairwise import PairwiseJudge


@dataclass(frozen=True)
class Loader:
    """`workspace`: where models may be artifacts of; None finds it as every command does."""

    workspace: Path | None = None

    def load(self, config: ModelConfig) -> Scorer:
        """The model at a path, hub id or URL (`open` also takes names of artifacts), by the engine that it names.

        Raises BadInputError for an unknown engine, kind, device or correction, BackendError where it has no room, and
        what the engine raises.
        """
        if config.engine == "transformers":
            from assay.models.devices import FORMATS, check_format_name, pick_device
            from assay.planning.scoring_memory import check_room

            budget, device = config.token_budget, config.device
            check_format_name(config.dtype, FORMATS)
            if device not in ("auto", "cpu"):  # of rewards without weights, too, which for those two load no torch
                pick_device(device)
            check_room(config.name, config.reference, dtype=config.dtype, device=device, token_budget=budget)
        scorer: Scorer = ENGINES.accept(ENGINES.find(config.engine).load(config, self), config.engine)
        if config.correct is not None:
            from assay_serving.engines.length_corrected import with_correction

            scorer = with_correction(scorer, known_spec(config.reference), config.correct)
        if config.policy_templates:
            _expect(scorer, config.policy_templates, config.name)
        return scorer

    def open(self, config: ModelConfig) -> Scorer:
        """A model by any name that a command takes for one; a URL is a reward server's."""
        if is_url(config.reference) and config.engine == "transformers":
            config = replace(config, engine=REWARD_SERVER, engine_options={"api_key": None})
        return self.load(self.resolve(config))

    def open_served(self, config: ModelConfig) -> Scorer:
        """As `open`, for a server whose options may be for several models: the spec's own kind counts first, and a
        question is for principle models only."""
        config = self.resolve(config)
        kind = config.kind
        if kind in SCORERS.members and kind_of(config.reference) != "scalar":
            kind = None
        return self.load(replace(config, kind=kind, question=config.question if kind == "principle" else None))

    def resolve(self, config: ModelConfig) -> ModelConfig:
        """The config with the folder, hub id or URL that its reference stands for, and the name it is served under.

        Raises NotFoundError for a name that stands for nothing. Other engines than transformers may know names that
        are unknown here.
        """
        if is_url(config.reference):
            return config
        if config.engine == "transformers":
            folder = self.locate(config.reference)
        else:
            from assay.runs.record import locate_model

            folder = locate_model(find_workspace(self.workspace), config.reference)[0]
        by_name = config.reference if folder != config.reference else None
        return replace(config, reference=folder, served_as=config.served_as or by_name or config.name)

    def locate(self, reference: str) -> str:
        return located(reference, self.workspace)


def load_scorer(config: ModelConfig, workspace: Path | None = None) -> Scorer:
    """See `Loader.load`."""
    return Loader(workspace).load(config)


def open_scorer(config: ModelConfig, workspace: Path | None = None) -> Scorer:
    """See `Loader.open`."""
    return Loader(workspace).open(config)


def server_config(
    url: str,
    *,
    model: str | None = None,
    api_key: str | None = None,
    ca: str | None = None,
    correct: str | None = None,
    wait: float = 10.0,
    deadline: float = 600.0,
) -> ModelConfig:
    """The config of one model of a reward server (`model`, `api_key`, `ca`: see `RewardClient`).

    `wait`: seconds to give a server that is still loading. `deadline`: seconds for one request with its retries.
    """
    options = {"model": model, "api_key": api_key, "ca": ca, "wait": wait, "deadline": deadline}
    return ModelConfig(url, correct=correct, engine=REWARD_SERVER, engine_options=options)


def open_judge(
    config: ModelConfig,
    *,
    judging: "Judging | None" = None,
    api_key: str | None = None,
    seed: int = 0,
    workspace: Path | None = None,
) -> "PairwiseJudge":
    """A pairwise judge: a generative model to load here, or the model `served_as` of an OpenAI-compatible endpoint,
    whose URL the reference is (`api_key`: its key).

    `judging`: how to ask, instead of the model's own settings, as `config.judge_profile` does too; an endpoint and a
    plain language model are asked the pairwise question with its defaults without either.
    """
    from assay_serving.generative.engine import judging_of
    from assay_serving.generative.pairwise import PairwiseJudge
    from assay_serving.generative.templates import PAIRWISE, format_named

    if is_url(config.reference):
        from assay_serving.generative.remote import RemoteWriter, endpoint_of

        endpoint = endpoint_of(config.reference, config.served_as, api_key=api_key)
        form = PAIRWISE if config.judge_profile is None else format_named(config.judge_profile)
        media = media_of(Loader(workspace))
        writer, spec = RemoteWriter.open(endpoint, judging or form.judging, media, tools=config.tools)
        return PairwiseJudge(writer, spec, seed=seed)
    resolved = Loader(workspace).resolve(config)
    return PairwiseJudge.load(resolved, judging=judging or judging_of(resolved, PAIRWISE), seed=seed)


def _expect(scorer: Scorer, policies: Sequence[str], name: str) -> None:
    """Let it read rendered texts by these policies' chat templates."""
    from assay.models.chat.rendered_text import PolicyTemplate

    if not isinstance(scorer, ReadsRendered):
        raise BadInputError(f"{name} reads no rendered texts of other templates", field="policy_templates")
    scorer.expect([PolicyTemplate(policy) for policy in policies])
