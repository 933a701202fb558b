"""The nearest human-labelled comparisons, shown to judges: step 3 of Skywork-Reward-V2's labelling."""

from collections.abc import Sequence

from assay.browsing.candidates import candidates_by_id
from assay.data.pair_attributes import load_attributes
from assay.data.snapshots import Selection
from assay.workspace import Workspace
from assay_pipelines.embedding.encoder import Encoder
from assay_pipelines.embedding.index import ArrayVectors, open_index
from assay_pipelines.embedding.stored import embed_comparisons, load_vectors, space_name
from assay_pipelines.llm.questions import Demonstration

MOST = 8  # the paper's number


def demonstrations(
    workspace: Workspace,
    encoder: Encoder,
    comparison_ids: Sequence[str],
    gold: Selection,
    run_id: str,
    *,
    most: int = MOST,
    responses: bool = False,
) -> dict[str, tuple[Demonstration, ...]]:
    """Per comparison the nearest of `gold` with an A/B label, nearest first. What has no vector yet is embedded."""
    if not (comparison_ids and most):
        return {}
    labels = {c: label for c, label in _labels(workspace, gold).items() if label in ("A", "B")}
    embed_comparisons(workspace, encoder, [*comparison_ids, *labels], run_id, responses=responses)
    space = space_name(encoder, responses=responses)
    ids, rows = load_vectors(workspace, space, list(labels))
    query_ids, queries = load_vectors(workspace, space, comparison_ids)
    if not ids or not query_ids:
        return {}
    near = open_index(ArrayVectors(ids, rows)).nearest(queries, most)
    attributes = load_attributes(workspace, ids)
    examples = {
        c.comparison_id: Demonstration(
            c.prompt,
            c.response_a,
            c.response_b,
            labels[c.comparison_id],  # type: ignore[arg-type]
            attributes.get(c.comparison_id),
            c.comparison_id,
        )
        for c in candidates_by_id(workspace, sorted({g for neighbours in near for g, _ in neighbours}))
    }
    return {c: tuple(examples[g] for g, _ in neighbours) for c, neighbours in zip(query_ids, near, strict=True)}


def _labels(workspace: Workspace, gold: Selection) -> dict[str, str]:
    condition, values = gold.where()
    with workspace.store.unit() as db:
        return dict(
            db.execute(f"SELECT p.comparison_id, p.label FROM pools p WHERE {condition} ORDER BY 1", values).fetchall()
        )
