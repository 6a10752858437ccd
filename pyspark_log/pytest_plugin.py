"""A store and its server, for tests of programs that use one: a plugin that a `conftest.py` names in `pytest_plugins`.

It is no entry point, which pytest would load by itself: pytest then rewrites the assertions of all modules of the
package, and gives these a loader of its own, which no module that travels to a task by value can have.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyspark_log.warm_python import use_warm_python

if TYPE_CHECKING:
    # Not at run time, as pytest loads this file also for tests without a store.
    from pyspark_log.storage.store import Store

_MARK = "pylog_topic"


def pytest_configure(config: pytest.Config) -> None:
    """Makes the mark known, which `--strict-markers` asks for."""
    config.addinivalue_line(
        "markers",
        f"{_MARK}(name, partitions=None, configs=None): a topic of the fixture pylog_store, as Store.create_topic "
        "takes it",
    )
    use_warm_python()  # for the sessions of Spark that tests begin


@pytest.fixture
def pylog_server(pylog_store: Store) -> Iterator[str]:
    """`pylog serve` over `pylog_store`, for clients in any language: its `bootstrap.servers`."""
    from pyspark_log.serving import serving  # noqa: PLC0415

    with serving(pylog_store.path) as bootstrap:
        yield bootstrap


@pytest.fixture
def pylog_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store in the test's temporary folder, with a topic for each mark `pylog_topic` of the test."""
    from pyspark_log.storage.store import Store  # noqa: PLC0415

    with Store.create(tmp_path / "pylog") as store:
        for mark in reversed(list(request.node.iter_markers(_MARK))):
            store.create_topic(*mark.args, **mark.kwargs)
        yield store
