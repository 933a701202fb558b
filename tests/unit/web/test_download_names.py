"""The file that a downloaded snapshot becomes has the snapshot's name, whatever its letters."""

from __future__ import annotations

from io import BytesIO

import pytest
from starlette.responses import StreamingResponse

from assay_web.training_sets.routes import Download


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gold-v1.2+b_3.jsonl", 'attachment; filename="gold-v1.2+b_3.jsonl"'),
        ("gold-\u91d1.jsonl", "attachment; filename*=UTF-8''gold-%E9%87%91.jsonl"),
        ("gr\u00fcn.jsonl", "attachment; filename*=UTF-8''gr%C3%BCn.jsonl"),
    ],
)
def test_a_header_can_name_it(name: str, said: str) -> None:
    download = Download(name, 1, 3, BytesIO(b"{}\n"))
    reply = StreamingResponse(download.chunks(), headers={"Content-Disposition": download.disposition})
    assert reply.headers["content-disposition"] == said
