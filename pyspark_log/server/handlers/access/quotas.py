"""DescribeClientQuotas and AlterClientQuotas: how much clients may use (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark_log.errors import InvalidConfigError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from pyspark_log.server.answers.errors import attempt
from pyspark_log.server.answers.refusal import RefusedError
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.quotas import DEFAULT, KINDS, Entity, Quotas, check_entity, check_quota
from pyspark_log.server.security.acls import CLUSTER_NAME, Operation, Resource

_Described = DescribeClientQuotasResponse.EntryData
_Altered = AlterClientQuotasResponse.EntryData

# How a part of an entity is asked for: by its name, the default, or any.
_EXACT, _DEFAULT, _ANY = range(3)
_IP = "ip"


# ---- describing


async def describe_client_quotas(call: Call, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    """Lists the quotas of the entities that a filter is true for."""
    entries: list[DescribeClientQuotasResponse.EntryData] = []

    def look() -> None:
        call.require(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME)
        names = _filter(request.components)
        if any(component.match == "" for component in request.components):
            return  # No entity has an empty name; here that is the default's.
        for entity, values in call.broker.quotas.table().quotas.items():
            parts = dict(entity.parts())
            if (parts.keys() == names.keys() if request.strict else parts.keys() >= names.keys()) and all(
                name in (None, parts[kind]) for kind, name in names.items()
            ):
                entries.append(_describe_entity(parts, values))

    code, why = await call.broker.workers.run(attempt, look)
    return DescribeClientQuotasResponse(0, code, why, None if code else entries)


def _filter(components: Sequence[DescribeClientQuotasRequest.ComponentData]) -> Mapping[str, str | None]:
    """The names that are asked for, by the type of a part; None: any. RefusedError."""
    names = dict[str, str | None]()
    for component in components:
        kind, name = component.entity_type, component.match
        if not kind or kind in names:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"the type {kind!r} is empty, or there twice")
        if kind not in KINDS:
            raise RefusedError(ErrorCode.UNSUPPORTED_VERSION, f"there is no type {kind!r}")
        if component.match_type not in (_EXACT, _DEFAULT, _ANY):
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"there is no type {component.match_type} of matches")
        if (name is None) != (component.match_type != _EXACT):
            raise RefusedError(ErrorCode.INVALID_REQUEST, "a name belongs to an exact match, and to no other")
        names[kind] = DEFAULT if component.match_type == _DEFAULT else name
    if _IP in names and len(names) > 1:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "an address has no user and no client id beside it")
    return names


def _describe_entity(parts: Mapping[str, str], values: Mapping[str, float]) -> DescribeClientQuotasResponse.EntryData:
    return _Described(
        [DescribeClientQuotasResponse.EntityData(kind, name or None) for kind, name in parts.items()],
        [DescribeClientQuotasResponse.ValueData(name, value) for name, value in values.items()],
    )


# ---- altering


async def alter_client_quotas(call: Call, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """Sets and deletes quotas; all of an entity, or none."""
    entries = await call.broker.workers.run(_alter, call, request)
    call.broker.throttles.look_again()
    return AlterClientQuotasResponse(0, entries)


def _alter(call: Call, request: AlterClientQuotasRequest) -> list[AlterClientQuotasResponse.EntryData]:
    results = dict[frozenset[tuple[str, str | None]], tuple[ErrorCode, str | None]]()

    def alter_entries(quotas: Quotas) -> Quotas:
        results.clear()
        after = dict(quotas)
        for entry in request.entries:
            parts = {part.entity_type: part.entity_name for part in entry.entity}
            key = frozenset(parts.items())
            if key in results:
                results[key] = ErrorCode.INVALID_REQUEST, "it is altered twice"
            else:
                results[key] = attempt(lambda parts=parts, entry=entry: _alter_entity(after, parts, entry.ops))  # type: ignore[misc]
        return after

    def alter() -> None:
        call.require(Operation.ALTER_CONFIGS, Resource.CLUSTER, CLUSTER_NAME)
        if not call.broker.logs.writable:
            raise RefusedError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the store is served for reading only")
        if request.validate_only:
            alter_entries(call.broker.quotas.table().quotas)
        else:
            call.broker.quotas.change(alter_entries)

    refused = attempt(alter)
    if refused[0]:
        results = {
            frozenset((part.entity_type, part.entity_name) for part in entry.entity): refused
            for entry in request.entries
        }
    return [
        _Altered(code, why, [AlterClientQuotasResponse.EntityData(*part) for part in key])
        for key, (code, why) in results.items()
    ]


def _alter_entity(
    quotas: dict[Entity, Mapping[str, float]],
    parts: Mapping[str, str | None],
    changes: Sequence[AlterClientQuotasRequest.OpData],
) -> None:
    for kind, name in parts.items():
        if kind not in KINDS or name == "":
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"there is no {kind} {name!r} that can have quotas")
    entity = Entity(*(DEFAULT if kind in parts and parts[kind] is None else parts.get(kind) for kind in KINDS))
    values = dict(quotas.get(entity, {}))
    try:
        check_entity(entity)
        for change in changes:
            if change.remove:
                values.pop(change.key, None)
            else:
                check_quota(entity, change.key, change.value)
                values[change.key] = change.value
    except InvalidConfigError as error:
        raise RefusedError(ErrorCode.INVALID_REQUEST, str(error)) from None
    if len({change.key for change in changes}) < len(changes):
        raise RefusedError(ErrorCode.INVALID_REQUEST, "a quota is altered twice")
    quotas[entity] = values
