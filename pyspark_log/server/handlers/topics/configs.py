"""DescribeConfigs, ListConfigResources, AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum

from pyspark_log.errors import UnknownTopicError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from pyspark_log.server.answers import configs
from pyspark_log.server.answers.configs import Change, Config
from pyspark_log.server.answers.errors import attempt
from pyspark_log.server.answers.refusal import RefusedError
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.handlers.topics.metadata import advertised
from pyspark_log.server.security.acls import CLUSTER_NAME, Operation, Resource
from pyspark_log.storage.catalog import PUBLISH_TOPIC, check_name

_Result = DescribeConfigsResponse.DescribeConfigsResult
_Row = DescribeConfigsResponse.DescribeConfigsResourceResult
_Synonym = DescribeConfigsResponse.DescribeConfigsSynonym


class ResourceKind(IntEnum):
    """What has configs, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


# ---- describing


async def describe_configs(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describes the configs of topics and of this server."""
    return await described_configs(call, request, _configs_of)


async def described_configs(
    call: Call, request: DescribeConfigsRequest, configs_of: Callable[[Call, int, str], Iterable[Config]]
) -> DescribeConfigsResponse:
    """The same, of what `configs_of` gives for a kind and a name; RefusedError and PylogError: why it has none."""
    results = await call.broker.workers.run(
        lambda: [_describe_resource(call, request, resource, configs_of) for resource in request.resources]
    )
    return DescribeConfigsResponse(results=results)


def _describe_resource(
    call: Call,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsRequest.DescribeConfigsResource,
    configs_of: Callable[[Call, int, str], Iterable[Config]],
) -> DescribeConfigsResponse.DescribeConfigsResult:
    rows: list[DescribeConfigsResponse.DescribeConfigsResourceResult] = []

    def describe() -> None:
        names = resource.configuration_keys
        _require(call, Operation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name)
        for config in configs_of(call, resource.resource_type, resource.resource_name):
            if names is None or config.name in names:
                rows.append(_row(config, request))

    code, why = attempt(describe)
    # Kafka's text for no error is an empty one here.
    return _Result(code, why or "", resource.resource_type, resource.resource_name, () if code else rows)


def _require(call: Call, operation: Operation, kind: int, name: str) -> None:
    """Refuses a client that may not do that with the configs of a topic or of the server. RefusedError."""
    if kind == ResourceKind.TOPIC:
        call.require(operation, Resource.TOPIC, name)
    else:
        call.require(operation, Resource.CLUSTER, CLUSTER_NAME)


def _configs_of(call: Call, kind: int, name: str) -> Iterable[Config]:
    broker = call.broker
    if kind == ResourceKind.TOPIC:
        check_name(name)
        if name == PUBLISH_TOPIC:
            raise UnknownTopicError(f"{name} is not served")
        return configs.of_topic(broker.store.describe_topic(name).configs, broker.logs.configs)
    if kind == ResourceKind.BROKER:
        if name == "":
            return ()  # what is set for all servers while they run: nothing is
        if name != str(broker.node_id):
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"there is no server {name!r}; this is {broker.node_id}")
        host, port = advertised(call)
        return configs.of_server(broker.logs.configs, broker.node_id, f"PLAINTEXT://{host}:{port}")
    if kind == ResourceKind.BROKER_LOGGER:
        return ()
    raise RefusedError(ErrorCode.INVALID_REQUEST, f"nothing of kind {kind} has configs here")


def _row(config: Config, request: DescribeConfigsRequest) -> DescribeConfigsResponse.DescribeConfigsResourceResult:
    hidden = config.is_sensitive
    synonyms = [_Synonym(name, None if hidden else value, source) for name, value, source in config.synonyms]
    return _Row(
        config.name,
        None if hidden else config.value,
        config.read_only,
        config.source,
        hidden,
        synonyms if request.include_synonyms else (),
        config.type,
        config.meaning if request.include_documentation else None,
    )


async def list_config_resources(call: Call, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """Lists what has configs (KIP-1142): topics and this server."""
    topics = await call.broker.workers.run(lambda: call.broker.store.topics(internal=True))
    return listed_resources(call, request, topics, [call.broker.node_id])


def listed_resources(
    call: Call, request: ListConfigResourcesRequest, topics: Iterable[str], brokers: Iterable[int]
) -> ListConfigResourcesResponse:
    """The same, of these topics and brokers. Groups and metrics of clients have no configs of their own."""
    if not call.allows(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    # Version 0 has no list, and asks for metrics of clients alone.
    kinds = [*request.resource_types] or [*ResourceKind] if call.version else [ResourceKind.CLIENT_METRICS]
    if not set(kinds) <= set(ResourceKind):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    numbers = list(map(str, brokers))
    names = {ResourceKind.TOPIC: topics, ResourceKind.BROKER: numbers, ResourceKind.BROKER_LOGGER: numbers}
    resources = [(name, kind) for kind in kinds for name in names.get(ResourceKind(kind), ())]
    return ListConfigResourcesResponse(
        config_resources=[ListConfigResourcesResponse.ConfigResource(*resource) for resource in resources]
    )


# ---- changing


async def alter_configs(call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replaces all configs of topics; those that are not named have the store's values again."""
    changes = [
        [(config.name, Change.SET, config.value) for config in resource.configs] for resource in request.resources
    ]
    results = await _alter_resources(call, request, changes, replaces=True)
    return AlterConfigsResponse(
        responses=[AlterConfigsResponse.AlterConfigsResourceResponse(*result) for result in results]
    )


async def incremental_alter_configs(
    call: Call, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Changes some configs of topics (KIP-339)."""
    changes = [
        [(config.name, config.config_operation, config.value) for config in resource.configs]
        for resource in request.resources
    ]
    results = await _alter_resources(call, request, changes, replaces=False)
    return IncrementalAlterConfigsResponse(
        responses=[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(*result) for result in results]
    )


async def _alter_resources(
    call: Call,
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
    changes: Sequence[Sequence[tuple[str, int, str | None]]],
    *,
    replaces: bool,
) -> list[tuple[ErrorCode, str | None, int, str]]:
    """Makes the changes of each resource, and returns what became of it: error code, what is wrong, kind, name."""
    places = [(resource.resource_type, resource.resource_name) for resource in request.resources]
    times = Counter(places)
    actions = [
        _change(call, where, resource_changes, times[where], replaces=replaces, validate_only=request.validate_only)
        for where, resource_changes in zip(places, changes, strict=True)
    ]
    results = await call.broker.workers.run(lambda: [attempt(action) for action in actions])
    return [(*result, *where) for result, where in zip(results, places, strict=True)]


def _change(
    call: Call,
    where: tuple[int, str],
    changes: Sequence[tuple[str, int, str | None]],
    times: int,
    *,
    replaces: bool,
    validate_only: bool,
) -> Callable[[], None]:
    """What changes the configs of one resource; `times`: how often the request names it."""
    kind, topic = where
    store = call.broker.store
    servers = [(ResourceKind.BROKER, ""), (ResourceKind.BROKER, str(call.broker.node_id))]

    def change() -> None:
        _require(call, Operation.ALTER_CONFIGS, kind, topic)
        if times > 1 or len({name for name, _, _ in changes}) < len(changes):
            raise RefusedError(ErrorCode.INVALID_REQUEST, "the same is in the request twice")
        checked = [(name, _check_change(name, number, value), value) for name, number, value in changes]
        if where in servers and all(how is Change.DELETE for _, how, _ in checked):
            return  # a server has no configs but those that it was started with
        if kind != ResourceKind.TOPIC:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "only configs of topics can be changed while the server runs")
        before = store.describe_topic(topic).configs
        current = {config.name: config.value for config in configs.of_topic(before, call.broker.logs.configs)}
        values, deleted = dict[str, str](), set(before) if replaces else set[str]()
        for name, how, value in checked:
            if how is Change.DELETE:
                deleted.add(name)
                continue
            assert value is not None
            if how in (Change.APPEND, Change.SUBTRACT):
                value = configs.changed_list(current.get(name, ""), how, value)  # noqa: PLW2901
            values[name] = value
        values = configs.checked(values, len(call.broker.logs.servers.alive()))
        # As in Kafka, what is not set may be deleted.
        deleted = (deleted & before.keys()) - values.keys()
        call.broker.logs.check_writable()
        if not validate_only:
            store.alter_configs(topic, values, deleted)

    return change


def _check_change(name: str, number: int, value: str | None) -> Change:
    """The kind of a change. RefusedError, InvalidConfigError: it is none of this config."""
    if number not in tuple(Change):
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"no change of a config has the number {number}")
    how = Change(number)
    if how is not Change.DELETE and value is None:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"{name} has no value")
    if how in (Change.APPEND, Change.SUBTRACT):
        configs.check_list(name)
    return how
