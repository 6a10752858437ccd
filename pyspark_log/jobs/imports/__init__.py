"""Imports files and tables into a topic, each file and each row once."""

from pyspark_log.jobs.imports.arguments import columns_of, import_options
from pyspark_log.jobs.imports.publish import ImportTarget
from pyspark_log.jobs.imports.run import import_files
from pyspark_log.jobs.imports.tables import Table, import_table

__all__ = ["ImportTarget", "Table", "columns_of", "import_files", "import_options", "import_table"]
