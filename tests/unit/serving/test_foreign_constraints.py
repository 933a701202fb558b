"""Constraints on answers, patterns, schemas and programs: what is right, JSON forms, errors that name the field."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BackendError, BadInputError
from assay_serving.verifiers import Constraint, JsonSchema, MathAnswer, PythonTests, Regex, constraint_from_dict, verify
from assay_serving.verifiers.catalogue import UNTRUSTED, VERIFIERS
from assay_serving.verifiers.constraints.maths import decided, expected, number
from assay_serving.verifiers.constraints.programs import code_of

pytest.importorskip("math_verify", reason="needs the extra verifiers")

SCHEMA = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}
EXAMPLES: tuple[Constraint, ...] = (
    MathAnswer("72"),
    Regex(r"\d+"),
    Regex("bee", full_match=False),
    JsonSchema(json.dumps(SCHEMA)),
    PythonTests(("assert f(2) == 4",), entry_point="f"),
    PythonTests(cases=(("3\n", "9\n"),), seconds=2),
)

ANSWERS: list[tuple[str, str, bool]] = [
    ("72", "48 + 24 = 72", True),
    ("72", "It is 72, or 73", False),
    ("72", "no number at all", False),
    ("so 48+24=<<48+24=72>>72\n#### 72", "#### 72", True),
    ("#### 1,000", "The answer is 1000 clips.", True),
    ("12", "The answer is $12 a day. I checked it 2 times.", True),
    ("3.5", "The answer is 3.5.", True),
    ("3", "Answer: 3.5", False),
    (r"\frac{1}{2}", "The final answer is: **.5**.", True),
    ("1/2", r"so \boxed{0.5}", True),
    ("-3", r"first \boxed{3}, then \boxed{-3}", True),
    ("5", r"\boxed{5}, and not \boxed{6", True),
    ("1000", r"\boxed{1{,}000\text{ km}}", True),
    ("72", r"\boxed{\frac{144}{2}}", True),
    ("50", "the answer is 50%", True),
    ("0.5", r"\boxed{50\%}", True),
    ("50", r"\boxed{40\%}", False),
    ("x^2+1", r"hence $\boxed{1+x^{2}}$", True),
    ("x^2+1", r"hence $\boxed{1+x^{3}}$", False),
    (r"\frac{\sqrt{2}}{2}", r"\boxed{\frac{1}{\sqrt{2}}}", True),
    ("Paris", "The answer is Paris.", True),
    ("Paris", "The answer is siraP.", False),
    ("B", r"\boxed{\text{(B)}}", True),
    ("B", r"\boxed{C}", False),
]


@pytest.mark.parametrize(("answer", "response", "right"), ANSWERS)
def test_answers(answer: str, response: str, right: bool) -> None:
    verdict = MathAnswer(answer).check(response)
    assert verdict.passed is right, verdict.detail


@given(st.fractions(), st.booleans())
def test_every_plain_number_equals_itself_in_another_form_and_no_other(value: Fraction, latex: bool) -> None:
    text = rf"\frac{{{value.numerator}}}{{{value.denominator}}}" if latex and value >= 0 else str(value)
    assert number(text) == value
    assert decided(expected(f"#### {text}"), f"{2 * value.numerator}/{2 * value.denominator}") is True
    assert decided(text, str(value + 1)) is False


@pytest.mark.parametrize(
    ("constraint", "response", "passed"),
    [
        (Regex(r"\d{3}"), " 123\n", True),
        (Regex(r"\d{3}"), "so 123", False),
        (Regex(r"(?i)BEE", full_match=False), "a bee flies", True),
        (Regex(r"bee", full_match=False), "a wasp flies", False),
        (JsonSchema(json.dumps(SCHEMA)), '```json\n{"a": 1}\n```', True),
        (JsonSchema(json.dumps(SCHEMA)), '{"a": "x"}', False),
        (JsonSchema(json.dumps(SCHEMA)), 'Here: {"a": 1}', False),
        (JsonSchema('{"$defs": {"n": {"type": "number"}}, "items": {"$ref": "#/$defs/n"}}'), "[1, 2.5]", True),
        (JsonSchema('{"$defs": {"n": {"type": "number"}}, "items": {"$ref": "#/$defs/n"}}'), '["x"]', False),
    ],
)
def test_patterns_and_schemas(constraint: Constraint, response: str, passed: bool) -> None:
    verdict = constraint.check(response)
    assert verdict.passed is passed, verdict.detail


@pytest.mark.parametrize("schema", [{"type": "obj"}, {"$ref": "https://example.org/schema.json"}])
def test_a_wrong_schema_is_nobodys_failure(schema: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match="schema"):
        JsonSchema(json.dumps(schema)).check('{"a": 1}')


@pytest.mark.parametrize(
    ("response", "entry_point", "code"),
    [
        ("def f(): pass", "", "def f(): pass"),
        ("Here:\n```python\nA\n```\nor\n```py\nB\n```", "", "B\n"),
        ("```python\ndef f(): pass\n```\nUse:\n```python\nf()\n```", "f", "def f(): pass\n"),
        ("```bash\nls\n```\n```\nx = 1\n```", "", "x = 1\n"),
        ("```python\nx = 1", "", "x = 1"),
    ],
)
def test_which_code_counts(response: str, entry_point: str, code: str) -> None:
    assert code_of(response, entry_point) == code


@pytest.mark.parametrize("constraint", EXAMPLES)
def test_json_form_and_silence(constraint: Constraint) -> None:
    written = json.loads(json.dumps(constraint.to_dict()))
    assert constraint_from_dict(written) == constraint
    assert constraint_from_dict(written).to_dict() == written
    assert not constraint.check(" \n...").passed


def test_which_kinds_run_in_workers() -> None:
    assert {example.kind for example in EXAMPLES} == UNTRUSTED.keys()
    assert {name for name in VERIFIERS.names() if VERIFIERS.find(name).foreign} == UNTRUSTED.keys()


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for constraint, package in ((MathAnswer("1"), "math-verify"), (JsonSchema("{}"), "jsonschema")):
        with pytest.raises(BackendError, match=rf"{package}.*assay\[verifiers\]"):
            constraint.prepare("1")


def test_verify_asks_the_workers_and_says_why_there_is_no_verdict() -> None:
    assert verify((MathAnswer("72"), Regex(r".*\d")), "so 72").passed
    with pytest.raises(BackendError, match=r"bad_input.*schema"):
        verify((JsonSchema('{"type": "obj"}'),), "{}a")


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({"kind": "math_answer"}, "answer"),
        ({"kind": "math_answer", "answer": 72}, "answer"),
        ({"kind": "regex"}, "pattern"),
        ({"kind": "regex", "pattern": "("}, "pattern"),
        ({"kind": "regex", "pattern": "a{1,99999999999999}"}, "pattern"),
        ({"kind": "regex", "pattern": "a", "full_match": "yes"}, "full_match"),
        ({"kind": "json_schema", "schema": [1]}, "schema"),
        ({"kind": "json_schema", "schema": "{"}, "schema"),
        ({"kind": "python_tests"}, "tests"),
        ({"kind": "python_tests", "tests": "assert f()"}, "tests"),
        ({"kind": "python_tests", "tests": ["assert f("]}, "tests"),
        ({"kind": "python_tests", "cases": [{"in": "1", "output": "1"}]}, "cases"),
        ({"kind": "python_tests", "tests": ["f()"], "entry_point": "f()"}, "entry_point"),
        ({"kind": "python_tests", "tests": ["f()"], "seconds": 0}, "seconds"),
        ({"kind": "python_tests", "tests": ["f()"], "memory": True}, "memory"),
    ],
)
def test_wrong_constraints_name_the_field(payload: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInputError, match=f"field '{field}'"):
        constraint_from_dict(payload)
