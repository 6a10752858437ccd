"""docs/guides/server.md: its options and its samples; and the versions in docs/reference/kafka-apis.md."""

import re

from pyspark_log.cli.serving.serve import serve
from pyspark_log.kafka.schemas import api
from pyspark_log.server.handlers import APIS
from tests.pages import run_python
from tests.paths import ROOT
from tests.store_tools import values

PAGE = (ROOT / "docs/guides/server.md").read_text(encoding="utf-8")
APIS_PAGE = (ROOT / "docs/reference/kafka-apis.md").read_text(encoding="utf-8")
SECURITY = (ROOT / "docs/guides/security.md").read_text(encoding="utf-8")


def test_the_table_of_versions():
    found = re.findall(r"(\w+) \((\d+)\) (\d+) to (\d+)", APIS_PAGE)
    assert sorted((int(key), name, int(first), int(last)) for name, key, first, last in found) == [
        (key, api(key)[0].name.removesuffix("Request"), one.versions.start, one.versions.stop - 1)
        for key, one in sorted(APIS.items())
    ]


def test_the_options():
    rows = re.findall(r"^\| `--.*", PAGE + SECURITY, re.MULTILINE)
    listed = {option for row in rows for option in re.findall(r"`(--[a-z-]+)", row.split(" | ")[0])}
    assert listed == {option.opts[0] for option in serve.params if option.opts[0] not in ("--store", "--help")}


def _run(code, server):
    return run_python(code.replace("127.0.0.1:9092", server.bootstrap))


def test_the_samples(server, store):
    store.create_topic("orders", 1)
    samples = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
    assert len(samples) == 2
    for code, shown in samples:
        assert _run(code, server) == shown
    assert values(store, 0, "orders") == [b"12"]
