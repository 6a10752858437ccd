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
from pyspark_log.server.errors import attempt
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.refusal import RefusedError
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
    found: dict[tuple[Resource, str, Pattern], list[Acl]] = {}

    def look() -> None:
        call.require(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)
        for one in _matching(acls.rules().acls, request):
            found.setdefault((one.resource, one.name, one.pattern), []).append(one)

    error, why = await call.broker.workers.run(attempt, look)
    return DescribeAclsResponse(
        0,
        error,
        why,
        [
            DescribeAclsResponse.DescribeAclsResource(
                *resource,
                [
                    DescribeAclsResponse.AclDescription(one.principal, one.host, one.operation, one.permission)
                    for one in acls
                ],
            )
            for resource, acls in sorted(found.items())
        ],
    )


async def create_acls(call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    """Adds entries, each for itself."""
    results = await call.broker.workers.run(_create, call, request.creations)
    return CreateAclsResponse(results=[CreateAclsResponse.AclCreationResult(*one) for one in results])


def _create(call: Call, wanted: Sequence[CreateAclsRequest.AclCreation]) -> list[tuple[ErrorCode, str | None]]:
    if call.broker.acls is None:
        return [_DISABLED for _ in wanted]
    refused = attempt(lambda: _require_alter(call))
    if refused[0]:
        return [refused for _ in wanted]
    made, results = list[Acl](), list[tuple[ErrorCode, str | None]]()
    for one in wanted:
        results.append(attempt(lambda one=one: made.append(_acl(one))))  # type: ignore[misc]
    acls = call.broker.acls
    if made:
        error, why = attempt(lambda: acls.change(lambda known: known | set(made)))
        if error:
            results = [(code, text) if code else (error, why) for code, text in results]
    return results


def _require_alter(call: Call) -> None:
    """Refuses a client that may not change ACLs, and each one where they cannot be changed. RefusedError."""
    call.require(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)
    if not call.broker.logs.writable:
        raise RefusedError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the store is served for reading only")


def _acl(wanted: CreateAclsRequest.AclCreation) -> Acl:
    made = Acl(
        _of(Resource, wanted.resource_type),
        wanted.resource_name,
        _of(Pattern, wanted.resource_pattern_type),
        wanted.principal,
        wanted.host,
        _of(Operation, wanted.operation),
        _of(Permission, wanted.permission_type),
    )
    if not made.name:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "a resource has a name")
    if made.resource is Resource.CLUSTER and made.name != CLUSTER_NAME:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"the only name of a cluster is {CLUSTER_NAME}")
    if max(map(len, (made.name, made.principal, made.host))) > _LONGEST:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"a name has {_LONGEST} characters at most")
    kind, colon, _ = made.principal.partition(":")
    if not (kind and colon):
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"the principal {made.principal!r} is not of the form TYPE:NAME")
    return made


def _of(kind: type[_E], number: int) -> _E:
    try:
        return kind(number)
    except ValueError:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"{number} is no {kind.__name__.lower()} of an entry") from None


async def delete_acls(call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Deletes the entries that filters are true for."""
    results = await call.broker.workers.run(lambda: [_delete(call, one) for one in request.filters])
    return DeleteAclsResponse(filter_results=results)


def _delete(call: Call, wanted: DeleteAclsRequest.DeleteAclsFilter) -> DeleteAclsResponse.DeleteAclsFilterResult:
    gone = list[Acl]()
    acls = call.broker.acls
    if acls is None:
        return DeleteAclsResponse.DeleteAclsFilterResult(*_DISABLED, ())
    refused = attempt(lambda: _require_alter(call))
    if refused[0]:
        return DeleteAclsResponse.DeleteAclsFilterResult(*refused, ())

    def left(known: frozenset[Acl]) -> Iterable[Acl]:
        gone[:] = sorted(_matching(known, wanted))
        return known - set(gone)

    error, why = attempt(lambda: acls.change(left))
    matching = [
        DeleteAclsResponse.DeleteAclsMatchingAcl(
            ErrorCode.NONE, None, one.resource, one.name, one.pattern, one.principal, one.host, one.operation,
            one.permission,
        )
        for one in ([] if error else gone)
    ]  # fmt: skip
    return DeleteAclsResponse.DeleteAclsFilterResult(error, why, matching)


def _matching(acls: Iterable[Acl], wanted: _Filter) -> list[Acl]:
    """The entries that a filter is true for. RefusedError: it makes no sense."""
    kinds = wanted.resource_type_filter, wanted.pattern_type_filter, wanted.operation, wanted.permission_type
    if _UNKNOWN in kinds:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "a filter says of what kind an entry is, or that each is meant")
    return [
        one
        for one in acls
        if wanted.resource_type_filter in (_EACH, one.resource)
        and _is_about(one, wanted.pattern_type_filter, wanted.resource_name_filter)
        and wanted.principal_filter in (None, one.principal)
        and wanted.host_filter in (None, one.host)
        and wanted.operation in (_EACH, one.operation)
        and wanted.permission_type in (_EACH, one.permission)
    ]


def _is_about(one: Acl, pattern: int, name: str | None) -> bool:
    if pattern not in (_EACH, _MATCH, one.pattern):
        return False
    if name is None or pattern != _MATCH:
        return name in (None, one.name)
    if one.pattern is Pattern.PREFIXED:
        return name.startswith(one.name)
    return one.name in (name, ANY)
