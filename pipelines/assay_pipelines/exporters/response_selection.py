"""The single responses of an export, with their prompts and where they are from, in the format's form.

Those of the selected comparisons; of a selection without pools also those that are in no comparison.
"""

from __future__ import annotations

from assay.errors import BadInputError
from assay_pipelines.exporters.job import ExportJob, Written
from assay_pipelines.exporters.message_forms import left_out_notes

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
