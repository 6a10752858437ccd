"""What the servers of a store decide of themselves: that they are there, and which one coordinates. Pure: no request.

No clock decides: a server is taken for dead by what another one has seen of the log, and the log says which of several
that take its place is first.
"""

from __future__ import annotations

from pyspark_log.errors import StoreError
from pyspark_log.storage.publish_log.entries.changes import Place, ServerNote
from pyspark_log.storage.publish_log.proposals import Proposal
from pyspark_log.storage.publish_log.state import State


def register(state: State, node_id: int | None, run: str, place: Place) -> Proposal:
    """Says that a server is there.

    Args:
        state: the store.
        node_id: its id, which an earlier start of it may have had: that one is fenced; None: any that is free.
        run: which start of it.
        place: where it is.
    """
    if node_id is None:
        node_id = next(number for number in range(1, len(state.servers) + 2) if number not in state.servers)
    before, coordinator = state.servers.get(node_id), state.coordinator.run
    is_free = not coordinator or (before is not None and before.run == coordinator)
    return Proposal(server=ServerNote(node_id, run, place, is_free, leaves=False))


def renew(state: State, node_id: int, run: str, place: Place) -> Proposal:
    """Says that it is still there. StoreError: another server has its id."""
    _check(state, node_id, run)
    return Proposal(server=ServerNote(node_id, run, place, not state.coordinator.run, leaves=False))


def coordinate(state: State, node_id: int, run: str, place: Place, dead: str) -> Proposal | None:
    """Has it coordinate in place of a server that has died; None: another one does. StoreError: as `renew`."""
    _check(state, node_id, run)
    if state.coordinator.run != dead:
        return None
    return Proposal(server=ServerNote(node_id, run, place, coordinates=True, leaves=False))


def leave(state: State, node_id: int, run: str) -> Proposal | None:
    """Says that it ends; None: that is known."""
    server = state.servers.get(node_id)
    if server is None or server.run != run:
        return None
    return Proposal(server=ServerNote(node_id, run, server.place, coordinates=False, leaves=True))


def _check(state: State, node_id: int, run: str) -> None:
    server = state.servers.get(node_id)
    if server is not None and server.run != run:
        host, port, _ = server.place
        raise StoreError(
            f"another server of this store has node id {node_id} now, at {host}:{port}: start each with a --node-id of "
            "its own, or with none"
        )
