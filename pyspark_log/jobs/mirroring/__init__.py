"""Topics of a store, of a broker's folder or of a Kafka cluster into a store, exactly once, with the offsets of groups.
For mirror.
"""

from pyspark_log.jobs.mirroring.arguments import job_options, plan_of
from pyspark_log.jobs.mirroring.run import run_mirror

__all__ = ["job_options", "plan_of", "run_mirror"]
