"""An explicit-state checker: every run of a small model, each state once."""
