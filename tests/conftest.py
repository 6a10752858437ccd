"""How `pytest -n` spreads the tests over processes: those of a file stay together, and so do all that share a JVM.

And how hypothesis looks for examples: never by the clock.
"""

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# A busy machine is no failure, neither of a test nor of how its examples are made.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

_TOGETHER = ("tests/spark/", "tests/kafka/")


class _Spread(LoadScopeScheduling):
    """Hands out one group of tests after the other, in their order."""

    def _split_scope(self, nodeid):
        # A second session of Spark, or a second broker, would take ten seconds to start, and a gigabyte.
        file = nodeid.partition("::")[0]
        return next((folder for folder in _TOGETHER if file.startswith(folder)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return _Spread(config, log)


def pytest_collection_modifyitems(items):
    # The longest groups first, so that no process has one of them before it at the end.
    items.sort(key=lambda item: not item.nodeid.startswith(_TOGETHER))
