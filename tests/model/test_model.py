"""The model of the publish protocol holds, and each of its rules is needed; see docs/internals/model.md."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from . import check
from .cases import CASES, given, make
from .checker.explorer import Explorer
from .checker.machine import InvariantError, Model, Thing, Watch
from .publish_log import situations as publish_log
from .rules import RULES, run_without
from .situations import janitor, one_partition, publishers
from .world.locks import Locks

# Those that take no more than a second together, from all parts of the protocol.
QUICK = (
    "one partition: rolls",
    "one partition: publishes without syncs, flushes",
    "two partitions: publishers, one-off publishers, helpers",
    "committed offsets",
    "members of a group",
    "a topic is deleted",
    "swap, with readers",
    "turns",
    "publish log: publishers, runs, lost answers",
    "publish log: the floor, and processes that sleep",
)
QUICK_RULES = (
    "an intent after a hole is dropped",
    "the last number again is a replay",
    "readers hear of the swap before the old segments go",
    "what has expired is checked again under the lock",
    "a member gives up only what it has ended its work for",
    "no process waits for the decision log under a partition's lock",
    "publish log: after a refusal, a process reads whose decision it is",
    "publish log: no decision names an object from before the horizon",
    "publish log: without a next decision, a process that has slept looks for a floor",
)


def cases(size, names=()):
    return [
        pytest.param(case, settings, id=f"{case.name} {number}")
        for case in CASES
        for number, settings in enumerate(case.settings[size])
        if not names or case.name in names
    ]


def rules(names=()):
    return [pytest.param(rule, id=rule.name) for rule in RULES if not names or rule.name in names]


def explored(case, settings, **how):
    return Explorer(replace(make(case.make, settings), **how)).explore(10_000_000)


def check_case(case, settings):
    result = explored(case, settings)
    assert not result.fault, "\n".join([result.fault, *result.trace])
    assert result.transitions >= result.states - 1 > 0


def check_rule(rule):
    result = run_without(rule)
    assert result.invariant == rule.violates, result.what or result.fault
    assert result.trace


@pytest.mark.parametrize(("case", "settings"), cases("quick", QUICK))
def test_a_small_case_holds(case, settings):
    check_case(case, settings)


@pytest.mark.parametrize("rule", rules(QUICK_RULES))
def test_a_few_rules_are_needed(rule):
    check_rule(rule)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("case", "settings"), cases("middle"))
def test_a_case_holds(case, settings):
    check_case(case, settings)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("rule", rules())
def test_a_rule_is_needed(rule):
    check_rule(rule)


def test_each_rule_has_a_case():
    """And nothing that is left out is anything but a rule."""
    asked = set()
    for path in Path(__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keeps":
                (rule,) = node.args
                assert isinstance(rule, ast.Constant), (path, node.lineno)
                asked.add(rule.value)
    assert sorted(rule.name for rule in RULES) == sorted(asked)


# ---- the checker itself


class Counter(Thing):
    """A number that processes read and write."""

    reads = frozenset({"get"})

    @classmethod
    def do_get(cls, value):
        return value, value

    @classmethod
    def do_set(cls, value, new):
        return new, None


def add_one():
    found = yield "counter", "get"
    yield "counter", "set", found + 1


def counter(**how):
    return Model(things={"counter": (Counter, 0)}, lives={"a": [add_one], "b": [add_one]}, **how)


def test_only_the_holder_of_a_lock_has_its_steps_to_itself():
    """No process holds the lock here, so the steps of both are interleaved."""
    model = counter(private={"counter": ("lock", 0)})
    result = Explorer(replace(model, things=model.things | {"lock": (Locks, (-1,))})).explore(1000)
    assert (result.states, result.transitions) == (12, 14)


@pytest.mark.parametrize(("reduce", "kills"), [(True, 1), (False, 2)])
def test_no_process_is_killed_before_a_step_that_changes_nothing(reduce, kills):
    model = Model(things={"counter": (Counter, 0)}, lives={"a": [add_one, None]}, kills=1, reduce=reduce)
    assert Explorer(model).explore(1000).kills == kills


class Paper(Thing):
    """What is on the disk, and what was written."""

    syncs = frozenset({"sync"})

    @classmethod
    def do_write(cls, value, new):
        return (value[0], new), None

    @classmethod
    def do_sync(cls, value):
        return (value[1], value[1]), None

    @classmethod
    def crash(cls, value):
        return [(left, left) for left in value]


def write_twice():
    yield "paper", "write", 1
    yield "paper", "sync"
    yield "paper", "write", 2


@pytest.mark.parametrize(("reduce", "powers"), [(True, 4), (False, 6)])
def test_the_power_goes_wherever_something_else_is_left(reduce, powers):
    left = set()

    def look(nothing, paper):
        if paper[0] == paper[1]:
            left.add(paper[0])

    model = Model(
        things={"paper": (Paper, (0, 0)), "nothing": (Thing, None)},
        lives={"a": [write_twice, None]},
        powers=1,
        watches=[Watch("nothing", ("paper",), look)],
        reduce=reduce,
    )
    assert Explorer(model).explore(1000).powers == powers
    assert left == {0, 1, 2}


def never(at):
    def look(seen, value):
        if value == at:
            raise InvariantError("I0", f"it is {at}")
        return seen

    return [Watch("counter", ("counter",), look)]


def test_every_interleaving_is_explored():
    # One has done nothing, has read, or has written; so has the other; and what each has read makes a difference.
    result = Explorer(counter()).explore(1000)
    assert (result.states, result.transitions, result.complete, result.fault) == (12, 14, True, "")


@pytest.mark.parametrize("at", [1, 2])
def test_a_violation_is_found_with_the_shortest_way_to_it(at):
    result = Explorer(counter(watches=never(at))).explore(1000)
    assert result.invariant == "I0"
    assert result.fault == f"I0: it is {at}"
    assert len(result.trace) == {1: 2, 2: 4}[at]
    assert not result.complete


def test_an_exploration_that_is_cut_short_is_no_success():
    result = Explorer(counter()).explore(5)
    assert not result.complete
    assert result.fault.startswith("cut short")


def test_an_exploration_of_nothing_is_no_success():
    assert Explorer(Model(things={}, lives={})).explore(10).fault == "nothing was explored"


def test_the_command_fails_when_a_case_is_cut_short(capsys):
    assert check.main(["--size", "quick", "--only", "swap", "--no-rules"]) == 0
    assert check.main(["--size", "quick", "--only", "swap", "--no-rules", "--limit", "1000"]) == 1
    assert "cut short at 1" in capsys.readouterr().out


def test_the_command_fails_when_it_explores_nothing(capsys):
    assert check.main(["--size", "quick", "--only", "no case of that name"]) == 1


COMPARED = [
    (one_partition.model, given(tasks=1, kinds=("append two", "publish"))),
    (one_partition.model, given(tasks=1, kinds=("append", "append synced"), failing=(1, 1))),
    (publishers.model, given(numbers=(0,), one_offs=0, helpers=1, kills=0)),
    (janitor.model, given(numbers=(0,))),
    (publish_log.publishers, given(runs="aa", failing=1, kills=1)),
    (publish_log.kept, given(begun=("empty",), appends=1, kills=1)),
]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("how", [{"reduce": False}, {"by_history": True}], ids=["every interleaving", "by history"])
@pytest.mark.parametrize(("build", "settings"), COMPARED)
def test_what_is_left_out_makes_no_difference(build, settings, how):
    """Observers come to remember the same, however many indistinguishable states are explored."""
    few = Explorer(make(build, settings))
    many = Explorer(replace(make(build, settings), **how))
    assert not few.explore(10_000_000).fault
    assert not many.explore(10_000_000).fault
    assert many.result.states >= few.result.states
    for watched in {watch.remembers for watch in few.model.watches}:
        assert few.values_of(watched) == many.values_of(watched)
