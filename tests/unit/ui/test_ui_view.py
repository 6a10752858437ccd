"""A server as the page sees it: what the loop's thread makes for it, and a loop that is closed."""

import threading
from types import SimpleNamespace

import pytest

from pyspark_log.server.network import Loop
from pyspark_log.server.pages import ui_view
from pyspark_log.ui import MOST_ROWS
from tests.waiting import PATIENCE

MANY = 20_000


@pytest.fixture
def loop():
    loop = Loop()
    yield loop
    if not loop.is_closed:
        loop.close()


def test_the_loop_makes_no_more_than_a_page_shows(loop, monkeypatch):
    made = []
    monkeypatch.setattr(ui_view, "_client", lambda one, _now: made.append(one.begun))
    transaction = SimpleNamespace(
        state=SimpleNamespace(kafkas_name="Empty"), producer_id=1, epoch=0, started=-1, timeout=1000, partitions=()
    )
    broker = SimpleNamespace(
        loop=loop,
        transactions=SimpleNamespace(metadata={f"id-{number:05}": transaction for number in reversed(range(MANY))}),
        throttles=SimpleNamespace(usages=list),
    )
    listener = SimpleNamespace(
        connections=[SimpleNamespace(begun=float(number)) for number in reversed(range(MANY))],
        request_bytes=0,
        refused=0,
    )
    limits = SimpleNamespace(queued_max_request_bytes=1, max_connections=MANY, max_connections_per_ip=MANY)
    state = ui_view.UiView(broker, listener, limits, None, None)._state()
    assert made == list(range(MOST_ROWS))
    assert (state.client_count, state.transaction_count) == (MANY, MANY)
    assert [one.name for one in state.transactions] == [f"id-{number:05}" for number in range(MOST_ROWS)]
    [connections] = [one for one in state.throttling if one.name == "Connections"]
    assert (connections.now, connections.is_active) == (f"{MANY:,}", True)


def test_a_login_at_a_server_that_has_ended(loop, monkeypatch):
    monkeypatch.setattr(ui_view, "_PATIENCE", 3600.0)
    loop.close()
    found = []
    view = ui_view.UiView(SimpleNamespace(loop=loop), None, None, SimpleNamespace(), None)
    thread = threading.Thread(target=lambda: found.append(view.log_in("127.0.0.1", "anna", "x")), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert found == [False]
