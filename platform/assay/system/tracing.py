"""OpenTelemetry traces: spans of one request in several processes, joined by W3C `traceparent` headers.

Off unless an exporter's address is in the SDK's own environment variables (OTEL_EXPORTER_OTLP_ENDPOINT,
OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) and the extra `otel` is installed; then nothing of it is imported. The only module
that imports it. Leaves out: metrics (Prometheus), logs.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any

logger = logging.getLogger("assay")

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_MODULES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def _configured() -> bool:
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or not any(map(os.environ.get, _ENDPOINTS)):
        return False
    try:
        if all(map(find_spec, _MODULES)):
            return True
    except ModuleNotFoundError:  # of a parent
        pass
    logger.warning("an OpenTelemetry endpoint is set; traces need the extra: pip install 'assay[otel]'")
    return False


enabled = _configured()  #: callers on hot paths look before they call


class TraceSpan:
    """A span that has begun; `span` of None: traces are off."""

    def __init__(self, span: Any = None) -> None:
        self._span = span

    def set(self, **attributes: str | float) -> None:
        """Attributes; underscores stand for dots."""
        if self._span is not None:
            self._span.set_attributes({name.replace("_", "."): value for name, value in attributes.items()})


@contextmanager
def span(name: str, parent: str = "", **attributes: str | float) -> Iterator[TraceSpan]:
    """A span around the block. `parent`: the traceparent of another process; else the span around this one. An
    exception is recorded by its type alone: its message may quote a prompt."""
    if not enabled:
        yield TraceSpan()
        return
    from opentelemetry.trace import StatusCode

    quiet = {"record_exception": False, "set_status_on_exception": False}
    context = _propagator().extract({"traceparent": parent}) if parent else None
    with _tracer().start_as_current_span(name, context, **quiet) as begun:
        current = TraceSpan(begun)
        current.set(**attributes)
        try:
            yield current
        except BaseException as error:
            begun.set_status(StatusCode.ERROR, type(error).__name__)
            raise


def headers() -> dict[str, str]:
    """`traceparent` of the current span; nothing where there is none."""
    carrier: dict[str, str] = {}
    if enabled:
        _propagator().inject(carrier)
    return carrier


@cache
def _propagator() -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()


@cache
def _tracer() -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create() if "OTEL_SERVICE_NAME" in os.environ else Resource.create({"service.name": "assay"})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider.get_tracer("assay")
