"""What a node asks the controllers of its cluster: connections, the cluster's id, and what it forwards for clients."""

from __future__ import annotations

import ipaddress
import logging
import time
from typing import Final

from pyspark_log.errors import PylogError
from pyspark_log.kafka import encode_request
from pyspark_log.kafka.client_config import ClientConfig
from pyspark_log.kafka.connection import Connection
from pyspark_log.kafka.error_codes import name_of
from pyspark_log.kafka.errors import ClusterError, LoginError, MessageError
from pyspark_log.kafka.messages import DescribeClusterRequest, EnvelopeRequest
from pyspark_log.kafka.schemas import Struct
from pyspark_log.server.cluster.errors import NodeError
from pyspark_log.server.cluster.requests import Address, Send, in_version
from pyspark_log.server.node.config import ClusterConfig
from pyspark_log.storage.groups.log.fields import compact_string

log = logging.getLogger(__name__)

#: How long an answer may take, in seconds.
TIMEOUT: Final = 5.0
_CONTROLLERS: Final = 2  # a type of endpoint
# How long controllers have to start, in seconds: as long as to register a node; and the pause between two tries.
_STARTING: Final = 60.0
_PAUSE: Final = 0.5
_LENGTH: Final = 4  # bytes, before a frame
# The version of the bytes of a principal (Kafka's DefaultPrincipalData): kind, name, and whether a token was used.
_PRINCIPAL: Final = b"\0\0"


def find_cluster_id(config: ClusterConfig) -> str:
    """The id of the cluster, as the first controller says that answers; those that are just starting are waited for.

    Raises:
        LoginError: a controller refuses the login.
        OSError, ClusterError: none answers, or it is older than Kafka 3.7.
    """
    if not config.controllers:
        raise OSError("no controller is named")
    until, is_told = time.monotonic() + _STARTING, False
    while True:
        try:
            return _ask_cluster_id(config)
        except LoginError:
            raise
        except (OSError, ClusterError) as error:
            if time.monotonic() > until:
                raise
            if not is_told:
                log.warning("%s; they are asked again for %d s", error, _STARTING)
                is_told = True
        time.sleep(_PAUSE)


def _ask_cluster_id(config: ClusterConfig) -> str:
    failure: OSError | ClusterError | None = None
    for host, port in config.controllers:
        try:
            with Connection(host, port, config.controller_client, timeout=TIMEOUT) as connection:
                response = connection.ask(DescribeClusterRequest(endpoint_type=_CONTROLLERS))
        except OSError as error:
            failure = OSError(f"the controller {host}:{port} does not answer: {error}")
            continue
        if not response.error_code:
            return str(response.cluster_id)
        # So does one that does not know yet which features the cluster has.
        failure = ClusterError(f"{host}:{port}: {response.error_message or name_of(response.error_code)}")
    assert failure is not None
    raise failure


class Connections:
    """Connections to controllers, one each."""

    def __init__(self, client: ClientConfig) -> None:
        self._client = client
        self._open: dict[Address, Connection] = {}

    def ask(self, send: Send, to: Address | None) -> Struct | str:
        """The answer to a request, or why there is none. NodeError: it cannot be made."""
        if to is None:
            return "the leader of the controllers is not known"
        try:
            connection = self._open.get(to)
            if connection is None:
                connection = self._open[to] = Connection(*to, self._client, timeout=TIMEOUT)
            version = connection.version(type(send.request))
            return connection.ask(in_version(send.request, version), version)
        except NodeError:
            raise
        except (OSError, PylogError) as error:
            gone = self._open.pop(to, None)
            if gone is not None:
                gone.close()
            if isinstance(error, MessageError):
                raise
            return str(error)

    def close(self) -> None:
        """Closes them."""
        for connection in self._open.values():
            connection.close()


def envelope(request: Struct, version: int, client_id: str, principal: str, host: str) -> EnvelopeRequest:
    """A client's request as a node forwards it (KIP-590).

    Args:
        request, version, client_id: of the client.
        principal: the client's, as `User:NAME`.
        host: its address.
    """
    frame = b"".join(map(bytes, encode_request(request, version, 0, client_id)))[_LENGTH:]
    kind, _, name = principal.partition(":")
    address = ipaddress.ip_address(host).packed
    return EnvelopeRequest(frame, _PRINCIPAL + compact_string(kind) + compact_string(name) + b"\0\0", address)
