"""Labels of single responses: TRL's unpaired (KTO) and stepwise forms, and the ratings and steps that training reads.

Of a snapshot, or of a selection by pool, the responses are those of its comparisons; otherwise also those that are in
no comparison. Only unpaired rows hold more than texts. What was withdrawn is left out.

- Unpaired: the binary label of a response where its annotators agree; else which side of the selected pairs it is on. A
  response that has both is left out and counted.
- Stepwise: one row for each response and annotator, of the steps from the first that are labelled right or wrong; its
  labels are true or false, so it ends before a neutral or unlabelled step.
- Ratings, for `assay train ratings`: by aspect the mean of what people said, and where nobody did, of what others said.
- Steps, for `assay train steps`: the chance that each is right, the mean place on the labels' scales.
- Turns, for `assay train steps`: the same of responses in turns, whose labelled steps are the assistant's turns; null
  for those after the last label.
"""

from assay.conversation.message import stored_response, turn_spans
from assay.errors import BadInputError
from assay_pipelines.exporters.job import LINES, ExportFormat, ExportJob, Written
from assay_pipelines.exporters.message_forms import EVERYTHING, MessageForm, left_out_notes
from assay_pipelines.importers.rows import ACCEPTABLE

_RESPONSES = """(
    SELECT s.response_id, {prompt} AS prompt, {completion} AS completion, r.content AS text, pr.messages,
           pf.tools, pf.images, coalesce(pf.barred, rf.barred) AS barred, o.source, o.category, o.language
    FROM scope s JOIN responses r ON r.response_id = s.response_id JOIN prompts pr ON pr.prompt_id = s.prompt_id
    LEFT JOIN prompt_forms pf ON pf.prompt_id = s.prompt_id
    LEFT JOIN response_forms rf ON rf.response_id = s.response_id
    LEFT JOIN (SELECT response_id, unnest(min({{'source': source, 'category': category, 'language': language}})) FROM (
                   SELECT response_id, source, category, language FROM response_origins
                   UNION ALL
                   SELECT unnest([c.response_a, c.response_b]), o.source, o.category, o.language
                   FROM comparisons c JOIN origins o USING (comparison_id)) SEMI JOIN scope USING (response_id)
               GROUP BY response_id) o ON o.response_id = s.response_id)"""


def selected_responses(job: ExportJob) -> str:
    """SQL: the responses of the table `scope`; `barred`: why the format has no place for one."""
    return _RESPONSES.format(prompt=job.forms.prompt(), completion=job.forms.response("r"))


def write_responses(
    job: ExportJob, columns: str, rows: str, order: str, nothing: str, notes: tuple[str, ...] = ()
) -> Written:
    """Write the columns of the rows that are not `barred`, and count the others. `nothing`: what there is none of, in
    words. Raises BadInputError where no row is left."""
    written = job.copy(f"SELECT {columns} FROM {rows} WHERE barred IS NULL ORDER BY {order}")
    barred = job.db.execute(
        f"""SELECT barred, count(*), min(response_id) FROM {rows} WHERE barred IS NOT NULL
            GROUP BY 1 ORDER BY 2 DESC, 1"""
    ).fetchall()
    notes = (*notes, *left_out_notes(barred))
    if not written:
        raise BadInputError(f"nothing to export: {'; '.join(notes) or nothing}")
    return Written(written, notes)


#: Whether a label says yes; NULL in the middle of its scale. A scale without ends has its middle at 0.
_MIDDLE = "coalesce((low + high) / 2, 0)"
_SAYS_YES = f"CASE WHEN value > {_MIDDLE} THEN true WHEN value < {_MIDDLE} THEN false END"

# Adjudicators' labels where there are any of the same thing, else people's, else all.
_PREFERRED = """
    SELECT * FROM (SELECT j.*, if(starts_with(origin, 'adjudication'), 2, (kind = 'human')::INT) AS standing
                   FROM {table} j JOIN annotators USING (annotator_id) WHERE value IS NOT NULL)
    QUALIFY standing = max(standing) OVER (PARTITION BY response_id, {thing})"""

_RATINGS = f"""
    SELECT response_id, map(list(aspect ORDER BY aspect), list(value ORDER BY aspect)) AS ratings
    FROM (SELECT response_id, aspect, avg(value) AS value
          FROM ({_PREFERRED.format(thing="aspect", table="standing_response_judgments")}) GROUP BY ALL)
    GROUP BY response_id"""

_STEPS = f"""
    SELECT response_id, list(start ORDER BY step) AS starts, list("end" ORDER BY step) AS ends,
           list(label ORDER BY step) AS labels
    FROM (SELECT response_id, step, mode(start) AS start, mode("end") AS "end",
                 avg((value - coalesce(low, 0)) / (coalesce(high, 1) - coalesce(low, 0))) AS label
          FROM ({_PREFERRED.format(thing="step", table="standing_step_judgments")})
          WHERE step IS NOT NULL GROUP BY 1, 2)
    GROUP BY response_id"""


def write_unpaired(job: ExportJob) -> Written:
    labels = f"""
        SELECT response_id, bool_or(yes) AS yes, bool_or(NOT yes) AS no FROM (
            SELECT response_id, {_SAYS_YES} AS yes FROM standing_response_judgments
            WHERE aspect = '{ACCEPTABLE}' AND value IS NOT NULL) WHERE yes IS NOT NULL GROUP BY response_id"""
    sides = """
        SELECT response_id, bool_or(better) AS yes, bool_or(NOT better) AS no FROM (
            SELECT unnest([response_a, response_b]) AS response_id, unnest([label = 'A', label = 'B']) AS better
            FROM items JOIN comparisons USING (comparison_id) WHERE label IN ('A', 'B')) GROUP BY response_id"""
    job.db.execute(
        f"""CREATE OR REPLACE TEMP TABLE labelled AS
            SELECT response_id, coalesce(l.yes, s.yes) AS yes, coalesce(l.no, s.no) AS no
            FROM scope LEFT JOIN ({labels}) l USING (response_id) LEFT JOIN ({sides}) s USING (response_id)
            WHERE coalesce(l.yes, s.yes) IS NOT NULL"""
    )
    (both,) = job.db.execute("SELECT count(*) FROM labelled WHERE yes AND no").fetchall()[0]
    rows = f"(FROM {selected_responses(job)} JOIN labelled USING (response_id) WHERE yes <> no)"
    columns = f"prompt, completion, yes AS label, {job.forms.columns()}source, category"
    notes = (f"left out, both accepted and refused: {both} responses",) if both else ()
    nothing = "no response has a binary label or is a side of a pair"
    return write_responses(job, columns, rows, "response_id", nothing, notes)


def write_stepwise(job: ExportJob) -> Written:
    job.db.execute(
        f"""CREATE OR REPLACE TEMP TABLE steps AS
            WITH labelled AS (
                SELECT response_id, annotator_id, origin, step, start, "end", {_SAYS_YES} AS yes,
                       row_number() OVER (PARTITION BY response_id, annotator_id, origin ORDER BY step) - 1 AS place
                FROM standing_step_judgments SEMI JOIN scope USING (response_id)
                WHERE step IS NOT NULL AND value IS NOT NULL),
            ended AS (SELECT *, bool_and(yes IS NOT NULL AND step = place) OVER (
                PARTITION BY response_id, annotator_id, origin ORDER BY step) AS whole FROM labelled)
            SELECT response_id, annotator_id, origin, count(*) AS found,
                   list({{'start': start, 'end': "end", 'yes': yes}} ORDER BY step) FILTER (whole) AS steps
            FROM ended GROUP BY ALL"""
    )
    rows = f"""(SELECT * REPLACE (coalesce(barred, if(len(messages) = 1 AND messages[1].role = 'user', NULL,
                    'prompts of several turns')) AS barred)
                FROM (FROM {selected_responses(job)}) JOIN steps USING (response_id)
                WHERE steps IS NOT NULL)"""
    counts = job.db.execute(
        "SELECT count(*) FILTER (len(steps) < found), count(*) FILTER (steps IS NULL) FROM steps"
    ).fetchall()[0]
    said = ("rows end before a neutral or unlabelled step", "have no such step and are left out")
    notes = tuple(f"{count} {what}" for count, what in zip(counts, said, strict=True) if count)
    columns = """messages[1].content AS prompt,
        list_transform(steps, lambda s: substring(text, s.start + 1, s."end" - s.start)) AS completions,
        list_transform(steps, lambda s: s.yes) AS labels, text AS response, source, category"""
    nothing = "no step of these responses has a label"
    return write_responses(job, columns, rows, "response_id, annotator_id, origin", nothing, notes)


def write_ratings(job: ExportJob) -> Written:
    return _write_labels(job, _RATINGS, "text AS response, ratings", "no ratings")


def write_steps(job: ExportJob) -> Written:
    texts = (
        "list_transform(range(len(starts)), lambda n: substring(text, starts[n + 1] + 1, ends[n + 1] - starts[n + 1]))"
    )
    return _write_labels(job, _STEPS, f"{texts} AS completions, labels, text AS response", "no step labels")


def write_turns(job: ExportJob) -> Written:
    job.db.create_function("turn_starts", _turn_starts, ["VARCHAR"], "BIGINT[]")
    try:
        turns = """SELECT response_id, turn_starts(turns::VARCHAR) AS turn_places FROM responses
                   SEMI JOIN scope USING (response_id) WHERE turns IS NOT NULL"""
        rows = f"""(SELECT * FROM {selected_responses(job)} JOIN ({_STEPS}) USING (response_id)
                    JOIN ({turns}) USING (response_id) WHERE starts = turn_places[1:len(starts)])"""
        columns = f"""prompt, {job.forms.columns()}completion AS response,
            list_resize(labels, len(turn_places)) AS labels, source, category"""
        return write_responses(job, columns, rows, "response_id", "no labels of turns")
    finally:
        job.db.remove_function("turn_starts")


def _turn_starts(turns: str) -> list[int]:
    return [start for start, _ in turn_spans(stored_response("", turns))]


def _write_labels(job: ExportJob, labels: str, columns: str, nothing: str) -> Written:
    rows = f"(FROM {selected_responses(job)} JOIN ({labels}) USING (response_id))"
    return write_responses(job, f"messages AS prompt, {columns}, source, category", rows, "response_id", nothing)


KTO = ExportFormat(LINES, write_unpaired, "responses", "responses", MessageForm(EVERYTHING))
STEPWISE = ExportFormat(LINES, write_stepwise, "solutions", "responses")
RATINGS = ExportFormat((".jsonl", ".jsonl.gz"), write_ratings, "rated responses", "responses")
TURNS = ExportFormat(
    (".jsonl", ".jsonl.gz"), write_turns, "responses with labelled turns", "responses", MessageForm(EVERYTHING)
)
STEPS = ExportFormat((".jsonl", ".jsonl.gz"), write_steps, "responses with labelled steps", "responses")
