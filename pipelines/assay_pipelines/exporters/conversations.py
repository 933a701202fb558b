"""The exported comparisons with their conversations in a format's form, in DuckDB.

Covers: tables of the typed prompts and responses in that form, made by one function over the rows that have any, and
the view `resolved` over them. A conversation that the format has no place for is `barred` with the reason. Leaves out:
the forms (`exporters.message_forms`).
"""

import json
from dataclasses import dataclass
from typing import Any

from assay.conversation.message import prompt_of
from assay.store.database import Connection
from assay_pipelines.exporters.message_forms import (
    KEYS,
    ImageCopies,
    MessageForm,
    UnwritableError,
    message_type,
    openai_turns,
)

_FUNCTION = "export_form"


@dataclass(frozen=True)
class ConversationForms:
    """Which of the selected conversations are `typed` in the format; `tools`, `images`: whether any has those;
    `listed`: whether contents are lists; `keys`: those that every message has beside role and content; `structs`: as
    in `MessageForm`.

    SQL expressions over `pr` (prompts), `pf` (prompt_forms), and for a response its alias and that alias with f.
    """

    typed: bool = False
    tools: bool = False
    images: bool = False
    listed: bool = False
    keys: tuple[str, ...] = ()
    structs: bool = False

    def prompt(self) -> str:
        if not self.typed:
            return "pr.messages"
        plain = f"list_transform(pr.messages, lambda m: {self._message('m.role', 'm.content')})"
        return self._typed(f"coalesce(pf.form, {plain})")

    def response(self, alias: str) -> str:
        if not self.typed:
            return f"[{{'role': 'assistant', 'content': {alias}.content}}]"
        plain = self._message("'assistant'", f"{alias}.content")
        return self._typed(f"coalesce({alias}f.form, [{plain}])")

    def _typed(self, messages: str) -> str:
        if not self.structs:
            return messages
        kind = json.dumps([message_type(self.keys, listed=self.listed)])
        return f"json_transform(to_json({messages}), '{kind}')"

    def _message(self, role: str, content: str) -> str:
        if self.listed:
            content = f"[json_object('type', 'text', 'text', {content})]"
        nulls = "".join(f", '{key}', NULL" for key in self.keys)
        return f"json_object('role', {role}, 'content', {content}{nulls})"

    def columns(self, *, tools: str = "tools", images: str = "images") -> str:
        """SQL: the columns of tools and images, where any row has those."""
        return (f"{tools}, " if self.tools else "") + (f"{images}, " if self.images else "")


def fill_forms(db: Connection, form: MessageForm, copies: ImageCopies) -> ConversationForms:
    """Fill the temporary tables `prompt_forms` and `response_forms`: the typed conversations of the table `scope`."""
    prompts = "prompts WHERE conversation IS NOT NULL AND prompt_id IN (SELECT prompt_id FROM scope)"
    responses = "responses WHERE turns IS NOT NULL AND response_id IN (SELECT response_id FROM scope)"
    kinds = sorted(form.holds)
    columns = "".join(f""", coalesce(bool_or(contains(form, '"type":"{kind}"')), false)""" for kind in kinds)
    present = db.execute(
        f"""SELECT count(*){columns} FROM (SELECT conversation::VARCHAR AS form FROM {prompts}
                                   UNION ALL SELECT turns::VARCHAR FROM {responses})"""
    ).fetchall()[0]
    held = [kind for kind, is_present in zip(kinds, present[1:], strict=True) if is_present]
    listed = "image" in held and not form.marks
    keys = tuple(key for kind in held for key in KEYS.get(kind, ())) if form.equal_keys or form.structs else ()

    def written(conversation: str, response: bool) -> str:
        try:
            turns = openai_turns(prompt_of(json.loads(conversation)), form, copies, response=response, listed=listed)
        except UnwritableError as error:
            return json.dumps({"barred": str(error)})
        messages = [dict.fromkeys(keys) | message for message in turns.messages]
        columns_of_row: dict[str, Any] = {"form": messages, "tools": turns.tools, "images": turns.images or None}
        return json.dumps(columns_of_row, ensure_ascii=False)

    db.create_function(_FUNCTION, written, ["VARCHAR", "BOOLEAN"], "VARCHAR")
    try:
        for table, key, column, rows in (
            ("prompt_forms", "prompt_id", "conversation", prompts),
            ("response_forms", "response_id", "turns", responses),
        ):
            form_text = f"{_FUNCTION}({column}::VARCHAR, {column == 'turns'})::JSON"
            db.execute(
                f"""CREATE OR REPLACE TEMP TABLE {table} AS
                    SELECT {key}, (f->'form')::JSON[] AS form, f->>'tools' AS tools, (f->'images')::VARCHAR[] AS images,
                           f->>'barred' AS barred
                    FROM (SELECT {key}, {form_text} AS f FROM {rows})"""
            )
    finally:
        db.remove_function(_FUNCTION)
    flags = db.execute(
        """SELECT count(*) > 0, count(form) > 0, count(tools) > 0, count(images) > 0
           FROM (FROM prompt_forms UNION ALL BY NAME FROM response_forms)"""
    ).fetchall()[0]
    any_typed, writable, tools, images = map(bool, flags)
    forms = ConversationForms(writable, tools, images, bool(listed and images), keys, form.structs)
    _create_view(db, forms, any_typed)
    return forms


def _create_view(db: Connection, forms: ConversationForms, any_typed: bool) -> None:
    """`resolved`: one row for each comparison: its texts, where it came from (of several origins the first in order),
    its label; `barred`: why the format has no place for it."""
    joins = "LEFT JOIN prompt_forms pf ON pf.prompt_id = c.prompt_id " + " ".join(
        f"LEFT JOIN response_forms {side}f ON {side}f.response_id = {side}.response_id" for side in ("a", "b")
    )
    barred = "coalesce(pf.barred, af.barred, bf.barred) AS barred, pf.tools, pf.images"
    if not any_typed:
        joins, barred = "", "NULL::VARCHAR AS barred, NULL::VARCHAR AS tools, NULL::VARCHAR[] AS images"
    first, second = forms.response("a"), forms.response("b")
    db.execute(
        f"""CREATE OR REPLACE TEMP VIEW resolved AS
            SELECT i.comparison_id, i.label, i.margin::DOUBLE AS margin, i.pool, c.prompt_id,
                   {forms.prompt()} AS prompt, a.content AS response_a, b.content AS response_b,
                   if(i.label = 'B', b.content, a.content) AS chosen,
                   if(i.label = 'B', a.content, b.content) AS rejected,
                   if(i.label = 'B', {second}, {first}) AS chosen_turns,
                   if(i.label = 'B', {first}, {second}) AS rejected_turns, {first} AS turns_a, {second} AS turns_b,
                   {barred}, pr.messages, pr.conversation::VARCHAR AS conversation,
                   if(i.label = 'B', b.turns, a.turns)::VARCHAR AS chosen_typed,
                   if(i.label = 'B', a.turns, b.turns)::VARCHAR AS rejected_typed,
                   o.source, o.category, o.license, o.language
            FROM items i
            JOIN comparisons c USING (comparison_id)
            JOIN prompts pr ON pr.prompt_id = c.prompt_id
            JOIN responses a ON a.response_id = c.response_a
            JOIN responses b ON b.response_id = c.response_b
            {joins}
            LEFT JOIN (SELECT comparison_id, unnest(min({{'source': source, 'category': category, 'license': license,
                                                          'language': language}}))
                       FROM origins SEMI JOIN items USING (comparison_id) GROUP BY comparison_id) o
                   USING (comparison_id)"""
    )
