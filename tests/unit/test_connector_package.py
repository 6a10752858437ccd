"""The package's public names, and what importing it costs."""

import subprocess
import sys

import pytest

import pyspark_log
from pyspark_log.spark_connector.errors import ConnectorError, conditions_shown
from pyspark_log.storage.errors import UnknownTopicError


def test_importing_the_package_loads_nothing_else():
    # Spark imports every module named pyspark_* when it looks for data sources.
    code = (
        "import sys, pyspark_log; "
        "heavy = {name.partition('.')[0] for name in sys.modules} & {'pyspark', 'pandas', 'pyarrow', 'lz4'}; "
        "ours = [name for name in sys.modules if name.startswith('pyspark_log.')]; "
        "sys.exit(f'loaded {heavy} {ours}' if heavy or ours else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_public_names():
    assert {"DefaultSource", "Publish", "Store", "Transactions"} < set(pyspark_log.__all__) <= set(dir(pyspark_log))
    assert all(getattr(pyspark_log, name) for name in pyspark_log.__all__)
    assert pyspark_log.DefaultSource.name() == "pylog"
    assert pyspark_log.Store.__name__ == "Store"
    with pytest.raises(AttributeError, match="no attribute 'Sotre'"):
        pyspark_log.Sotre  # noqa: B018


def test_an_engine_error_gets_its_condition_in_front():
    with pytest.raises(ConnectorError, match=r"^\[PYLOG_UNKNOWN_TOPIC_OR_PARTITION\] no t$"), conditions_shown():
        raise UnknownTopicError("no t")


def test_so_does_an_error_of_the_system(tmp_path):
    with pytest.raises(ConnectorError, match=r"^\[PYLOG_IO_ERROR\] .*No such file.*missing"), conditions_shown():
        (tmp_path / "missing").read_bytes()
