"""Reports: one self-contained HTML file with figures, charts, tables, samples and provenance.

Covers: the content types, `render` and `write`. Leaves out: the reports themselves (`assay_web.demo`, `report.pages`).
"""

from __future__ import annotations

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

__all__ = [
    "BarChart",
    "Block",
    "Commands",
    "DiagramBin",
    "Figures",
    "FunnelChart",
    "FunnelStage",
    "Headline",
    "LineChart",
    "Reliability",
    "Report",
    "Sample",
    "Samples",
    "Section",
    "Series",
    "Table",
    "Text",
    "render",
    "write",
]
