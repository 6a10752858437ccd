"""Topics of a Kafka cluster, a broker's folders or a store, mirrored byte for byte: batches and offsets as they are."""

from pyspark_log.mirror.mirror import Mirror, MirrorPlan, MirrorResult
from pyspark_log.mirror.sources import ClusterSource, Source, open_folder

__all__ = ["ClusterSource", "Mirror", "MirrorPlan", "MirrorResult", "Source", "open_folder"]
