"""What is in the packages: the source distribution builds the wheel, and the wheel has all that users need."""

import email
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.paths import ROOT

setuptools = pytest.importorskip("setuptools", minversion="77", reason="packages are built by setuptools 77")
pytest.importorskip("Cython", reason="packages are built with Cython")

PACKAGE = ROOT / "pyspark_log"
# What people keep beside the sources, and what git ignores.
_OTHERS = shutil.ignore_patterns(".*", "build", "__pycache__", "*.so", "*.c")
# Of these, what is packed.
_PACKED = {".importlinter", "launcher.c"}
# Kernels become C where they are compiled only: that takes half a minute.
_UNCOMPILED = "import Cython.Build; Cython.Build.cythonize = lambda kernels, **_: kernels; import sys; "

pytestmark = pytest.mark.skipif(not (ROOT / "MANIFEST.in").exists(), reason="these are not the sources")


def run(folder, code, *arguments, **settings):
    """Runs a piece of Python in a folder, as a build does, without a network; what it says last."""
    command = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | settings
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The unpacked source distribution, and the names of what is in it."""
    folder = tmp_path_factory.mktemp("sdist")
    shutil.copytree(ROOT, folder / "copy", symlinks=True, ignore=lambda *of_folder: _OTHERS(*of_folder) - _PACKED)
    code = f"{_UNCOMPILED}from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"
    archive = folder / run(folder / "copy", code, folder)
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def installed(sources):
    """What is installed of the source distribution, but for the compiled kernels."""
    target = sources.parent / "installed"
    run(
        sources,
        f"{_UNCOMPILED}import setuptools; sys.argv[0] = 'setup.py'; setuptools.setup(); print()",
        "build_py",
        "--build-lib",
        target,
    )
    return target


def modules(folder):
    return {str(path.relative_to(folder)) for path in (folder / "pyspark_log").rglob("*.py")}


def kernels(folder):
    return {str(path.relative_to(folder)) for path in (folder / "pyspark_log").rglob("*.pyx")}


def test_the_settings_name_all_that_is_packed():
    """Of which the following build packages."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["project"]["requires-python"] == ">=3.11"
    assert settings["project"]["scripts"] == {"pylog": "pyspark_log.cli.start:main"}
    tools = settings["tool"]["setuptools"]
    folders = {str(file.parent.relative_to(ROOT)) for file in PACKAGE.rglob("*.py")}
    assert set(tools["packages"]) == {folder.replace(os.sep, ".") for folder in folders}
    data = tools["package-data"]
    assert "py.typed" in data["pyspark_log"]
    assert {"static/*", "templates/*"} <= set(data["pyspark_log.ui"])
    for kernel in PACKAGE.rglob("*.pyx"):
        assert "*.pyx" in data[".".join(kernel.parent.relative_to(ROOT).parts)]


@pytest.mark.slow
def test_the_source_distribution_has_all_sources_once(sources):
    assert modules(sources) == modules(ROOT)
    assert kernels(sources) == kernels(ROOT)
    this = "tests/unit/project/test_packaging.py"
    for name in (this, "docs/concepts/guarantees.md", "conf/store.properties", "Makefile", "LICENSE"):
        assert (sources / name).is_file()
    # These are other names of parts of the package.
    assert not [name for name in ("storage", "spark_connector", "jobs") if (sources / name).exists()]


@pytest.mark.slow
def test_what_is_installed_has_every_module_and_the_jobs(installed):
    assert modules(installed) == modules(ROOT)
    for folder in ("ui/static", "ui/templates"):
        assert sorted(os.listdir(installed / "pyspark_log" / folder)) == sorted(os.listdir(PACKAGE / folder))
    assert (installed / "pyspark_log" / "py.typed").is_file()
    jobs = "runpy.run_module('pyspark_log.jobs', run_name='__main__')"
    folder = run(installed.parent, f"import runpy, sys; sys.path.insert(0, sys.argv[1]); {jobs}", installed)
    assert Path(folder) == installed / "pyspark_log" / "jobs"
    assert (Path(folder) / "compact.py").read_text(encoding="utf-8") == (PACKAGE / "jobs" / "compact.py").read_text(
        encoding="utf-8"
    )


@pytest.mark.slow
def test_the_metadata_says_for_which_python_it_is(sources):
    code = f"{_UNCOMPILED}from setuptools.build_meta import prepare_metadata_for_build_wheel as build; "
    folder = run(sources, f"{code}print(build(sys.argv[1]))", sources.parent)
    told = email.message_from_string((sources.parent / folder / "METADATA").read_text(encoding="utf-8"))
    assert told["Name"] == "pyspark-log"
    assert told["Requires-Python"] == ">=3.11"
    assert told.get_all("Project-URL") is None, "it names no page that does not exist"
    versions = [text.rpartition(" ")[2] for text in told.get_all("Classifier") if " 3." in text]
    assert versions[0] == "3.11"
    assert (sources.parent / folder / "entry_points.txt").read_text(encoding="utf-8").splitlines() == [
        "[console_scripts]",
        "pylog = pyspark_log.cli.start:main",
    ]


@pytest.mark.slow
def test_the_wheel_has_modules_jobs_and_kernels(sources):
    code = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    # What it is called is looked at, and not how fast it is: what comes last counts for a compiler.
    compiler = sources.parent / "cc"
    compiler.write_text('#!/bin/sh\nexec cc "$@" -O0\n', encoding="utf-8")
    compiler.chmod(0o755)
    wheel = sources.parent / run(sources, code, sources.parent, CC=str(compiler))
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
    assert {name for name in names if name.endswith(".py")} == modules(ROOT)
    (launcher,) = (entry for entry in packed.infolist() if entry.filename.endswith(".data/data/bin/pylog-python"))
    assert launcher.external_attr >> 16 & 0o111 == 0o111
    built = {name.partition(".")[0] + ".pyx" for name in names if name.endswith(".so")}
    assert built == kernels(ROOT)


#: The check that docs/start/install.md has of a Python that Spark is to start.
CHECK = "from pyspark_log import DefaultSource"


def checked(folder, *before):
    """The last line that the check says, run in a folder; "" if all is well."""
    assert CHECK in " ".join((ROOT / "docs/start/install.md").read_text().split())
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-W", "ignore", "-c", "\n".join((*before, CHECK))]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, check=False)
    assert bool(done.returncode) == bool(done.stderr)
    return done.stderr.splitlines()[-1] if done.stderr else ""


def test_the_check_says_what_is_missing(tmp_path):
    assert checked(tmp_path) == ""
    missing = checked(tmp_path, "import sys", "sys.modules['pyspark'] = None")
    assert missing.startswith("ModuleNotFoundError: ")
    assert "pyspark" in missing
    nowhere = checked(tmp_path, "import sys", "sys.modules['pyspark_log'] = None")
    assert "pyspark_log" in nowhere
    # Beside a clone that is not built, which shadows what is installed.
    shutil.copytree(PACKAGE, tmp_path / "pyspark_log", ignore=_OTHERS)
    unbuilt = checked(tmp_path)
    assert unbuilt.startswith(f"ImportError: {tmp_path / 'pyspark_log'} is source code whose compiled modules are not")
    assert "start Python in another folder" in unbuilt
