"""Changes of programs, by which `make mutants` measures how strong the tests are."""

import ast

import pytest

from tests.mutants.changes import all_changes, changes_of, drawn
from tests.paths import ROOT


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("a = b < c", ["a = b <= c"]),
        ("a = b >= c != d", ["a = b > c != d", "a = b >= c == d"]),
        ("a = b in c", ["a = b not in c"]),
        ("a = b not in c", ["a = b in c"]),
        ("a = b is c", ["a = b is not c"]),
        ("a = b is not c", ["a = b is c"]),
        ("a = [b for b in c if b in d]", ["a = [b for b in c if b not in d]"]),
        ("a = not (b and c)", ["a = (b and c)", "a = not (b or c)"]),
        ("a = True", ["a = False"]),
        ("a.b(c)[d].e()", ["pass"]),
        ("await a(b, (c))", ["pass"]),
        ("a = b()", []),
        ("a(b) + c(d)", []),
        ("raise a(b)", []),
        ("del (a)", []),
        ("@a(True)", []),
        ('a = "b < 1"  # not 2', []),
        ("a = <int> b", []),
        ("cdef int a() except -1:", []),
    ],
)
def test_changes_of_a_line(line, changed):
    assert [change.made_in(line + "\n") for change in changes_of("a.py", line + "\n")] == [
        one + "\n" for one in changed
    ]


@pytest.mark.parametrize("number", ["0", "4_096", "0xff"])
def test_a_number_moves_by_one(number):
    (change,) = changes_of("a.py", f"a = {number}\n")
    assert abs(int(change.new, 0) - int(number, 0)) == 1


PROGRAM = """
class A:
    limit = 1

    def b(self, c=2):
        if c < self.limit or (
            c == 3
        ):
            self.d()
"""


def test_names_do_not_depend_on_lines():
    found = {change.name: change for change in changes_of("p/a.py", PROGRAM)}
    assert list(found) == [
        "p/a.py:A:number:1", "p/a.py:A:number:2", "p/a.py:A.b:compare:1", "p/a.py:A.b:join:1", "p/a.py:A.b:compare:2",
        "p/a.py:A.b:number:1", "p/a.py:A.b:call:1",
    ]  # fmt: skip
    assert [change.name for change in changes_of("p/a.py", "# more\n" + PROGRAM)] == list(found)
    assert [change.in_function for change in found.values()] == [False, False, True, True, True, True, True]
    assert found["p/a.py:A.b:compare:2"].lines == (6, 8)
    assert "            pass\n" in found["p/a.py:A.b:call:1"].made_in(PROGRAM)


def test_a_seed_draws_the_same_from_all_packages_and_kinds():
    changes = [change for file in ("p/a.py", "p/b.py", "q/a.py") for change in changes_of(file, PROGRAM * 20)]
    assert len(changes) == 420
    chosen = drawn(changes, 1, 40)
    assert drawn(changes[::-1], 1, 40) == chosen != drawn(changes, 2, 40)
    assert len({change.name for change in chosen}) == 40
    assert {change.package for change in drawn(changes, 1, 2)} == {"p", "q"}
    assert {change.kind for change in chosen} == {"number", "compare", "join", "call"}
    assert 24 <= sum(change.package == "p" for change in chosen) <= 29


def test_changes_of_modules_and_kernels_of_the_product():
    kernel = all_changes("pyspark_log/storage/compaction/offset_map.pyx")
    assert {change.kind for change in kernel} >= {"number", "compare", "call"}
    file = "pyspark_log/storage/segment/indexes.py"
    text = (ROOT / file).read_text(encoding="utf-8")
    programs = [change.made_in(text) for change in all_changes(file)]
    assert len(programs) > 50
    assert all(ast.dump(ast.parse(program)) != ast.dump(ast.parse(text)) for program in programs)
