"""What is wrong with a message, and what a cluster refuses."""

from __future__ import annotations

from pyspark_log.errors import PylogError


class MessageError(PylogError):
    """Bytes are no message of Kafka's protocol, or values fit into none."""

    condition = "PYLOG_INVALID_MESSAGE"


class ClusterError(PylogError):
    """A Kafka cluster does not answer, refuses a request, or answers what it may not."""

    condition = "PYLOG_KAFKA_CLUSTER"


class ProducerFencedError(ClusterError):
    """Another producer has the transactional id since."""

    condition = "PYLOG_KAFKA_PRODUCER_FENCED"


class LoginError(ClusterError):
    """A Kafka cluster refuses a login."""

    condition = "PYLOG_KAFKA_LOGIN"


class UnsupportedVersionError(MessageError):
    """A request is of an API or a version that is not known.

    Attributes:
        api_key, api_version, correlation_id: from its header.
    """

    condition = "PYLOG_UNSUPPORTED_VERSION"

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        super().__init__(f"no version {api_version} of the API with key {api_key}")
        self.api_key, self.api_version, self.correlation_id = api_key, api_version, correlation_id


class UnknownRecordError(MessageError):
    """A record of a cluster's metadata is of a type or a version that is not known."""

    condition = "PYLOG_UNKNOWN_RECORD"
