"""What the jobs share: arguments, exit codes, tasks with a progress bar, the summary."""

from pyspark_log.jobs.support.command_line import CallError, JobParser, run
from pyspark_log.jobs.support.spark_tasks import JobError, run_tasks, session
from pyspark_log.jobs.support.summary import show_summary

__all__ = ["CallError", "JobError", "JobParser", "run", "run_tasks", "session", "show_summary"]
