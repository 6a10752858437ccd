"""Names say what they hold: a local is a `partition` or a `batch`, and not what was done with it."""

import ast
import re
import shutil
import subprocess
import textwrap
from typing import NamedTuple

import pytest

from tests.paths import ROOT

# They say how a value came to be, or nothing; and not what it is.
EMPTY = {"done", "found", "given", "known", "left", "made", "one", "ones", "taken", "things", "wanted", "what"}
# What a text without one of them has none of, but in docstrings and comments: most of the time goes to parsing.
_ANY = re.compile(rf"(?<![\w.])(?:{'|'.join(sorted(EMPTY))})(?![\w.(])")
_PROSE = re.compile(r'"""[\s\S]*?"""|^ *#.*$', re.MULTILINE)
_MODULE = "(module)"
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# How many a folder has, by age. A number only falls: when a file is changed, its names are made plain.
MOST = {
    ".": 6,
    "errors": 2,
    "cli": 7,
    "cli/groups": 6,
    "cli/maintenance": 19,
    "cli/producing": 7,
    "cli/records": 3,
    "cli/serving": 22,
    "cli/support": 7,
    "cli/topics": 21,
    "cli/transfer": 7,
    "clients": 19,
    "jobs": 4,
    "jobs/export": 27,
    "jobs/imports": 13,
    "jobs/mirroring": 6,
    "jobs/support": 11,
    "kafka": 37,
    "kafka/schemas": 10,
    "local_cluster": 27,
    "metrics": 4,
    "monitoring": 10,
    "server/cluster": 27,
    "server/coordinator": 46,
    "server/network": 3,
    "server/quotas": 9,
    "server/security": 33,
    "spark_connector": 16,
    "spark_connector/planning": 20,
    "spark_connector/reading": 22,
    "spark_connector/writing": 15,
    "storage": 19,
    "storage/broker": 15,
    "storage/catalog": 27,
    "storage/compaction": 19,
    "storage/fs": 6,
    "storage/groups": 12,
    "storage/groups/log": 16,
    "storage/groups/members": 24,
    "storage/ingest": 3,
    "storage/log": 13,
    "storage/log/producers": 9,
    "storage/log/recovery": 1,
    "storage/log/state": 6,
    "storage/log_manager": 21,
    "storage/maintenance": 13,
    "storage/maintenance/doctor": 11,
    "storage/maintenance/repair": 8,
    "storage/maintenance/transfer": 3,
    "storage/maintenance/verify": 51,
    "storage/maintenance/verify/log": 28,
    "storage/objects": 13,
    "storage/publish": 33,
    "storage/publish/staging": 8,
    "storage/publish_log": 36,
    "storage/publish_log/maintenance": 27,
    "storage/record": 2,
    "storage/segment": 8,
    "storage/transactions": 3,
    "ui": 19,
    "ui/looks": 15,
}


class EmptyName(NamedTuple):
    """A local, an argument or a field that says nothing.

    Attributes:
        scope: the innermost function or class with it, such as Log.read; "(module)": it is in none.
        name: its name.
        line: where it is first.
    """

    scope: str
    name: str
    line: int


def empty_names(text):
    """Those of a module's text, each once in a scope."""
    lines = {}
    stack = [(_MODULE, ast.parse(text))]
    while stack:
        scope, node = stack.pop()
        if isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        else:
            name = None
        if name in EMPTY:
            lines[scope, name] = min(node.lineno, lines.get((scope, name), node.lineno))
        inner = scope
        if isinstance(node, _SCOPES):
            inner = node.name if scope == _MODULE else f"{scope}.{node.name}"
        stack += [(inner, child) for child in ast.iter_child_nodes(node)]
    return [EmptyName(*key, line) for key, line in lines.items()]


def folders(package):
    """The empty names by the folders of a package, and then by files."""
    by_folder = {}
    for path in sorted(package.rglob("*.py")):
        text = path.read_text()
        if _ANY.search(_PROSE.sub("", text)) and (names := empty_names(text)):
            by_folder.setdefault(str(path.parent.relative_to(package)), {})[path] = names
    return by_folder


def committed_names(path):
    """The scopes and names of a file as it was committed last; none if it was not."""
    if shutil.which("git") is None:
        return set()
    command = ["git", "show", f"HEAD:./{path.name}"]
    shown = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)
    return {(empty.scope, empty.name) for empty in empty_names(shown.stdout)}


def problems(package, most):
    """What differs from the counts that folders may have, in words."""
    by_folder = folders(package)
    for folder in sorted(by_folder.keys() | most.keys()):
        files, limit = by_folder.get(folder, {}), most.get(folder, 0)
        count = sum(map(len, files.values()))
        if count < limit:
            yield f"{folder}: {count} empty names, MOST has {limit}: write {count} there"
        elif count > limit:
            rows = [(path, empty) for path, names in files.items() for empty in names]
            new = [(path, empty) for path, empty in rows if empty[:2] not in committed_names(path)] or rows
            places = [f"{path.name}:{line} {name} in {scope}" for path, (scope, name, line) in new]
            yield f"{folder}: {count} empty names, at most {limit}: say what these hold: {', '.join(places)}"


def test_a_folder_has_no_more_empty_names():
    assert list(problems(ROOT / "pyspark_log", MOST)) == []


def test_locals_and_arguments_of_all_kinds_are_found():
    text = """
        rows = [known.size for known in sizes]
        class Log:
            found: int = 0
            def read(self, wanted, *given, left=lambda taken: taken):
                made, (done, _) = 1, things
                self.known = made
                with self as one:
                    one = yes if (what := one) else {ones: 1 for ones in given}
                async def inner():
                    async for one in self:
                        print(one)
        """
    names = {(scope, name) for scope, name, _ in empty_names(textwrap.dedent(text))}
    read = {("Log.read", name) for name in ("wanted", "given", "left", "taken", "made", "done", "one", "what", "ones")}
    assert names == read | {(_MODULE, "known"), ("Log", "found"), ("Log.read.inner", "one")}


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_new_names_and_lower_counts_are_reported(tmp_path):
    def git(*arguments):
        subprocess.run(["git", "-c", "user.name=u", "-c", "user.email=u@u", *arguments], cwd=tmp_path, check=True)

    (tmp_path / "log").mkdir()
    path = tmp_path / "log" / "reader.py"
    path.write_text("def read():\n    found = 1\n")
    assert list(problems(tmp_path, {"log": 1})) == []
    assert list(problems(tmp_path, {"log": 2})) == ["log: 1 empty names, MOST has 2: write 1 there"]
    assert list(problems(tmp_path, {"log": 1, "ui": 3})) == ["ui: 0 empty names, MOST has 3: write 0 there"]
    (all_of_them,) = problems(tmp_path, {})
    assert all_of_them == "log: 1 empty names, at most 0: say what these hold: reader.py:2 found in read"
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "log: read")
    path.write_text("def find(one):\n    return one\n\n\ndef read():\n    found = 1\n")
    (new,) = problems(tmp_path, {"log": 1})
    assert new == "log: 2 empty names, at most 1: say what these hold: reader.py:1 one in find"
