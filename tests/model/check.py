"""Explores all cases and all rules, and prints what was covered: `python -m tests.model`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any

from .cases import CASES, LIMIT, SIZES, run
from .rules import RULES, run_without


def check_cases(size: str, only: str, limit: int) -> list[bool]:
    """Prints a line for each case; whether it covers all, and finds nothing."""
    good, states, transitions = [], 0, 0
    print(f"{'case':52} {'states':>11} {'transitions':>11} {'kills':>9} {'powers':>9} {'alone':>9} {'seconds':>7}")
    for case in CASES:
        for settings in case.settings[size] if only in case.name else ():
            result = run(case, settings, limit)
            good.append(not result.fault)
            states, transitions = states + result.states, transitions + result.transitions
            print(
                f"{case.name:52} {result.states:>11,} {result.transitions:>11,} {result.kills:>9,} {result.powers:>9,} "
                f"{result.alone:>9,} {result.seconds:>7.1f}  {result.fault or case.checks} ({_told(settings)})",
                *("    " + line for line in result.trace),
                sep="\n",
                flush=True,
            )
    print(f"{'all':52} {states:>11,} {transitions:>11,}\n")
    return good


def _told(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def check_rules(only: str) -> list[bool]:
    """Prints a line for each rule that is left out; whether that violates what it should."""
    good = []
    print(f"{'rule that is left out':68} {'violates':>8} {'steps':>5} {'states':>9} {'seconds':>7}")
    for rule in RULES:
        if only in rule.name:
            result = run_without(rule)
            good.append(result.invariant == rule.violates)
            print(
                f"{rule.name:68} {result.invariant or 'nothing':>8} {len(result.trace):>5} {result.states:>9,} "
                f"{result.seconds:>7.1f}{'' if good[-1] else '  expected ' + rule.violates}",
                flush=True,
            )
    print()
    return good


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints both tables; 1 if anything is not as it should be, or nothing was explored."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--only", default="", help="a part of a case's or a rule's name")
    parser.add_argument("--limit", type=int, default=LIMIT, help="of states in one case; more is a failure")
    parser.add_argument("--no-rules", action="store_true")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    found = check_cases(options.size, options.only, options.limit)
    if not options.no_rules:
        found += check_rules(options.only)
    good = bool(found) and all(found)
    print(f"{time.monotonic() - began:.0f} s: {'all as it should be' if good else 'FAILED'}")
    return 0 if good else 1
