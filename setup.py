"""The compiled kernels; all else about the package is in pyproject.toml."""

import multiprocessing
import os
import shutil
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.modified import newer_group

# What only locks files, starts threads and makes system calls gains nothing from -O3. A third of the compiler's time is
# for debug information, which nobody has missed.
PLAIN = ["-O2", "-g0", "-w"]
FAST = ["-O3", "-g0", "-w"]
# Headers of ours, by the name of the kernel that includes them.
HEADERS = {"guarded": ["kept_locks.h", "c_thread.h"], "open_file": ["early_sync.h", "c_thread.h", "unshared.h"]}


def _kernel(source: Path) -> Extension:
    return Extension(
        ".".join(source.with_suffix("").parts),
        [str(source)],
        depends=[str(source.with_name(header)) for header in HEADERS.get(source.stem, ())],
        extra_compile_args=PLAIN if source.parent.name == "fs" else FAST,
    )


# The Python that is given to Spark: a program of C, which no Python needs to start for.
LAUNCHER = Path("pyspark_log", "warm_python", "launcher.c")


class _Announcing(build_ext):
    """Compiles kernels side by side, and says which one begins; and the launcher."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()
        self.begun = 0

    def build_extension(self, ext: Extension) -> None:
        built = Path(self.get_ext_filename(ext.name))
        if self.editable_mode and not newer_group([*ext.sources, *ext.depends], str(built), "newer"):
            target = Path(self.get_ext_fullpath(ext.name))  # `make` has just compiled it
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(built, target)
            return
        self.begun += 1
        print(f"  kernel {self.begun:2} of {len(self.extensions)}  {ext.name}", flush=True)
        super().build_extension(ext)

    def build_extensions(self) -> None:
        super().build_extensions()
        objects = self.compiler.compile([str(LAUNCHER)], output_dir=self.build_temp, extra_preargs=["-O2", "-w"])
        self.compiler.link_executable(objects, "pylog-python", output_dir="build")


os.chdir(Path(__file__).parent)
kernels = [_kernel(source) for source in sorted(Path("pyspark_log").glob("**/*.pyx"))]
# Where Python does not fork, the processes would run this file again. On Linux it does from 3.14 on if it is asked to.
workers = os.cpu_count() if sys.platform == "linux" else 0
if workers:
    multiprocessing.set_start_method("fork")
setup(
    ext_modules=cythonize(kernels, nthreads=workers, quiet=True),
    cmdclass={"build_ext": _Announcing},
    data_files=[("bin", ["build/pylog-python"])],
)
