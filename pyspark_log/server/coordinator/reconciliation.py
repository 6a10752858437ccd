"""How a member of a group of KIP-848 comes to what it is to have: it gives partitions up, and then gets others."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from pyspark_log.group_records import Current, MemberState, Owned, Partitions

_Places = set[tuple[bytes, int]]


def reconciled(
    current: Current,
    target: Partitions,
    target_epoch: int,
    *,
    subscribed: Collection[bytes],
    changed: bool,
    is_free: Callable[[tuple[bytes, int]], bool],
    owned: _Places | None,
) -> Current:
    """The next state of a member; the same if there is nothing to do.

    Args:
        target: what it is to have in the target epoch.
        subscribed: ids of the topics that it reads. It keeps no others, whatever the target says.
        changed: its subscription has just changed.
        is_free: whether no other member has a partition.
        owned: the partitions that its client says it has; None: the client does not say.
    """
    match current.state:
        case MemberState.STABLE:
            if current.epoch != target_epoch:
                return _next(current, target, target_epoch, subscribed, is_free, owned)
            return _within(current, subscribed, owned) if changed else current
        case MemberState.UNREVOKED:
            if _owns(owned, _places(current.revoking)):
                return _within(current, subscribed, owned) if changed else current
            return _next(current, target, target_epoch, subscribed, is_free, owned)
        case MemberState.UNRELEASED:
            return _next(current, target, target_epoch, subscribed, is_free, owned)


def _next(
    current: Current,
    target: Partitions,
    target_epoch: int,
    subscribed: Collection[bytes],
    is_free: Callable[[tuple[bytes, int]], bool],
    owned: _Places | None,
) -> Current:
    had = _places(current.assigned)
    wanted = {(topic_id, number) for topic_id in target if topic_id in subscribed for number in target[topic_id]}
    revoked, missing = had - wanted, wanted - had
    kept = {at: current.assigned[at[0]][at[1]] for at in had & wanted}
    if revoked and _owns(owned, revoked):
        # It keeps its epoch until its client has given them up.
        revoking = _owned({at: current.assigned[at[0]][at[1]] for at in revoked})
        return Current(current.epoch, current.epoch, MemberState.UNREVOKED, _owned(kept), revoking)
    free = {at for at in missing if is_free(at)}
    state = MemberState.STABLE if free == missing else MemberState.UNRELEASED
    assigned = _owned(kept | dict.fromkeys(free, target_epoch))
    return Current(target_epoch, current.epoch, state, assigned, {})


def _within(current: Current, subscribed: Collection[bytes], owned: _Places | None) -> Current:
    """Takes the topics away that the member does not read any more, before the next target is there."""
    left = {topic_id: epochs for topic_id, epochs in current.assigned.items() if topic_id in subscribed}
    if left == current.assigned:
        return current
    gone = {at: current.assigned[at[0]][at[1]] for at in _places(current.assigned) - _places(left)}
    revoking = gone | {at: current.revoking[at[0]][at[1]] for at in _places(current.revoking)}
    if _owns(owned, set(revoking)):
        return Current(current.epoch, current.epoch, MemberState.UNREVOKED, left, _owned(revoking))
    return replace(current, previous_epoch=current.epoch, assigned=left)


def _owns(owned: _Places | None, places: _Places) -> bool:
    """Whether the client may still have some of the partitions."""
    return owned is None or bool(owned & places)


def _places(owned: Owned) -> _Places:
    return {(topic_id, number) for topic_id, numbers in owned.items() for number in numbers}


def _owned(epochs: dict[tuple[bytes, int], int]) -> Owned:
    found = dict[bytes, dict[int, int]]()
    for topic_id, number in sorted(epochs):
        found.setdefault(topic_id, {})[number] = epochs[topic_id, number]
    return found
