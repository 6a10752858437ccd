"""Copies of the tree, where files may be changed and tests run; and the map of what the tests cover."""

import contextlib
import functools
import importlib.util
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections import Counter, defaultdict
from pathlib import Path

import coverage

from tests.paths import ROOT

HOOK = Path(__file__).parent / "hook"
#: The settings of `make test`, with the same examples in each run.
FEW = {"CRASH_POINTS": "few", "PYLOG_TEST_EXAMPLES": "50", "PYLOG_TEST_SEED": "1", "CI": "true"}
#: A test that takes longer, in seconds, hangs.
LONGEST = 100
SETTINGS = """[run]
data_file = {data}
parallel = true
include = */pyspark_log/*
plugins = sitecustomize
concurrency = multiprocessing,thread
sigterm = true
disable_warnings = no-data-collected,module-not-measured,module-not-imported
"""


class Copy:
    """A copy of the tree in a folder, with the tests of another commit if one is given."""

    def __init__(self, folder, marks, commit=None):
        self.tree, self._scratch, self._notes = folder / "tree", folder / "t", folder / "notes"
        self.output = folder / "output"
        self._marks = marks
        listed = ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split("\0")
        names += [str(built.relative_to(ROOT)) for built in ROOT.glob("pyspark_log/**/*.so")]
        for name in names:
            if (ROOT / name).is_file() and not (commit and name.startswith("tests/")):
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.tree / name, follow_symlinks=False)
        for name in (".venv", ".kafka", ".clients"):
            if (ROOT / name).exists() and not (self.tree / name).exists():
                (self.tree / name).symlink_to((ROOT / name).resolve())
        if commit:
            command = ["git", "-C", ROOT, "archive", commit, "tests", "pyproject.toml"]
            archive = subprocess.run(command, capture_output=True, check=True).stdout
            with tarfile.open(fileobj=io.BytesIO(archive)) as files:
                files.extractall(self.tree, filter="fully_trusted")

    def write(self, name, text):
        """Changes a file of the product; a kernel is compiled. Returns whether it could be."""
        path = self.tree / name
        path.write_text(text, encoding="utf-8")
        if path.suffix == ".pyx":
            return self._take(name, ROOT) if text == (ROOT / name).read_text(encoding="utf-8") else self._compile(name)
        Path(importlib.util.cache_from_source(path)).unlink(missing_ok=True)  # it may have the same size and time
        return True

    def _compile(self, name):
        apart = self._scratch / "kernel"
        for path in (self.tree / "pyspark_log").rglob("*"):
            relative = path.relative_to(self.tree)
            if str(relative) == name or path.suffix in (".pxd", ".h") or path.name == "__init__.py":
                (apart / relative).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, apart / relative)
        shutil.copy(self.tree / "setup.py", apart)
        command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
        done = subprocess.run(command, cwd=apart, capture_output=True, check=False)
        taken = done.returncode == 0 and self._take(name, apart)
        shutil.rmtree(apart)
        return taken

    def _take(self, name, tree):
        for built in (tree / name).parent.glob(f"{Path(name).stem}.*.so"):
            shutil.copy(built, (self.tree / name).parent)
        return True

    def run(self, tests, without=(), seconds=None, options=("-x", "-p", "no:xdist"), environment=()):
        """Runs tests; returns what failed first, None: all passed, and how it ended."""
        self._notes.unlink(missing_ok=True)
        self._scratch.mkdir(exist_ok=True)
        path = os.pathsep.join([str(self.tree), str(HOOK), os.environ.get("PYTHONPATH", "")])
        environ = {**os.environ, **FEW, **dict(environment), "PYTHONPATH": path, "MUTANTS_NOTES": str(self._notes)}
        environ["PYTEST_DEBUG_TEMPROOT"] = str(self._scratch)
        left_out = [option for test in without for option in ("--deselect", test)]
        command = [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "noted", "-m", self._marks),
            *("--timeout", str(LONGEST), *options, *left_out, *tests),
        ]
        with self.output.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=self.tree, env=environ, stdout=output, stderr=output, start_new_session=True
            )
            try:
                status = process.wait(seconds)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                self._end(process)
        if status in (0, 5):  # 5: none was selected
            return None, "passed"
        failed, runs = ([text for kind, text in self.notes() if kind == wanted] for wanted in ("failed", "runs"))
        how = "hung" if status is None else "crashed" if not failed else "failed"
        return (failed[:1] or runs[-1:] or list(tests)[:1])[0], how

    def notes(self):
        """What the plugin has noted in the last run."""
        with contextlib.suppress(FileNotFoundError):
            return [line.split(" ", 1) for line in self._notes.read_text(encoding="utf-8").splitlines()]
        return []

    def _end(self, process):
        """Ends what still runs of a run, and deletes its files."""
        mark = f"MUTANTS_NOTES={self._notes}\0".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (folder / "environ").read_bytes():
                    os.kill(int(folder.name), signal.SIGKILL)
        process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)


class Map:
    """Which files of tests run a line of the product, by a run with coverage that is kept in a folder."""

    def __init__(self, folder, tree):
        noted = json.loads((folder / "tests.json").read_text(encoding="utf-8"))
        self.seconds, self.broken = noted["seconds"], set(noted["broken"])
        data = coverage.CoverageData(str(folder / "coverage"))
        data.read()
        self._lines = defaultdict(dict)
        for file in data.measured_files():
            for line, contexts in data.contexts_by_lineno(file).items():
                tests = {context.partition("|")[0] for context in contexts} & self.seconds.keys()
                self._lines["pyspark_log/" + file.rpartition("/pyspark_log/")[2]][line] = tests
        self._product = {str(path.relative_to(tree)) for path in tree.glob("pyspark_log/**/*.pyx")}
        self._product |= {str(path.relative_to(tree)) for path in tree.glob("pyspark_log/**/*.py")}
        self._text = functools.cache(lambda name: (tree / name).read_text(encoding="utf-8"))

    @staticmethod
    def make(folder, copy, tests, processes):
        """Runs the tests once with coverage, and what failed again without: what fails then is left out."""
        folder.mkdir(parents=True, exist_ok=True)
        settings = copy.tree.with_name("coveragerc")
        settings.write_text(SETTINGS.format(data=folder.resolve() / "coverage"), encoding="utf-8")
        started = {"COVERAGE_PROCESS_START": str(settings)}
        copy.run(tests, options=("-n", str(processes), "--no-loadscope-reorder"), environment=started)
        seconds = Counter()
        for kind, text in copy.notes():
            if kind == "took":
                took, _, file = text.partition(" ")
                seconds[file] += float(took)
        failed = {text for kind, text in copy.notes() if kind == "failed"}
        if failed:
            copy.run(sorted(failed), options=("-p", "no:xdist"))
            failed = {text for kind, text in copy.notes() if kind == "failed"}
        if not seconds:
            raise RuntimeError(f"no test was run: {copy.output.read_text(encoding='utf-8', errors='replace')}")
        measured = coverage.Coverage(str(folder / "coverage"), config_file=False)
        measured.combine()
        measured.save()
        text = json.dumps({"seconds": seconds, "broken": sorted(failed)}, indent=1)
        (folder / "tests.json").write_text(text, encoding="utf-8")

    def tests_for(self, change):
        """The files of tests that run the statement; if none is known, those that run the file, or its users.

        Those of the nearest folder come first, and of these the cheapest.
        """
        lines = self._lines[change.file]
        found = set()
        if change.in_function:
            found = set().union(*(lines.get(line, ()) for line in range(change.lines[0], change.lines[1] + 1)))
        found = found or (set() if change.file.endswith(".pyx") else set().union(*lines.values()))
        if not change.in_function or not found:  # what runs in imports has as its test the first that imports it
            found = found | self._of_users(change.file, set())
        return sorted(found, key=lambda test: _distance(test, change.file, self.seconds[test]))

    def _of_users(self, file, seen):
        """The tests that import a file, and those of the files that do, through kernels."""
        package, _, name = file.rpartition(".")[0].replace("/", ".").rpartition(".")
        uses = re.compile(rf"{package}\.{name}\b|from {package} c?import .*\b{name}\b").search
        found = {test for test in self.seconds if uses(self._text(test))}
        for user in self._product - seen:
            if uses(self._text(user)):
                seen.add(user)
                found = found.union(*self._lines[user].values())
                found |= self._of_users(user, seen) if user.endswith(".pyx") else set()
        return found


def _distance(test, file, seconds):
    parts = set(re.split(r"[/_.]", test))
    return -sum(part in parts for part in set(re.split(r"[/_.]", file))), seconds
