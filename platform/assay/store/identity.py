"""The identities of `assay.ids`, written as DuckDB SQL, so that millions of rows are hashed without leaving SQL.

Covers: expressions for the ids of prompts, responses, comparisons, annotators, judgments of every kind, feedback and
principles.
Each function takes SQL expressions (column names, literals) and returns one. Leaves out: who runs them
(`assay.store.intake`). A property test keeps them equal to `assay.ids`; change both or neither.
"""

from assay.ids import HEX_DIGITS, TYPED

FIELD, RECORD = "chr(31)", "chr(30)"


def digest(text: str) -> str:
    return f"left(sha256({text}), {HEX_DIGITS})"


def prompt_id(messages: str, conversation: str = "NULL::VARCHAR") -> str:
    """`messages`: a list of STRUCT(role, content). `strlen` counts UTF-8 bytes, as `ids.sized` does. `conversation`: a
    nullable expression, the JSON of messages that are more than text."""
    turn = f"m.role || {FIELD} || strlen(m.content)::VARCHAR || {FIELD} || m.content"
    texts = f"array_to_string(list_transform({messages}, lambda m: {turn}), {RECORD})"
    typed = f"'{TYPED}' || {RECORD} || {conversation}"
    return f"'p-' || {digest(f'coalesce({typed}, {texts})')}"


def response_id(prompt: str, content: str, turns: str = "NULL::VARCHAR") -> str:
    """`turns`: a nullable expression, the JSON of a response that is more than text."""
    return f"'r-' || {digest(f'{prompt} || coalesce({RECORD} || {turns}, {FIELD} || {content})')}"


def comparison_id(prompt: str, first: str, second: str) -> str:
    """Unordered in the two response ids. DuckDB compares VARCHAR by bytes, and ids are ASCII: as Python sorts."""
    low, high = f"least({first}, {second})", f"greatest({first}, {second})"
    return f"'c-' || {digest(f'{prompt} || {FIELD} || {low} || {FIELD} || {high}')}"


def annotator_id(kind: str, name: str) -> str:
    return f"'a-' || {digest(f'{kind} || {FIELD} || {name}')}"


def judgment_id(comparison: str, annotator: str, answer: str, strength: str, origin: str) -> str:
    """`strength`: a nullable integer expression."""
    strength_text = f"coalesce(({strength})::VARCHAR, '')"
    parts = (comparison, annotator, answer, strength_text, origin)
    return f"'j-' || {digest(f' || {FIELD} || '.join(parts))}"


def feedback_id(response: str, annotator: str, content: str) -> str:
    return f"'b-' || {digest(f' || {FIELD} || '.join((response, annotator, content)))}"


def principle_id(statement: str) -> str:
    return f"'n-' || {digest(statement)}"


def principle_judgment_id(response: str, principle: str, annotator: str, answer: str) -> str:
    return f"'y-' || {digest(f' || {FIELD} || '.join((response, principle, annotator, answer)))}"


def response_judgment_id(response: str, annotator: str, aspect: str, value: str, origin: str) -> str:
    """`value`: a nullable DOUBLE expression."""
    return f"'v-' || {digest(f' || {FIELD} || '.join((response, annotator, aspect, number_text(value), origin)))}"


def step_judgment_id(
    response: str, annotator: str, step: str, start: str, end: str, label: str, value: str, origin: str
) -> str:
    """`step`, `label`, `value`: nullable expressions."""
    step_text, label_text = f"coalesce(({step})::VARCHAR, '')", f"coalesce({label}, '')"
    place = (response, annotator, step_text, f"({start})::VARCHAR", f"({end})::VARCHAR", label_text)
    return f"'t-' || {digest(f' || {FIELD} || '.join((*place, number_text(value), origin)))}"


def number_text(value: str) -> str:
    """As `ids.number_text`: adding 0 makes of a negative zero a positive one."""
    return f"coalesce(format('{{:.17g}}', ({value})::DOUBLE + 0.0), '')"
