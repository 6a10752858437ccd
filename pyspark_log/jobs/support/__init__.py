"""What the jobs share: arguments, exit codes, tasks with a progress bar, the summary."""

from pyspark_log.jobs.support.command_line import CallError, JobParser, named_values, names_in, positive, run
from pyspark_log.jobs.support.json_text import joined_lists, quoted
from pyspark_log.jobs.support.spark_tasks import JobError, run_tasks, session
from pyspark_log.jobs.support.summary import show_summary

__all__ = [
    "CallError", "JobError", "JobParser", "joined_lists", "named_values", "names_in", "positive", "quoted", "run",
    "run_tasks", "session", "show_summary",
]  # fmt: skip
