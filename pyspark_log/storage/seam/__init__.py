"""The parts of a store, whatever it is kept in: what each call means, its units and its errors, said here only.

A folder has them in folder_publishes.py, folder_partitions.py and groups/offsets.py, an object store in publish_log.
"""

from pyspark_log.storage.seam.offsets import Membership, Offsets
from pyspark_log.storage.seam.partitions import PartitionEvents, Partitions, PartitionWatch
from pyspark_log.storage.seam.publishes import NewPublish, Publishes, StagingWriter

__all__ = [
    "Membership",
    "NewPublish",
    "Offsets",
    "PartitionEvents",
    "PartitionWatch",
    "Partitions",
    "Publishes",
    "StagingWriter",
]
