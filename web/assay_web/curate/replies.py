"""Reply models of the curation routes, besides records of lower packages that are returned unchanged."""

from pydantic import BaseModel, ConfigDict, Field

from assay.statistics.intervals import wilson
from assay_pipelines.curation.conflicts import Between, ConflictPair, PartyAgreement
from assay_pipelines.curation.funnel import FunnelFlow, RejectedRows, RuleCount
from assay_pipelines.curation.loop.history import LoopChoice, LoopHistory
from assay_pipelines.curation.reliability.estimates import SourceReliability, Worth
from assay_pipelines.curation.shown_pairs import ShownPair
from assay_pipelines.curation.source_errors import AnswerErrors, LabelErrors
from assay_pipelines.hygiene.contamination.ledger import LedgerBenchmark, OverlapEvidence
from assay_pipelines.hygiene.near_duplicates.stored import DuplicateCluster, DuplicateSearch

PAGE = 10  #: of comparisons with their texts


class CountedShare(BaseModel):
    """`hits` of `of` with Wilson's 95 % interval; nulls where there is nothing to count."""

    hits: float
    of: int
    share: float | None
    low: float | None
    high: float | None


def counted_share(hits: float, of: int) -> CountedShare:
    if not of:
        return CountedShare(hits=hits, of=0, share=None, low=None, high=None)
    interval = wilson(hits, of)
    return CountedShare(hits=hits, of=of, share=hits / of, low=interval.low, high=interval.high)


NOTHING = counted_share(0, 0)


class SourceWorth(BaseModel):
    """What an annotator's labels are worth: the posterior share that is right on gold. `category`: null = over all.
    `worth`: sound, adversarial, chance or unmeasured. `weight`: of a label of it alone, in a training."""

    kind: str
    name: str
    category: str | None
    right: CountedShare
    worth: Worth
    weight: float


def source_worth(source: SourceReliability) -> SourceWorth:
    low, high = source.interval.low, source.interval.high
    right = CountedShare(hits=source.right, of=source.compared, share=source.mean, low=low, high=high)
    weight = abs(2 * source.cautious - 1)
    return SourceWorth(
        kind=source.kind, name=source.name, category=source.category, right=right, worth=source.worth, weight=weight
    )


class FunnelReply(BaseModel):
    """`flows` add up to `comparisons`. `worth`: each annotator over all, then by category."""

    comparisons: int
    flows: list[FunnelFlow]
    rules: list[RuleCount]
    rejected: list[RejectedRows]
    worth: list[SourceWorth]


class DecidedPage(BaseModel):
    """A page of `total` comparisons, the last decided first."""

    pairs: list[ShownPair]
    total: int
    page_size: int = PAGE


class LoopsReply(BaseModel):
    """The newest first."""

    loops: list[LoopHistory]


class ChoicesPage(BaseModel):
    """A page of `total` comparisons in the order an iteration chose them."""

    choices: list[LoopChoice]
    total: int
    page_size: int = PAGE


class FailureCount(BaseModel):
    """Attempts at a language model that came to this."""

    outcome: str
    attempts: int


class AnnotatorFigures(BaseModel):
    """One judge, person or source. `gold`: agreement with gold where both prefer a side, without votes that made that
    gold; `checks`: gold checks of queues answered right. `first_shown`: of preferences whose order is known, those for
    the response shown first, 0.5 without bias. `consistent`: of samples asked in both orders, those answered alike.
    `agreement`: with the majority of the other people. `flags`: what to look at. `cost`: null without
    prices. `seconds`: median of an answer."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    kind: str
    name: str
    opinions: int
    gold: CountedShare
    checks: CountedShare = NOTHING
    first_shown: CountedShare = NOTHING
    consistent: CountedShare = NOTHING
    agreement: CountedShare = NOTHING
    ties: int
    skips: int
    failures: list[FailureCount] = Field(default=[])
    calls: int = 0
    tokens: int = 0
    cost: float | None = None
    seconds: float | None = None
    flags: list[str] = Field(default=[])


class JudgesAgreement(BaseModel):
    """Two judges over the comparisons on which both prefer a side. `kappa`: Cohen's."""

    first: str
    second: str
    same: CountedShare
    kappa: float | None


class QualityReply(BaseModel):
    """People first, then judges, then sources."""

    annotators: list[AnnotatorFigures]
    agreements: list[JudgesAgreement]


class LabelErrorsEntry(BaseModel):
    """Labels in force against the source's. `wrong`: flipped or tied, of those decided."""

    counts: LabelErrors
    wrong: CountedShare


class ErrorTypesReply(BaseModel):
    """Largest first."""

    by_rule: list[LabelErrorsEntry]
    by_category: list[LabelErrorsEntry]
    annotators: list[AnswerErrors]


class LedgerReply(BaseModel):
    """Every registered benchmark."""

    benchmarks: list[LedgerBenchmark]


class EvidencePage(BaseModel):
    """A page of `total` overlaps, the largest first."""

    overlaps: list[OverlapEvidence]
    total: int
    page_size: int = PAGE


class SearchesReply(BaseModel):
    """Searches for near-duplicates, the newest first."""

    searches: list[DuplicateSearch]


class ClustersPage(BaseModel):
    """A page of `total` clusters, the largest first."""

    clusters: list[DuplicateCluster]
    total: int
    page_size: int = PAGE


class ConflictsReply(BaseModel):
    """How the parties agree, each two of them."""

    parties: list[PartyAgreement]


class ConflictsPage(BaseModel):
    """A page of `total` comparisons on which two parties prefer different sides."""

    between: Between
    conflicts: list[ConflictPair]
    total: int
    page_size: int = PAGE


class LoopFile(BaseModel):
    """A description of a loop in the workspace. `file`: relative to it. `begun`: the store has steps of it. `problem`:
    why it cannot be run."""

    file: str
    name: str | None
    begun: bool
    iterations: int | None
    problem: str | None
