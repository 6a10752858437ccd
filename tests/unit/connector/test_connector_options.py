"""Options of the data source: the Kafka connector's rules, without Spark."""

from dataclasses import replace

import pytest

from pyspark_log import DefaultSource
from pyspark_log.connector_options import READ_OPTIONS, WRITE_OPTIONS
from pyspark_log.spark_connector.errors import ConnectorError
from pyspark_log.spark_connector.options import (
    ReadOptions,
    StorePlace,
    TriggerLimits,
    WriteOptions,
    lower_names,
    split_storage,
    store_path,
    without_effect,
)
from pyspark_log.spark_connector.planning.offsets import (
    AT_EARLIEST,
    AT_LATEST,
    AtCommitted,
    AtTimestamp,
    AtTimestamps,
    Specific,
)
from pyspark_log.spark_connector.planning.ranges import Splitting
from pyspark_log.spark_connector.planning.subscription import Assigned, Topics
from pyspark_log.types import TopicPartition
from tests.paths import ROOT


def read_options(**options):
    given = {"subscribe": "t", **{name.replace("__", "."): value for name, value in options.items()}}
    return ReadOptions.parse(lower_names({name: value for name, value in given.items() if value is not None}))


def test_defaults():
    options = read_options()
    assert options.subscription == Topics(("t",))
    assert options.batch_bounds() == (AT_EARLIEST, AT_LATEST)
    assert options.stream_start() == AT_LATEST
    assert (options.include_headers, options.fail_on_data_loss, options.group_id) == (False, True, None)
    assert options.group_id_prefix == "spark-kafka-source"
    assert (options.retries, options.retry_interval_ms) == (3, 1000)


def test_into_how_many_tasks_a_read_is_split():
    assert read_options().splitting == Splitting(None, None)
    options = read_options(MINpartitions=" 4", maxRecordsPerPartition="4000000000")
    assert options.splitting == Splitting(4, 4_000_000_000)


def test_topics_are_trimmed_and_named_once():
    assert read_options(subscribe=" a, b,,a ").subscription == Topics(("a", "b"))


def test_names_and_words_are_case_insensitive():
    given = {"SUBSCRIBE": "T", "startingOFFSETS": " earLiEst ", "EndingOffsets": "laTest", "INCLUDEHEADERS": "TRUE"}
    options = ReadOptions.parse(lower_names(given))
    assert options.subscription == Topics(("T",))
    assert (options.start, options.end, options.include_headers) == (AT_EARLIEST, AT_LATEST, True)


def test_offsets_as_json():
    options = read_options(startingOffsets='{"t":{"0":-2,"1":5}}', endingOffsets='{"t":{"0":7,"1":-1}}')
    start, end = options.batch_bounds()
    assert start == Specific({TopicPartition("t", 0): -2, TopicPartition("t", 1): 5})
    assert end == Specific({TopicPartition("t", 0): 7, TopicPartition("t", 1): -1})


def test_a_timestamp_wins_over_offsets_which_are_not_even_read():
    assert read_options(startingTimestamp=" 1500 ", startingOffsets="nonsense").start == AtTimestamp(1500)


def test_kafka_client_settings_pass_through():
    options = read_options(kafka__bootstrap__servers="unused:9092", **{"kafka.group.id": "mine"})
    assert options.group_id == "mine"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": None}, "One of the following options must be specified"),
        ({"assign": "{}"}, "Only one of the following options can be specified"),
        ({"subscribe": " , "}, "No topics to subscribe to as specified value for option 'subscribe' is ' , '"),
        ({"subscribe": ""}, "No topics to subscribe to as specified value for option 'subscribe' is ''"),
        ({"subscribe": None, "subscribePattern": ""}, "Pattern to subscribe is empty"),
        ({"subscribe": None, "assign": ""}, "No topicpartitions to assign as specified value"),
        ({"subscribe": None, "subscribePattern": " "}, "Pattern to subscribe is empty"),
        (
            {"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "15"},
            r"The value of minOffsetsPerTrigger \(20\) is higher than the maxOffsetsPerTrigger \(15\)",
        ),
        ({"subscribe": None, "assign": "{}"}, "assign: Expected e.g. .* got {}"),
        ({"subscribe": None, "assign": '{"t":["0"]}'}, "assign: Expected e.g. .* got "),
        ({"subscribe": None, "subscribePattern": "t("}, r"subscribePattern: 't\(' is not a regular expression"),
        ({"subscribe": None, "subscribePattern": "[a-z&&[^t]]"}, "subscribePattern: .*: Possible set intersection"),
        ({"endingTimestamp": "now"}, "endingTimestamp: Expected a single long value, got now: ms since 1970"),
        ({"startingOffsetsByTimestamp": '{"t":[1]}'}, "startingOffsetsByTimestamp: Expected e.g."),
        ({"startingOffsetsByTimestampStrategy": "first"}, "startingOffsetsByTimestampStrategy must be error or latest"),
        ({"startingOffsets": "group"}, "startingOffsets=group needs kafka.group.id"),
        ({"endingOffsets": "group", "kafka.group.id": "g"}, "endingOffsets: Expected e.g. .* got group"),
        ({"startingTimestamp": "now"}, "startingTimestamp: Expected a single long value, got now: ms since 1970"),
        ({"startingOffsets": '{"t":[1]}'}, 'startingOffsets: Expected e.g. .* got {"t":\\[1\\]}'),
        ({"startingOffsets": '{"t":"earliest"}'}, 'startingOffsets: Expected e.g. .* got {"t":"earliest"}'),
        ({"endingOffsets": "first"}, "endingOffsets: Expected e.g. .* got first"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "startingOffsets for t-0 is -3"),
        ({"startingOffsets": '{"t":{"0":1.5}}'}, "startingOffsets: Expected e.g."),
        ({"startingOffsets": '{"t":{"0":true}}'}, "startingOffsets: Expected e.g."),
        ({"includeHeaders": "yes"}, "includeHeaders must be true or false, got yes"),
        ({"includeHeaders": " true "}, "includeHeaders must be true or false, got  true "),
        ({"minPartitions": "0"}, "minPartitions must be positive"),
        ({"minPartitions": "-1"}, "minPartitions must be positive"),
        ({"minPartitions": "a"}, 'minPartitions must be a whole number. For input string: "a"'),
        ({"minPartitions": "1.0"}, 'minPartitions must be a whole number. For input string: "1.0"'),
        ({"minPartitions": "2147483648"}, "minPartitions must be a whole number"),
        ({"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition must be positive"),
        ({"maxRecordsPerPartition": "-9"}, "maxRecordsPerPartition must be positive"),
        ({"maxRecordsPerPartition": ""}, 'maxRecordsPerPartition must be a whole number. For input string: ""'),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss must be true or false"),
        ({"kafka.auto.offset.reset": "latest"}, "Kafka option 'auto.offset.reset' is not supported.*startingOffsets"),
        ({"kafka.key.deserializer": "x"}, "Kafka option 'key.deserializer' is not supported"),
        ({"kafka.value.deserializer": "x"}, "Kafka option 'value.deserializer' is not supported"),
        ({"kafka.enable.auto.commit": "true"}, "Kafka option 'enable.auto.commit' is not supported"),
        ({"kafka.interceptor.classes": "x"}, "Kafka option 'interceptor.classes' is not supported"),
    ],
)
def test_refused(options, message):
    with pytest.raises(ConnectorError, match=rf"\[PYLOG_INVALID_OPTION\] {message}"):
        read_options(**options)


_LARGE = "1" * 100_000
_NESTED = "[" * 100_000


@pytest.mark.parametrize(
    "options",
    [
        *({name: value} for value in (_LARGE, _NESTED) for name in (
            "startingOffsets", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "startingTimestamp",
            "minPartitions", "failOnDataLoss", "onCorruption",
        )),
        {"subscribe": None, "assign": "{" + _NESTED},
        {"subscribe": None, "assign": '{"t":' + _NESTED},
        {"subscribe": None, "subscribePattern": _NESTED},
        {"subscribe": None, "subscribePattern": "(" * 100_000 + ")" * 100_000},
    ],
    ids="-".join,
)  # fmt: skip
def test_a_large_value_is_quoted_in_part(options):
    with pytest.raises(ConnectorError, match="PYLOG_INVALID_OPTION") as caught:
        read_options(**options)
    assert len(str(caught.value)) < 1000


def test_single_partitions():
    options = read_options(subscribe=None, assign=' {"t": [0, 2], "u": [1]}')
    wanted = {TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("u", 1)}
    assert options.subscription == Assigned(frozenset(wanted))


def test_a_pattern_is_found_anywhere_in_a_name():
    found = read_options(subscribe=None, subscribePattern="ord.rs").subscription
    assert [found.covers(TopicPartition(topic, 0)) for topic in ("my.orders.eu", "order")] == [True, False]


def test_timestamps_win_in_the_order_of_the_kafka_connector():
    offsets, times = {"startingOffsets": "nonsense"}, {"startingOffsetsByTimestamp": '{"t":{"0":7}}'}
    assert read_options(**offsets, **times).start == AtTimestamps({TopicPartition("t", 0): 7})
    assert read_options(startingTimestamp="5", startingOffsetsByTimestamp="nonsense", **offsets).start == AtTimestamp(5)
    ends = {"endingOffsets": "nonsense", "endingOffsetsByTimestamp": '{"t":{"0":9}}'}
    assert read_options(**ends).end == AtTimestamps({TopicPartition("t", 0): 9}, or_latest=True)
    assert read_options(endingTimestamp="8", **ends).end == AtTimestamp(8, or_latest=True)


def test_a_group_can_say_where_to_begin():
    assert read_options(startingOffsets=" Group", **{"kafka.group.id": "g"}).start == AtCommitted("g")
    times = {"startingTimestamp": "5", "startingOffsets": "group"}
    assert read_options(**times).start == AtTimestamp(5)


def test_what_to_do_without_a_record_so_late():
    options = read_options(startingTimestamp="5", startingOffsetsByTimestampStrategy="Latest")
    assert options.start == AtTimestamp(5, or_latest=True)


@pytest.mark.parametrize(
    ("text", "ms"), [("15m", 900_000), ("500ms", 500), ("30s", 30_000), ("2h", 7_200_000), ("7", 7)]
)
def test_how_long_a_trigger_waits(text, ms):
    given = read_options(
        minOffsetsPerTrigger="4", maxOffsetsPerTrigger="9", maxBytesPerTrigger="2MB", maxTriggerDelay=text
    )
    assert given.trigger_limits() == TriggerLimits(4, 9, 2 << 20, ms)
    assert read_options().trigger_limits() == TriggerLimits(None, None, None, 900_000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger must be positive"),
        ({"maxBytesPerTrigger": "1x"}, "maxBytesPerTrigger must be a number of bytes such as 64k, 128m or 1g, got 1x"),
        ({"maxBytesPerTrigger": "0m"}, "maxBytesPerTrigger must be a number of bytes"),
        ({"maxOffsetsPerTrigger": "1e3"}, "maxOffsetsPerTrigger must be a whole number"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay must be a time such as 500ms"),
    ],
)
def test_limits_of_triggers_are_refused_by_streams_and_ignored_by_batch_reads(options, message):
    given = read_options(**options)
    assert given.batch_bounds() == (AT_EARLIEST, AT_LATEST)
    with pytest.raises(ConnectorError, match=rf"\[PYLOG_INVALID_OPTION\] {message}"):
        given.trigger_limits()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets for t-0 can't be latest for batch queries"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "ending offset for t-0 can't be earliest for batch queries"),
        (
            {"startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"0":2,"1":2}}'},
            "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET.* t-0; for the end: t-0, t-1",
        ),
        (
            {"startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"0":0}}'},
            "UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET.*start offset 1 is greater than the end offset 0",
        ),
    ],
)
def test_refused_in_batch_reads(options, message):
    parsed = read_options(**options)
    with pytest.raises(ConnectorError, match=message):
        parsed.batch_bounds()


def test_sentinels_are_not_compared():
    read_options(startingOffsets='{"t":{"0":9}}', endingOffsets='{"t":{"0":-1}}').batch_bounds()


@pytest.mark.parametrize("end", ["latest", '{"t":{"0":1}}'])
def test_streams_have_no_end(end):
    with pytest.raises(ConnectorError, match="ending offset not valid in streaming queries"):
        read_options(endingOffsets=end).stream_start()
    with pytest.raises(ConnectorError, match="ending timestamp not valid in streaming queries"):
        read_options(endingOffsetsByTimestamp='{"t":{"0":1}}').stream_start()


def write_options(**options):
    return WriteOptions.parse(lower_names({name.replace("__", "."): value for name, value in options.items()}))


def test_write_options():
    options = write_options(topic=" t ", publishId="nightly", publishNumber="7", kafka__compression__type="zstd")
    assert options == WriteOptions("t", "nightly", 7, False, False, "zstd", None)
    assert write_options(timestampColumn="at").timestamp_column == "at"
    assert write_options() == WriteOptions(None, None, None, False, False, None, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"publishId": "", "publishNumber": "1"}, "publishId is empty"),
        ({"publishId": "a", "publishNumber": "-1"}, "publishNumber must be a whole number"),
        ({"kafka__key__serializer": "x"}, "Kafka option 'key.serializer' is not supported"),
        ({"kafka__value__serializer": "x"}, "Kafka option 'value.serializer' is not supported"),
    ],
)
def test_refused_in_writes(options, message):
    with pytest.raises(ConnectorError, match=message):
        write_options(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"publishId": "a"}, "publishId and publishNumber go together"),
        ({"publishNumber": "1"}, "publishId and publishNumber go together"),
        ({"publishTakeOver": "true"}, "publishTakeOver and publishOffsets are for streaming"),
        ({"publishOffsets": "true"}, "publishTakeOver and publishOffsets are for streaming"),
    ],
)
def test_refused_in_batch_writes(options, message):
    with pytest.raises(ConnectorError, match=message):
        write_options(**options).check_batch()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"publishId": "a", "publishNumber": "1"}, "publishNumber is for batch writes"),
        ({"publishTakeOver": "true"}, "publishTakeOver needs publishId"),
    ],
)
def test_refused_in_streaming_writes(options, message):
    with pytest.raises(ConnectorError, match=message):
        write_options(**options).check_stream()


def test_a_store_must_be_named():
    assert store_path({"path": " /a b "}) == "/a b"
    with pytest.raises(ConnectorError, match="Option 'path' must be specified"):
        store_path({})


def test_options_of_an_object_store():
    given = {"Storage.Endpoint": "e", "storage.secret_access_key": "s", "storage.secret.account_key": "a", "topic": "t"}
    of_store = {"endpoint": "e", "secret_access_key": "s", "account_key": "a"}
    assert split_storage(lower_names(given)) == (of_store, {"topic": "t"})
    # Spark would show them.
    for name in ("account_key", "service_account_key", "sas_key", "sse_customer_key_base64"):
        with pytest.raises(ConnectorError, match=f"name it storage.secret.{name}$") as caught:
            DefaultSource({"path": "s3://b/p", f"storage.{name}": "hush"})
        assert "hush" not in str(caught.value)
    assert "hush" not in repr(StorePlace("s3://b/p", {"token": "hush"}))


def test_options_without_effect():
    ways = {"kafka.bootstrap.servers": "b:9092", "kafka.sasl.mechanism": "PLAIN", "kafka.ssl.truststore.location": "/f"}
    assert without_effect(lower_names({"subscribe": "t", "PATH": "/s", **ways})) == []
    # What Spark adds for a table in its catalog.
    assert without_effect(["owner", "provider", "location", "option.subscribe"]) == []
    given = ["starting_offset", "kafka.max.poll.records", "header", "group.id", "kafka.consumer.group.id"]
    assert without_effect(given) == [
        "without effect here: group.id (is kafka.group.id meant?), header, "
        "kafka.consumer.group.id (is kafka.group.id meant?), kafka.max.poll.records, "
        "starting_offset (is startingOffsets meant?)"
    ]
    assert without_effect(["tropical", "publishids.x"], write=True) == [
        "without effect here: publishids.x (is publishId meant?), tropical"
    ]


def test_the_options_of_a_view_are_those_of_its_reads_and_its_writes():
    view = {"path": "/s", "subscribe": "t", "topic": "t", "startingoffsets": "earliest", "publishid": "p"}
    assert without_effect(view) == without_effect(view, write=True) == []
    ReadOptions.parse(view)
    WriteOptions.parse(view)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("startingOfsets", "startingOffsets"),
        ("startnigOffsets", "startingOffsets"),
        ("endingTimestanp", "endingTimestamp"),
        ("topics", "topic"),
        ("kafka.group.ids", "kafka.group.id"),
    ],
)
def test_a_name_that_is_one_letter_from_a_known_one(given, meant):
    for parse in (ReadOptions.parse, WriteOptions.parse):
        with pytest.raises(ConnectorError, match=rf"there is no option {given.lower()}: is {meant} meant\?$"):
            parse(lower_names({"subscribe": "t", given: "1"}))


def test_the_page_has_every_option():
    page = (ROOT / "docs/reference/spark.md").read_text()
    missing = [name for name in (*READ_OPTIONS, *WRITE_OPTIONS) if f"`{name}`" not in page]
    assert missing == []


def test_the_documented_defaults_are_those_that_count():
    given = {"path": "/s", "subscribe": "t"}
    defaults = {option.name: option.default for option in READ_OPTIONS.values() if option.default}
    spelled_out = ReadOptions.parse(lower_names(defaults | given))
    assert replace(spelled_out, given={}) == replace(
        ReadOptions.parse(lower_names(given)), given={}, end=spelled_out.end
    )
    assert spelled_out.trigger_limits() == ReadOptions.parse(lower_names(given)).trigger_limits()
    assert spelled_out.batch_bounds() == ReadOptions.parse(lower_names(given)).batch_bounds()
    defaults = {option.name: option.default for option in WRITE_OPTIONS.values() if option.default}
    written = WriteOptions.parse(lower_names(defaults))
    assert replace(written, compression_type=None) == WriteOptions.parse({})
