"""The report: one well-formed, self-contained page that shows every number and escapes every text."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BackendError
from assay_web.report.charts import format_value, round_ticks
from assay_web.report.content import (
    BarChart,
    Block,
    Commands,
    DiagramBin,
    Figures,
    FunnelChart,
    FunnelStage,
    Headline,
    LineChart,
    Reliability,
    Report,
    Sample,
    Samples,
    Section,
    Series,
    Table,
    Text,
)
from assay_web.report.render import render, write

HTML = "{http://www.w3.org/1999/xhtml}"
NAN = float("nan")
HOSTILE = "</script><img src=x onerror=alert(1)> & \"quotes\" 'single' {{ 7 * 7 }} \x00\x1b\ufffe"

LINES = LineChart(
    "Reward", [Series("policy", [0.5, None, NAN, 1.25, 1.5], low=[0.4] * 5, high=[2] * 5)], x_label="step", reference=1
)
BARS = BarChart("Accuracy", ["gold", "unseen"], [Series("curated", [0.75, None], [0, 1], [0.7, None], [0.8, None])])
FUNNEL = FunnelChart(
    "Kept", [FunnelStage("imported", 1200), FunnelStage("cleaned", 900, [("identical sides", 280), ("empty", 20)])]
)
RELIABILITY = Reliability(
    "Calibration", [DiagramBin(0.1, 0.2, 30), DiagramBin(None, None, 0), DiagramBin(0.9, 0.85, 1470)]
)
CHARTS: list[Block] = [LINES, BARS, FUNNEL, RELIABILITY]


def page(*blocks: Block, title: str = "Title") -> ElementTree.Element:
    """The page parsed as XML, which a browser's forgiving parser would not tell apart from broken markup."""
    return ElementTree.fromstring(render(Report(title, [Section("Section", blocks)])))


def cells(root: ElementTree.Element) -> list[list[str]]:
    rows = root.iter(f"{HTML}tr")
    return [["".join(cell.itertext()) for cell in row] for row in rows]


def test_numbers_behind_each_chart_are_in_its_table() -> None:
    assert ["3", "1.25", "0.4", "2"] in cells(page(LINES))
    assert ["gold", "0.75", "0.7", "0.8"] in cells(page(BARS))
    funnel = cells(page(FUNNEL))
    assert ["cleaned", "900", "75 %", ""] in funnel
    assert ["", "-280", "", "identical sides"] in funnel
    assert ["0.9", "0.85", "1,470"] in cells(page(RELIABILITY))


def test_missing_numbers_are_gaps_never_zeros() -> None:
    root = page(LINES)
    assert ["1", "–", "0.4", "2"] in cells(root)
    lines = [e for e in root.iter(f"{HTML}path") if (e.get("class") or "").startswith("line")]
    dots = list(root.iter(f"{HTML}circle"))
    assert len(lines) == 1  # 1.25 to 1.5; 0.5 stands alone behind the gap
    assert len(dots) == 3
    assert "curated: no data" in "".join(page(BARS).itertext())


@pytest.mark.parametrize("chart", CHARTS)
def test_charts_are_described_for_those_who_do_not_see_them(chart: Block) -> None:
    svg = next(page(chart).iter(f"{HTML}svg"))
    ids = {element.get("id"): "".join(element.itertext()) for element in svg.iter() if element.get("id")}
    named = [ids[key] for key in (svg.get("aria-labelledby") or "").split()]
    assert svg.get("role") == "img"
    assert named[0] == getattr(chart, "title")  # noqa: B009 - a Block need not have one, these do
    assert len(named[1]) > 20


def test_ids_are_unique_in_the_page() -> None:
    root = page(*CHARTS, *CHARTS)
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids)) == 2 * 2 * len(CHARTS) + 1


def test_whiskers_and_values_are_drawn_to_scale() -> None:
    root = page(BarChart("b", ["x"], [Series("s", [0.5], low=[0.25], high=[1.0])]))
    bar = next(e for e in root.iter(f"{HTML}rect") if (e.get("class") or "").startswith("bar"))
    whisker = next(e for e in root.iter(f"{HTML}line") if e.get("class") == "whisker")
    zero, width = float(bar.get("x") or NAN), float(bar.get("width") or NAN)
    assert float(whisker.get("x1") or NAN) - zero == pytest.approx(width / 2, abs=0.02)
    assert float(whisker.get("x2") or NAN) - zero == pytest.approx(width * 2, abs=0.02)


def test_negative_bars_grow_to_the_left_of_zero() -> None:
    root = page(BarChart("b", ["down", "up"], [Series("s", [-1.0, 1.0])]))
    down, up = (e for e in root.iter(f"{HTML}rect") if (e.get("class") or "").startswith("bar"))
    assert float(down.get("x") or NAN) + float(down.get("width") or NAN) == pytest.approx(float(up.get("x") or NAN))


EMPTY: list[Block] = [
    LineChart("e", []),
    LineChart("e", [Series("s", [])]),
    LineChart("e", [Series("s", [None, NAN, math.inf])]),
    BarChart("e", [], []),
    BarChart("e", ["a"], [Series("s", [None])]),
    FunnelChart("e", []),
    FunnelChart("e", [FunnelStage("imported", 0)]),
    Reliability("e", []),
    Reliability("e", [DiagramBin(None, None, 0)]),
    Table(["a"], []),
    Samples([]),
]


@pytest.mark.parametrize("block", EMPTY)
def test_nothing_to_draw_is_said(block: Block) -> None:
    root = page(block)
    assert next(root.iter(f"{HTML}svg"), None) is None
    assert re.search(r"No (data|samples)\.", "".join(root.itertext()))


SINGLE: list[Block] = [
    LineChart("one", [Series("s", [3.2])]),
    LineChart("flat", [Series("s", [0, 0, 0])]),
    LineChart("far", [Series("s", [1e12, -1e12], [5, 5])]),
    BarChart("zero", ["a"], [Series("s", [0])]),
    Reliability("one", [DiagramBin(0, 1, 0)]),
]


@pytest.mark.parametrize("block", SINGLE)
def test_a_single_point_is_drawn_at_finite_coordinates(block: Block) -> None:
    svg = next(page(block).iter(f"{HTML}svg"))
    numbers = " ".join(" ".join(element.attrib.values()) for element in svg.iter())
    assert not re.search(r"\b(nan|inf)\b", numbers)


def test_user_text_is_escaped_everywhere() -> None:
    blocks: list[Block] = [
        LineChart(HOSTILE, [Series(HOSTILE, [1, 2])], HOSTILE, HOSTILE, HOSTILE),
        BarChart(HOSTILE, [HOSTILE], [Series(HOSTILE, [1])], HOSTILE, HOSTILE),
        FunnelChart(HOSTILE, [FunnelStage(HOSTILE, 3, [(HOSTILE, 1)])], HOSTILE),
        Reliability(HOSTILE, [DiagramBin(0.5, 0.5, 1)], HOSTILE),
        Table([HOSTILE], [[HOSTILE]], HOSTILE, HOSTILE),
        Figures([Headline(HOSTILE, HOSTILE, HOSTILE)]),
        Samples([Sample(HOSTILE, [(HOSTILE, HOSTILE)], [HOSTILE])], HOSTILE),
        Commands([HOSTILE], HOSTILE),
        Text(HOSTILE),
    ]
    text = render(Report(HOSTILE, [Section(HOSTILE, blocks, HOSTILE)] * 2, HOSTILE))
    root = ElementTree.fromstring(text)
    assert not [element.tag for element in root.iter() if element.tag in (f"{HTML}img", f"{HTML}script")]
    shown = HOSTILE.replace("\x00", "\ufffd").replace("\x1b", "\ufffd").replace("\ufffe", "\ufffd")
    assert "".join(root.itertext()).count(shown) > 40


@given(st.text(alphabet=st.characters()))
def test_any_text_gives_a_well_formed_page(text: str) -> None:
    root = page(Samples([Sample(text, [("response", text)])]), FunnelChart("f", [FunnelStage(text, 1)]), title=text)
    assert root.tag == f"{HTML}html"


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    text = render(Report("t", [Section("s", CHARTS)]))
    root = ElementTree.fromstring(text)
    assert not re.search(r"(?i)(src|href)\s*=\s*[\"'](?!#)|url\(|@import|<script|<link|<iframe", text)
    assert not re.search(r"(?i)\bon[a-z]+\s*=", text)
    assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/1999/xhtml"]  # a name, not an address
    policy = next(m for m in root.iter(f"{HTML}meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert policy.get("content") == "default-src 'none'; style-src 'unsafe-inline'"


def test_long_tables_are_thinned_and_say_so() -> None:
    root = page(LineChart("long", [Series("s", list(range(1000)))]))
    rows = cells(root)
    assert len(rows) == 202  # heading, every fifth, the last
    assert rows[1] == ["0", "0"]
    assert rows[-1] == ["999", "999"]
    assert "Every 5th of 1,000 rows and the last." in "".join(root.itertext())


def test_only_columns_of_numbers_are_aligned_right() -> None:
    root = page(Table(["name", "value", "mixed"], [["a", 1.5, 7], ["b", None, "seven"]]))
    aligned = [cell.get("class") for cell in root.iter(f"{HTML}th")]
    assert aligned == [None, "number", None]


def test_series_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="series 's': 1 values in low, 2 in y"):
        Series("s", [1, 2], low=[1])


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (1234567, "1,234,567"),
        (0.123456, "0.1235"),
        (12.5, "12.5"),
        (1234.5678, "1,235"),
        (-0.5, "-0.5"),
        (100.0, "100"),
        (1.23e-7, "1.23e-7"),
        (None, "–"),
        (NAN, "–"),
        (math.inf, "–"),
        ("as it is", "as it is"),
        (True, "yes"),
    ],
)
def test_numbers_are_written(value: float | str | None, shown: str) -> None:
    assert format_value(value) == shown


def test_percent() -> None:
    assert [format_value(value, percent=True) for value in (0, 0.5, 0.7421, 1, None)] == [
        "0 %",
        "50 %",
        "74.2 %",
        "100 %",
        "–",
    ]


@given(st.floats(-1e9, 1e9), st.floats(0, 1e9), st.integers(2, 10))
def test_ticks_are_few_evenly_spaced_and_cover_the_range(low: float, span: float, about: int) -> None:
    ticks = round_ticks(low, low + span, about)
    room = 1e-6 * (abs(low) + span) + 1e-200
    assert ticks[0] <= low + room
    assert ticks[-1] >= low + span - room
    assert 2 <= len(ticks) <= about + 3
    steps = [right - left for left, right in pairwise(ticks)]
    assert steps == pytest.approx([steps[0]] * len(steps), rel=1e-3, abs=1e-9)


def test_write_replaces_the_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.html"
    write(Report("first", []), path)
    write(Report("second", []), path)
    assert "<h1>second</h1>" in path.read_text(encoding="utf-8")
    assert [entry.name for entry in path.parent.iterdir()] == ["report.html"]


def test_write_names_the_file_that_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(BackendError, match=r"cannot write the report .*taken/report\.html"):
        write(Report("t", []), tmp_path / "taken" / "report.html")
    (tmp_path / "folder").mkdir()
    with pytest.raises(BackendError):
        write(Report("t", []), tmp_path / "folder")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["folder", "taken"]


@pytest.mark.slow
@pytest.mark.browser
def test_a_browser_shows_the_page_without_complaint(tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium binary (apt-get install chromium)")
    path = tmp_path / "report.html"
    write(Report("Seen in a browser", [Section("Charts", CHARTS)]), path)
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    done = subprocess.run(
        [browser, *flags, profile, "--enable-logging=stderr", "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=900,
        check=True,
    )
    assert done.stdout.count("<svg") == len(CHARTS)
    assert "Seen in a browser</h1>" in done.stdout
    assert "CONSOLE" not in done.stderr  # a refused request or a broken style would be logged there
