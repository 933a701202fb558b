"""Percent agreement and Krippendorff's ordinal alpha of a queue's annotators, by principle."""

from dataclasses import dataclass

from assay.statistics.agreement import krippendorff_alpha, percent_agreement
from assay_pipelines.annotation.ledger import Ledger

#: From not fulfilled to fulfilled: the scale of the ordinal alpha.
SCALE = ("no", "partially", "yes")


@dataclass(frozen=True)
class PrincipleAgreement:
    """`items`: responses that two people or more answered on; others tell nothing. `percent`: of pairs of answers that
    are equal. `alpha`: Krippendorff's, ordinal over SCALE; None where everybody always said the same. `yes`: the share
    of all answers."""

    principle: str
    answers: int
    items: int
    yes: float
    percent: float | None
    alpha: float | None


def principle_agreement(ledger: Ledger, queue: str) -> list[PrincipleAgreement]:
    """Of the standing votes of a queue's annotators, by principle; no adjudicator's. `queue`: its name."""
    with ledger.reading() as db:
        rows = db.execute(
            """SELECT p.principle, v.item_id, p.response, v.annotator, p.answer
               FROM items i JOIN votes v USING (item_id) JOIN vote_principles p USING (judgment_id)
               WHERE i.queue = ? AND v.role = 'vote' AND v.withdrawn_at IS NULL ORDER BY p.principle""",
            (queue,),
        ).fetchall()
    answers: dict[str, dict[tuple[int, str], dict[str, str]]] = {}
    for principle, item, response, annotator, answer in rows:
        answers.setdefault(principle, {}).setdefault((item, response), {})[annotator] = answer
    agreements = []
    for principle, by_response in answers.items():
        labels = list(by_response.values())
        every = [answer for item in labels for answer in item.values()]
        agreements.append(
            PrincipleAgreement(
                principle=principle,
                answers=len(every),
                items=sum(len(item) > 1 for item in labels),
                yes=every.count("yes") / len(every),
                percent=percent_agreement(labels),
                alpha=krippendorff_alpha(labels, "ordinal", order=SCALE),
            )
        )
    return agreements
