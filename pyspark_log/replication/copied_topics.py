"""Keeps the topics of a store as those of a Kafka cluster are: their ids, partitions and configs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from pyspark_log.config import OWN_TOPIC_CONFIGS, TOPIC_CONFIGS
from pyspark_log.replication.errors import ReplicationError
from pyspark_log.storage.catalog import check_name
from pyspark_log.storage.catalog.topics import check_partitions, id_text
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.log_manager import TopicAdmin
from pyspark_log.types import TopicDescription
from pyspark_log.units import plural

log = logging.getLogger(__name__)

#: What a mirror that keeps deleted records sets for a new topic, and then leaves to the store's users.
KEPT: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
#: The same, where the configs of a topic are not known.
UNKNOWN: Final = {"retention.ms": "-1"}


class CopiedTopics:
    """The topics of a store that are copies. Not thread-safe."""

    def __init__(self, store: FolderStore, admin: TopicAdmin, *, keep: bool = False) -> None:
        """
        Args:
            store: the store.
            admin: what changes its topics.
            keep: whether records stay that the source deletes.
        """
        self._store, self._admin, self._keep = store, admin, keep

    def ensure(self, name: str, topic_id: bytes, partitions: int, configs: Mapping[str, str] | None) -> None:
        """Creates a topic of the source in the store, or adds the partitions that it lacks.

        Args:
            name, topic_id, partitions: of the topic, as the source has them.
            configs: the same, for a topic that is created; None: they are not known, so its history stays.

        Raises:
            ReplicationError: the store has another topic of that name.
            PylogError, OSError: it cannot be created.
        """
        store, theirs = self._store, id_text(topic_id)
        if name not in store.topics(internal=True):
            check_name(name)
            check_partitions(name, partitions)
            known_configs = UNKNOWN if configs is None else _configs_of_store(configs)
            store.logs.make_folders()
            self._admin.adopt(
                TopicDescription(name, theirs, partitions, known_configs | (KEPT if self._keep else {})), {}, {}
            )
            log.info("%s: created, with %s", name, plural(partitions, "partition"))
            return
        description = store.describe_topic(name)
        if description.topic_id != theirs:
            raise ReplicationError(
                f"topic {name!r} of the store has the id {description.topic_id}, that of the source {theirs}: it is "
                "another topic, or was deleted and created again in the source; delete the store's, or take "
                "another store"
            )
        if description.partitions < partitions:
            self._admin.add_partitions(name, partitions)
            log.info("%s: the source now has %s", name, plural(partitions, "partition"))

    def configure(self, name: str, configs: Mapping[str, str]) -> None:
        """Gives a topic of the store the configs that the source has. PylogError, OSError."""
        source_configs, own = _configs_of_store(configs), self._store.describe_topic(name).configs
        # What no cluster can have is set here, if the source does not say otherwise.
        own = {key: value for key, value in own.items() if key in source_configs or key not in OWN_TOPIC_CONFIGS}
        if self._keep:
            source_configs = {key: value for key, value in source_configs.items() if key not in KEPT}
            own = {key: value for key, value in own.items() if key not in KEPT}
        if source_configs != own:
            self._admin.alter_configs(name, source_configs, [key for key in own if key not in source_configs])
            log.info("%s: its configs follow the source: %s", name, source_configs)


def _configs_of_store(configs: Mapping[str, str]) -> dict[str, str]:
    """The configs that a store has, too."""
    return {name: value for name, value in configs.items() if name in TOPIC_CONFIGS}
