"""Digests of normalised pairs and the labels of their sources, in tables of a scratch file, for deduplication.

pair_keys   item, pair_key (128 bits, of prompt and both responses, unordered), a_key, b_key (64, of each)
statements  comparison_id, name (of the source), answer (A or B)
opposed     pair_key of those whose statements prefer different responses

The normal form of a text is Unicode form NFC, without case and kinds of white space; cleaning compares by it too.
"""

from assay.browsing.pair_pages import PairPages
from assay.compute.scratch_store import Scratch, row_pages
from assay.runs.progress_bar import Advance, silent
from assay.store.database import registered
from assay.workspace import Workspace

#: White space of Unicode but the plain space; zero-width space, joiners and byte-order mark included. For RE2.
_ODD = r"\t\n\v\f\r\x{85}\x{A0}\x{1680}\x{2000}-\x{200D}\x{2028}\x{2029}\x{202F}\x{205F}\x{2060}\x{3000}\x{FEFF}"
SPACE = f"[ {_ODD}]"


def same_text(text: str) -> str:
    """SQL: the form in which two texts are compared."""
    # single plain spaces, the usual case, do not match: several times faster than replacing each by itself
    return f"trim(regexp_replace(lower(nfc_normalize({text})), '{SPACE}{{2,}}|[{_ODD}]', ' ', 'g'))"


def blank(text: str) -> str:
    """SQL: whether the text is empty or white space."""
    return f"regexp_full_match({text}, '{SPACE}*')"


def same_prompt(messages: str) -> str:
    """SQL: the form in which two prompts are compared; roles count."""
    turn = f"m.role || chr(31) || {same_text('m.content')}"
    return f"array_to_string(list_transform({messages}, lambda m: {turn}), chr(30))"


# In two statements: in one, every use of a digest would recompute it and its normal form.
_DIGESTS = f"""
    CREATE OR REPLACE TEMP TABLE page_digests AS
    SELECT item, md5({same_prompt("messages")}) AS prompt, md5({same_text("a")}) AS a, md5({same_text("b")}) AS b
    FROM page"""
_KEYS = """
    INSERT INTO pair_keys
    SELECT item, md5_number(prompt || least(a, b) || greatest(a, b)), hash(a), hash(b) FROM page_digests"""
_PREFERENCES = """
    SELECT k.pair_key, p.comparison_id, s.name, s.answer, if(s.answer = 'A', k.a_key, k.b_key) AS preferred
    FROM statements s JOIN pair_places p USING (comparison_id) JOIN pair_keys k USING (item)"""
_ROWS = 100_000


def make_pair_keys(scratch: Scratch, pages: PairPages, *, advance: Advance = silent) -> None:
    """Make all three tables. `advance` by comparisons read."""
    scratch.db.execute("CREATE TABLE pair_keys (item BIGINT, pair_key UHUGEINT, a_key UBIGINT, b_key UBIGINT)")
    for page in pages.pages():
        with registered(scratch.db, "page", page):
            scratch.db.execute(_DIGESTS)
        scratch.db.execute(_KEYS)
        advance(page.num_rows)
    _statements(pages.workspace, scratch)
    scratch.db.execute(f"CREATE VIEW preferences AS {_PREFERENCES}")
    scratch.db.execute(
        """CREATE TABLE opposed AS
           SELECT pair_key FROM preferences GROUP BY pair_key HAVING min(preferred) <> max(preferred)"""
    )


def _statements(workspace: Workspace, scratch: Scratch) -> None:
    scratch.db.execute("CREATE TABLE statements (comparison_id VARCHAR, name VARCHAR, answer VARCHAR)")
    query = """SELECT j.comparison_id, n.name, j.answer FROM judgments j JOIN annotators n USING (annotator_id)
               WHERE j.rowid BETWEEN $low AND $high AND n.kind = 'source' AND j.answer IN ('A', 'B')"""
    for page in row_pages(workspace, "judgments", query, page=_ROWS):
        with registered(scratch.db, "page", page):
            scratch.db.execute("INSERT INTO statements SELECT * FROM page")
