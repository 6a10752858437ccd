"""The features that a node says it knows, which must be all that its cluster has finalized."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_log.server.cluster.errors import UnsupportedFeatureError
from pyspark_log.server.cluster.image import FeatureRange

METADATA_VERSION = "metadata.version"
#: The level of METADATA_VERSION with which log dirs can be cordoned (4.3-IV0, KIP-1066).
CORDONED_LOG_DIRS = 30

#: What is known: the features of Kafka 4.3, and the versions of metadata from 3.3 on, the first with KRaft. All but
#: METADATA_VERSION are about what leaders and coordinators do.
SUPPORTED: Mapping[str, FeatureRange] = {
    METADATA_VERSION: FeatureRange(7, CORDONED_LOG_DIRS),
    "eligible.leader.replicas.version": FeatureRange(0, 1),
    "group.version": FeatureRange(0, 1),
    "kraft.version": FeatureRange(0, 1),
    "share.version": FeatureRange(0, 1),
    "streams.version": FeatureRange(0, 1),
    "transaction.version": FeatureRange(0, 2),
}


def check_features(finalized: Mapping[str, int], supported: Mapping[str, FeatureRange] = SUPPORTED) -> None:
    """Checks what a cluster has finalized.

    Raises:
        UnsupportedFeatureError: a feature or a level of it is not known.
    """
    for name, level in sorted(finalized.items()):
        known = supported.get(name)
        if known is None:
            raise UnsupportedFeatureError(
                f"the cluster has finalized the feature {name} at level {level}, which this version of pyspark-log does"
                " not know: a newer version is needed, or the node is to be unregistered"
            )
        if not known.lowest <= level <= known.highest:
            raise UnsupportedFeatureError(
                f"the cluster has finalized {name} at level {level}, and this version of pyspark-log knows the levels "
                f"{known.lowest} to {known.highest}: another version is needed, or the node is to be unregistered"
            )
