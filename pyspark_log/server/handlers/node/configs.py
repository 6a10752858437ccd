"""The configs of topics and brokers of a cluster, which a node describes as any broker does: from its image."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark_log.errors import UnknownTopicError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from pyspark_log.server.cluster import Image
from pyspark_log.server.configs import Config
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.handlers.topics.configs import ResourceKind, described_configs, listed_resources
from pyspark_log.server.handlers.topics.metadata import advertised
from pyspark_log.server.node import configs
from pyspark_log.server.refusal import RefusedError
from pyspark_log.storage.catalog import check_name


def _image(call: Call) -> Image:
    node = call.broker.node
    assert node is not None
    return node.image


async def describe_configs(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describes the configs of topics, of this node, and of all brokers."""
    return await described_configs(call, request, _configs_of)


async def list_config_resources(call: Call, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """Lists what has configs: topics and brokers of the cluster."""
    image = _image(call)
    brokers = [number for number, one in image.brokers.items() if not one.fenced]
    return listed_resources(call, request, [one.name for one in image.topics.values()], brokers)


def _configs_of(call: Call, kind: int, name: str) -> Iterable[Config]:
    broker, image = call.broker, _image(call)
    own, of_store = broker.node_id, broker.store.configs
    if kind == ResourceKind.TOPIC:
        check_name(name)
        if image.topic(name) is None:
            raise UnknownTopicError(f"there is no topic {name}")
        return configs.configs_of_topic(image, name, own, of_store)
    if kind == ResourceKind.BROKER and name == "":
        return configs.configs_of_all_brokers(image)
    if kind in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER):
        if name != str(own):
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"this is broker {own}, and not {name!r}")
        if kind == ResourceKind.BROKER_LOGGER:
            return ()
        assert broker.node is not None
        host, port = advertised(call)
        return configs.configs_of_node(image, own, f"{broker.node.listener}://{host}:{port}", of_store)
    raise RefusedError(ErrorCode.INVALID_REQUEST, f"configs of kind {kind} are not described here")
