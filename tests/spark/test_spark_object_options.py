"""Credentials of an object store as options: they reach each process that needs them, and are shown nowhere."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from java import java_version

from pyspark_log.storage.objects import Objects
from tests.paths import ROOT

USER = Path(__file__).parent / "object_store_options.py"
SECRETS = {"secret_access_key": "hush-key-hush", "session_token": "hush-token-hush"}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.skipif(java_version() < 17, reason="Spark needs Java 17 or later")
def test_credentials_reach_all_processes_and_are_shown_nowhere(object_url, object_server, tmp_path):
    (tmp_path / "events").mkdir()
    # Without those of the tests: what the options do not carry is missing.
    environment = {name: one for name, one in os.environ.items() if not name.startswith("AWS_")}
    with (tmp_path / "output").open("w") as output:
        ended = subprocess.run(
            [sys.executable, str(USER), object_url, str(tmp_path)],
            input=json.dumps({**object_server.options, **SECRETS}), env={**environment, "PYTHONPATH": str(ROOT)},
            text=True, stdout=output, stderr=output, cwd=tmp_path, timeout=500, check=False,
        )  # fmt: skip
    printed = (tmp_path / "output").read_text(encoding="utf-8")
    assert ended.returncode == 0, printed[-3000:]
    assert printed.splitlines().count("finished") == 1
    for expected in ("an option is unknown: Configuration key: 'nonsense'", "values are not shown", "takes no options"):
        assert expected in printed
    # What is searched is there: a plan with other options, Spark's event log, checkpoints, and the objects.
    assert "SparkListenerApplicationEnd" in "".join(one.read_text() for one in files_of(tmp_path / "events"))
    assert list(files_of(tmp_path / "copy" / "offsets"))
    objects = Objects(object_url)
    stored = [bytes(objects.get(one.key).data) for one in objects.list()]
    assert any(b"copy" in one for one in stored)
    texts = {str(one): one.read_bytes() for one in files_of(tmp_path)} | dict(enumerate(stored))
    assert [
        (where, name) for where, text in texts.items() for name, one in SECRETS.items() if one.encode() in text
    ] == []


def files_of(folder):
    return (one for one in folder.rglob("*") if one.is_file())
