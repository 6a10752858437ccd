"""Pages name benchmarks that are there, and the results have each table that one of them writes with `--document`."""

import ast
import re

import pytest

from tests.paths import PAGES, RESULTS, ROOT

SCRIPTS = sorted((ROOT / "benchmarks").glob("*.py"))
# A table between its name and its end.
BLOCK = re.compile(r"^<!-- ([^\n]+) -->\n\n(?:\|[^\n]+\n)+\n<!-- end -->$", re.MULTILINE)


def written(source):
    """The names of the tables that a script writes."""
    found = []
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "tables.show":
            continue
        options = {option.arg: option.value for option in call.keywords}
        if ast.unparse(options["document"]) == "False":
            continue
        # One of two names may be chosen, but none is put together.
        name = call.args[0]
        names = [name.body, name.orelse] if isinstance(name, ast.IfExp) else [name]
        found += [ast.literal_eval(one) for one in names]
    return found


def test_each_table_has_its_script_and_its_place():
    tables = [table for script in SCRIPTS for table in written(script.read_text())]
    places = [name for page in RESULTS for name in BLOCK.findall(page.read_text())]
    assert len(tables) > 20
    assert sorted(tables) == sorted(places)


@pytest.mark.parametrize("page", [*PAGES, *RESULTS], ids=lambda page: page.name)
def test_a_script_that_is_named_is_there(page):
    for name in re.findall(r"python\s+(benchmarks/\w+\.py)", page.read_text()):
        assert (ROOT / name).exists(), name
