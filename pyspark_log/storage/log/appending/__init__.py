"""How records get into a log: whose turn it is, what is appended, copies of other logs."""
