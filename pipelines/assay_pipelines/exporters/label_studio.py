"""Label Studio's JSON: a task for each comparison, with people's votes as annotations and models' as predictions.

The tasks fit Assay's labelling interface (`annotation.label_studio.config`). The sources' own labels are left out,
because they would bias annotators. People are numbered in an order that differs from export to export.
"""

from itertools import product

from assay.domain import ANSWERS
from assay_pipelines.annotation.label_studio.config import CONTROL, RATIONALE, choice_for
from assay_pipelines.exporters.job import JUDGMENTS, RESOLVED, ExportFormat, ExportJob, Written, person_of

_PROMPT_TEXT = """if(len(prompt) = 1 AND prompt[1].role = 'user', prompt[1].content,
    array_to_string(list_transform(prompt, lambda m: upper(m.role[1]) || m.role[2:] || ': ' || m.content),
                    chr(10) || chr(10)))"""


def write_label_studio(job: ExportJob) -> Written:
    choices = ", ".join(
        f"('{answer}', {'NULL' if strength is None else strength}, '{choice_for(answer, strength)}')"  # type: ignore[arg-type]
        for answer, strength in product(ANSWERS, (None, 0, 1, 2, 3))
    )
    control = f"'from_name', '{CONTROL['preference']}', 'to_name', 'prompt'"
    result = f"[json_object('type', 'choices', 'value', json_object('choices', [k.choice]), {control})]"
    if job.rationales:
        text = "json_object('type', 'textarea', 'value', json_object('text', [j.rationale]), "
        text += f"'from_name', '{RATIONALE}', 'to_name', 'prompt')"
        result = f"list_concat({result}, if(j.rationale IS NULL, [], [{text}]))"
    person, order = person_of(), job.pseudonyms.order()
    tasks = job.copy(
        f"""WITH numbered AS (
                SELECT annotator_id, row_number() OVER (ORDER BY {order}) AS number
                FROM annotators n WHERE {person} AND annotator_id IN (
                    SELECT annotator_id FROM {JUDGMENTS} SEMI JOIN items USING (comparison_id))),
            entries AS (
                SELECT comparison_id, {person} AS by_person,
                       CASE WHEN {person} THEN json_object(
                           'completed_by', p.number, 'result', {result}, 'was_cancelled', j.answer = 'skip',
                           'ground_truth', false)
                       ELSE json_object('model_version', n.name, 'result', {result}, 'score', j.confidence)
                       END AS entry,
                       coalesce(p.number::VARCHAR, n.name) AS place
                FROM {JUDGMENTS} j
                JOIN annotators n USING (annotator_id)
                SEMI JOIN items USING (comparison_id)
                JOIN (VALUES {choices}) k(answer, strength, choice)
                  ON k.answer = j.answer AND k.strength IS NOT DISTINCT FROM j.strength
                LEFT JOIN numbered p USING (annotator_id)
                WHERE n.kind <> 'source'),
            gathered AS (
                SELECT comparison_id, list(entry ORDER BY place) FILTER (by_person) AS annotations,
                       list(entry ORDER BY place) FILTER (NOT by_person) AS predictions
                FROM entries GROUP BY comparison_id)
            SELECT row_number() OVER (ORDER BY comparison_id) AS id,
                   {{'prompt': {_PROMPT_TEXT}, 'messages': prompt, 'answer1': response_a, 'answer2': response_b,
                     'comparison_id': comparison_id, 'source': source, 'category': category}} AS data,
                   coalesce(annotations, []) AS annotations, coalesce(predictions, []) AS predictions
            FROM {RESOLVED} LEFT JOIN gathered USING (comparison_id) ORDER BY comparison_id"""
    )
    return Written(tasks)


LABEL_STUDIO = ExportFormat((".json",), write_label_studio, "tasks", "comparisons")
