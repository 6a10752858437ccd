"""How answers differ from Kafka's on purpose, and why."""

from __future__ import annotations

import re
from typing import NamedTuple


class Known(NamedTuple):
    """Differences of a kind.

    Attributes:
        pattern: of the whole text of such a difference.
        recordings: a pattern of the names of the recordings that have it.
        always: whether each of them has it; else it depends on how fast Kafka was when the session was recorded.
    """

    pattern: str
    recordings: str
    reason: str
    always: bool = True

    def is_of(self, recording):
        """Whether a recording may have it."""
        return re.fullmatch(self.recordings, recording) is not None

    def covers(self, difference):
        """Whether a difference is of this kind."""
        return re.fullmatch(self.pattern, str(difference), re.DOTALL) is not None


# The recordings in which a client makes a topic and gets all its configs, or asks for them.
_MAKES_TOPICS = (
    "confluent-(produce|resume|static|rebalance|seek|administer|patterns|mistakes).*|kafka-python-.*|aiokafka-(produce|resume|rebalance).*"
    "|java-.*|kafka-streams|franz-go|sarama|kafka-go|platformatic|rskafka"
)
_OF_THE_BROKER = r"DescribeConfigs 4\.results\[1\]\.configs"
_NOT_YET_THERE = r"\]\.(error_code: 3, here 0|topic_id: .*|partitions\[.\]: 'absent', here .*)"
_CONFIGS = r"(CreateTopics|DescribeConfigs) \d+\.(topics|results)\[.*\]\.configs"

#: All of them.
KNOWN = (
    Known(
        _CONFIGS + r"\[(follower|leader)\.replication\.throttled\.replicas\]: .*, here 'absent'",
        _MAKES_TOPICS,
        "there are no replicas",
    ),
    Known(
        _CONFIGS + r"\[(remote\.log|local\.retention)\.[a-z.]*\]: .*, here 'absent'",
        _MAKES_TOPICS,
        "there is no other storage",
    ),
    Known(
        _CONFIGS + r"\[(min\.insync\.replicas|preallocate|remote\.storage\.enable|unclean\.leader\.election\.enable)\]"
        r"(\.(read_only|config_source|synonyms\[.*\](\.source)?))?: .*",
        _MAKES_TOPICS,
        "each of these has the one value that it can have here",
    ),
    Known(
        r"DescribeConfigs \d+\.results\[.*\]\.configs\[.*\]\.synonyms"
        r"\[log\.(retention\.(ms|hours)|roll\.ms|roll\.jitter\.ms|flush\.interval\.ms)(, again)?\]: .*",
        "confluent-administer|java-configs|java-inspect",
        "times have one name here, in milliseconds, and its default is a synonym as any other",
    ),
    Known(
        r"((DescribeConfigs|CreatePartitions) \d+\.results\[missing\]"
        r"|Produce \d+\.responses\[t\]\.partition_responses\[0\])\.error_message: (''|None), here 'a text'",
        "confluent-(administer|mistakes)",
        "Kafka has no text for this one",
    ),
    Known(
        r"DescribeConfigs \d+\.results\[__consumer_offsets\]\.configs\[(segment\.bytes|delete\.retention\.ms"
        r"|max\.message\.bytes)\]\.(value|config_source|synonyms\[.*\](\.value)?): .*",
        "java-(topics|inspect)",
        "the internal topic is set up for one process that reads it whole",
    ),
    Known(
        _OF_THE_BROKER + r"\[[a-z0-9.]*\]: .*, here 'absent'",
        "java-configs",
        "configs of a broker that mean nothing here",
    ),
    Known(
        _OF_THE_BROKER + r"\[(batch\.max\.memory\.bytes|staged\.output\..*)\]: 'absent', here .*",
        "java-configs",
        "configs that Kafka has not",
    ),
    Known(
        _OF_THE_BROKER + r"\[[a-z0-9.]*\]\.read_only: False, here True",
        "java-configs",
        "configs of the server cannot be changed while it runs",
    ),
    Known(
        _OF_THE_BROKER + r"\[(broker\.id|(default|offsets\.topic)\.replication\.factor|log\.dirs)\]"
        r"\.(config_source|value|synonyms.*): .*",
        "java-configs",
        "these are what the server is started with",
    ),
    Known(
        _OF_THE_BROKER + r"\[log\.cleaner\.dedupe\.buffer\.size\]\..*",
        "java-configs",
        "the recorded broker is set to another one",
    ),
    Known(
        _OF_THE_BROKER + r"\[log\.(flush\.interval|roll|roll\.jitter)\.ms\]\.value: None, here .*",
        "java-configs",
        "Kafka takes the value of another name",
    ),
    Known(_OF_THE_BROKER + r"\[log\.cleaner\.io\.max\.bytes\.per\.second\]\..*", "java-configs", "a whole number here"),
    Known(
        _OF_THE_BROKER + r"\[advertised\.listeners\]\.(value|synonyms\[.*\]\.value): .*", "java-configs", "an address"
    ),
    Known(r"DescribeLogDirs 4\.results\[0\]\.log_dir: .*", "java-(cluster|reassign)", "a path"),
    Known(
        r"DescribeLogDirs 4\.results\[0\]\.topics\[__consumer_offsets\]\.partitions\[0\]\.partition_size: .*",
        "java-cluster",
        "the recorded broker has coordinated groups before",
    ),
    Known(
        r"ListOffsets 11\.topics\[__consumer_offsets\]\.partitions\[0\]\.offset: .*",
        "java-offsets",
        "the recorded broker has coordinated groups before",
    ),
    Known(
        r"Metadata 13\.topics\[made-by-a-producer" + _NOT_YET_THERE,
        "confluent-create-when-missing",
        "a missing topic is there at once; Kafka has it some time later",
    ),
    Known(
        r"Metadata 13\.topics\[streams-wordcount-.*" + _NOT_YET_THERE,
        "kafka-streams",
        "a topic is there when the answer says that it was made; Kafka has it some time later",
        always=False,
    ),
)
