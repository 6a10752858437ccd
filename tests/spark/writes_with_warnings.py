"""Writes that the user is to be warned of: `writes_with_warnings.py FOLDER`; each to a store of its own in FOLDER."""

import sys

from drivers import make_session

from pyspark_log import Publish, Store


def main(folder):
    spark = make_session("local[2]")
    old = spark.range(0, 4, 1, 2).selectExpr("string(id) value", "timestamp_seconds(id) at")

    def write(df, path, **options):
        df.write.format("pylog").mode("append").options(**options).save(path)

    write(old.select("value"), f"{folder}/misspelt", topic="t", **{"publish.ids": "x", "kafka.acks": "all"})
    write(old.selectExpr("value", "'by-column' topic"), f"{folder}/misspelt")
    write(old, f"{folder}/batch", topic="t", timestampColumn="at")
    # One topic gets a record that stays: that is not a mistake.
    now = spark.sql("select 'v' value, current_timestamp() at")
    write(old.union(now), f"{folder}/batch", topic="mixed", timestampColumn="at")
    Store.open(f"{folder}/batch").create_topic("kept", 1, {"retention.ms": "-1"})
    write(old, f"{folder}/batch", topic="kept", timestampColumn="at")

    Store.create(f"{folder}/stream").create_topic("t")
    write(old.select("value"), f"{folder}/events", topic="events")
    stream = spark.readStream.format("pylog").options(
        subscribe="events", startingOffsets="earliest", maxOffsetsPerTrigger="2", starting_offset="latest"
    )
    rows = stream.load(f"{folder}/events").selectExpr("value", "timestamp - interval 30 days as at", "'t' topic")
    for checkpoint in ("checkpoint", "another"):
        query = (
            rows.writeStream.format("pylog").queryName("delays")
            .options(timestampColumn="at", mode="append", checkpointLocation=f"{folder}/{checkpoint}")
            .trigger(availableNow=True)
            .start(f"{folder}/stream")
        )  # fmt: skip
        query.awaitTermination()
        assert len([one for one in query.recentProgress if one.numInputRows]) > 1

    with Publish(f"{folder}/together", "p", 0) as out:
        out.write(old.selectExpr("*", "'t' topic"), timestamp_column="at")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
