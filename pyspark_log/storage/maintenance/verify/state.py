"""Looks for damage in the state file of a partition."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.log import FILE_SIZE, SLOT_DISTANCE, Flags, Intent, PartitionState, Slots
from pyspark_log.storage.maintenance.verify.findings import REPAIR, Finder, Finding, Severity


def slot_findings(place: PartitionPath, finding: Finder, slots: Slots, bases: list[int]) -> Iterator[Finding]:
    """What is wrong with what the state file says, or worth knowing.

    Args:
        place: whose it is.
        finding: makes findings.
        slots: what the file says.
        bases: the base offsets of the partition's segments.
    """
    path, state = place.state_path, slots.state
    if slots.problem:
        yield finding(
            Severity.DAMAGE, path, what=slots.problem, advice="use the version of pyspark-log that wrote it"
        )
    if state is None:
        what = "the state file is missing" if slots.size < 0 else "no slot of the state file is valid"
        what = slots.contradiction or what
        yield finding(
            Severity.DAMAGE, path, first_offset=bases[0] if bases else -1,
            what=f"{what}: nobody knows where the log ends", advice=REPAIR,
        )  # fmt: skip
        return
    if slots.size < FILE_SIZE:
        yield finding(
            Severity.DAMAGE, path, slots.size, what=f"the state file has {slots.size} bytes of {FILE_SIZE}",
            advice=REPAIR,
        )  # fmt: skip
    if slots.torn:
        yield _torn(place, finding, slots, state)
    if state.intent == Intent.APPLY:
        yield finding(
            Severity.NOTE, path, what=f"decision {state.intent_decision} was being applied",
            advice="none: the next writer finishes it, or drops and repeats it",
        )  # fmt: skip
    if state.swaps:
        yield finding(
            Severity.NOTE, path, first_offset=state.intent_base, next_offset=state.intent_next,
            what="segments were being replaced by a cleaned one", advice="none: the next writer finishes it",
        )  # fmt: skip
    if state.flags & (Flags.CUTTING | Flags.SUSPECT):
        names = "being cut" if state.flags & Flags.CUTTING else "not synced for certain"
        yield finding(
            Severity.NOTE, path, what=f"the active segment is {names}",
            advice="none: the next writer puts it right",
        )  # fmt: skip


def _torn(place: PartitionPath, finding: Finder, slots: Slots, state: PartitionState) -> Finding:
    numbers = ", ".join(map(str, slots.torn))
    if slots.explained:
        return finding(
            Severity.NOTE, place.state_path, what=f"slot {numbers} was torn by a power loss; another one counts",
            advice="none: the next writer recovers the partition, with the whole batches beyond the log end",
        )
    return finding(
        Severity.DAMAGE, place.state_path, slots.torn[0] * SLOT_DISTANCE, first_offset=state.next_offset,
        what=f"slot {numbers} is damaged, and no power loss explains it: the log end {state.next_offset}, which the "
        "others tell, may be too low",
        advice=f"{REPAIR}; until then the partition is neither read nor written",
    )  # fmt: skip
