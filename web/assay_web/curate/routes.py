"""Routes of curation: the funnel, the loops, quality, errors, the contamination ledger, near-duplicates, conflicts.

Leaves out: the stages (`stage_routes`).
"""

from typing import Annotated

from fastapi import APIRouter, Query

from assay_pipelines.curation.conflicts import Between, conflicts_between, party_agreements
from assay_pipelines.curation.funnel import decided_by, funnel
from assay_pipelines.curation.loop.history import loop_choices, loop_histories
from assay_pipelines.curation.source_errors import LabelErrors, error_types
from assay_pipelines.hygiene.contamination.ledger import evidence, ledger
from assay_pipelines.hygiene.near_duplicates.stored import duplicate_clusters, duplicate_searches
from assay_web.access.audited_route import AuditedRoute
from assay_web.access.guard import Viewer
from assay_web.curate.quality import quality_of
from assay_web.curate.replies import (
    PAGE,
    ChoicesPage,
    ClustersPage,
    ConflictsPage,
    ConflictsReply,
    DecidedPage,
    ErrorTypesReply,
    EvidencePage,
    FunnelReply,
    LabelErrorsEntry,
    LedgerReply,
    LoopsReply,
    QualityReply,
    SearchesReply,
    counted_share,
    source_worth,
)
from assay_web.curate.reply_cache import reply_cache
from assay_web.service import ServiceNow

router = APIRouter(tags=["curate"], route_class=AuditedRoute)

Text = Annotated[str, Query(max_length=300)]
PageNumber = Annotated[int, Query(ge=0, le=1_000_000, description="From 0.")]


@router.get("/api/curate/funnel")
def read_funnel(person: Viewer, service: ServiceNow) -> FunnelReply:
    """Where every comparison is, by which rule; what imports could not take."""

    def make() -> FunnelReply:
        with service.store() as db:
            flow = funnel(db)
        return FunnelReply(
            comparisons=flow.comparisons,
            flows=flow.flows,
            rules=flow.rules,
            rejected=flow.rejected,
            worth=[source_worth(source) for source in flow.reliability],
        )

    return reply_cache(service).reply("funnel", make)


@router.get("/api/curate/decided")
def list_decided(person: Viewer, service: ServiceNow, pool: Text, rule: Text, page: PageNumber = 0) -> DecidedPage:
    """The comparisons that a rule decided, with reasons."""

    def make() -> DecidedPage:
        with service.store() as db:
            pairs, total = decided_by(db, pool, rule, limit=PAGE, offset=PAGE * page)
        return DecidedPage(pairs=pairs, total=total)

    return reply_cache(service).reply(("decided", pool, rule, page), make)


@router.get("/api/curate/loops")
def list_loops(person: Viewer, service: ServiceNow) -> LoopsReply:
    """Every loop with its iterations."""
    with service.store() as db:
        return LoopsReply(loops=loop_histories(db))


@router.get("/api/curate/loops/{loop}/iterations/{iteration}")
def list_loop_choices(
    person: Viewer, service: ServiceNow, loop: str, iteration: int, page: PageNumber = 0
) -> ChoicesPage:
    """The comparisons of an iteration, and why each was chosen."""
    with service.store() as db:
        choices, total = loop_choices(db, loop, iteration, limit=PAGE, offset=PAGE * page)
    return ChoicesPage(choices=choices, total=total)


@router.get("/api/curate/quality")
def read_annotator_quality(person: Viewer, service: ServiceNow) -> QualityReply:
    """Judges, people and sources against gold, their position bias, failures and cost."""
    return reply_cache(service).reply("quality", lambda: quality_of(service.workspace))


@router.get("/api/curate/errors")
def read_error_types(person: Viewer, service: ServiceNow) -> ErrorTypesReply:
    """Errors of the sources' labels and of annotators."""

    def make() -> ErrorTypesReply:
        with service.store() as db:
            errors = error_types(db)
        return ErrorTypesReply(
            by_rule=[_entry(counts) for counts in errors.by_rule],
            by_category=[_entry(counts) for counts in errors.by_category],
            annotators=errors.annotators,
        )

    return reply_cache(service).reply("errors", make)


@router.get("/api/curate/contamination")
def read_contamination_ledger(person: Viewer, service: ServiceNow) -> LedgerReply:
    """Registered benchmarks, every check against them, waivers."""
    with service.store() as db:
        return LedgerReply(benchmarks=ledger(db))


@router.get("/api/curate/contamination/{check_id}")
def list_contamination_evidence(
    person: Viewer, service: ServiceNow, check_id: str, page: PageNumber = 0
) -> EvidencePage:
    """The overlaps of a check: what is in common, and both texts."""
    with service.store() as db:
        overlaps, total = evidence(db, check_id, limit=PAGE, offset=PAGE * page)
    return EvidencePage(overlaps=overlaps, total=total)


@router.get("/api/curate/near-duplicates")
def list_duplicate_searches(person: Viewer, service: ServiceNow) -> SearchesReply:
    """Searches for near-duplicates."""
    with service.store() as db:
        return SearchesReply(searches=duplicate_searches(db))


@router.get("/api/curate/near-duplicates/{run_id}")
def list_duplicate_clusters(person: Viewer, service: ServiceNow, run_id: str, page: PageNumber = 0) -> ClustersPage:
    """Clusters of a search with their members."""
    with service.store() as db:
        clusters, total = duplicate_clusters(db, run_id, limit=PAGE, offset=PAGE * page)
    return ClustersPage(clusters=clusters, total=total)


@router.get("/api/curate/conflicts")
def read_conflicts(person: Viewer, service: ServiceNow) -> ConflictsReply:
    """How often source, people and judges contradict each other."""

    def make() -> ConflictsReply:
        with service.store() as db:
            return ConflictsReply(parties=party_agreements(db))

    return reply_cache(service).reply("conflicts", make)


@router.get("/api/curate/conflicts/{between}")
def list_conflicts(person: Viewer, service: ServiceNow, between: Between, page: PageNumber = 0) -> ConflictsPage:
    """Comparisons on which two parties prefer different sides, with everybody's answer."""

    def make() -> ConflictsPage:
        with service.store() as db:
            conflicts, total = conflicts_between(db, between, limit=PAGE, offset=PAGE * page)
        return ConflictsPage(between=between, conflicts=conflicts, total=total)

    return reply_cache(service).reply(("conflicts", between, page), make)


def _entry(counts: LabelErrors) -> LabelErrorsEntry:
    return LabelErrorsEntry(counts=counts, wrong=counted_share(counts.flipped + counts.tied, counts.decided))
