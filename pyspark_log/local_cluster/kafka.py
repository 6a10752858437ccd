"""Kafka's own programs: where Java and the jars are, and the commands that run them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import Final

from pyspark_log.local_cluster.errors import LocalClusterError
from pyspark_log.storage.fs import files

_OLDEST_JAVA: Final = 17
_OLDEST_KAFKA: Final = 4
#: How much memory Java may take for objects, for a controller and for a tool.
_MEMORY: Final = "256m"
_SERVER_JAR = re.compile(r"kafka_[\d.]+-(\d+)\.(\d+\.\d+.*)\.jar")
# For the loggers of a distribution, and for that of slf4j alone.
_LOG_LEVEL: Final = ("-Dlog4j2.level={0}", "-Dorg.slf4j.simpleLogger.defaultLogLevel={0}")
# Longer than a tool takes on a machine that has other things to do, in seconds.
_PATIENCE: Final = 120


@dataclass(frozen=True)
class Kafka:
    """An installation of Kafka.

    Attributes:
        java: the program.
        jars: the folder of the jars.
        version: Kafka's.
    """

    java: str
    jars: str
    version: str

    def command(self, main: str, *arguments: str, log_level: str = "INFO") -> list[str]:
        """The command that runs one of Kafka's classes."""
        levels = [one.format(log_level) for one in _LOG_LEVEL]
        return [self.java, f"-Xmx{_MEMORY}", "-XX:+UseSerialGC", *levels, "-cp", f"{self.jars}/*", main, *arguments]

    def run(self, main: str, *arguments: str) -> str:
        """Runs one of Kafka's classes to its end; what it prints. LocalClusterError: it fails."""
        try:
            done = subprocess.run(
                self.command(main, *arguments, log_level="WARN"), stdin=subprocess.DEVNULL, capture_output=True,
                text=True, errors="replace", timeout=_PATIENCE, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise LocalClusterError(f"Kafka's {main} {' '.join(arguments)} has not ended in {_PATIENCE} s") from None
        if done.returncode:
            raise LocalClusterError(f"Kafka's {main} {' '.join(arguments)} fails: {done.stderr or done.stdout}")
        return done.stdout


def find_kafka(folder: str) -> Kafka:
    """The Kafka in a folder: a distribution, or its jars alone.

    Raises:
        LocalClusterError: there is none, or it is older than 4.0, or there is no Java 17 or later.
    """
    jars = f"{files.absolute_path(folder)}/libs"
    if not files.is_folder(jars):
        jars = files.absolute_path(folder)
    try:
        names = files.list_folder(jars)
    except (FileNotFoundError, NotADirectoryError):
        raise LocalClusterError(f"{jars}: there is no such folder") from None
    found = [match for match in map(_SERVER_JAR.fullmatch, names) if match]
    if not found:
        raise LocalClusterError(
            f"{jars} has no jar of Kafka's server, such as kafka_2.13-4.3.1.jar: name the folder of a distribution of "
            "Kafka (kafka.apache.org), or of its jars"
        )
    version = ", ".join(f"{one[1]}.{one[2]}" for one in found)
    if int(found[0][1]) < _OLDEST_KAFKA or len(found) > 1:
        raise LocalClusterError(f"{jars} has Kafka {version}: one version is needed, {_OLDEST_KAFKA}.0 or later")
    return Kafka(_find_java(), jars, version)


def _find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    wanted = f"Kafka needs Java {_OLDEST_JAVA} or later: set JAVA_HOME, or have java on the PATH"
    if java is None or not files.exists(java):
        raise LocalClusterError(f"{wanted}; there is no {java or 'java'}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, errors="replace", check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < _OLDEST_JAVA:
        raise LocalClusterError(f"{wanted}; {java} says: {' '.join(said.split())}")
    return java
