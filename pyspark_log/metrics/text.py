"""Metrics as text."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

#: The type of the text, for HTTP.
TEXT = "text/plain; version=0.0.4; charset=utf-8"


class _These(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def as_text(metrics: Iterable[Metric]) -> bytes:
    """Metrics in Prometheus' text format, 0.0.4. Texts of different metrics can be joined."""
    return generate_latest(_These(metrics))
