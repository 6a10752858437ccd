"""What the jobs share: arguments, exit codes, tasks with a progress bar, the summary."""

from pyspark_log.jobs.support.command_line import Decorator, Job, argument
from pyspark_log.jobs.support.json_text import joined_lists, quoted
from pyspark_log.jobs.support.spark_tasks import JobError, run_tasks, session
from pyspark_log.jobs.support.summary import show_summary

__all__ = [
    "Decorator", "Job", "JobError", "argument", "joined_lists", "quoted", "run_tasks", "session", "show_summary",
]  # fmt: skip
