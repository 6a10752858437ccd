"""A batch job in a driver of its own: `batch_write.py MASTER STORE TOPIC COUNT` writes the numbers below COUNT."""

import sys

from tests.campaigns.queries.program import session


def main(master, store, topic, count):
    spark = session(master)
    rows = spark.range(int(count)).repartition(4).selectExpr("cast(id as string) AS value")
    rows.write.format("pylog").mode("append").option("topic", topic).save(store)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
