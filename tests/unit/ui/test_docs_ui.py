"""docs/guides/ui.md: its commands serve, its bounds and keys are those of the code, and its example works."""

import re
import shlex
import signal
import subprocess
import sys

import pytest

from pyspark_log import Store
from pyspark_log.cli.serving.ui import ui
from pyspark_log.ui import bounds
from pyspark_log.ui.looks.avro import Schemas
from tests.paths import ROOT
from tests.ports import HOST, free_ports
from tests.server_tools import PATIENCE
from tests.ui_tools import ask, shown

PAGE = (ROOT / "docs/guides/ui.md").read_text(encoding="utf-8")
COMMANDS = sorted(set(re.findall(r"^(pylog (?:ui|serve) [^#\n]*?)\s*(?:#.*)?$", PAGE, re.MULTILINE)))
SERVED = [one for one in COMMANDS if one.startswith("pylog ui") or "--ui-listen" in one]


def test_there_are_commands():
    assert len(SERVED) == 2


@pytest.mark.parametrize("command", SERVED)
def test_commands(command, tmp_path):
    Store.create(tmp_path / "store").close()
    words = shlex.split(command.replace("/tmp/pylog-store", str(tmp_path / "store")))[1:]
    [port, other] = free_ports(2)
    if words[0] == "ui":
        words += ["--listen", f"{HOST}:{port}"]
    else:
        words = [word.replace("127.0.0.1:9309", f"{HOST}:{port}") for word in words] + ["--listen", f"{HOST}:{other}"]
    run = subprocess.Popen([sys.executable, "-m", "pyspark_log.cli.start", *words], stderr=subprocess.PIPE, text=True)
    try:
        for line in run.stderr:
            if f"http://{HOST}:{port}/" in line:
                break
        status, _, body = ask(port, "/")
        assert (status, "No topics yet" in body) == (200, True)
        run.send_signal(signal.SIGINT)
        assert run.wait(PATIENCE) == 130
    finally:
        run.kill()
        run.wait()
        run.stderr.close()


def test_the_default_address():
    [listen] = [option for option in ui.params if option.name == "listen"]
    assert listen.default == "127.0.0.1:9309"
    assert f"http://{listen.default}/" in PAGE


def test_the_bounds():
    table = PAGE[PAGE.index("## How much does one click read?") : PAGE.index("## What does it cost?")]
    for said in (
        f"| records on a page | {bounds.MOST_RECORDS} ({bounds.USUAL_RECORDS}, unless",
        f"{bounds.MOST_BYTES >> 20} MiB as they are stored |",
        f"| {bounds.SCAN_BYTES >> 20} MiB; the page says how far",
        f"together | {bounds.MOST_PARTITIONS} |",
        f"| {bounds.LISTED_BYTES >> 10} KiB, {bounds.RECORD_BYTES >> 10} KiB; what is longer is cut",
        f"| {bounds.MOST_HEADERS}, of {bounds.HEADER_BYTES >> 10} KiB each; {bounds.MOST_COLUMNS} |",
        f"on a page | {bounds.MOST_ROWS} |",
        f"history: ten minutes, of {bounds.MOST_HISTORIES:,} topics",
    ):
        assert said in table + PAGE, said
    assert bounds.SAMPLES * 5 == 600


def test_the_keys():
    script = (ROOT / "pyspark_log/ui/static/page.js").read_text(encoding="utf-8")
    table = PAGE[PAGE.index("## Which keys are there?") : PAGE.index("## May others see it?")]
    keys = re.search(r"const KEYS = {(.*?)};", script, re.DOTALL)[1]
    known = {one.strip('"') for one in re.findall(r'("."|\b\w+): ', keys)}
    said = set(re.findall(r"`(.)`", table))
    assert said == {one for one in known if len(one) == 1}


def test_the_folder_of_schemas(tmp_path):
    for name in ("orders-value", "7"):
        (tmp_path / f"{name}.avsc").write_text('"string"')
    schemas = Schemas(str(tmp_path))
    assert schemas.decoded("orders-value", b"\x02a") == schemas.decoded("none-value", b"\0\0\0\0\7\x02a") == "a"


def test_the_example(tmp_path):
    path = tmp_path / "shop"
    command = [sys.executable, ROOT / "examples/shop.py", path, "--seconds", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with shown(path) as page:
        text = page.text("/")
        for topic in ("clicks", "customers", "invoices", "orders", "payments"):
            assert topic in text
        for group in ("billing", "dashboards", "fraud-check", "warehouse"):
            assert group in page.text("/groups")
        assert "spark-billing 1" in page.text("/publishes")
        assert "tombstone" in page.text("/topics/customers/records")
