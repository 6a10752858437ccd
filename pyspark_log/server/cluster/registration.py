"""The registration of a node with the controllers, and its heartbeats: what Kafka's BrokerLifecycleManager does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from pyspark_log.kafka.error_codes import ErrorCode, name_of
from pyspark_log.kafka.messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from pyspark_log.server.cluster.errors import RegistrationError, UnsupportedFeatureError
from pyspark_log.server.cluster.features import CORDONED_LOG_DIRS, METADATA_VERSION, SUPPORTED, check_features
from pyspark_log.server.cluster.image import Endpoint, FeatureRange, Image
from pyspark_log.server.cluster.requests import NO_ANSWER, Attempts, Send

#: No epoch: of a node that is not registered, or whose last run did not end in order.
NO_EPOCH = -1

# The controllers do not know the registration that a heartbeat is of.
_GONE = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)
# No retry helps.
_REFUSALS: Mapping[int, str] = {
    ErrorCode.INVALID_REGISTRATION: "the registration is invalid",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "they are of another cluster",
    ErrorCode.INVALID_REQUEST: "the request is invalid",
}


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """What a node says of itself, and how. Times are in ms.

    Attributes:
        incarnation_id: of this process; another one in each run.
        endpoints: where clients and other brokers find it.
        log_dirs: ids of those that are online.
        previous_epoch: of the registration of its last run, if that ended in order, else NO_EPOCH: then the controllers
            do not trust what it had (ELR, KIP-966).
        features: what it knows.
        stay_fenced: it never leads and is in no ISR, but has its replicas.
        heartbeat_interval: between heartbeats.
        request_timeout: how long a request may take; half of Kafka's broker.session.timeout.ms.
        registration_timeout: how long the controllers may refuse or not answer a registration until the node stops.
        least_backoff, most_backoff: between attempts that fail. The longest is much shorter than a session, so that one
            does not end when the leader of the controllers has changed.
    """

    node_id: int
    cluster_id: str
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    log_dirs: tuple[bytes, ...]
    rack: str | None = None
    previous_epoch: int = NO_EPOCH
    features: Mapping[str, FeatureRange] = field(default_factory=lambda: SUPPORTED)
    stay_fenced: bool = False
    heartbeat_interval: int = 2_000
    request_timeout: int = 4_500
    registration_timeout: int = 60_000
    least_backoff: int = 100
    most_backoff: int = 500


class State(Enum):
    """How far a node is."""

    UNREGISTERED = "unregistered"
    REGISTERED = "registered"
    SHUTTING_DOWN = "shutting down"  # the controllers move away what it leads
    STOPPED = "stopped"  # it may end


class Registration:
    """Registers a node, and keeps it registered. It is used by one thread; times are in ms and never go back.

    The caller sends what `poll` returns to the leader of the controllers, in a version that both sides know
    (`requests.in_version`), and reports the answer (`answered`) or that there will be none (`failed`). It calls `poll`
    after any other call, and when `next_deadline` is reached. What is reported of a request that has failed before, or
    was answered, is dropped.

    Nothing is sent before there is a current image, as its features must be known, nor after the node has stopped.

    Attributes:
        state: how far it is.
        epoch: of its registration, which all its requests to controllers have; NO_EPOCH: it is not registered.
        last_epoch: the same, or of its last registration; NO_EPOCH: this process has had none.
        is_caught_up: whether the controllers have said that it has the metadata up to its own registration.
        is_fenced: what they have said last.
    """

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self.state, self.epoch, self.last_epoch = State.UNREGISTERED, NO_EPOCH, NO_EPOCH
        self.is_caught_up, self.is_fenced = False, True
        self._attempts = Attempts(config.request_timeout, config.least_backoff, config.most_backoff)
        self._previous_epoch = config.previous_epoch
        self._is_ready, self._gives_up = False, False
        self._offline: set[bytes] = set()
        self._cordoned: tuple[bytes, ...] | None = None
        self._metadata_version = 0
        self._offset: int | None = None  # of the image
        self._is_due = False  # the next heartbeat has something to say, and does not wait for its time
        self._patience: int | None = None  # when the node stops if it is not registered

    @property
    def trouble(self) -> str | None:
        """Why the last request has brought nothing; None: it has brought something."""
        return self._attempts.trouble

    # ---- what happens in the node

    def follow(self, image: Image, is_current: bool = True) -> None:
        """Takes what the observer has after each answer.

        Args:
            image: the newest one.
            is_current: whether it has all that is committed (`Observer.is_current`). If not, it is of the past, in
                which the cluster may have had other features, and is not looked at.

        Raises:
            UnsupportedFeatureError: the cluster has finalized what the node does not know.
            RegistrationError: log dirs are cordoned, and the cluster is too old for that.
        """
        level = image.features.get(METADATA_VERSION)
        if level is None or not is_current:
            return
        check_features(image.features, self._config.features)
        self._metadata_version, self._offset = level, image.position.offset
        self._check_cordoned()
        if not self.is_caught_up and self._offset >= self.epoch != NO_EPOCH:
            self._is_due = True

    def be_ready(self, *, is_ready: bool = True) -> None:
        """Takes whether the node may be unfenced, as it has opened its logs; unless it is to stay fenced."""
        if is_ready != self._is_ready:
            self._is_ready, self._is_due = is_ready, True

    def give_up(self) -> None:
        """Has the node fenced from now on, because it cannot follow the metadata any more."""
        self._gives_up = self._is_due = True

    def cordon(self, log_dirs: tuple[bytes, ...]) -> None:
        """Has the controllers place no new partitions in log dirs; those that are not named are cordoned no more.

        Raises:
            RegistrationError: the cluster is too old for that.
        """
        self._cordoned, self._is_due = log_dirs, True
        self._check_cordoned()

    def lose_log_dir(self, log_dir: bytes) -> None:
        """Reports that a log dir has failed: the controllers move away what the node leads in it."""
        self._offline.add(log_dir)
        self._is_due = True

    def shut_down(self) -> None:
        """Begins to leave in order. The node runs until the state is STOPPED, or as long as its user waits for that."""
        is_known = self.epoch != NO_EPOCH and self.state is not State.STOPPED
        self.state, self._is_due = State.SHUTTING_DOWN if is_known else State.STOPPED, True

    def _check_cordoned(self) -> None:
        if self._cordoned and self._offset is not None and self._metadata_version < CORDONED_LOG_DIRS:
            raise RegistrationError(
                f"log dirs are to be cordoned, and the cluster's {METADATA_VERSION} is {self._metadata_version}: this "
                f"needs {CORDONED_LOG_DIRS}, which Kafka 4.3 has"
            )

    # ---- requests

    def poll(self, now: int) -> Send | None:
        """What is to be sent now; None: nothing, before a call or `next_deadline`.

        Raises:
            RegistrationError: the controllers have not registered the node in time.
        """
        attempts = self._attempts
        if attempts.take_overdue(now) is not None:
            attempts.fail(NO_ANSWER, now)
        if attempts.sent is not None or self._offset is None or self.state is State.STOPPED:
            return None
        if self.epoch == NO_EPOCH:
            self._check_patience(now)
        if now < attempts.not_before and (attempts.failures or not self._is_due):
            return None
        self._is_due = False
        request = self._registration() if self.epoch == NO_EPOCH else self._heartbeat(self._offset)
        return attempts.send(None, request, now)

    def next_deadline(self) -> int | None:
        """When `poll` is to be called at the latest; None: only after another call."""
        attempts = self._attempts
        if self._offset is None or self.state is State.STOPPED:
            return None
        if attempts.sent is not None:
            return attempts.sent.deadline
        return attempts.not_before if attempts.failures or not self._is_due else 0

    def _check_patience(self, now: int) -> None:
        if self._patience is None:
            self._patience = now + self._config.registration_timeout
        elif now >= self._patience:
            raise RegistrationError(
                f"the controllers have not registered node {self._config.node_id} within "
                f"{self._config.registration_timeout} ms: {self.trouble}"
            )

    def _registration(self) -> BrokerRegistrationRequest:
        config, request = self._config, BrokerRegistrationRequest
        return request(
            config.node_id,
            config.cluster_id,
            config.incarnation_id,
            [request.Listener(one.listener, one.host, one.port, one.security_protocol) for one in config.endpoints],
            [request.Feature(name, *levels) for name, levels in config.features.items()],
            config.rack,
            log_dirs=sorted(set(config.log_dirs) - self._offline),
            previous_broker_epoch=self._previous_epoch,
        )

    def _heartbeat(self, offset: int) -> BrokerHeartbeatRequest:
        may_lead = self._is_ready and not self._gives_up and not self._config.stay_fenced
        return BrokerHeartbeatRequest(
            self._config.node_id,
            self.epoch,
            offset,
            want_fence=not may_lead or offset < self.epoch,
            want_shut_down=self.state is State.SHUTTING_DOWN,
            offline_log_dirs=sorted(self._offline),
            cordoned_log_dirs=self._cordoned,
        )

    # ---- answers

    def failed(self, number: int, why: str, now: int) -> None:
        """Takes that there is no answer to a request: no connection, or its end."""
        if self._attempts.take(number) is not None:
            self._attempts.fail(why, now)

    def answered(self, number: int, response: BrokerRegistrationResponse | BrokerHeartbeatResponse, now: int) -> None:
        """Takes an answer.

        Raises:
            UnsupportedFeatureError: the cluster has finalized what the node does not know.
            RegistrationError: the controllers refuse the node.
        """
        if self._attempts.take(number) is None:
            return
        if isinstance(response, BrokerRegistrationResponse):
            self._registered(response, now)
        else:
            self._beaten(response, now)

    def _registered(self, response: BrokerRegistrationResponse, now: int) -> None:
        error = response.error_code
        if error == ErrorCode.UNSUPPORTED_VERSION:
            known = ", ".join(f"{name} {one.lowest}-{one.highest}" for name, one in self._config.features.items())
            raise UnsupportedFeatureError(
                f"the controllers refuse node {self._config.node_id}: the cluster has finalized more than it knows, "
                f"which is {known}"
            )
        if error in _REFUSALS:
            raise RegistrationError(f"the controllers refuse node {self._config.node_id}: {_REFUSALS[error]}")
        if error:
            self._attempts.fail(name_of(error), now)
            return
        self.epoch = self.last_epoch = response.broker_epoch
        self._previous_epoch, self._patience = NO_EPOCH, None
        if self.state is State.UNREGISTERED:
            self.state = State.REGISTERED
        self._attempts.succeed(now)

    def _beaten(self, response: BrokerHeartbeatResponse, now: int) -> None:
        error, config = response.error_code, self._config
        if error in _GONE:
            self.epoch, self.is_caught_up, self.is_fenced = NO_EPOCH, False, True
            self.state = State.STOPPED if self.state is State.SHUTTING_DOWN else State.UNREGISTERED
            self._attempts.succeed(now)
            self._attempts.trouble = name_of(error)
        elif error:
            self._attempts.fail(name_of(error), now)
        else:
            self.is_caught_up, self.is_fenced = response.is_caught_up, response.is_fenced
            is_leaving = self.state is State.SHUTTING_DOWN
            if is_leaving and response.should_shut_down:
                self.state = State.STOPPED
            self._attempts.succeed(now + (config.least_backoff if is_leaving else config.heartbeat_interval))
