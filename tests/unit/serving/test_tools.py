"""Tools: what they answer, their limits, calls in every form, and every mistake as something that the model reads."""

import json
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from assay.domain import Message
from assay.errors import BackendError, BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_tokenizer
from assay.models.spec import FORMAT, RewardModelSpec
from assay_serving.tools import program
from assay_serving.tools.calculator import calculate
from assay_serving.tools.calls import calls_in, calls_of
from assay_serving.tools.kind import absolute_reference, check_called, granted, tools_of
from assay_serving.tools.tool import ToolCall, ToolError, ToolLimits, ToolResult, ToolTurn, transcript
from assay_serving.tools.toolbox import Toolbox, toolbox
from assay_serving.tools.turns import between_turns, offered


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("62+70=132", "true"),
        ("130 == 192", "false"),
        ("0.1 + 0.2", "0.3"),
        ("1,200 * 3", "3600"),
        ("min(1,200)", "1"),
        ("2^10 / 4", "256"),
        ("2/3", "0.666666666667"),
        ("sqrt(2)", "1.41421356237"),
        ("3 >= 4", "false"),
        ("round(2.346, 2) + round(0.6)", "3.35"),
        ("1.05**10", "1.62889462678"),
        ("2**-2 + 4**0.5", "2.25"),
        ("0.00001**100000000", "0"),
        ("1.000136986301**3650", "1.64866481154"),
    ],
)
def test_the_calculator_is_exact(expression: str, value: str) -> None:
    assert calculate(expression) == value


#: Exact arithmetic would take all memory in one operation, which no limit of time ends.
LARGE = ["round(5, -1000000000)", "round(0.5, 999999999)", "2**9e99", "3**100000000"]


@pytest.mark.parametrize(
    "expression", ["__import__('os')", "9**9**9", "1/0", "(-8)**0.5", "x + 1", "", "1" * 2000, *LARGE]
)
def test_what_is_no_arithmetic_is_refused_at_once(expression: str) -> None:
    with pytest.raises(ToolError):
        calculate(expression)


def test_calls_are_read_in_three_forms() -> None:
    calls = calls_in('I check.\n<tool_call>\n{"name": "calculator", "arguments": {"expression": "1+1"}}\n</tool_call>')
    assert calls == [ToolCall("calculator", {"expression": "1+1"})]
    assert calls_in(calls[0].text) == calls
    assert calls_in('{"name": "calculator", "parameters": {"expression": "1+1"}}') == calls
    openai = {"id": "c1", "type": "function", "function": {"name": "calculator", "arguments": '{"expression": "1+1"}'}}
    assert calls_of({"content": None, "tool_calls": [openai]}) == [ToolCall("calculator", {"expression": "1+1"}, "c1")]
    assert calls_in('{"winner": "A"}') == calls_in("Verdict: A") == []


def test_a_call_that_is_never_closed_is_read_at_once() -> None:
    start = time.monotonic()
    [call] = calls_in("<tool_call>{" + " " * 100_000 + "x")
    assert call.fault is not None
    assert time.monotonic() - start < 5  # minutes, where white space is matched again at every character


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("{broken", "no JSON"),
        ("[1]", "no JSON object"),
        ('{"arguments": {}}', "names no tool"),
        ('{"name": "calculator", "arguments": 3}', "no JSON object"),
        ('{"name": "oven", "arguments": {}}', "there is no tool 'oven'"),
        ('{"name": "calculator", "arguments": {}}', "the arguments are expression; not none"),
        ('{"name": "calculator", "arguments": {"expression": 3}}', "TypeError"),
        (
            '{"name": "calculator", "arguments": {"expression": "1", "x": 1}}',
            "the arguments are expression; not expression, x",
        ),
    ],
)
def test_a_wrong_call_is_answered_with_what_is_wrong(body: str, fault: str) -> None:
    [result] = toolbox(("calculator",)).run(calls_in(f"<tool_call>{body}</tool_call>"))
    assert result.error
    assert fault in result.content


class Odd:
    """A tool that does what its argument says."""

    name: ClassVar[str] = "odd"
    description: ClassVar[str] = ""
    parameters: ClassVar[Mapping[str, Any]] = {"type": "object", "properties": {"do": {"type": "string"}}}
    limits: ClassVar[ToolLimits] = ToolLimits(seconds=0.2, size=100, calls=2)

    def __init__(self) -> None:
        self.stop = threading.Event()

    def run(self, arguments: Mapping[str, Any]) -> str:
        match arguments["do"]:
            case "hang":
                self.stop.wait(20)
            case "flood":
                return "x" * 10_000_000
            case "raise":
                raise RuntimeError("no")
            case "number":
                return 3  # type: ignore[return-value]
        return "fine"


def test_limits_on_time_size_and_number() -> None:
    odd = Odd()
    box = Toolbox([odd])

    def said(do: str, *before: ToolTurn) -> str:
        return box.run([ToolCall("odd", {"do": do})], before)[0].content

    assert said("flood") == "error: the result has 10000000 bytes, more than 100"
    assert said("raise") == "error: RuntimeError: no"
    assert said("number") == "error: odd answered int, not text"
    start = time.monotonic()
    assert said("hang") == "error: odd did not answer within 0.2 s"
    assert time.monotonic() - start < 10
    assert said("fine") == "error: odd is still at an earlier call"
    odd.stop.set()
    while said("fine") != "fine":  # the thread that was given up has ended: it answers again
        time.sleep(0.01)
    earlier = ToolTurn("", tuple(ToolResult(ToolCall("odd", {}), "fine") for _ in range(2)))
    assert said("fine", earlier) == "error: odd may be called 2 times"


def test_search_finds_documents_by_bm25(tmp_path: Path) -> None:
    pytest.importorskip("bm25s")
    file = tmp_path / "metals.jsonl"
    texts = ["Gold melts at 1064 degrees.", "Iron rusts in wet air.", "Glass is no metal."]
    file.write_text("".join(json.dumps({"title": f"Note {n}", "text": t}) + "\n" for n, t in enumerate(texts)))
    [search] = tools_of(f"search?file={file}&top=2")
    assert search.run({"query": "when does gold melt?"}).startswith("[1] Note 0: Gold melts")
    for query in ("zinc", "?"):
        with pytest.raises(ToolError):
            search.run({"query": query})
    file.write_text('{"title": "no text"}\n')
    with pytest.raises(BadInputError, match=r"metals\.jsonl.*row 1.*text"):
        tools_of(f"search?file={file}")


def test_a_program_runs_in_the_sandbox_or_is_an_error() -> None:
    box = toolbox(("python?seconds=1",))
    ran, hung, failed = box.run(
        [ToolCall("python", {"code": code}) for code in ("print(6 * 7)", "while True: pass", "open('/etc/passwd')")]
    )
    if "cannot contain" in ran.content:
        pytest.skip(ran.content)
    assert ran.content == "42\n"
    assert hung.content == "error: not done within 1 s"
    assert failed.error


def test_references_name_a_tool_and_its_settings(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="did you mean calculator"):
        tools_of("calculater")
    with pytest.raises(BadInputError, match="no setting of tool 'search' is named 'fiel'"):
        tools_of("search?fiel=x")
    with pytest.raises(BadInputError, match=r"tools\.python\.seconds"):
        tools_of("python?seconds=0")
    with pytest.raises(BadInputError, match="one name"):
        Toolbox([*tools_of("calculator"), *tools_of("calculator")])
    assert (
        absolute_reference("search?file=a b.txt&top=2")
        == f"search?file={str(Path.cwd()).replace(' ', '%20')}/a%20b.txt&top=2"
    )
    assert absolute_reference("calculator") == "calculator"


def test_tokens_between_two_turns_are_those_of_the_template() -> None:
    renderer = Renderer(load_tokenizer("tiny"), max_length=1000)
    question, call = (Message("user", "What is 1+1?"),), '<tool_call>{"name": "calculator"}</tool_call>'
    end = int(renderer.tokenizer.eos_token_id)
    results = [ToolResult(ToolCall("calculator", {}), "2<|im_end|>")]  # no result opens or closes a turn
    before = renderer.encode(question, call)
    whole = renderer.encode((*question, Message("assistant", call), Message("tool", results[0].content)))
    written = before.ids[: before.ids.index(end, before.response_start) + 1]
    assert (*written, *between_turns(renderer, results)) == whole.ids
    assert between_turns(renderer, results).count(end) == 1
    assert transcript([ToolTurn(call, tuple(results))], "So 2.").endswith("</tool_response>\nSo 2.")


def test_tools_are_offered_as_text_where_a_template_has_no_place_for_them() -> None:
    box, tokenizer = toolbox(("calculator",)), load_tokenizer("tiny")
    plain = offered((Message("user", "Judge."),), box.definitions, Renderer(tokenizer, max_length=1000))
    assert str(plain[0].content).startswith("# Tools")
    assert str(plain[0].content).endswith("Judge.")
    tokenizer.chat_template = (
        "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}"
        "{% for c in m.tool_calls or [] %}{{ c | tojson }}{% endfor %}\n{% endfor %}"
    )
    native = offered((Message("user", "Judge."),), box.definitions, Renderer(tokenizer, max_length=1000))
    assert [message.role for message in native] == ["system", "user"]
    assert native[1].content == "Judge."


def test_a_checkpoint_or_profile_opens_code_and_files_only_where_the_caller_names_them(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("raise SystemExit('this code was run')", encoding="utf-8")
    assert granted(("calculator", "python?seconds=2"), ()) == ("calculator", "python?seconds=2")
    for reference in (f"{own}:Tool", "unittest:TestSuite", f"search?file={own}", "mcp?command=rm x"):
        with pytest.raises(BadInputError, match="allow it by naming it, --tool"):
            granted((reference,), ("calculator", "mcp?command=rm"))
    assert granted(("mcp?command=rm%20x",), ("mcp?command=rm x",)) == ("mcp?command=rm%20x",)
    assert granted(("/elsewhere/own.py:Tool",), (f"{own}:Tool?x=1",)) == (f"{own}:Tool?x=1",)
    assert granted(("search?file=/elsewhere",), (f"search?file={own}",)) == (f"search?file={own}",)
    check_called((f"{own}:Tool",), ("/elsewhere/own.py:Tool?x=1", "calculator"))
    with pytest.raises(BadInputError, match="calls no tool search: its tools are calculator"):
        check_called(("search",), ("calculator",))
    with pytest.raises(BadInputError, match="it has none; a judge profile gives it some"):
        check_called(("calculator",), ())


@pytest.mark.parametrize(
    "named",
    [{"kind": "own.py:X"}, {"judging": {"format": "own.py:X", "template": ""}}],
)
def test_the_spec_of_a_checkpoint_names_no_code(tmp_path: Path, named: dict[str, Any]) -> None:
    plain = {"format": FORMAT, "kind": "generative", "base": "b", "template_hash": "", "trained_length": 1}
    (tmp_path / "assay.json").write_text(json.dumps({**plain, "version": "", **named}), encoding="utf-8")
    with pytest.raises(BadInputError, match=r"must be one of scalar|may not name code"):
        RewardModelSpec.read(tmp_path)


def test_a_box_is_known_by_what_its_tools_answer_not_by_where_their_files_lie(tmp_path: Path) -> None:
    pytest.importorskip("bm25s")
    files = [tmp_path / name for name in ("a.jsonl", "b.jsonl", "c.jsonl")]
    for file, text in zip(files, ("gold", "gold", "silver"), strict=True):
        file.write_text(json.dumps({"text": text}) + "\n", encoding="utf-8")
    same, moved, other = (Toolbox(tools_of(f"search?file={file}")).identity for file in files)
    assert same == moved != other
    assert Toolbox(tools_of(f"search?file={files[0]}&top=2")).identity != same


def test_programs_of_many_calls_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "AT_ONCE", threading.BoundedSemaphore(2))
    code = "import time\nbegun = time.monotonic()\ntime.sleep(0.2)\nprint(begun, time.monotonic())"
    results = toolbox(("python",)).run([ToolCall("python", {"code": code})] * 6)
    if "cannot contain" in results[0].content:
        pytest.skip(results[0].content)
    runs = [tuple(map(float, result.content.split())) for result in results]
    assert max(sum(begin <= at < end for begin, end in runs) for at, _ in runs) == 2


def test_the_tool_python_is_refused_where_no_program_can_be_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(BackendError, match="the tool python: the sandbox did not start"):
        tools_of("python")


class Gone:
    name: ClassVar[str] = "gone"
    description: ClassVar[str] = ""
    parameters: ClassVar[Mapping[str, Any]] = {"type": "object", "properties": {}}

    def run(self, arguments: Mapping[str, Any]) -> str:
        raise BackendError("the server died")


def test_what_is_gone_is_the_callers_and_not_the_models() -> None:
    with pytest.raises(BackendError, match="the server died"):
        Toolbox([Gone()]).run([ToolCall("gone", {})])


def test_a_server_of_tools_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(BackendError, match="pip install mcp"):
        tools_of("mcp?url=http://127.0.0.1:9/mcp")
    with pytest.raises(BadInputError, match="a server has a command or a url"):
        tools_of("mcp")
