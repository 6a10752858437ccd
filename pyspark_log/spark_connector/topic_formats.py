"""What the configs of a topic say of its keys and values, for a read or a write whose options leave it open.

It is asked where Spark fixes the columns, in a process that others wait for: of a store in a folder it reads two small
files, and loads no engine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark_log.config import with_formats
from pyspark_log.errors import InvalidTopicError, StoreNotFoundError, UnknownTopicError
from pyspark_log.spark_connector.options import Options, StorePlace
from pyspark_log.storage.catalog import TopicCatalog
from pyspark_log.storage.catalog.store_json import TOPICS_FOLDER, describe
from pyspark_log.storage.objects import by_kind


def with_topic_formats(
    place: StorePlace, options: Options, topic: str, parts: Collection[str] = ("key", "value")
) -> dict[str, str]:
    """Options, with what the topic's configs say of keys and values where these leave it open.

    Of a store or a topic that is missing there are none: what reads or writes it says so.

    Raises:
        PylogError: a description is damaged; an object store does not answer.
    """
    try:
        configs = by_kind(place.path, folder=_of_folder, objects=_of_objects)(place, topic)
    except (StoreNotFoundError, UnknownTopicError, InvalidTopicError):
        return dict(options)
    return with_formats(options, configs, parts)


def _of_folder(place: StorePlace, topic: str) -> Mapping[str, str]:
    of_store = describe(place.path).configs
    return {**of_store, **TopicCatalog(f"{place.path}/{TOPICS_FOLDER}", "").describe(topic).configs}


def _of_objects(place: StorePlace, topic: str) -> Mapping[str, str]:
    from pyspark_log.storage.store import Store  # noqa: PLC0415  (see above)

    store = Store.shared(place.path, options=place.options)
    return {**store.configs, **store.describe_topic(topic).configs}
