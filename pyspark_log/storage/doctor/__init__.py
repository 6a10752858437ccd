"""The doctor: tries out whether a folder's file system does what the engine needs, and says what it found.

`examination.examine` is the whole examination of one host; `peer.examine_with_peer` tests, together with a
second run elsewhere, what no single host can see: whether locks and written bytes reach other hosts.

Nothing is imported here: the second process that the checks start must be up in an instant.
"""
