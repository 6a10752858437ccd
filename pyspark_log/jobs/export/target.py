"""The folder that an export writes to: unfinished work aside, complete files in place.

What is unfinished is in `_pylog/GROUP/`, which Spark does not read, with the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import quote

from pyspark_log.jobs.export.plan import Plan, WrittenFile
from pyspark_log.jobs.support import JobError
from pyspark_log.storage.catalog import local_path
from pyspark_log.storage.fs import FileLock, files, lock_for

_HIDDEN = "_pylog"
_PLAN = "plan.json"
#: No plan is larger: some 400,000 files.
_MAX_PLAN_BYTES = 256 << 20


class Target:
    """The folder, for one group.

    Attributes:
        path: the folder, absolute.
        work: the folder with the plan, and the files that are not complete, or not in place yet.
        plan_path: the file of the plan.
    """

    def __init__(self, path: str, group: str) -> None:
        """Reads nothing yet. InvalidConfigError: not a path."""
        self.path = local_path(path)
        self.work = f"{self.path}/{_HIDDEN}/{quote(group, safe='')}"
        self.plan_path = f"{self.work}/{_PLAN}"

    def prepare(self) -> None:
        """Makes the folders that are missing. OSError: the parent of the folder does not exist, for instance."""
        for folder in (self.path, f"{self.path}/{_HIDDEN}", self.work):
            files.make_folder(folder)

    def lock(self) -> FileLock:
        """A lock that one process at a time can have for the group in this folder; it is not acquired yet."""
        path = f"{self.work}.lock"
        files.open_or_create(path).close()
        return lock_for(path)

    # ---- the plan

    def plan(self) -> Plan | None:
        """The plan of a run that did not come to its end, if there is one. JobError: it is damaged."""
        try:
            return Plan.of_json(files.read_whole(self.plan_path, _MAX_PLAN_BYTES), self.plan_path)
        except FileNotFoundError:
            return None

    def keep(self, plan: Plan) -> None:
        """Writes the plan, durably, over the one before."""
        files.replace_whole(self.plan_path, plan.to_json())

    def forget_plan(self) -> None:
        """Removes the plan, durably."""
        files.unlink(self.plan_path)
        files.sync_folder(self.work)

    # ---- files

    def sweep(self, kept: Iterable[WrittenFile] = ()) -> None:
        """Removes unfinished files that no plan needs: tasks of earlier runs have left them."""
        names = {_PLAN, *(one.temporary for one in kept)}
        for name in files.list_folder(self.work):
            if name not in names:
                files.unlink(f"{self.work}/{name}")

    def check_free(self, written: Sequence[WrittenFile]) -> None:
        """Refuses to replace files. JobError: one of these names is taken."""
        for one in written:
            if files.exists(f"{self.path}/{one.name}"):
                raise JobError(
                    f"{self.path}/{one.name} exists already: these offsets were exported before, by another group or "
                    "before the group's offsets were reset. Remove the older files, or choose another folder"
                )

    def place(self, written: Sequence[WrittenFile]) -> None:
        """Gives all files their names, durably; those that have them already stay. JobError: one is missing."""
        folders = dict[str, None]()
        for one in written:
            source, path = f"{self.work}/{one.temporary}", f"{self.path}/{one.name}"
            folder = path.rpartition("/")[0]
            if folder not in folders:
                self._make_folders(one.name)
                folders[folder] = None
            try:
                files.rename(source, path)
            except FileNotFoundError:
                if not files.exists(path):
                    raise JobError(
                        f"{source} was written for {path}, and is missing. If files were removed by hand, remove "
                        f"{self.plan_path} and the files that it names, too: the export then writes everything again"
                    ) from None
        for folder in folders:
            files.sync_folder(folder)

    def _make_folders(self, name: str) -> None:
        folder = self.path
        for part in name.split("/")[:-1]:
            folder = f"{folder}/{part}"
            files.make_folder(folder)
