"""Attributes in the store: written once per annotator, a person's used before a machine's."""

from __future__ import annotations

from dataclasses import replace

from assay.data.pair_attributes import PairAttributes, load_attributes, store_attributes
from assay.store.records import insert_annotator
from assay.workspace import Workspace

MACHINE = PairAttributes("maths", "objective", "low", "a right answer", 'check the sum; "quotes" and ümlauts stay')
PERSON = replace(MACHINE, objectivity="subjective", guideline="style matters here")


def test_a_persons_description_is_used_before_a_machines(workspace: Workspace) -> None:
    with workspace.store.unit() as db:
        machine = insert_annotator(db, "llm", "describer@1")
        person = insert_annotator(db, "human", "ada")
    assert store_attributes(workspace, machine, {"c-1": MACHINE, "c-2": MACHINE}, None) == 2
    assert store_attributes(workspace, person, {"c-1": PERSON}, None) == 1
    assert load_attributes(workspace, ["c-1", "c-2", "c-3"]) == {"c-1": PERSON, "c-2": MACHINE}


def test_what_an_annotator_said_before_stays(workspace: Workspace) -> None:
    with workspace.store.unit() as db:
        machine = insert_annotator(db, "llm", "describer@1")
    assert store_attributes(workspace, machine, {"c-1": MACHINE}, None) == 1
    assert store_attributes(workspace, machine, {"c-1": PERSON}, None) == 0
    assert load_attributes(workspace, ["c-1"]) == {"c-1": MACHINE}
    assert load_attributes(workspace, []) == {}
