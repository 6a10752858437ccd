"""Small programs for Kafka, and what `pylog move-job --store /s` makes of each.

A line that goes has "-" at its begin, one that comes "+"; all others stay. Below a program are its notes: the line, "!"
if a person must act, and the words with which it begins.
"""

PROGRAMS = {
    "a read": """
-df = spark.read.format("kafka").option("kafka.bootstrap.servers", "b:9092").option("subscribe", "t").load()
+df = spark.read.format("pylog").option("path", "/s").option("subscribe", "t").load()
""",
    "a stream, with the quotes and the layout that it has": """
 df = spark.readStream \\
-    .format('kafka') \\
-    .option('kafka.bootstrap.servers',
-            "b:9092") \\
+    .format('pylog') \\
+    .option('path',
+            '/s') \\
     .option('subscribe', 't') \\
     .load()
""",
    "a write that has no mode": """
 def each(df, number):
     (
         df.write
-        .format("kafka")  # to the topic
-        .option("kafka.bootstrap.servers", "b:9092")
+        .format("pylog")
+        .mode("append")  # to the topic
+        .option("path", "/s")
         .option("topic", "t")
         .save()
     )
""",
    "modes of writes": """
-df.write.mode("errorifexists").format("kafka").option("kafka.bootstrap.servers", "b").save()
+df.write.mode("append").format("pylog").option("path", "/s").save()
-df.write.format("kafka").option("kafka.bootstrap.servers", "b").mode("append").save()
+df.write.format("pylog").option("path", "/s").mode("append").save()
-df.write.format("kafka").option("kafka.bootstrap.servers", "b").save(mode="error")
+df.write.format("pylog").option("path", "/s").save(mode="append")
-df.write.format("kafka").option("kafka.bootstrap.servers", "b").mode("overwrite").save()
+df.write.format("pylog").option("path", "/s").mode("overwrite").save()
-df.write.format("kafka").option("kafka.bootstrap.servers", "b").mode(mode).save()
+df.write.format("pylog").option("path", "/s").mode(mode).save()
4! the mode of a write is "overwrite"
5! the mode of a write is mode
""",
    "a writer that is an argument": """
 def save(writer):
-    writer.format("kafka").option("kafka.bootstrap.servers", "b").save()
+    writer.format("pylog").mode("append").option("path", "/s").save()
 def steps(writer):
-    return writer.format("kafka").option("kafka.bootstrap.servers", "b")
+    return writer.format("pylog").option("path", "/s")
4! this may be a read or a write
""",
    "options without effect": """
 df = (
     spark.readStream.option("subscribe", "t")  # the topic
-    # how to log in
-    .option("kafka.security.protocol", "SASL_SSL")  # over TLS
-    .option("kafka.sasl.jaas.config", "...")
-    .option("kafka.max.poll.records", 5)
-    .option("group.id", "g")
-    .option("maxOffsetPerTrigger", 5)
-    .format("kafka")
+    .format("pylog")
     # where
-    .option("kafka.bootstrap.servers", "b")
+    .option("path", "/s")
     .load()
 )
7 the option group.id has no effect; removed: is kafka.group.id meant?
8 the option maxOffsetPerTrigger has no effect; removed: is maxOffsetsPerTrigger meant?
""",
    "a partitioner": """
-df.writeStream.format("kafka").option("kafka.bootstrap.servers", "b").option("kafka.partitioner.class", "P").start()
+df.writeStream.format("pylog").option("path", "/s").start()
1! the option kafka.partitioner.class has no effect here; removed: give the rows a column partition
""",
    "what a chain must keep": """
-df = spark.readStream.format("kafka").option("kafka.bootstrap.servers", "b")
+df = spark.readStream.format("pylog").option("path", "/s")
 if secure:
     df = df.option("kafka.sasl.mechanism", "PLAIN")
 df = df.option("subscribe", "t").load()
""",
    "a dict": """
-options = {
-    "kafka.bootstrap.servers": "b",
-    "subscribe": "t",  # one
-    "kafka.security.protocol": "SSL",
-}
+options = {
+    "path": "/s",
+    "subscribe": "t",  # one
+}
 options["startingOffsets"] = "earliest"
-spark.read.format("kafka").options(**options).load()
+spark.read.format("pylog").options(**options).load()
-spark.readStream.format("kafka").load(**options)
+spark.readStream.format("pylog").load(**options)
""",
    "a dict whose last element goes": """
-options = {"kafka.bootstrap.servers": "b", "topic": "t", "kafka.acks": "1"}
+options = {"path": "/s", "topic": "t"}
-df.writeStream.format("kafka").options(**options).start()
+df.writeStream.format("pylog").options(**options).start()
-more = {
-    "kafka.bootstrap.servers": "b",
-    # of words
-    "topic": "t",  # one
-    "kafka.acks": "1"
-}
+more = {
+    "path": "/s",
+    # of words
+    "topic": "t"  # one
+}
-df.writeStream.format("kafka").options(**more).start()
+df.writeStream.format("pylog").options(**more).start()
""",
    "a dict in the call": """
-spark.read.format("kafka").options(subscribe="t", **{"kafka.bootstrap.servers": "b"}).load()
+spark.read.format("pylog").options(subscribe="t", **{"path": "/s"}).load()
""",
    "a dict of settings that mean nothing": """
-login = {"kafka.security.protocol": "SSL"}
+login = {}
-spark.read.format("kafka").options(**login).option("kafka.bootstrap.servers", "b").load()
+spark.read.format("pylog").options(**login).option("path", "/s").load()
""",
    "a dict that others have, too": """
 options = {"kafka.bootstrap.servers": "b", "subscribe": "t"}
 print(options)
-spark.read.format("kafka").options(**options).load()
+spark.read.format("pylog").option("path", "/s").options(**options).load()
""",
    "options from elsewhere": """
 from settings import options
-spark.read.format("kafka").options(**options).load()
+spark.read.format("pylog").option("path", "/s").options(**options).load()
-(df.write
-    .format("kafka")
-    .options(**{**options, "topic": "t"})
-    .save())
+(df.write
+    .format("pylog")
+    .mode("append")
+    .option("path", "/s")
+    .options(**{**options, "topic": "t"})
+    .save())
""",
    "names that hold one value": """
 KIND = "kafka"
 KEY = "kafka." "bootstrap.servers"
 MODE: str = "append"
-df.write.format(KIND).mode(MODE).option(KEY, "b").save()
+df.write.format("pylog").mode(MODE).option("path", "/s").save()
1 KIND is not used any more
2 KEY is not used any more
""",
    "names that may hold others": """
 kind = "kafka"
 if len(sys.argv) > 1:
     kind = sys.argv[1]
 df.write.format(kind).option("kafka.bootstrap.servers", "b").save()
 df.write.format(other).save()
4! the format kind may be Kafka's; not changed
""",
    "addresses from outside": """
 import os
 from configparser import ConfigParser
 from settings import SERVERS
 BROKERS = os.environ.get("BROKERS", "b:9092")
 args = parser.parse_args()
 config = ConfigParser()
-spark.read.format("kafka").option("kafka.bootstrap.servers", BROKERS).load()
+spark.read.format("pylog").option("path", "/s").load()
-spark.read.format("kafka").option("kafka.bootstrap.servers", args.servers).option("subscribe", args.topic).load()
+spark.read.format("pylog").option("path", "/s").option("subscribe", args.topic).load()
-spark.read.format("kafka").option("kafka.bootstrap.servers", config.get("k", "servers")).load()
+spark.read.format("pylog").option("path", "/s").load()
-spark.read.format("kafka").option("kafka.bootstrap.servers", SERVERS["kafka.bootstrap.servers"]).load()
+spark.read.format("pylog").option("path", "/s").load()
3 SERVERS is not used any more
4 BROKERS is not used any more
6 config is not used any more
7 several addresses of brokers become one store: os.environ.get("BROKERS", "b:9092"), args.servers
7 the address of the brokers was os.environ.get("BROKERS", "b:9092")
8 the address of the brokers was args.servers
9 the address of the brokers was config.get("k", "servers")
10 the address of the brokers was SERVERS["kafka.bootstrap.servers"]
""",
    "a format in a configuration": """
 df = spark.readStream.format(config["source"]).options(**{"kafka.bootstrap.servers": config["servers"]}).load()
1! the format config["source"] may be Kafka's; not changed
""",
    "an address that stays": """
 OPTIONS = {"kafka.bootstrap.servers": "b"}
1 kafka.bootstrap.servers is still here
""",
    "formats of texts, and of other sources": """
 text = "{}".format("kafka")
 text = text.format("kafka") + "kafka.bootstrap.servers {}".format(text)
 spark.read.format("parquet").option("path", "x").load()
 df.write.format("delta").save("kafka")
""",
    "output mode update": """
 '''A job.'''
 import sys
+from pyspark_log.spark import write_stream

-query = (
-    counts.selectExpr("word key", "string(count) value").writeStream
-    .outputMode("Update")
-    # .format("console")
-    .format("kafka")
-    .option("kafka.bootstrap.servers", sys.argv[1])
-    .option("kafka.acks", "all")
-    .option("topic", topic("counts"))
-    .option("checkpointLocation", "/c")
-    .queryName("q")
-    .trigger(processingTime="1 minute")
-    .start()
-)
+query = (
+    write_stream(
+        # .format("console")
+        counts.selectExpr("word key", "string(count) value"),
+        "/s",
+        topic("counts"),
+        mode="update",
+        checkpoint="/c",
+        name="q",
+        interval="1 minute",
+    )
+)
2 sys is not used any more
9 the address of the brokers was sys.argv[1]
""",
    "output mode update of a stream from Kafka, in one call": """
+from pyspark_log.spark import write_stream as pylog_write_stream
 def write_stream(): ...
 to = {"kafka.bootstrap.servers": "b", "topic": "t", "checkpointLocation": "/c"}
-rows = spark.readStream.format("kafka").options(subscribe="t", **{"kafka.bootstrap.servers": "b"})
+rows = spark.readStream.format("pylog").options(subscribe="t", **{"path": "/s"})
-rows.load().groupBy("key").count().writeStream.format("kafka").outputMode("update").options(**to).start()
+pylog_write_stream(
+    rows.load().groupBy("key").count(),
+    "/s",
+    "t",
+    mode="update",
+    checkpoint="/c",
+)
2 to is not used any more
""",
    "output mode update that is not certain": """
-a.writeStream.format("kafka").option("kafka.bootstrap.servers", "b").outputMode("update").start()
+a.writeStream.format("pylog").option("path", "/s").outputMode("update").start()
-b.writeStream.format("kafka").options(**options).outputMode("update").start()
+b.writeStream.format("pylog").option("path", "/s").options(**options).outputMode("update").start()
-c.writeStream.format("kafka").outputMode("update").trigger(once=True).start()
+c.writeStream.format("pylog").option("path", "/s").outputMode("update").trigger(once=True).start()
-d = d.writeStream.format("kafka").outputMode("update")
+d = d.writeStream.format("pylog").option("path", "/s").outputMode("update")
 d.start()
-e.writeStream.format("kafka").outputMode(mode).start()
+e.writeStream.format("pylog").option("path", "/s").outputMode(mode).start()
1! output mode update, which Spark refuses for a sink in Python; not changed: write_stream needs a checkpoint
2! output mode update, which Spark refuses for a sink in Python; not changed: it has the options options
3! output mode update, which Spark refuses for a sink in Python; not changed: write_stream has nothing like trigger(
4! output mode update, which Spark refuses for a sink in Python; not changed: it is not one expression
6 the output mode is mode
""",
    "packages": """
 spark = (
     SparkSession.builder.appName("a")  # a name
-    .config("spark.jars.packages", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0")  # for Kafka
     .config("spark.sql.shuffle.partitions", 2)
-    .config("spark.jars.packages", "a.b:c:1,org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0,"
-                                   "org.apache.kafka:kafka-clients:3.9.0")
+    .config("spark.jars.packages", "a.b:c:1")
     .getOrCreate()
 )
-packages = [
-    "a.b:c:1",
-    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}",
-]
+packages = [
+    "a.b:c:1",
+]
-more = ",".join(["org.apache.kafka:kafka-clients:3.9.0"])
+more = ",".join([])
-JARS = "org.apache.kafka:kafka-clients:3.9.0"
+JARS = ""
 conf.set("spark.jars", "/opt/spark-sql-kafka-0-10_2.12-3.5.1.jar")
 os.environ["PYSPARK_SUBMIT_ARGS"] = "--packages org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.1 pyspark-shell"
-spark.read.format("kafka").option("kafka.bootstrap.servers", "b").load()
+spark.read.format("pylog").option("path", "/s").load()
15 a jar of Spark's Kafka connector
15 the program is made for Spark 3.5.1
""",
    "packages of a session that may still need them": """
 spark = builder.config("spark.jars.packages", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0").getOrCreate()
-spark.read.format("kafka").option("kafka.bootstrap.servers", "b").load()
+spark.read.format("pylog").option("path", "/s").load()
 spark.read.format(kind).option("kafka.bootstrap.servers", "b").load()
1 a jar of Spark's Kafka connector
3! the format kind may be Kafka's; not changed
""",
    "writes from threads": """
 def save(df):
-    df.write.format("kafka").option("kafka.bootstrap.servers", "b").save()
+    df.write.format("pylog").mode("append").option("path", "/s").save()
 def each(batch, number):
     with ThreadPoolExecutor() as pool:
         pool.submit(lambda: both(batch))
 def both(df):
     save(df)
 def other(df):
-    df.write.format("kafka").option("kafka.bootstrap.servers", "b").save()
+    df.write.format("pylog").mode("append").option("path", "/s").save()
 def read():
-    spark.read.format("kafka").option("kafka.bootstrap.servers", "b").load()
+    spark.read.format("pylog").option("path", "/s").load()
 Thread(target=read).start()
2! a write that may run in a thread of Python's, in save
""",
    "triggers that a sink in Python does not have": """
-df.writeStream.format("kafka").option("kafka.bootstrap.servers", "b").trigger(continuous="1 second").start()
+df.writeStream.format("pylog").option("path", "/s").trigger(continuous="1 second").start()
1! a trigger continuous, which no sink or source in Python has
""",
    "SQL": """
 spark.sql("CREATE TABLE t USING kafka OPTIONS (subscribe 't')")
1! USING kafka in SQL; not changed
""",
    "a format that is an argument": """
 dp.create_sink("alerts", format="kafka", options={})
 spark.read.load(format="kafka")
1! the argument format="kafka"; not changed
2! the argument format="kafka"; not changed
""",
    "streams of RDDs": """
 from pyspark.streaming.kafka import KafkaUtils
1! a DStream of Kafka's; not changed
""",
    "progress, and clients": """
 import json
 from kafka import KafkaProducer
 from confluent_kafka.schema_registry import SchemaRegistryClient
-df = spark.readStream.format("kafka").option("kafka.bootstrap.servers", "b").load()
+df = spark.readStream.format("pylog").option("path", "/s").load()
 end = query.lastProgress["sources"][0]["endOffset"]
2 kafka talks to a broker
5! it looks into the progress of queries
""",
}  # fmt: skip
