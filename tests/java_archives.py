"""Makes the archives of Java's classes with which the tests' Spark and Kafka start in half of the time."""

from tests import spark_home
from tests.kafka import kafka_tools
from tests.spark.java import java_version


def main() -> None:
    """Makes those that are missing, of what is here."""
    home = spark_home.spark_home()
    if home is not None and java_version() >= 17 and not spark_home.archive().exists():
        print("Archiving Spark's classes for the tests (once; takes a minute).", flush=True)
        spark_home.archive_classes(home)
    for version, jars in kafka_tools.JARS.items():
        if not kafka_tools.missing(version) and not kafka_tools.archive(jars).exists():
            kafka_tools.archive_classes(version)


if __name__ == "__main__":
    main()
