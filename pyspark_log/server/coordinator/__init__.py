"""The coordinator of consumer groups as a state machine: it has no clock, no threads, no I/O and no randomness.

Requests and the time are arguments, answers and what must be stored are results: see `Coordinator`. It follows the
classic group protocol of Kafka 4.x (KIP-62, KIP-134, KIP-345, KIP-394, KIP-559, KIP-814), and the new one (KIP-848,
KIP-1251).
"""

from pyspark_log.server.coordinator.coordinator import Coordinator
from pyspark_log.server.coordinator.effects import Client, Effects, GroupRecord, MemberRecord, ModernStore, Store, Token
from pyspark_log.server.coordinator.modern_group import Topic, Topics
from pyspark_log.server.coordinator.outbox import of_storing
from pyspark_log.server.coordinator.rebalances import Settings

__all__ = [
    "Client",
    "Coordinator",
    "Effects",
    "GroupRecord",
    "MemberRecord",
    "ModernStore",
    "Settings",
    "Store",
    "Token",
    "Topic",
    "Topics",
    "of_storing",
]
