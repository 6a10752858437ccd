"""The structure of the engine, where the import linter cannot see it: faces, and the kernels' cimports."""

import ast
import functools
import importlib
import re
import subprocess

import pytest

from tests.paths import ROOT

STORAGE = ROOT / "pyspark_log" / "storage"
# From the lowest; `.importlinter` has the same order, and more.
ROWS = [
    "fs", "objects", "record", "ingest", "segment", "catalog", "log", "log_manager", "broker", "compaction", "publish",
    "groups",
]  # fmt: skip
KEEPERS = ["verify", "transfer", "repair", "doctor"]
PACKAGES = [f"pyspark_log.storage.{name}" for name in ROWS] + [
    f"pyspark_log.storage.maintenance.{name}" for name in KEEPERS
]
_CIMPORT = re.compile(r"^(?:from (pyspark_log\.\S+) c?import|c?import (pyspark_log\.\S+))", re.MULTILINE)


# Modules and packages that others may import by their own path: what few need, or tools only. `from PACKAGE import
# MODULE` is the same.
PARTS = {
    "fs": ["clock", "file_events", "files", "json_fields", "locking.life_locks", "locking.timeouts", "links", "mounts"],
    "objects": ["race"],
    "record": [
        "builder",
        "codecs.compression",
        "decoding.decoder",
        "empty_batch",
        "end_txn_marker",
        "headers",
        "layout",
        "rows",
        "source_positions",
        "walk",
    ],
    "segment": ["batch_stream", "file_names", "indexes", "scanner", "segment", "txn_index"],
    "catalog": ["kafka_files", "log_dir_list", "log_dirs", "store_json", "topics"],
    "log": [
        "appending.append",
        "appending.new_segment",
        "appending.replica",
        "cleaner_checkpoint",
        "leader_epochs",
        "leftovers",
        "producers",
        "producers.snapshot",
        "read",
        "read.segment_cache",
        "recovery",
        "recovery.swap",
        "retention",
        "state",
        "state.partition_state",
        "state.state_file",
    ],
    "log_manager": ["append", "cleaning", "deletion", "folder_copy", "partition_move", "remove_log_dir"],
    "compaction": ["filter", "offset_map", "transactions"],
    "ingest": ["encoder", "partitioner"],
    "publish": [
        "applier",
        "claims",
        "decision",
        "pending",
        "prepare",
        "publisher_admin",
        "recovery",
        "staging.manifest",
        "staging.staged_file",
        "staging.staged_writer",
    ],
    "groups": [
        "changes",
        "committed_offsets",
        "coordinator_log",
        "expiry",
        "log.fields",
        "log.metadata",
        "log.modern_group",
        "log.records",
        "log.view",
        "members.assignors",
        "members.file_group",
        "members.member_files",
        "members.query_readers",
        "unread",
    ],
    "maintenance.verify": ["decisions", "store", "unowned"],
}
PUBLIC_PARTS = {f"pyspark_log.storage.{package}.{part}" for package, parts in PARTS.items() for part in parts}
MOST_NAMES = 12


def package_of(module):
    """The package that a module is a part of; None: it is in none of those with a face."""
    return next((name for name in PACKAGES if module == name or module.startswith(f"{name}.")), None)


def imports_of_others():
    """What modules import of other packages of the engine: triples of the importer, a module and a name in it."""
    for path, me in sources():
        for module, name in imports(path):
            if package_of(module) not in (None, package_of(me)):
                where = f"{module}.{name}"
                yield (me, where, "") if where in PUBLIC_PARTS else (me, module, name)


@functools.cache
def sources():
    """The modules of the package: pairs of a file and a name."""
    found = []
    for path in sorted((ROOT / "pyspark_log").rglob("*.py*")):
        if path.suffix not in (".py", ".pyi"):
            continue
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found.append((path, module.removesuffix(".__init__")))
    return found


@functools.cache
def imports(path):
    """What a file imports: pairs of a module and a name; the name is "" for `import module`."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            found += [(node.module, name.name) for name in node.names]
        elif isinstance(node, ast.Import):
            found += [(name.name, "") for name in node.names]
    return found


def test_a_package_is_imported_by_its_face_or_a_public_part():
    past = [
        f"{me} imports {name or '*'} of {module}"
        for me, module, name in imports_of_others()
        if module not in PUBLIC_PARTS and (module not in PACKAGES or not name)
        if me != "pyspark_log"  # It loads its names one by one, when they are used.
    ]
    assert past == []


def test_what_a_face_has_is_imported_from_there():
    faces = {package: set(importlib.import_module(package).__all__) for package in PACKAGES}
    past = [
        f"{me} imports {name} of {module}"
        for me, module, name in imports_of_others()
        if module in PUBLIC_PARTS and name in faces[package_of(module)]
    ]
    assert past == []


def test_each_public_part_has_a_user():
    assert PUBLIC_PARTS - {module for _, module, _ in imports_of_others()} == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_face_has_what_other_packages_use_and_nothing_else(package):
    face = importlib.import_module(package)
    assert face.__doc__
    scripts = [path for folder in ("benchmarks", "examples") for path in (ROOT / folder).glob("*.py")]
    used = {name for _, module, name in imports_of_others() if module == package}
    used |= {
        name
        for path in scripts
        for module, name in imports(path)
        if module == package and f"{module}.{name}" not in PUBLIC_PARTS
    }
    assert set(face.__all__) == used
    assert all(hasattr(face, name) for name in used)
    assert len(face.__all__) <= MOST_NAMES


def test_kernels_use_what_is_below_them():
    found = 0
    for path in [*STORAGE.rglob("*.pyx"), *STORAGE.rglob("*.pxd")]:
        row = path.relative_to(STORAGE).parts[0]
        for match in _CIMPORT.finditer(path.read_text()):
            module = match[1] or match[2]
            if module.startswith("pyspark_log.storage."):
                used = module.split(".")[2]
                assert ROWS.index(used) <= ROWS.index(row), f"{path.relative_to(ROOT)} uses {module}"
                found += 1
    assert found > 50


def test_kernels_of_one_language_of_schemas_use_none_of_another():
    for path in (ROOT / "pyspark_log/schemas").glob("*/*.p[yx][xd]"):
        used = [match[1] or match[2] for match in _CIMPORT.finditer(path.read_text())]
        own = f"pyspark_log.schemas.{path.parent.name}."
        assert used
        assert all(
            module.startswith((own, "pyspark_log.storage.")) or module.count(".") == own.count(".") - 1
            for module in used
        )


def test_make_compiles_each_kernel_when_it_changes():
    command = ["make", "--print-data-base", "--dry-run", "help"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    watched = next(line for line in lines if line.startswith("NATIVE := ")).split()
    kernels = [path for ending in ("pyx", "pxd") for path in (ROOT / "pyspark_log").rglob(f"*.{ending}")]
    assert {str(path.relative_to(ROOT)) for path in kernels} - set(watched) == set()


def test_the_page_on_the_architecture_names_what_is_there():
    page = (ROOT / "docs/internals/architecture.md").read_text()
    rows = re.findall(r"^\| [^|]+ \| (.+) \|$", page[page.index("## Where do I change") :], re.MULTILINE)
    place = re.compile(r"`([\w/]+\.py)`:? ?((?:`[\w.]+`(?:, )?)*)")
    named = [(path, names) for row in rows for path, names in place.findall(row)]
    assert len(named) > 12
    for path, names in named:
        text = (ROOT / path if path.startswith("tests/") else ROOT / "pyspark_log" / path).read_text()
        for name in re.findall(r"`(?:\w+\.)*(\w+)`", names):
            assert re.search(rf"^\s*(?:def |class )?{name}\b", text, re.MULTILINE), f"{path} has no {name}"
    for name in PACKAGES:
        short = name.removeprefix("pyspark_log.").replace(".", "/")
        assert f"`{short}`" in page or short.rpartition("/")[2] in page
