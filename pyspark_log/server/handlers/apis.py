"""The table of the APIs that are served: key, versions, handler.

Lowest versions are those of Kafka 4.3, to the letter, and no version is left out in between: librdkafka up to 2.11.0
turns features off by versions that it misses.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from pyspark_log.server.handlers import api_versions
from pyspark_log.server.handlers.access.acls import create_acls, delete_acls, describe_acls
from pyspark_log.server.handlers.access.quotas import alter_client_quotas, describe_client_quotas
from pyspark_log.server.handlers.access.sasl import sasl_authenticate, sasl_handshake
from pyspark_log.server.handlers.access.users import alter_user_scram_credentials, describe_user_scram_credentials
from pyspark_log.server.handlers.coordinators.group_admin import (
    consumer_group_describe,
    delete_groups,
    describe_groups,
    list_groups,
)
from pyspark_log.server.handlers.coordinators.group_offsets import offset_commit, offset_delete, offset_fetch
from pyspark_log.server.handlers.coordinators.membership import (
    consumer_group_heartbeat,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    sync_group,
)
from pyspark_log.server.handlers.coordinators.transaction_admin import (
    describe_producers,
    describe_transactions,
    list_transactions,
    write_txn_markers,
)
from pyspark_log.server.handlers.coordinators.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    txn_offset_commit,
)
from pyspark_log.server.handlers.records import fetch, produce
from pyspark_log.server.handlers.records.leader_epochs import offset_for_leader_epoch
from pyspark_log.server.handlers.records.list_offsets import list_offsets
from pyspark_log.server.handlers.records.log_dirs import alter_replica_log_dirs, describe_log_dirs
from pyspark_log.server.handlers.topics.admin import create_partitions, create_topics, delete_topics
from pyspark_log.server.handlers.topics.cluster import (
    alter_partition_reassignments,
    delete_records,
    describe_cluster,
    elect_leaders,
    list_partition_reassignments,
)
from pyspark_log.server.handlers.topics.configs import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from pyspark_log.server.handlers.topics.metadata import metadata


class Api(NamedTuple):
    """An API.

    Attributes:
        versions: of requests and responses.
        handler: awaits only `Wait`s; returns the response, None if the client expects none.
        counts_errors: whether the handler counts errors, as it sees each partition anyway; else its caller does.
    """

    versions: range
    handler: Callable[..., Coroutine[Any, Any, Any]]
    counts_errors: bool = False


def _versions(first: int, last: int) -> range:
    return range(first, last + 1)


#: The APIs by key.
APIS: Mapping[int, Api] = {
    # Kafka has removed versions 0 to 2, so the schema lacks them. But Kafka lists them, since librdkafka compresses
    # nothing for a server that does not (KAFKA-18659). A client that sends one is disconnected.
    produce.KEY: Api(_versions(0, 13), produce.produce, counts_errors=True),
    fetch.KEY: Api(_versions(4, 18), fetch.fetch, counts_errors=True),
    2: Api(_versions(1, 11), list_offsets),
    3: Api(_versions(0, 13), metadata),
    # Version 0, whose messages follow without headers, is refused: but librdkafka looks whether it is listed.
    17: Api(_versions(0, 1), sasl_handshake),
    api_versions.KEY: Api(_versions(0, 4), api_versions.api_versions),
    8: Api(_versions(2, 10), offset_commit),
    9: Api(_versions(1, 10), offset_fetch),
    10: Api(_versions(0, 5), find_coordinator),
    11: Api(_versions(0, 9), join_group),
    12: Api(_versions(0, 4), heartbeat),
    13: Api(_versions(0, 5), leave_group),
    14: Api(_versions(0, 5), sync_group),
    15: Api(_versions(0, 6), describe_groups),
    16: Api(_versions(0, 5), list_groups),
    19: Api(_versions(2, 7), create_topics),
    20: Api(_versions(1, 6), delete_topics),
    21: Api(_versions(0, 2), delete_records),
    22: Api(_versions(0, 5), init_producer_id),
    23: Api(_versions(2, 4), offset_for_leader_epoch),
    # Versions 4 and 5 are for brokers.
    24: Api(_versions(0, 3), add_partitions_to_txn),
    25: Api(_versions(0, 4), add_offsets_to_txn),
    26: Api(_versions(0, 5), end_txn),
    27: Api(_versions(1, 2), write_txn_markers),
    28: Api(_versions(0, 5), txn_offset_commit),
    29: Api(_versions(1, 3), describe_acls),
    30: Api(_versions(1, 3), create_acls),
    31: Api(_versions(1, 3), delete_acls),
    32: Api(_versions(1, 4), describe_configs),
    33: Api(_versions(0, 2), alter_configs),
    34: Api(_versions(1, 2), alter_replica_log_dirs),
    35: Api(_versions(1, 4), describe_log_dirs),
    36: Api(_versions(0, 2), sasl_authenticate),
    37: Api(_versions(0, 3), create_partitions),
    42: Api(_versions(0, 2), delete_groups),
    43: Api(_versions(0, 2), elect_leaders),
    44: Api(_versions(0, 1), incremental_alter_configs),
    45: Api(_versions(0, 1), alter_partition_reassignments),
    46: Api(_versions(0, 0), list_partition_reassignments),
    47: Api(_versions(0, 0), offset_delete),
    48: Api(_versions(0, 1), describe_client_quotas),
    49: Api(_versions(0, 1), alter_client_quotas),
    50: Api(_versions(0, 0), describe_user_scram_credentials),
    51: Api(_versions(0, 0), alter_user_scram_credentials),
    60: Api(_versions(0, 2), describe_cluster),
    61: Api(_versions(0, 0), describe_producers),
    65: Api(_versions(0, 0), describe_transactions),
    66: Api(_versions(0, 2), list_transactions),
    68: Api(_versions(0, 1), consumer_group_heartbeat),
    69: Api(_versions(0, 1), consumer_group_describe),
    74: Api(_versions(0, 1), list_config_resources),
}


#: What only the controllers of a cluster do: ElectLeaders, DescribeQuorum, UpdateFeatures, UnregisterBroker.
OF_CLUSTERS: Mapping[int, range] = {43: _versions(0, 2), 55: _versions(0, 2), 57: _versions(0, 2), 64: _versions(0, 0)}


def node_apis() -> Mapping[int, Api]:
    """Those of a node of a cluster: all that other brokers serve.

    Some clients ask one broker for what all of them know.
    """
    from pyspark_log.server.handlers.node import cluster, configs, coordinating, elsewhere, finding, transactions  # noqa: PLC0415  (other servers need not load it)
    from pyspark_log.server.handlers.node import fetch as node_fetch  # noqa: PLC0415  (likewise)

    handlers = {**elsewhere.HANDLERS, **dict.fromkeys(elsewhere.FORWARDED, elsewhere.forward)}
    here = {key: APIS[key].handler for key in (*coordinating.GROUPS, *coordinating.IDS)}
    here[24] = transactions.add_partitions_to_txn
    handlers[22] = finding.init_producer_id
    handlers |= {key: coordinating.coordinating(key, one, handlers[key]) for key, one in here.items()}
    found = {key: APIS[key]._replace(handler=handler, counts_errors=False) for key, handler in handlers.items()}
    return (
        found
        | {key: Api(versions, elsewhere.forward) for key, versions in OF_CLUSTERS.items()}
        | {key: APIS[key] for key in (0, 2, 16, 17, api_versions.KEY, 21, 23, 29, 35, 36, 48, 50, 61, 66)}
        | {
            fetch.KEY: Api(_versions(4, 18), node_fetch.fetch, counts_errors=True),
            3: Api(_versions(0, 13), cluster.metadata),
            10: Api(_versions(0, 5), finding.find_coordinator),
            24: found[24]._replace(versions=_versions(0, 5)),
            27: APIS[27]._replace(handler=transactions.write_txn_markers),
            32: APIS[32]._replace(handler=configs.describe_configs),
            60: Api(_versions(0, 2), cluster.describe_cluster),
            74: APIS[74]._replace(handler=configs.list_config_resources),
        }
    )
