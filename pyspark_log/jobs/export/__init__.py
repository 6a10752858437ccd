"""Topics into files, exactly once: plan, write in tasks, place, commit the offsets of a group. For bulk_load and
export_files.
"""

from pyspark_log.jobs.export.arguments import export_options, request_of
from pyspark_log.jobs.export.delta import check_delta, compact_table
from pyspark_log.jobs.export.run import export_topics

__all__ = ["check_delta", "compact_table", "export_options", "export_topics", "request_of"]
