"""The state of a partition, and the file that holds it: the authority on log start and log end."""
