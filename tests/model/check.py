"""Explores all cases and all rules, and prints what was covered: `python -m tests.model`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from .cases import CASES, LIMIT, SIZES, run
from .rules import RULES, run_without


def check_cases(size: str, only: str, limit: int) -> bool:
    """Prints a line for each case; whether all is well."""
    good, states, transitions = True, 0, 0
    for case in CASES:
        for settings in case.settings[size]:
            if only not in case.name:
                continue
            result = run(case, settings, limit)
            wrong = result.fault
            states, transitions = states + result.states, transitions + result.transitions
            told = ", ".join(f"{name}={value}" for name, value in settings.items())
            print(
                f"{case.name:55} {result.states:>10,} {result.transitions:>11,} {result.kills:>8,} {result.powers:>8,} "
                f"{result.alone:>8,} {result.seconds:>7.1f} s  {wrong or case.checks}  ({told})",
                flush=True,
            )
            if wrong:
                good = False
                print(*("    " + line for line in result.trace), sep="\n")
    print(f"{'all':55} {states:>10,} {transitions:>11,}")
    return good


def check_rules(only: str) -> bool:
    """Prints a line for each rule that is left out; whether each violates what it should."""
    good = True
    for rule in RULES:
        if only not in rule.name:
            continue
        result = run_without(rule)
        right = result.invariant == rule.violates
        good = good and right
        print(
            f"{rule.name:75} {result.invariant or 'nothing':>8} {result.steps:>4} steps {result.states:>8,} states "
            f"{result.seconds:>6.1f} s{'' if right else '  expected ' + rule.violates}",
            flush=True,
        )
    return good


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints both tables; 1 if anything is not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--only", default="", help="a part of a case's or a rule's name")
    parser.add_argument("--limit", type=int, default=LIMIT, help="of states in one case; more is a failure")
    parser.add_argument("--no-rules", action="store_true")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    print(f"{'case':55} {'states':>10} {'transitions':>11} {'kills':>8} {'powers':>8} {'alone':>8}")
    good = check_cases(options.size, options.only, options.limit)
    if not options.no_rules:
        print(f"\n{'rule that is left out':75} {'violates':>8}")
        good = check_rules(options.only) and good
    print(f"\n{time.monotonic() - began:.0f} s: {'all as it should be' if good else 'FAILED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
