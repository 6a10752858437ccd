"""Requests to controllers: where they go, when the next one follows, and what they are in an older version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pyspark_log.kafka.messages import AlterPartitionRequest, BrokerHeartbeatRequest, BrokerRegistrationRequest
from pyspark_log.kafka.schemas import Struct
from pyspark_log.server.cluster.errors import RegistrationError

# From these versions on, a registration has features whose lowest level is 0 (KAFKA-17011), and a heartbeat has the log
# dirs that are offline (KIP-858) and those that are cordoned (KIP-1066).
_FEATURES_FROM_0, _OFFLINE_LOG_DIRS, _CORDONED_LOG_DIRS = 4, 1, 2
# From this version on, the replicas that are to be in sync come with the epochs of their brokers (KIP-903).
_BROKER_EPOCHS = 3

#: Why a request has failed that was not answered.
NO_ANSWER = "no answer in time"


class Address(NamedTuple):
    """Where a controller is."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Send:
    """A request that is to be sent.

    Attributes:
        number: of this request; its answer or failure is reported with it.
        to: where to; None: to the leader of the controllers, as the observer knows it.
        request: in the newest version; `in_version` makes it an older one.
        deadline: when it has failed if there is no answer, in ms. The connection is of no use then.
    """

    number: int
    to: Address | None
    request: Struct
    deadline: int


class Attempts:
    """One request at a time, and a pause after each that fails, which is longer each time. Times are in ms.

    Attributes:
        sent: the request that is waited for, or None.
        failures: how many requests have failed in a row.
        trouble: why the last one has failed; None: it has not.
        not_before: when the next one may follow.
    """

    def __init__(self, timeout: int, least_backoff: int, most_backoff: int) -> None:
        """`timeout`: of a request; `least_backoff`, `most_backoff`: between attempts."""
        self._timeout, self._least, self._most = timeout, least_backoff, most_backoff
        self.sent: Send | None = None
        self.failures, self.not_before = 0, 0
        self.trouble: str | None = None
        self._number = 0

    def send(self, to: Address | None, request: Struct, now: int) -> Send:
        """Makes a request the one that is waited for."""
        self._number += 1
        self.sent = Send(self._number, to, request, now + self._timeout)
        return self.sent

    def take(self, number: int) -> Send | None:
        """The request of that number, which is waited for no more; None: it was not waited for."""
        sent = self.sent
        if sent is None or sent.number != number:
            return None
        self.sent = None
        return sent

    def take_overdue(self, now: int) -> Send | None:
        """The request that has no answer in time, which is waited for no more; None: there is none."""
        sent = self.sent
        if sent is None or now < sent.deadline:
            return None
        self.sent = None
        return sent

    def succeed(self, not_before: int) -> None:
        """Takes that a request has brought something, and when the next one may follow."""
        self.failures, self.trouble, self.not_before = 0, None, not_before

    def fail(self, why: str, now: int) -> None:
        """Takes that a request has brought nothing."""
        pause = min(self._least << min(self.failures, 20), self._most)
        self.failures, self.trouble, self.not_before = self.failures + 1, why, now + pause


def in_version(request: Struct, version: int) -> Struct:
    """A request as it is in a version that both sides know: without what the version cannot say.

    Raises:
        RegistrationError: without that, it would not be what the node is configured to be.
    """
    if isinstance(request, BrokerRegistrationRequest) and version < _FEATURES_FROM_0:
        return request._replace(features=[one for one in request.features if one.min_supported_version > 0])
    if isinstance(request, AlterPartitionRequest) and version < _BROKER_EPOCHS:
        return request._replace(topics=[_without_epochs(topic) for topic in request.topics])
    if isinstance(request, BrokerHeartbeatRequest):
        if version < _CORDONED_LOG_DIRS:
            if request.cordoned_log_dirs:
                raise RegistrationError(
                    f"log dirs are to be cordoned, and the controllers know version {version} of heartbeats: this needs"
                    " Kafka 4.3"
                )
            request = request._replace(cordoned_log_dirs=None)
        if version < _OFFLINE_LOG_DIRS:
            request = request._replace(offline_log_dirs=())
    return request


def _without_epochs(topic: AlterPartitionRequest.TopicData) -> AlterPartitionRequest.TopicData:
    return topic._replace(
        partitions=[
            one._replace(new_isr=[replica.broker_id for replica in one.new_isr_with_epochs], new_isr_with_epochs=())
            for one in topic.partitions
        ]
    )
