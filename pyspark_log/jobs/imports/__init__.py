"""Imports files and tables into a topic, each file and each row once."""

from pyspark_log.jobs.imports.arguments import add_arguments, columns_of
from pyspark_log.jobs.imports.publish import ImportTarget
from pyspark_log.jobs.imports.run import import_files
from pyspark_log.jobs.imports.tables import Table, import_table

__all__ = ["ImportTarget", "Table", "add_arguments", "columns_of", "import_files", "import_table"]
