r"""Mirrors topics of a Kafka cluster, of a broker's folder or of a store on many machines, exactly once:

    spark-submit $(pylog jobs path mirror) STORE SOURCE --topics PATTERN --checkpoint FOLDER
    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0 $(pylog jobs path mirror) STORE \
        kafka://HOST:PORT --topics 'orders.*' --groups . --checkpoint FOLDER

Keys, values, headers, times and partitions are the same; so are the configs of topics that are made. With --groups the
offsets of groups are copied too, translated. STORE and SOURCE are folders that all executors see, URLs of object
stores, or for SOURCE a cluster. docs/guides/from-kafka.md says what is guaranteed, and when `pylog mirror` is enough.
"""

from __future__ import annotations

from types import SimpleNamespace

import click

from pyspark_log.jobs.mirroring import job_options, plan_of, run_mirror
from pyspark_log.jobs.support import Job, session, show_summary


@click.command(cls=Job, help=__doc__)
@job_options
def main(arguments: SimpleNamespace) -> bool:
    """Runs the job."""
    plan = plan_of(arguments)
    show_summary(run_mirror(session(f"pylog mirror {plan.name}"), plan), as_json=arguments.as_json)
    return True


if __name__ == "__main__":
    raise SystemExit(main())
