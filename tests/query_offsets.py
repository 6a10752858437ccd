"""The offsets of a streaming query, as Spark shows them and keeps them in the checkpoint."""

import json


def own_of(offset):
    """What the connector keeps in an offset beside those of the topics."""
    (key,) = (key for key in offset if key.startswith("@"))
    assert offset[key] == {}
    return json.loads(key[1:])


def of_topics(offset):
    """The offsets of the topics alone, as Spark's Kafka connector gives them."""
    return {topic: ends for topic, ends in offset.items() if not topic.startswith("@")}
