"""The configs of topics and brokers of a cluster, which a node describes as any broker does: from its image."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from pyspark_log.errors import UnknownTopicError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from pyspark_log.server.answers.configs import Config
from pyspark_log.server.answers.refusal import RefusedError
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.handlers.topics.configs import ResourceKind, described_configs, listed_resources
from pyspark_log.server.handlers.topics.metadata import advertised
from pyspark_log.server.node import configs
from pyspark_log.storage.catalog import check_name

if TYPE_CHECKING:
    from pyspark_log.server.node.view import NodeView


async def describe_configs(view: NodeView, call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describes the configs of topics, of this node, and of all brokers."""
    return await described_configs(call, request, partial(_configs_of, view))


async def list_config_resources(
    view: NodeView, call: Call, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """Lists what has configs: topics and brokers of the cluster."""
    brokers = [number for number, broker in view.image.brokers.items() if not broker.fenced]
    return listed_resources(call, request, [topic.name for topic in view.image.topics.values()], brokers)


def _configs_of(view: NodeView, call: Call, kind: int, name: str) -> Iterable[Config]:
    broker, image = call.broker, view.image
    own, of_store = broker.node_id, broker.logs.configs
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
        host, port = advertised(call)
        return configs.configs_of_node(image, own, f"{view.node.listener}://{host}:{port}", of_store)
    raise RefusedError(ErrorCode.INVALID_REQUEST, f"configs of kind {kind} are not described here")
