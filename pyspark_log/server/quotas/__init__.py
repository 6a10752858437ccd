"""Quotas: how much clients may use of a server, and how long those wait that use more. It knows no messages of Kafka's.

Names, levels and times are Kafka's (KIP-13, 55, 124, 219, 599, 612).
"""

from pyspark_log.server.quotas.entities import (
    DEFAULT,
    KINDS,
    OF_ADDRESSES,
    OF_CLIENTS,
    Entity,
    Quotas,
    check_entity,
    check_quota,
)
from pyspark_log.server.quotas.table import Table
from pyspark_log.server.quotas.throttles import ClientQuotas, Throttle, Throttles, Usage

__all__ = [
    "DEFAULT", "KINDS", "OF_ADDRESSES", "OF_CLIENTS", "ClientQuotas", "Entity", "Quotas", "Table", "Throttle",
    "Throttles", "Usage", "check_entity", "check_quota",
]  # fmt: skip
