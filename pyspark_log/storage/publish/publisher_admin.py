"""Lists and forgets the publishers that a store remembers.

A publisher of a query, or one with a name, is remembered for ever, however long it is idle: a query that was stopped
for a year repeats its last batch when it is restarted, and must be answered that it is published. A publisher with a
single publish is forgotten by its own call; by this module, if that call was killed.
"""

from __future__ import annotations

from pyspark_log.errors import InvalidConfigError, PublishError
from pyspark_log.storage.publish.decision import Decision
from pyspark_log.storage.publish.decision_log import DecisionLog
from pyspark_log.storage.publish.pending import tidy

#: How long (ms) the call of a publisher with a single publish may still ask whether it is published.
ONE_OFF_LIFETIME_MS = 7 * 24 * 60 * 60 * 1000


def publishers(decisions: DecisionLog) -> list[Decision]:
    """The last decision of each publisher, sorted by id. Raises: as DecisionLog.follow."""
    decisions.follow()
    return sorted(decisions.last.values(), key=lambda decision: decision.publisher)


def delete_publisher(decisions: DecisionLog, publisher: str) -> Decision:
    """Forgets a publisher; returns its last decision.

    A process that publishes under that id afterwards starts over: it may use any number, and output that it repeats is
    published again. So this is for publishers that never come back.

    Raises:
        InvalidConfigError: there is no such publisher.
        PublishError: its last decision is not applied everywhere; nothing was changed.
        LockTimeoutError, OSError: it could not be recorded.
    """
    decisions.logs.check_writable()
    decisions.follow()
    if decisions.undone:
        tidy(decisions)
    if publisher in decisions.last:
        with decisions.hold() as writer:
            last = decisions.last.get(publisher)
            if last is not None:
                if not last.done:
                    raise PublishError(
                        f"publisher {publisher!r}: decision {last.offset} (number {last.number}) is not applied "
                        "everywhere; `pylog recover` applies it or says why it cannot"
                    )
                writer.forget([publisher])
                return last
    raise InvalidConfigError(f"{decisions.logs.path}: there is no publisher {publisher!r}")


def forget_one_offs(decisions: DecisionLog) -> int:
    """Forgets publishers whose single publish is done and whose call was killed before it forgot them; how many."""
    decisions.follow()

    def left() -> list[str]:
        before = decisions.logs.clock() - ONE_OFF_LIFETIME_MS
        return [one.publisher for one in publishers(decisions) if one.one_off and one.done and one.time < before]

    if not left():
        return 0
    with decisions.hold() as writer:
        names = left()
        if names:
            writer.forget(names)
    return len(names)
