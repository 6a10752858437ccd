"""What a call in the words of Kafka's tools is called here: `topics --create --topic t` is `pylog topics create t`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

# What Kafka's tools are asked for by an option, and `pylog` by a subcommand.
_ACTIONS = {"--list", "--create", "--describe", "--alter", "--delete", "--delete-offsets", "--reset-offsets"}
_WITH_ACTIONS = {"topics", "groups", "configs", "log-dirs"}
# The options that name a topic, a group or a file, which is an argument here.
_NAMES = {"groups": {"--group"}, "dump": {"--files"}, "configs": {"--topic", "--entity-name"}}
_TOPIC_NAMES = {"--topic", "--topic-list"}
# The options about brokers, of which there are none. Each has a value.
_ADDRESSES = {"--bootstrap-server", "--broker-list", "--zookeeper"}
_BROKERS = _ADDRESSES | {
    "--replication-factor",
    "--entity-type",
    "--command-config",
    "--consumer.config",
    "--producer.config",
}
# Options with another name here; those with a value, and those without.
_RENAMED = {"--add-config": "--config", "--compression-codec": "--compression", "--messages": "--max-messages"}
_RENAMED_FLAGS = {"--print-data-log": "--records", "--deep-iteration": "--records"}
_PROPERTIES = {
    "print.key": "--print-key",
    "print.timestamp": "--print-timestamp",
    "print.headers": "--print-headers",
    "print.partition": "--print-partition",
    "print.offset": "--print-offset",
    "parse.headers": "--parse-headers",
}
_PROPERTY_VALUES = {"key.separator": "--key-separator", "null.marker": "--null-marker"}


def kafka_spelling(words: Sequence[str], refused: str, *, has_store: bool) -> str | None:
    """The line to type in place of a call with options of Kafka's tools.

    Args:
        words: those of the call, after `pylog`.
        refused: the option that `pylog` does not have; None is returned if Kafka's tools do not have it either.
        has_store: whether the store is known, from the words or from PYLOG_STORE. Otherwise `--store FOLDER` replaces
            the address of a broker.
    """
    store, words = _without_store(words)
    if not has_store and not store and any(word.partition("=")[0] in _ADDRESSES for word in words):
        store = ["--store", "FOLDER"]
    if not words:
        return None
    command = words[0]
    names = _NAMES.get(command, _TOPIC_NAMES)
    known = names | _BROKERS | _RENAMED.keys() | _RENAMED_FLAGS.keys() | {"--property", "--partitions"}
    if refused not in known | (_ACTIONS if command in _WITH_ACTIONS else set()):
        return None
    action, arguments, rest = _translated(command, names, words[1:])
    if command in _WITH_ACTIONS and not action and rest and not rest[0].startswith("-"):
        action = rest.pop(0)
    if command == "groups" and action == "delete-offsets":
        arguments = [word for name in arguments for word in ("--group", name)]
    if command == "configs" and (action == "alter" or arguments):
        command = "topics"
    elif command == "configs":
        action = ""
    if command == "export-kafka" and not any(word.partition("=")[0] == "--topic-id" for word in rest):
        rest += ("--topic-id", "ID")
    return shlex.join(["pylog", *store, command, *([action] if action else []), *arguments, *rest])


def _without_store(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words that name the store, and the others."""
    left = list(words)
    for at, word in enumerate(left):
        if word == "--store":
            return left[at : at + 2], left[:at] + left[at + 2 :]
        if word.startswith("--store="):
            return [word], left[:at] + left[at + 1 :]
    return [], left


def _translated(command: str, names: set[str], words: Sequence[str]) -> tuple[str, list[str], list[str]]:
    """The action, the arguments, and the options that are left."""
    action, arguments, rest = "", list[str](), list[str]()
    left = iter(words)
    for word in left:
        option, equals, value = word.partition("=")
        if word in _ACTIONS and command in _WITH_ACTIONS:
            action = word[2:]
        elif word in _RENAMED_FLAGS:
            rest.append(_RENAMED_FLAGS[word])
        elif option in names | _BROKERS | _RENAMED.keys() | {"--property"}:
            value = value if equals else next(left, "")
            if option in names:
                arguments += value.split(",") if option in ("--files", "--topic-list") else [value]
            elif option not in _BROKERS:
                rest += _property(value) if option == "--property" else (_RENAMED[option], value)
        elif command == "offsets" and option == "--partitions":
            rest += _each_partition(value if equals else next(left, ""))
        else:
            rest.append(word)
    return action, arguments, rest


def _each_partition(numbers: str) -> Iterator[str]:
    for number in numbers.split(","):
        yield from ("--partition", number)


def _property(text: str) -> Iterator[str]:
    """The option for a property of the console clients; none if the property is the default, or unknown."""
    name, _, value = text.partition("=")
    if name in _PROPERTIES and value == "true":
        yield _PROPERTIES[name]
    elif name in _PROPERTY_VALUES:
        yield from (_PROPERTY_VALUES[name], value)
