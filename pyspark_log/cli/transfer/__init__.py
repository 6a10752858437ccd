"""Commands that bring topics in and out, and Spark's jobs, which do so on many machines."""
