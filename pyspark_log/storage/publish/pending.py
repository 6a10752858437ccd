"""Decisions that are made and not applied yet, or not tidied up: any process finishes them."""

from __future__ import annotations

import logging

from pyspark_log.errors import LockTimeoutError, PylogError
from pyspark_log.storage.fs.locking import timeouts
from pyspark_log.storage.publish.applier import apply_decision, remove_staged, seems_applied
from pyspark_log.storage.publish.decision import Decision
from pyspark_log.storage.publish.decision_log import DecisionLog

log = logging.getLogger(__name__)


def not_applied(decisions: DecisionLog) -> list[Decision]:
    """The decisions that are not visible everywhere yet, in the order in which they were made.

    Raises: as DecisionLog.follow.
    """
    decisions.follow()
    return [decision for decision in decisions.in_order() if not seems_applied(decisions, decision)]


def help_apply(decisions: DecisionLog) -> int:
    """Applies decisions that are not visible yet, for publishers that died in between.

    Does not wait long: a locked partition is left to the lock's holder. A decision that cannot be applied now
    blocks only later ones in the same partitions.

    Returns:
        How many decisions were found to need it.

    Raises:
        StagedOutputError, OSError, LogDamagedError: the first that a decision raised.
    """
    waiting = not_applied(decisions)
    failed: PylogError | OSError | None = None
    timeout = timeouts.HELP
    for decision in waiting:
        try:
            apply_decision(decisions, decision, timeout)
        except LockTimeoutError as error:
            log.debug("decision %d is left to others: %s", decision.offset, error)
            timeout = 0.0  # Waiting once is enough; free locks are still taken.
        except (PylogError, OSError) as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return len(waiting)


def apply_pending(decisions: DecisionLog) -> PylogError | OSError | None:
    """As `help_apply`, for a reader: it never fails, and a problem is logged once until another one comes.

    A process that may not write to the store applies nothing. Returns the problem, if there is one.
    """
    if not decisions.logs.writable:
        return None
    try:
        help_apply(decisions)
    except (PylogError, OSError) as error:
        if decisions.reported != str(error):
            decisions.reported = str(error)
            log.warning("%s: decided output cannot be made visible now: %s", decisions.logs.path, error)
        return error
    return None


def tidy(decisions: DecisionLog, forget: str | None = None) -> None:
    """Records which decisions are done, and removes what was staged for them.

    The publisher `forget` is no longer remembered. Only the publisher itself may pass its id: while it lives it may
    still ask whether its publish took place.
    """
    decisions.follow()
    done = [decision for decision in decisions.in_order() if seems_applied(decisions, decision)]
    with decisions.hold() as writer:
        # Read them again: another run may have taken over a publisher meanwhile.
        done = [decisions.undone[decision.offset] for decision in done if decision.offset in decisions.undone]
        writer.finish(done, forget)
    for decision in done:
        remove_staged(decisions, decision)
