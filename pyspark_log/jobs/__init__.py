"""Jobs for `spark-submit`, which takes a file: `spark-submit "$(python -m pyspark_log.jobs)/compact.py" STORE`."""
