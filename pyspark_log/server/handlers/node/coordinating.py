"""What a node coordinates is answered as by a server that coordinates all; the rest names another coordinator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from typing import Any

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.schemas import Struct
from pyspark_log.server.handlers.call import Call

Handler = Callable[[Call, Any], Coroutine[Any, Any, Any]]
Names = Callable[[Any], Collection[str]]


def _groups_of_fetch(request: m.OffsetFetchRequest) -> Collection[str]:
    return [one.group_id for one in request.groups] if request.groups else [request.group_id]


def _one_group(request: Any) -> Collection[str]:  # noqa: ANN401  (several requests have the field)
    return [request.group_id]


def _one_id(request: Any) -> Collection[str]:  # noqa: ANN401  (several requests have the field)
    return [] if request.transactional_id is None else [request.transactional_id]


#: The groups that a request is about, by its key.
GROUPS: dict[int, Names] = {
    8: _one_group,
    9: _groups_of_fetch,
    11: _one_group,
    12: _one_group,
    13: _one_group,
    14: _one_group,
    15: lambda request: request.groups,
    28: _one_group,
    42: lambda request: request.groups_names,
    47: _one_group,
    68: _one_group,
    69: lambda request: request.group_ids,
}
#: The transactional ids, likewise.
IDS: dict[int, Names] = {
    22: _one_id,
    24: lambda request: [] if request.transactions else [request.v3_and_below_transactional_id],
    25: _one_id,
    26: _one_id,
    65: lambda request: request.transactional_ids,
}


def coordinating(key: int, here: Handler, elsewhere: Handler) -> Handler:
    """A handler that asks `here` if this node coordinates all that a request names, and else `elsewhere`.

    A client looks for the coordinator after that; it finds this one again while it loads what it coordinates.
    """

    async def handler(call: Call, request: Struct) -> Struct:
        coordinators = call.coordinators
        if key in GROUPS:
            errors = [coordinators.of_group(name) for name in GROUPS[key](request)]
        else:
            errors = [coordinators.of_transaction(name) for name in IDS[key](request)]
        is_here = all(error == ErrorCode.NONE for error in errors)
        response: Struct = await (here if is_here else elsewhere)(call, request)
        return response

    return handler
