"""Kafka's own admin client, in Spark's JVM: configs of topics, and committed offsets of groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pyspark_log.types import TopicPartition

_ADMIN_CLIENT = "org.apache.kafka.clients.admin.AdminClient"


class ClusterAdmin:
    """The admin client of a cluster. Its calls raise Py4JError if the cluster refuses them, or does not answer."""

    def __init__(self, spark: SparkSession, bootstrap: str, options: Mapping[str, str]) -> None:
        """
        Args:
            spark: the session, whose JVM has kafka-clients, as with the package spark-sql-kafka.
            bootstrap: a host and a port, or several with commas.
            options: those of Kafka's clients.

        Raises:
            click.UsageError: there is no kafka-clients.
        """
        jvm: Any = spark._jvm
        try:
            loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
            jvm.java.lang.Class.forName(_ADMIN_CLIENT, True, loader)
        except Py4JJavaError as error:
            raise click.UsageError(
                "--from-kafka needs Spark's connector to Kafka: add to spark-submit "
                f"--packages org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version}"
            ) from error
        self._jvm = jvm
        properties = jvm.java.util.Properties()
        for name, value in ({"bootstrap.servers": bootstrap} | dict(options)).items():
            properties.put(name, value)
        self._admin: Any = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)

    def configs(self, topic: str) -> dict[str, str]:
        """The configs that are set for a topic, and not by default."""
        kind = getattr(self._jvm.org.apache.kafka.common.config, "ConfigResource$Type").TOPIC
        resource = self._jvm.org.apache.kafka.common.config.ConfigResource(kind, topic)
        asked = self._jvm.java.util.Collections.singletonList(resource)
        entries = self._admin.describeConfigs(asked).all().get().get(resource).entries().toArray()
        found = [(one.name(), one.value()) for one in entries if one.source().name() == "DYNAMIC_TOPIC_CONFIG"]
        return {name: value for name, value in found if value is not None}

    def groups(self) -> list[str]:
        """The names of the groups of consumers."""
        return sorted(one.groupId() for one in self._admin.listConsumerGroups().all().get().toArray())

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """A group's committed offsets, but for those below 0, with which it starts over."""
        found = self._admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
        offsets = {
            TopicPartition(at.topic(), at.partition()): found[at].offset() for at in found if found[at] is not None
        }
        return {at: offset for at, offset in offsets.items() if offset >= 0}
