"""Finds damage in the state file of a partition."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.log.state import Flags, Intent, Slots
from pyspark_log.storage.log.state.state_file import FILE_SIZE, SLOT_DISTANCE
from pyspark_log.storage.maintenance.verify.findings import REPAIR, Finder, Finding


def slot_findings(place: PartitionPath, finding: Finder, slots: Slots, bases: list[int]) -> Iterator[Finding]:
    """What is wrong with what the state file says, or worth knowing.

    Args:
        place: the partition.
        finding: makes findings.
        slots: what the file says.
        bases: the base offsets of the partition's segments.
    """
    path, state = place.state_path, slots.state
    if slots.problem:
        yield finding.damage(path, slots.problem, "use the version of pyspark-log that wrote it")
    if state is None:
        what = "the state file is missing" if slots.size < 0 else "no slot of the state file is valid"
        what = f"{slots.contradiction or what}: where the log ends is not known"
        yield finding.damage(path, what, REPAIR, first=bases[0] if bases else -1)
        return
    if slots.size < FILE_SIZE:
        yield finding.damage(path, f"the state file has {slots.size} bytes of {FILE_SIZE}", REPAIR, slots.size)
    if slots.torn:
        numbers = ", ".join(map(str, slots.torn))
        if slots.explained:
            advice = "none: the next writer recovers the partition, with the whole batches beyond the log end"
            yield finding.note(path, f"slot {numbers} was torn by a power loss; another one counts", advice)
        else:
            what = (
                f"slot {numbers} is damaged, and no power loss explains it: the log end {state.next_offset}, which the "
                "others have, may be too low"
            )
            advice = f"{REPAIR}; until then the partition is neither read nor written"
            yield finding.damage(path, what, advice, slots.torn[0] * SLOT_DISTANCE, state.next_offset)
    if state.intent == Intent.APPLY:
        advice = "none: the next writer finishes it, or drops and repeats it"
        yield finding.note(path, f"decision {state.intent_decision} was being applied", advice)
    if state.swaps:
        what, advice = "segments were being replaced by a cleaned one", "none: the next writer finishes it"
        yield finding.note(path, what, advice, first=state.intent_base, end=state.intent_next)
    if state.flags & (Flags.CUTTING | Flags.SUSPECT):
        names = "being cut" if state.flags & Flags.CUTTING else "not synced for certain"
        yield finding.note(path, f"the active segment is {names}", "none: the next writer recovers it")
