"""The seam of stores: `Store` is small, and what is built on it reaches no further, but for named tools."""

import ast
import inspect
import re

from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.store import Store
from tests.paths import ROOT

MOST_MEMBERS = 26
# The parts of a store in a folder, which another kind of store does not have.
PARTS = {"logs", "decisions", "committed_offsets"}
BUILT_ON_IT = [
    "spark_connector",
    "clients",
    "jobs",
    "cli",
    "metrics",
    "monitoring",
    "ui",
    "storage/topic.py",
    "spark.py",
    "pytest_plugin.py",
]
# They work on the files of a store in a folder.
TOOLS = [
    "cli/maintenance", "cli/transfer", "cli/records/dump.py",
    "jobs/compact.py", "jobs/retention.py", "jobs/verify.py",
]  # fmt: skip
# Packages for these tools alone.
FOR_FILES = ("pyspark_log.storage.maintenance", "pyspark_log.storage.compaction")


def members(kind):
    annotated = {name for base in kind.__mro__ for name in getattr(base, "__annotations__", ())}
    return {name for name in {*dir(kind), *annotated} if not name.startswith("_")}


def modules(places):
    found = [ROOT / "pyspark_log" / place for place in places]
    return {path for one in found for path in ([one] if one.is_file() else one.rglob("*.py"))}


def reaches(path):
    """What a module uses of a store in a folder: pairs of a line and a name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr in {*PARTS, "open_folder"}:
            yield node.lineno, node.attr
        elif isinstance(node, ast.alias) and node.name in {"FolderStore", "STATE_FOLDER"}:
            yield node.lineno, node.name
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "OffsetsLog":
            yield node.lineno, node.func.id
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(FOR_FILES):
            yield node.lineno, node.module


def test_a_store_has_few_members():
    assert len(members(Store)) <= MOST_MEMBERS


def test_each_member_says_what_it_does():
    attributes = set(re.findall(r"(\w+)[,:]", f"{Store.__doc__} {FolderStore.__doc__}"))
    silent = {name for name in members(FolderStore) - attributes if not inspect.getdoc(getattr(FolderStore, name))}
    assert silent == set()


def test_what_is_built_on_stores_reaches_no_further():
    # Where a command opens a store for what kind of work it says.
    opener = modules(["cli/target.py"])
    past = [
        f"{path.relative_to(ROOT)}, line {line}: {name}"
        for path in sorted(modules(BUILT_ON_IT) - modules(TOOLS) - opener)
        for line, name in reaches(path)
    ]
    assert past == []


def test_each_tool_reaches_further():
    assert [tool for tool in TOOLS if not any(list(reaches(path)) for path in modules([tool]))] == []


def test_no_class_of_ours_is_cast():
    texts = {path.relative_to(ROOT): path.read_text() for path in modules(["."])}
    ours = {name for text in texts.values() for name in re.findall(r"^ *class (\w+)", text, re.MULTILINE)}
    casts = [(str(path), name) for path, text in texts.items() for name in re.findall(r"\bcast\(\W*(\w+)", text)]
    assert casts  # of classes that are not ours
    assert [(path, name) for path, name in casts if name in ours] == []
