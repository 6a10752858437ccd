"""What a node serves, and its answers about groups and transactions that another broker coordinates."""

from types import SimpleNamespace

import pytest

from pyspark_log.kafka import encode_response
from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.schemas import api, message_of
from pyspark_log.server.handlers import APIS, KEYS, node_apis

NEW = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic("t", [0, 1])
COMMIT, IN_TRANSACTION = m.OffsetCommitRequest, m.TxnOffsetCommitRequest
COMMITTED = COMMIT.OffsetCommitRequestTopic("t", bytes(16), [COMMIT.OffsetCommitRequestPartition(0, 1)])
COMMITTED_THERE = IN_TRANSACTION.TxnOffsetCommitRequestTopic(
    "t", [IN_TRANSACTION.TxnOffsetCommitRequestPartition(0, 1)]
)
TWO_GROUPS = [m.OffsetFetchRequest.OffsetFetchRequestGroup(name) for name in ("a", "b")]
REQUESTS = [
    m.OffsetCommitRequest(group_id="g", topics=[COMMITTED]), m.OffsetFetchRequest(group_id="a"),
    m.JoinGroupRequest(group_id="g"), m.SyncGroupRequest(group_id="g"), m.HeartbeatRequest(group_id="g"),
    m.LeaveGroupRequest(group_id="g"), m.DescribeGroupsRequest(groups=["a", "b"]), m.OffsetDeleteRequest(group_id="g"),
    m.DeleteGroupsRequest(groups_names=["a", "b"]), m.ConsumerGroupHeartbeatRequest(group_id="g"),
    m.ConsumerGroupDescribeRequest(group_ids=["a", "b"]), m.InitProducerIdRequest(transactional_id="x"),
    m.AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=[NEW]),
    m.AddOffsetsToTxnRequest(transactional_id="x", group_id="g"), m.EndTxnRequest(transactional_id="x"),
    m.TxnOffsetCommitRequest(transactional_id="x", group_id="g", topics=[COMMITTED_THERE]),
    m.DescribeTransactionsRequest(transactional_ids=["a", "b"]),
]  # fmt: skip


class Elsewhere:
    """A node that coordinates nothing yet."""

    def __init__(self):
        self.coordinators = self

    def of_group(self, _name):
        return ErrorCode.NOT_COORDINATOR

    def of_transaction(self, _name):
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_the_apis_of_a_node():
    found = node_apis(Elsewhere())
    assert {*APIS, *found} == {*KEYS}
    names = {key: api(key)[0].name.removesuffix("Request") for key in KEYS}
    assert {names[key] for key in APIS.keys() - found.keys()} == {"AlterReplicaLogDirs"}
    of_controllers = {"DescribeQuorum", "UpdateFeatures", "UnregisterBroker"}
    assert {names[key] for key in found.keys() - APIS.keys()} == of_controllers
    both = APIS.keys() & found.keys()
    assert {names[key] for key in both if APIS[key].versions != found[key].versions} == {"AddPartitionsToTxn"}


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: type(one).__name__)
def test_a_coordinator_that_is_elsewhere(request_):
    key = message_of(request_).api_key
    served = node_apis(Elsewhere())[key]
    # Later versions are for brokers, which get an answer for each transaction.
    last = 3 if isinstance(request_, m.AddPartitionsToTxnRequest) else served.versions[-1]
    for version in range(served.versions[0], last + 1):
        if isinstance(request_, m.OffsetFetchRequest):
            request_ = request_._replace(groups=TWO_GROUPS if version >= 8 else ())
        with pytest.raises(StopIteration) as end:
            served.handler(SimpleNamespace(version=version), request_).send(None)
        response = end.value.value
        assert repr(ErrorCode.NOT_COORDINATOR) in repr(response)
        assert encode_response(response, version, 1)
