"""The `pylog` command, run in this process."""

from __future__ import annotations

import pyarrow as pa
from click.testing import CliRunner

from pyspark_log.cli.main import main

T0 = 1_700_000_000_000


def records(keys, values, first=T0):
    return pa.record_batch(
        {
            "key": pa.array(keys, pa.string()),
            "value": pa.array(values, pa.binary()),
            "timestamp": pa.array([first + 1000 * number for number in range(len(values))], pa.int64()),
        }
    )


def pylog(store, *arguments):
    """Runs the command on a store or its path; the result has exit_code, stdout, stderr and stdout_bytes."""
    return CliRunner().invoke(main, ["--store", str(getattr(store, "path", store)), *arguments], prog_name="pylog")


def output(store, *arguments):
    """What a command prints that succeeds."""
    result = pylog(store, *arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout
