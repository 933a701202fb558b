"""Which modules of the product a piece of work runs through, in the order of the first call of each."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any

import assay
import assay_pipelines
import assay_policy_training
import assay_rm_training
import assay_serving
import assay_web

_SOURCES = {
    str(Path(package.__file__ or "").parent): package.__name__
    for package in (assay, assay_serving, assay_policy_training, assay_rm_training, assay_pipelines, assay_web)
}
#: Types that are passed along, and errors.
VALUES = frozenset({"assay.domain", "assay.score", "assay.errors", "assay.ids", "assay_serving.scorer"})


class Crossing:
    """`modules`: those called while `recording`, of every thread that was started inside `crossing`."""

    def __init__(self) -> None:
        self.recording = False
        self.modules: dict[str, None] = {}

    def record(self, frame: FrameType, event: str, _: Any) -> None:
        if not self.recording or event != "call" or not frame.f_code.co_flags & CO_OPTIMIZED:
            return  # the body of a module or a class, at its import
        file = frame.f_code.co_filename
        for folder, package in _SOURCES.items():
            if file.startswith(folder + "/"):
                module = ".".join([package, *Path(file[len(folder) + 1 :]).with_suffix("").parts])
                if module.removesuffix(".__init__") not in VALUES:
                    self.modules.setdefault(module.removesuffix(".__init__"))


@contextmanager
def crossing(*, recording: bool = True) -> Iterator[Crossing]:
    """Record from here, or from where the caller sets `recording`."""
    crossed = Crossing()
    crossed.recording = recording
    before, before_threads = sys.getprofile(), threading.getprofile()
    threading.setprofile(crossed.record)
    sys.setprofile(crossed.record)
    try:
        yield crossed
    finally:
        sys.setprofile(before)
        threading.setprofile(before_threads)
