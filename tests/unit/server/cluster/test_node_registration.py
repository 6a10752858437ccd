"""The registration of a node: what it says when, what it takes of answers, and what ends it."""

from dataclasses import replace

import pytest

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.cluster import Image, NodeConfig, Registration, State, in_version
from pyspark_log.server.cluster.errors import RegistrationError, UnsupportedFeatureError
from pyspark_log.server.cluster.features import SUPPORTED, check_features
from pyspark_log.server.cluster.image import Endpoint, FeatureRange, Position
from pyspark_log.server.cluster.registration import NO_EPOCH

DIR, OTHER = b"d" * 16, b"e" * 16
CONFIG = NodeConfig(
    7, "cluster", b"i" * 16, (Endpoint("PLAINTEXT", "h", 9092, 0),), (OTHER, DIR), "r1", previous_epoch=33
)
EPOCH = 100
FEATURES = {"metadata.version": 30, "group.version": 1}


def image(offset, **features):
    levels = {name.replace("_", "."): level for name, level in features.items()}
    return replace(Image(), position=Position(offset, 1), features={**FEATURES, **levels})


def node(**config):
    """A node that has an image, and is about to register."""
    made = Registration(replace(CONFIG, **config))
    made.follow(image(50))
    return made


def registered(**config):
    """A node that is registered, at time 0."""
    made = node(**config)
    made.answered(made.poll(0).number, m.BrokerRegistrationResponse(broker_epoch=EPOCH), 0)
    return made


def beat(made, now, *, fenced=True, caught_up=False, shut_down=False, error=0):
    """The heartbeat that it sends now, which is answered."""
    send = made.poll(now)
    answer = m.BrokerHeartbeatResponse(0, error, caught_up, fenced, shut_down)
    made.answered(send.number, answer, now)
    return send.request


def running(**config):
    """A node that is unfenced, whose next heartbeat is due at 2000."""
    made = registered(**config)
    made.be_ready()
    made.follow(image(EPOCH))
    assert not beat(made, 0, fenced=False, caught_up=True).want_fence
    return made


# ---- registering


def test_nothing_is_sent_before_there_is_an_image():
    made = Registration(CONFIG)
    assert (made.poll(10**6), made.next_deadline()) == (None, None)
    made.follow(replace(Image(), position=Position(0, 1)))
    made.cordon((DIR,))
    assert (made.poll(10**6), made.next_deadline()) == (None, None)
    made.follow(image(1))
    assert made.poll(10**6) is not None


def test_what_a_registration_says():
    made = node()
    assert made.next_deadline() == 0
    send = made.poll(5)
    assert (send.to, send.deadline) == (None, 4505)
    request = send.request
    assert (request.broker_id, request.cluster_id, request.incarnation_id) == (7, "cluster", b"i" * 16)
    assert request.listeners == [("PLAINTEXT", "h", 9092, 0)]
    assert (request.rack, request.log_dirs, request.previous_broker_epoch) == ("r1", [DIR, OTHER], 33)
    assert {one.name: tuple(one[1:]) for one in request.features} == SUPPORTED
    assert not request.is_migrating_zk_broker
    assert (made.state, made.epoch) == (State.UNREGISTERED, NO_EPOCH)
    made.answered(send.number, m.BrokerRegistrationResponse(broker_epoch=EPOCH), 9)
    assert (made.state, made.epoch, made.is_fenced, made.is_caught_up) == (State.REGISTERED, EPOCH, True, False)
    assert made.next_deadline() == 9


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.NOT_CONTROLLER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_SERVER_ERROR, 999,
    ],
)  # fmt: skip
def test_a_registration_is_repeated_later_each_time_and_given_up_in_the_end(error):
    made, now, pauses = node(), 0, []
    while now < 60_000:
        send = made.poll(now)
        made.answered(send.number, m.BrokerRegistrationResponse(error_code=error), now)
        assert made.poll(now + 99) is None
        pauses.append(made.next_deadline() - now)
        now = made.next_deadline()
    assert pauses[:6] == [100, 200, 400, 500, 500, 500]
    name = error.name if isinstance(error, ErrorCode) else "error 999"
    with pytest.raises(RegistrationError, match=f"have not registered node 7 within 60000 ms: {name}"):
        made.poll(now)


def test_no_answer_at_all_and_answers_that_come_late():
    made = node()
    first = made.poll(0)
    assert made.next_deadline() == 4500
    assert made.poll(4499) is None
    assert made.poll(4500) is None
    assert made.trouble == "no answer in time"
    second = made.poll(4600)
    made.answered(first.number, m.BrokerRegistrationResponse(broker_epoch=1), 4600)
    made.failed(first.number, "closed", 4600)
    assert (made.epoch, made.trouble) == (NO_EPOCH, "no answer in time")
    made.failed(second.number, "refused", 4700)
    assert (made.trouble, made.next_deadline()) == ("refused", 4900)
    third = made.poll(4900)
    made.answered(third.number, m.BrokerRegistrationResponse(broker_epoch=EPOCH), 5000)
    assert (made.epoch, made.trouble) == (EPOCH, None)


@pytest.mark.parametrize(
    ("error", "raised", "why"),
    [
        (ErrorCode.INVALID_REGISTRATION, RegistrationError, "refuse node 7: the registration is invalid"),
        (ErrorCode.INCONSISTENT_CLUSTER_ID, RegistrationError, "refuse node 7: they are of another cluster"),
        (ErrorCode.INVALID_REQUEST, RegistrationError, "refuse node 7: the request is invalid"),
        (ErrorCode.UNSUPPORTED_VERSION, UnsupportedFeatureError, r"more than it knows, which is metadata.version 7-30"),
    ],
)
def test_what_no_retry_helps_with(error, raised, why):
    made = node()
    send = made.poll(0)
    with pytest.raises(raised, match=why):
        made.answered(send.number, m.BrokerRegistrationResponse(error_code=error), 0)


# ---- heartbeats


def test_a_node_is_unfenced_when_it_is_ready_and_has_its_own_registration():
    made = registered()
    first = beat(made, 0)
    assert (first.broker_id, first.broker_epoch, first.current_metadata_offset) == (7, EPOCH, 50)
    assert (first.want_fence, first.want_shut_down, first.offline_log_dirs, first.cordoned_log_dirs) == (
        True, False, [], None,
    )  # fmt: skip
    assert (made.poll(1999), made.next_deadline()) == (None, 2000)
    made.be_ready()
    assert beat(made, 10).want_fence
    made.follow(image(EPOCH - 1))
    assert made.poll(20) is None
    made.follow(image(EPOCH))
    assert made.next_deadline() == 0
    second = beat(made, 30, fenced=False, caught_up=True)
    assert (second.want_fence, second.current_metadata_offset) == (False, EPOCH)
    assert (made.is_fenced, made.is_caught_up) == (False, True)
    made.follow(image(EPOCH + 9))
    assert (made.poll(2029), made.next_deadline()) == (None, 2030)
    assert beat(made, 2030, fenced=False, caught_up=True).current_metadata_offset == EPOCH + 9


def test_a_node_that_has_its_registration_first_is_unfenced_when_it_is_ready():
    made = registered()
    made.follow(image(EPOCH))
    assert beat(made, 0, caught_up=True).want_fence
    made.be_ready()
    assert not beat(made, 10, fenced=False).want_fence


def test_a_heartbeat_that_has_news_waits_for_the_one_before_it_and_for_the_pause_after_a_failure():
    made = registered()
    send = made.poll(0)
    made.be_ready()
    assert made.poll(10) is None
    made.answered(send.number, m.BrokerHeartbeatResponse(), 20)
    send = made.poll(20)
    made.failed(send.number, "refused", 30)
    made.lose_log_dir(DIR)
    assert (made.poll(129), made.next_deadline()) == (None, 130)
    assert beat(made, 130).offline_log_dirs == [DIR]


def test_a_node_that_stays_fenced():
    made = registered(stay_fenced=True)
    made.be_ready()
    made.follow(image(EPOCH))
    assert all(beat(made, now, caught_up=True).want_fence for now in (0, 2000, 4000))


def test_a_node_that_gives_up_is_fenced():
    made = running()
    made.give_up()
    assert beat(made, 10).want_fence
    made.be_ready(is_ready=False)
    made.be_ready()
    assert beat(made, 20).want_fence


def test_a_node_that_was_fenced_for_its_silence_is_unfenced_by_its_next_heartbeats():
    made = running()
    beat(made, 2000, fenced=True, caught_up=True)
    assert made.is_fenced
    assert not beat(made, 4000, fenced=False, caught_up=True).want_fence
    assert not made.is_fenced


@pytest.mark.parametrize("error", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED])
def test_a_registration_that_is_gone_is_repeated_with_the_same_incarnation(error):
    made = running()
    beat(made, 2000, error=error)
    assert (made.state, made.epoch, made.is_fenced, made.is_caught_up) == (State.UNREGISTERED, NO_EPOCH, True, False)
    assert made.last_epoch == EPOCH
    assert made.trouble == error.name
    send = made.poll(2000)
    assert send.request.incarnation_id == CONFIG.incarnation_id
    # The logs are those of a node that runs, not of one that has ended in order.
    assert send.request.previous_broker_epoch == NO_EPOCH
    made.answered(send.number, m.BrokerRegistrationResponse(broker_epoch=200), 2000)
    assert made.epoch == made.last_epoch == 200
    assert beat(made, 2000).want_fence
    made.follow(image(200))
    assert not beat(made, 2001, fenced=False, caught_up=True).want_fence


def test_other_errors_of_heartbeats_change_nothing():
    made = running()
    for now in (2000, 2100, 2300):
        beat(made, now, error=ErrorCode.NOT_CONTROLLER)
    assert (made.state, made.epoch, made.is_fenced, made.next_deadline()) == (State.REGISTERED, EPOCH, False, 2700)


def test_log_dirs_that_have_failed():
    made = running()
    made.lose_log_dir(OTHER)
    assert beat(made, 10, fenced=False).offline_log_dirs == [OTHER]
    assert beat(made, 2010, error=ErrorCode.STALE_BROKER_EPOCH).offline_log_dirs == [OTHER]
    assert made.poll(2010).request.log_dirs == [DIR]


def test_cordoned_log_dirs():
    made = running()
    made.cordon((DIR,))
    assert beat(made, 10, fenced=False).cordoned_log_dirs == (DIR,)
    assert beat(made, 2010, fenced=False).cordoned_log_dirs == (DIR,)
    made.cordon(())
    assert beat(made, 2020, fenced=False).cordoned_log_dirs == ()


def test_a_cluster_that_is_too_old_for_cordoned_log_dirs():
    made = node()
    made.follow(image(51, metadata_version=29))
    with pytest.raises(RegistrationError, match=r"the cluster's metadata.version is 29: this needs 30"):
        made.cordon((DIR,))
    made = Registration(CONFIG)
    made.cordon((DIR,))
    with pytest.raises(RegistrationError, match=r"the cluster's metadata.version is 29"):
        made.follow(image(51, metadata_version=29))
    made = node()
    made.follow(image(51, metadata_version=29))
    made.cordon(())


# ---- shutting down


def test_a_shutdown_in_order():
    made = running()
    made.shut_down()
    assert made.state is State.SHUTTING_DOWN
    request = beat(made, 10, fenced=False)
    assert (request.want_shut_down, request.want_fence) == (True, False)
    assert (made.state, made.poll(109)) == (State.SHUTTING_DOWN, None)
    beat(made, 110, shut_down=True)
    assert (made.state, made.epoch) == (State.STOPPED, EPOCH)
    assert (made.poll(10**9), made.next_deadline()) == (None, None)
    made.shut_down()
    assert made.state is State.STOPPED


def test_a_shutdown_of_a_node_that_is_not_registered():
    made = node()
    made.shut_down()
    assert (made.state, made.poll(0)) == (State.STOPPED, None)
    made = node()
    send = made.poll(0)
    made.shut_down()
    made.answered(send.number, m.BrokerRegistrationResponse(broker_epoch=EPOCH), 0)
    assert (made.state, made.poll(10)) == (State.STOPPED, None)


def test_a_shutdown_of_a_node_whose_registration_is_gone():
    made = running()
    made.shut_down()
    beat(made, 10, error=ErrorCode.STALE_BROKER_EPOCH)
    assert (made.state, made.poll(10**9)) == (State.STOPPED, None)


# ---- features and versions


def test_features_that_are_not_known_end_a_node_that_runs():
    made = running()
    made.follow(image(EPOCH + 1, **{"transaction_version": 2}))
    with pytest.raises(UnsupportedFeatureError, match=r"finalized transaction.version at level 3, .* levels 0 to 2"):
        made.follow(image(EPOCH + 2, **{"transaction_version": 3}))
    with pytest.raises(UnsupportedFeatureError, match=r"finalized the feature new.version at level 1, which this"):
        made.follow(image(EPOCH + 2, **{"new_version": 1}))


def test_an_image_of_the_past_is_not_looked_at():
    made = Registration(CONFIG)
    made.follow(image(50, metadata_version=4), is_current=False)
    assert made.poll(0) is None
    made = running()
    made.follow(image(EPOCH + 5, metadata_version=99), is_current=False)
    assert beat(made, 2000, fenced=False).current_metadata_offset == EPOCH


def test_the_bounds_of_features():
    known = {"a": FeatureRange(2, 4)}
    for level in (2, 3, 4):
        check_features({"a": level}, known)
    for level in (1, 5):
        with pytest.raises(UnsupportedFeatureError, match="another version is needed"):
            check_features({"a": level}, known)


def test_a_registration_in_older_versions_has_no_features_that_may_be_missing():
    request = node().poll(0).request
    assert in_version(request, 4) == request
    for version in range(4):
        assert [one.name for one in in_version(request, version).features] == ["metadata.version"]


def test_a_heartbeat_in_older_versions():
    request = m.BrokerHeartbeatRequest(7, offline_log_dirs=[DIR], cordoned_log_dirs=[OTHER])
    assert in_version(request, 2) == request
    for version in (0, 1):
        with pytest.raises(RegistrationError, match=f"the controllers know version {version} of heartbeats"):
            in_version(request, version)
    free = request._replace(cordoned_log_dirs=())
    assert in_version(free, 1) == request._replace(cordoned_log_dirs=None)
    assert in_version(free, 0) == m.BrokerHeartbeatRequest(7)
    assert in_version(m.FetchRequest(), 17) == m.FetchRequest()
