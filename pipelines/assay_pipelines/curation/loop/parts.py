"""The workspace, judges, people, reward models and encoder of a loop, built from its configuration."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from assay.browsing.candidates import count_candidates
from assay.compute.executor import Executor
from assay.data.pair_attributes import PairAttributes, load_attributes
from assay.data.snapshots import Selection
from assay.domain import PreferencePair
from assay.models.spec import Calibration
from assay.runs.progress_bar import progress_bar
from assay.workspace import Workspace
from assay_pipelines.curation.loop.config import Stage1Config
from assay_pipelines.curation.loop.people import People
from assay_pipelines.curation.loop.reward_models import UNCALIBRATED, LoopModel, RewardModels
from assay_pipelines.embedding.encoder import Encoder
from assay_pipelines.embedding.retrieval import GoldItem, retrieve_around
from assay_pipelines.embedding.stored import embed_comparisons, space_name
from assay_pipelines.judging.judge import Judge
from assay_pipelines.llm.budget import Spending
from assay_pipelines.llm.questions import Question

#: Describes comparisons in the store where it has not yet: (comparison ids, run id).
Describe = Callable[[Sequence[str], str], None]
#: Checks the responses of objective questions one at a time: (questions, run id).
Preverify = Callable[[Sequence[Question], str], None]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A comparison near an error, and why it was retrieved."""

    comparison_id: str
    why: dict[str, Any]


@dataclass(frozen=True)
class Parts:
    """`describe`: asks for attributes; None leaves them as the store has them. `preverify`: before people are asked.
    `executor`: where the pool is embedded, by the encoder that `encoder_name` and `device` open; None: here."""

    workspace: Workspace
    models: RewardModels
    people: People
    encoder: Encoder
    judges: Sequence[Judge] = ()
    describe: Describe | None = None
    preverify: Preverify | None = None
    spending: Spending = field(default_factory=Spending)
    embed_responses: bool = False
    executor: Executor | None = None
    encoder_name: str = ""
    device: str = "auto"
    uncalibrated: Calibration = UNCALIBRATED

    def load(self, trained: dict[str, Any], gold: Sequence[PreferencePair]) -> LoopModel:
        """The model with its temperature on gold."""
        return LoopModel(self.models.load(trained), UNCALIBRATED).calibrated_on(gold, "gold of the loop")

    def attributes_of(self, comparison_ids: Sequence[str], run_id: str) -> Mapping[str, PairAttributes]:
        """Asked of the loop's model where it has one, else those in the store."""
        if self.describe is not None:
            self.describe(comparison_ids, run_id)
        return load_attributes(self.workspace, comparison_ids)

    @property
    def space(self) -> str:
        return space_name(self.encoder, responses=self.embed_responses)

    def embed(self, which: Selection | Sequence[str], run_id: str) -> None:
        total = count_candidates(self.workspace, which) if isinstance(which, Selection) else len(which)
        with progress_bar("embedding", total, unit="comparisons") as advance:
            embed_comparisons(
                self.workspace,
                self.encoder,
                which,
                run_id,
                responses=self.embed_responses,
                advance=advance,
                executor=self.executor,
                reference=self.encoder_name,
                device=self.device,
            )

    def around(
        self, p: Mapping[str, float], config: Stage1Config, run_id: str, *, exclude: Set[str]
    ) -> list[Neighbour]:
        """The adaptive k neighbours of every gold item in the pool, nearest to the worst errors first."""
        self.embed(list(p), run_id)
        gold = [GoldItem(comparison, value) for comparison, value in p.items()]
        retrieved = retrieve_around(self.workspace, self.space, gold, config.pool, k_max=config.k_max, exclude=exclude)
        return [
            Neighbour(
                c.comparison_id,
                {
                    "gold": c.reasons[0].gold_id,
                    "p": round(c.reasons[0].p, 4),
                    "similarity": round(c.reasons[0].similarity, 4),
                    "errors_near": len(c.reasons),
                },
            )
            for c in retrieved.candidates
        ]
