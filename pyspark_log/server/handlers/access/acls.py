"""DescribeAcls, CreateAcls, DeleteAcls: which principal may do what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TypeVar

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from pyspark_log.server.answers.errors import attempt
from pyspark_log.server.answers.refusal import RefusedError
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.security.acls import ANY, CLUSTER_NAME, Acl, Operation, Pattern, Permission, Resource

_E = TypeVar("_E", bound=IntEnum)
_Filter = DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter
# In filters: no kind, each kind, or each pattern that is about a name.
_UNKNOWN, _EACH, _MATCH = 0, 1, 2
_LONGEST = 1024
_DISABLED = (ErrorCode.SECURITY_DISABLED, "the server decides by no ACLs: start it with --acls")


async def describe_acls(call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Lists the entries that a filter is true for, by their resources."""
    acls = call.broker.acls
    if acls is None:
        return DescribeAclsResponse(0, *_DISABLED)
    by_resource: dict[tuple[Resource, str, Pattern], list[Acl]] = {}

    def look() -> None:
        call.require(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)
        for entry in _matching(acls.rules().acls, request):
            by_resource.setdefault((entry.resource, entry.name, entry.pattern), []).append(entry)

    error, why = await call.broker.workers.run(attempt, look)
    return DescribeAclsResponse(
        0,
        error,
        why,
        [
            DescribeAclsResponse.DescribeAclsResource(
                *resource,
                [
                    DescribeAclsResponse.AclDescription(entry.principal, entry.host, entry.operation, entry.permission)
                    for entry in entries
                ],
            )
            for resource, entries in sorted(by_resource.items())
        ],
    )


async def create_acls(call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    """Adds entries, each for itself."""
    results = await call.broker.workers.run(_create, call, request.creations)
    return CreateAclsResponse(results=[CreateAclsResponse.AclCreationResult(*result) for result in results])


def _create(call: Call, creations: Sequence[CreateAclsRequest.AclCreation]) -> list[tuple[ErrorCode, str | None]]:
    if call.broker.acls is None:
        return [_DISABLED for _ in creations]
    refused = attempt(lambda: _require_alter(call))
    if refused[0]:
        return [refused for _ in creations]
    created, results = list[Acl](), list[tuple[ErrorCode, str | None]]()
    for creation in creations:
        results.append(attempt(lambda creation=creation: created.append(_acl(creation))))  # type: ignore[misc]
    acls = call.broker.acls
    if created:
        error, why = attempt(lambda: acls.change(lambda entries: entries | set(created)))
        if error:
            results = [(code, text) if code else (error, why) for code, text in results]
    return results


def _require_alter(call: Call) -> None:
    """Refuses a client that may not change ACLs, and each one where they cannot be changed. RefusedError."""
    call.require(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)
    if not call.broker.logs.writable:
        raise RefusedError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the store is served for reading only")


def _acl(creation: CreateAclsRequest.AclCreation) -> Acl:
    acl = Acl(
        _of(Resource, creation.resource_type),
        creation.resource_name,
        _of(Pattern, creation.resource_pattern_type),
        creation.principal,
        creation.host,
        _of(Operation, creation.operation),
        _of(Permission, creation.permission_type),
    )
    if not acl.name:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "a resource has a name")
    if acl.resource is Resource.CLUSTER and acl.name != CLUSTER_NAME:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"the only name of a cluster is {CLUSTER_NAME}")
    if max(map(len, (acl.name, acl.principal, acl.host))) > _LONGEST:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"a name has {_LONGEST} characters at most")
    kind, colon, _ = acl.principal.partition(":")
    if not (kind and colon):
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"the principal {acl.principal!r} is not of the form TYPE:NAME")
    return acl


def _of(kind: type[_E], number: int) -> _E:
    try:
        return kind(number)
    except ValueError:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"{number} is no {kind.__name__.lower()} of an entry") from None


async def delete_acls(call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Deletes the entries that filters are true for."""
    results = await call.broker.workers.run(lambda: [_delete(call, acl_filter) for acl_filter in request.filters])
    return DeleteAclsResponse(filter_results=results)


def _delete(call: Call, acl_filter: DeleteAclsRequest.DeleteAclsFilter) -> DeleteAclsResponse.DeleteAclsFilterResult:
    deleted = list[Acl]()
    acls = call.broker.acls
    if acls is None:
        return DeleteAclsResponse.DeleteAclsFilterResult(*_DISABLED, ())
    refused = attempt(lambda: _require_alter(call))
    if refused[0]:
        return DeleteAclsResponse.DeleteAclsFilterResult(*refused, ())

    def without_matching(entries: frozenset[Acl]) -> Iterable[Acl]:
        deleted[:] = sorted(_matching(entries, acl_filter))
        return entries - set(deleted)

    error, why = attempt(lambda: acls.change(without_matching))
    matching = [
        DeleteAclsResponse.DeleteAclsMatchingAcl(
            ErrorCode.NONE, None, entry.resource, entry.name, entry.pattern, entry.principal, entry.host,
            entry.operation, entry.permission,
        )
        for entry in ([] if error else deleted)
    ]  # fmt: skip
    return DeleteAclsResponse.DeleteAclsFilterResult(error, why, matching)


def _matching(acls: Iterable[Acl], acl_filter: _Filter) -> list[Acl]:
    """The entries that a filter is true for. RefusedError: it makes no sense."""
    kinds = (
        acl_filter.resource_type_filter,
        acl_filter.pattern_type_filter,
        acl_filter.operation,
        acl_filter.permission_type,
    )
    if _UNKNOWN in kinds:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "a filter says of what kind an entry is, or that each is meant")
    return [
        entry
        for entry in acls
        if acl_filter.resource_type_filter in (_EACH, entry.resource)
        and _is_about(entry, acl_filter.pattern_type_filter, acl_filter.resource_name_filter)
        and acl_filter.principal_filter in (None, entry.principal)
        and acl_filter.host_filter in (None, entry.host)
        and acl_filter.operation in (_EACH, entry.operation)
        and acl_filter.permission_type in (_EACH, entry.permission)
    ]


def _is_about(entry: Acl, pattern: int, name: str | None) -> bool:
    if pattern not in (_EACH, _MATCH, entry.pattern):
        return False
    if name is None or pattern != _MATCH:
        return name in (None, entry.name)
    if entry.pattern is Pattern.PREFIXED:
        return name.startswith(entry.name)
    return entry.name in (name, ANY)
