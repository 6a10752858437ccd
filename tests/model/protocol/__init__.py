"""The protocol as programs, step by step as pyspark_log/storage does it; each module is named as the one it models.

A program must not keep anything but in local variables and in objects that show what they hold (`frozen`): two states
are one if these are equal. So a loop with a step in it counts with `range`, as an iterator of anything else would be
in neither.
"""
