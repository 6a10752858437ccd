"""How `pytest -n` spreads the tests over processes: those of a file stay together, and so do all that share a JVM."""

import pytest

_TOGETHER = ("spark", "kafka")


def pytest_collection_modifyitems(items):
    # The longest groups first, so that no process has them before it alone at the end.
    items.sort(key=lambda item: item.path.parent.name not in _TOGETHER)
    for item in items:
        folder = item.path.parent
        # A second session of Spark, or a second broker, would take ten seconds to start, and a gigabyte.
        item.add_marker(pytest.mark.xdist_group(folder.name if folder.name in _TOGETHER else str(item.path)))
