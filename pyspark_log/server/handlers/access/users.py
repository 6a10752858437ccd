"""DescribeUserScramCredentials and AlterUserScramCredentials: the users that have passwords (KIP-554)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from pyspark_log.errors import InvalidConfigError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from pyspark_log.server.answers.errors import attempt
from pyspark_log.server.answers.refusal import RefusedError
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.security.acls import CLUSTER_NAME, Operation, Resource
from pyspark_log.server.security.users import (
    LEAST_ITERATIONS,
    LEAST_SALT,
    MOST_ITERATIONS,
    SCRAM_NUMBERS,
    Credential,
    Credentials,
    check_name,
    credential_of,
)

_Described = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
_Credential = DescribeUserScramCredentialsResponse.CredentialInfo
_Altered = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult

_NUMBERS = {name: number for number, name in SCRAM_NUMBERS.items()}


async def describe_user_scram_credentials(
    call: Call, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Lists users with their mechanisms: all, or those that are asked for."""
    users: Mapping[str, Credentials] = {}

    def read() -> None:
        nonlocal users
        call.require(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)
        users = call.broker.users.all()

    code, why = await call.broker.workers.run(attempt, read)
    asked = Counter(user.name for user in request.users or ())
    if code:
        return DescribeUserScramCredentialsResponse(0, code, why, [_Described(name, code, why, ()) for name in asked])
    results = [_describe_user(name, asked[name], users.get(name)) for name in asked or users]
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _describe_user(
    name: str, times: int, credentials: Credentials | None
) -> DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult:
    if times > 1:
        return _Described(name, ErrorCode.DUPLICATE_RESOURCE, "it is asked for twice", ())
    if credentials is None:
        return _Described(name, ErrorCode.RESOURCE_NOT_FOUND, "there is no such user", ())
    rows = [
        _Credential(*row)
        for row in sorted((_NUMBERS[name], credential.iterations) for name, credential in credentials.items())
    ]
    return _Described(name, ErrorCode.NONE, None, rows)


async def alter_user_scram_credentials(
    call: Call, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Sets and deletes credentials; all of a user, or none."""
    results = await call.broker.workers.run(_alter_users, call, request)
    return AlterUserScramCredentialsResponse(results=results)


def _alter_users(
    call: Call, request: AlterUserScramCredentialsRequest
) -> list[AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult]:
    deletions, upsertions = defaultdict(list), defaultdict(list)
    for deletion in request.deletions:
        deletions[deletion.name].append(deletion.mechanism)
    for upsertion in request.upsertions:
        upsertions[upsertion.name].append(upsertion)
    results = []
    for name in {**deletions, **upsertions}:

        def alter(name: str = name) -> None:
            call.require(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)
            if not call.broker.logs.writable:
                raise RefusedError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the store is served for reading only")
            try:
                check_name(name)
            except InvalidConfigError as error:
                raise RefusedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error)) from None
            changed = [*deletions[name], *(upsertion.mechanism for upsertion in upsertions[name])]
            if len(set(changed)) < len(changed):
                raise RefusedError(ErrorCode.DUPLICATE_RESOURCE, "a mechanism of it is changed twice")
            credentials = call.broker.users.all().get(name, {})
            changes: dict[str, Credential | None] = {}
            for number in deletions[name]:
                if _mechanism(number) not in credentials:
                    raise RefusedError(ErrorCode.RESOURCE_NOT_FOUND, "there is no such credential")
                changes[_mechanism(number)] = None
            for upsertion in upsertions[name]:
                changes[_mechanism(upsertion.mechanism)] = _credential(upsertion)
            call.broker.users.change({name: changes})

        results.append(_Altered(name, *attempt(alter)))
    return results


def _mechanism(number: int) -> str:
    if number not in SCRAM_NUMBERS:
        raise RefusedError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"there is no mechanism of SCRAM {number}")
    return SCRAM_NUMBERS[number]


def _credential(upsertion: AlterUserScramCredentialsRequest.ScramCredentialUpsertion) -> Credential:
    mechanism = _mechanism(upsertion.mechanism)
    if not LEAST_ITERATIONS <= upsertion.iterations <= MOST_ITERATIONS:
        raise RefusedError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"{upsertion.iterations} iterations; there are {LEAST_ITERATIONS} to {MOST_ITERATIONS}",
        )
    if len(upsertion.salt) < LEAST_SALT or not upsertion.salted_password:
        raise RefusedError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL, f"a salt has {LEAST_SALT} bytes at least, and a salted password some"
        )
    return credential_of(mechanism, bytes(upsertion.salted_password), bytes(upsertion.salt), upsertion.iterations)
