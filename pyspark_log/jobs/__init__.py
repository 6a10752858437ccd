"""Jobs for `spark-submit`, one file a job: `spark-submit $(pylog jobs path compact) STORE`."""
