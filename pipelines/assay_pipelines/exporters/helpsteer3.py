"""HelpSteer3's rows: principle judgments (what RLBFF trains on) and preferences, in the publisher's fields and signs.

Principle rows: a yes or no that no annotator contradicts, one per response and principle; `partially` is left out, as
in RLBFF. A judgment that a model extracted counts only if the newest filter run kept it.
Preference rows: negative is better for response 1, 0 a tie; a missing or barely noticeable strength is written as 1,
the least that HelpSteer3 can say. The order of people's votes differs from row to row and export to export.
"""

from assay_pipelines.exporters.job import JUDGMENTS, LINES, RESOLVED, ExportFormat, ExportJob, Written, person_of
from assay_pipelines.exporters.single_responses import selected_responses, write_responses
from assay_pipelines.principles.filtering import KEPT

_PRINCIPLES = """
    (FROM {responses} JOIN (
          SELECT response_id, principle_id, min(answer) AS answer FROM standing_principle_judgments j
          WHERE answer IN ('yes', 'no') AND (extractor IS NULL OR judgment_id IN (
                SELECT judgment_id FROM principle_outcomes JOIN runs USING (run_id)
                GROUP BY judgment_id HAVING arg_max(stage, started_at) = '{kept}'))
          GROUP BY ALL HAVING count(DISTINCT answer) = 1) USING (response_id) JOIN principles USING (principle_id))"""


def write_principles(job: ExportJob) -> Written:
    columns = """category AS domain, language, messages AS context, text AS response, statement AS principle,
        if(answer = 'yes', 'Yes', 'No') AS fulfilment"""
    rows = _PRINCIPLES.format(responses=selected_responses(job), kept=KEPT)
    nothing = "no yes or no to a principle that is not contradicted"
    return write_responses(job, columns, rows, "response_id, principle_id", nothing)


_SCORE = "CASE {label} WHEN 'A' THEN -{size} WHEN 'B' THEN {size} ELSE 0 END"


def write_preferences(job: ExportJob) -> Written:
    overall = _SCORE.format(label="label", size="greatest(1, least(3, round(coalesce(margin, 1))))::INT")
    vote_score = _SCORE.format(label="j.answer", size="greatest(1, coalesce(j.strength, 1))::INT")
    reason = "j.rationale" if job.rationales else "NULL::VARCHAR"
    vote = f"{{'score': {vote_score}, 'reasoning': {reason}}}"
    shuffled = f"sha256({job.pseudonyms.order()} || comparison_id)"
    written = job.copy(
        f"""SELECT category AS domain, language, prompt AS context, response_a AS response1, response_b AS response2,
                   {overall} AS overall_preference, coalesce(v.votes, []) AS individual_preference
            FROM {RESOLVED}
            LEFT JOIN (SELECT comparison_id, list({vote} ORDER BY {shuffled}) AS votes
                       FROM {JUDGMENTS} j JOIN annotators n USING (annotator_id) SEMI JOIN items USING (comparison_id)
                       WHERE {person_of()} AND j.answer <> 'skip' GROUP BY comparison_id) v USING (comparison_id)
            WHERE label IS NOT NULL ORDER BY comparison_id"""
    )
    return Written(written, (f"{job.counts.ties} of them ties, as 0",) if job.counts.ties else ())


HELPSTEER3_PRINCIPLES = ExportFormat(LINES, write_principles, "principle judgments", "responses")
HELPSTEER3_PREFERENCES = ExportFormat(LINES, write_preferences, "preferences", "labels")
