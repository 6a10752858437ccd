"""Runs tasks on Spark, and shows how many are done."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException
from pyspark.sql import SparkSession

from pyspark_log.errors import PylogError
from pyspark_log.jobs.support.interrupts import interrupts_noted
from pyspark_log.jobs.support.progress import ProgressBar
from pyspark_log.spark_connector.errors import conditions_shown
from pyspark_log.spark_connector.worker_process import spare_modules

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

# How often the progress is read, in seconds.
_EVERY = 0.2
_CONDITION = re.compile(r"\[(PYLOG_[A-Z_.]+)\] ([^\n]+)")


class JobError(PylogError):
    """What a job was asked for could not be done.

    Attributes:
        condition: the stable name of the reason.
    """

    condition = "PYLOG_JOB"

    def __init__(self, message: str, condition: str = "PYLOG_JOB") -> None:
        super().__init__(message)
        self.message, self.condition = message, condition


def session(name: str) -> SparkSession:
    """The session of this process; one of that name is created if there is none.

    Its log has warnings and errors only, so that the summary can be seen, unless spark.log.level says otherwise.
    """
    builder = SparkSession.builder.appName(name)
    if not SparkConf().contains("spark.log.level"):
        builder = builder.config("spark.log.level", "WARN")
    return SparkSession.getActiveSession() or builder.getOrCreate()


def run_tasks(
    spark: SparkSession, what: str, function: Callable[[_Task], _Result], tasks: Sequence[_Task]
) -> list[_Result]:
    """Calls a function for each of some values, one Spark task a value; returns what it returned, in that order.

    A task runs more than once if Spark loses it, or its executor.

    Args:
        spark: the session.
        what: shown beside the progress bar, and in Spark's pages.
        function: of a module that executors can import; its results are pickled.
        tasks: what it is called with.

    Raises:
        JobError: a task has failed for good, with the condition and the text of the engine's error if it is one.
        KeyboardInterrupt: an interrupt came; the tasks are cancelled.
    """
    if not tasks:
        return []
    context, group = spark.sparkContext, f"pylog-{uuid.uuid4()}"

    def collect() -> list[_Result]:
        context.setJobGroup(group, what, interruptOnCancel=True)
        found: list[_Result] = context.parallelize(tasks, len(tasks)).map(partial(_call, function)).collect()
        return found

    with interrupts_noted() as interrupted, ThreadPoolExecutor(1) as pool, ProgressBar(what, len(tasks)) as bar:
        running = pool.submit(collect)
        while not wait([running], _EVERY).done:
            if interrupted.is_set():
                context.cancelJobGroup(group)
                raise KeyboardInterrupt
            bar.show(_completed(context, group))
        try:
            return running.result()
        except (PySparkException, Py4JError) as error:
            raise reason(error) from error


def _call(function: Callable[[_Task], _Result], task: _Task) -> _Result:
    """In a task: calls the function, and shows the conditions of errors."""
    spare_modules()
    with conditions_shown():
        return function(task)


def _completed(context: SparkContext, group: str) -> int:
    """How many tasks of a group's job are done."""
    status, done = context.statusTracker(), 0
    for number in status.getJobIdsForGroup(group):
        job = status.getJobInfo(number)
        for stage in job.stageIds if job else ():
            info = status.getStageInfo(stage)
            done += info.numCompletedTasks if info else 0
    return done


def reason(error: Exception) -> JobError:
    """What a task or a query has raised, from the text that Spark makes of it."""
    text = str(error)
    if found := _CONDITION.search(text):
        return JobError(found[2], found[1])
    if isinstance(error, (AnalysisException, IllegalArgumentException)):
        return JobError(text.strip().splitlines()[0], "PYLOG_JOB_REFUSED")
    for rest in ("\n=== Streaming Query ===", "\n\n\tat ", "\nDriver stacktrace:"):
        text = text.partition(rest)[0]
    return JobError(next(line for line in reversed(text.splitlines()) if line.strip()).strip())
