"""Metrics as tests read them: by HTTP, as Prometheus does, and parsed by its client library."""

from __future__ import annotations

import http.client
import re

from prometheus_client.parser import text_string_to_metric_families

from tests.ports import HOST, free_ports
from tests.server_tools import PATIENCE, Server


def get(port, path="/metrics", method="GET"):
    """Asks for a page: its status and text."""
    connection = http.client.HTTPConnection(HOST, port, timeout=PATIENCE)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


class Scrape:
    """A text in Prometheus' format.

    Attributes:
        text: as it is.
        values: by name and labels.
    """

    def __init__(self, text):
        self.text = text
        self.values = {}
        for family in text_string_to_metric_families(text):
            for one in family.samples:
                place = one.name, frozenset(one.labels.items())
                assert place not in self.values, f"{place} is there twice"
                self.values[place] = one.value

    def value(self, name, **labels):
        """The value with exactly these labels; None: there is none."""
        return self.values.get((name, frozenset({key: str(value) for key, value in labels.items()}.items())))

    def by_labels(self, name):
        """The labels of a name, each with the value."""
        return [(dict(labels), value) for (known, labels), value in self.values.items() if known == name]

    def names(self):
        """The names of all metrics, a histogram's once, with what is said of each."""
        helps = dict(re.findall(r"^# HELP (\S+) (.+)$", self.text, re.MULTILINE))
        assert list(helps) == re.findall(r"^# TYPE (\S+) ", self.text, re.MULTILINE)
        return helps


class MeasuredServer(Server):
    """`pylog serve` with metrics.

    Attributes:
        metrics_port: where they are.
    """

    def __init__(self, path, folder, *options):
        [self.metrics_port] = free_ports(1)
        super().__init__(path, folder, *options, "--metrics-listen", f"{HOST}:{self.metrics_port}")

    def scrape(self):
        """All metrics, now; those of the store may be some seconds old."""
        status, text = get(self.metrics_port)
        assert status == 200, text
        return Scrape(text)
