"""Requests as tests need them, and what is in their responses."""

from __future__ import annotations

import base64
import os
import struct
import time

import pytest
from record_tools import Record, build, read

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.handlers.apis import APIS
from pyspark_log.server.handlers.call import key_of
from tests import requests as r
from tests.amounts import few_or_many
from tests.requests import NO_ID

#: Versions from which on topics are named by their ids.
PRODUCE_BY_ID = FETCH_BY_ID = 13
LATEST, EARLIEST, LARGEST_TIME = -1, -2, -3
#: How many damaged requests a server gets.
DAMAGED = few_or_many(600, int(os.environ.get("PYLOG_DAMAGED_REQUESTS", "3000")))


def each_version(request, lowest=0):
    """Runs a test with each version of a request that a server has, from `lowest` on, as its argument `version`."""
    return pytest.mark.parametrize("version", [each for each in APIS[key_of(request)].versions if each >= lowest])


def id_of(store, topic):
    return base64.urlsafe_b64decode(store.describe_topic(topic).topic_id + "==")


def batch(*values, codec="none", **fields):
    """A record batch as a client sends it; `fields` as of BatchBuilder.seal, and the records' `timestamp` and `key`."""
    record = {"timestamp": int(time.time() * 1000)}  # older ones are past retention
    record |= {name: fields.pop(name) for name in ("timestamp", "key") if name in fields}
    return build([Record(value=value, **record) for value in values], codec, **fields)


def produce_request(topic, *parts, acks=-1, topic_id=NO_ID, transactional_id=None):
    """`parts`: the bytes of a batch each, for the partitions from 0 on."""
    return r.produce(topic, *enumerate(parts), acks=acks, topic_id=topic_id, transactional_id=transactional_id)


def produce(peer, topic, data, version=9, **fields):
    """Produces a batch to partition 0; what is answered for it."""
    response = peer.ask(produce_request(topic, data, **fields), version)
    [[answer]] = [one.partition_responses for one in response.responses]
    return answer


def fetch_request(topic, *offsets, topic_id=NO_ID, max_bytes=1 << 20, total=1 << 20, wait=0, least=1, **fields):
    """`offsets`: of the partitions from 0 on."""
    partitions = [
        m.FetchRequest.FetchPartition(number, -1, offset, -1, -1, max_bytes) for number, offset in enumerate(offsets)
    ]
    request = m.FetchRequest(
        max_wait_ms=wait, min_bytes=least, max_bytes=total,
        topics=[m.FetchRequest.FetchTopic(topic, topic_id, partitions)],
    )  # fmt: skip
    return request._replace(**fields)


def fetch(peer, topic, offset, version=12, **fields):
    """Fetches from partition 0; what is answered for it."""
    response = peer.ask(fetch_request(topic, offset, **fields), version)
    assert response.error_code == ErrorCode.NONE
    [[answer]] = [one.partitions for one in response.responses]
    return answer


def values(answer):
    """The values of fetched records, by their offsets."""
    return {record.offset: record.value for record in read(bytes(answer.records))}


def list_offset(peer, topic, time, version=7, partition=0, **fields):
    """Looks up an offset of a partition; what is answered."""
    request = r.list_offsets(topic, time, partition=partition, **fields)
    [[answer]] = [one.partitions for one in peer.ask(request, version).topics]
    return answer


def damaged_frame(frame, chance):
    """A frame with some bytes changed, cut out or put in; its length may be right or not."""
    body = bytearray(frame[4:])
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(body))
        kind = chance.random()
        if kind < 0.6:
            body[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        elif kind < 0.8:
            del body[at : at + chance.randint(1, 8)]
        else:
            body[at:at] = chance.randbytes(chance.randint(1, 8))
        if len(body) < 12:
            break
    size = len(body) if chance.random() < 0.9 else chance.choice([0, len(body) + 1000, chance.getrandbits(32)])
    return struct.pack(">I", size & 0xFFFFFFFF) + bytes(body)
