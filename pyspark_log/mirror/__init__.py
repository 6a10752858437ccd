"""Topics of a Kafka cluster, mirrored into a store byte for byte: batches, offsets and leader epochs as they are."""

from pyspark_log.mirror.mirror import Mirror, MirrorPlan, MirrorResult

__all__ = ["Mirror", "MirrorPlan", "MirrorResult"]
