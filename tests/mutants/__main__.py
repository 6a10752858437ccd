"""python -m tests.mutants [--seed N] [--count 300]: changes the product, and looks which changes the tests find."""

import argparse
import contextlib
import json
import queue
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.mutants.changes import all_changes, drawn
from tests.mutants.copies import LONGEST, Copy, Map
from tests.paths import ROOT
from tests.scratch import IN_MEMORY


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=45, help="the same one makes the same changes of the same product")
    parser.add_argument("--count", type=int, default=300, help="how many changes")
    parser.add_argument("--only", default="", help="only changes of files whose path begins like this")
    parser.add_argument("--tests", metavar="COMMIT", help="take the tests of this commit, not those of the tree")
    parser.add_argument("--marks", default="not slow and not spark", help="which tests run, as for pytest -m")
    parser.add_argument("--base", type=Path, help="folder with the map of what the tests cover; made if there is none")
    parser.add_argument("--of", nargs="+", default=["tests"], help="the tests that the map has, if it is made")
    parser.add_argument("--out", type=Path, help="file that gets a line for each change; those it has are not repeated")
    parser.add_argument("--jobs", type=int, default=2, help="how many run side by side")
    parser.add_argument("--unchanged", action="store_true", help="make no change: all must survive")
    given = parser.parse_args()
    base = given.base or ROOT / ".mutants" / (given.tests or "tree")
    out = given.out or base / f"seed-{given.seed}.jsonl"
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="m", dir=IN_MEMORY)))
        copies = [Copy(folder / str(number), given.marks, given.tests) for number in range(given.jobs)]
        if not (base / "tests.json").exists():
            print(f"Running the tests with coverage, once, for {base}.", flush=True)
            Map.make(base, copies[0], given.of, given.jobs)
        covered = Map(base, copies[0].tree)
        out.parent.mkdir(parents=True, exist_ok=True)
        run(drawn(all_changes(given.only), given.seed, given.count), copies, covered, out, given.unchanged)
    print(summary([json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()], covered.broken))


def run(changes, copies, covered, out, unchanged=False):
    """Tries each change that `out` does not have yet, in one of the copies, and notes there what came of it."""
    known = {json.loads(line)["name"] for line in out.read_text().splitlines()} if out.exists() else set()
    free = queue.SimpleQueue()
    for copy in copies:
        free.put(copy)

    def tried(change):
        copy = free.get()
        try:
            return found_by(change, copy, covered, unchanged)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool, out.open("a", encoding="utf-8") as file:
        waited = [pool.submit(tried, change) for change in changes if change.name not in known]
        try:
            for done in as_completed(waited):
                line = done.result()
                file.write(json.dumps(line) + "\n")
                file.flush()
                said = f"{line['how']} by {line['test']}" if line["test"] else "SURVIVED"
                print(f"{line['seconds']:6.0f} s  {line['name']}  {said}", flush=True)
        finally:
            pool.shutdown(cancel_futures=True)


def found_by(change, copy, covered, unchanged=False):
    """Runs the tests for a change until one fails that passes without it, eight files first, then ever more."""
    begun = time.monotonic()
    text = (ROOT / change.file).read_text(encoding="utf-8")
    changed = text if unchanged else change.made_in(text)
    tests = covered.tests_for(change)
    test, how = None, "survived"
    if not copy.write(change.file, changed):
        test, how, tests = "the compiler", "failed", []
    some, at = 8, 0
    while test is None and at < len(tests):
        group = [one for one in tests[at : at + some] if one not in covered.broken]
        left_out = [one for one in covered.broken if one.partition("::")[0] in group]
        limit = 2 * LONGEST + 10 * sum(covered.seconds[one] for one in group)
        failed, ended = copy.run(group, left_out, limit) if group else (None, "")
        if failed is None:
            at, some = at + some, 2 * some
            continue
        copy.write(change.file, text)
        if copy.run([failed], seconds=limit)[0] is None:
            test, how = failed, ended
        else:  # it is no sign of the change
            covered.broken.add(failed)
            copy.write(change.file, changed)
    copy.write(change.file, text)
    lines = text.splitlines()
    first, last = change.start[0] - 1, change.end[0]
    after = changed.splitlines()[first : last + len(changed.splitlines()) - len(lines)]
    return {
        "name": change.name, "package": change.package, "file": change.file, "line": change.start[0],
        "before": "\n".join(lines[first:last]), "after": "\n".join(after), "test": test, "how": how,
        "files": min(at + some, len(tests)), "of": len(tests), "seconds": round(time.monotonic() - begun, 1),
    }  # fmt: skip


def summary(lines, broken):
    """What was found, by package, and what was not."""
    tried = Counter(line["package"] for line in lines)
    found = Counter(line["package"] for line in lines if line["test"])
    said = [f"{found[package]:4} of {count:4}  {package}" for package, count in sorted(tried.items())]
    for line in lines:
        if not line["test"]:
            said.append(f"survived: {line['file']}:{line['line']}: {line['before'].strip()} => {line['after'].strip()}")
    said += [f"left out, as it fails without a change: {test}" for test in sorted(broken)]
    total = max(1, tried.total())
    return "\n".join([*said, f"{found.total():4} of {total:4} found: {100 * found.total() / total:.1f} %"])


if __name__ == "__main__":
    main()
