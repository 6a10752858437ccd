"""Builds the site of the documentation into build/site, strictly: a dead link ends it with an error.

    make docs        (or, with the extra `docs` installed: python docs/build.py [FOLDER])

Zensical makes the HTML. Before that, the pages are copied to build/docs, with what they link to outside of docs/ (below
`repository/`), and links that fit there. Afterwards each page's Markdown is put beside its HTML, and llms.txt lists
them; the names that pages had before November 2026 lead to the new ones. docs/README.md is the source of it all: its
lists are the navigation and llms.txt, and its last table says where old pages went. FOLDER takes the place of build.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

SUMMARY = (
    "Kafka's log for Spark, without Kafka's servers: topics in a folder or an object store, in Kafka's own file "
    "format, read and written by PySpark, Python, the command line and Kafka's clients, exactly once."
)
#: Of the repository, in the navigation's last part; other files are there if a page links to them.
REPOSITORY = {"README.md": "README", "CHANGELOG.md": "What changed", "CONTRIBUTING.md": "Contributing"}
_LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
_LISTED = re.compile(r"- \[([^\]]+)\]\(([^)]+)\): (.+)")


@dataclass(frozen=True)
class Listed:
    """A page in the lists of docs/README.md.

    Attributes:
        room: the heading that it is under.
        group: the line above the list, as "Running it"; empty if there is none.
        title, about: what the list says of it.
        page: its path in docs/.
    """

    room: str
    group: str
    title: str
    page: str
    about: str


def listed(index: str) -> list[Listed]:
    """The pages that docs/README.md lists, in its order."""
    found, room, group = [], "", ""
    for line in index.partition("## Where old pages went")[0].splitlines():
        if line.startswith("## "):
            room, group = line[3:], ""
        elif line.endswith(":") and not line.startswith("- "):
            group = line[:-1]
        elif entry := _LISTED.match(line):
            found.append(Listed(room, group, entry[1], entry[2], entry[3]))
    return found


def moved(index: str) -> dict[str, str]:
    """Where each old page went: its old name, without `.md`, and the new path in docs/."""
    rows = re.findall(r"^\| `docs/([\w-]+)\.md` \| \[[^\]]+\]\(([^)]+)\)", index, re.MULTILINE)
    return dict(rows)


def place(source: Path) -> Path:
    """Where a file of the repository is on the site; source code is shown as text."""
    inside = source.is_relative_to(DOCS)
    path = source.relative_to(DOCS) if inside else Path("repository") / source.relative_to(ROOT)
    if source.is_dir():
        return path / "index.md"
    if path.suffix == ".md":
        return path.with_name("index.md") if path.name == "README.md" else path
    return path if path.suffix in (".png", ".svg") else path.with_name(f"{path.name}.txt")


def copy_all(folder: Path) -> list[Path]:
    """Copies the pages, and what they link to, into a folder; returns their places."""
    waiting = [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in REPOSITORY)]
    done: dict[Path, Path] = {}
    while waiting:
        source = waiting.pop()
        if source in done:
            continue
        done[source] = place(source)
        target = folder / done[source]
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            target.write_text(_list_of(source))
            waiting += [path for path in source.iterdir() if path.is_file()]
        elif source.suffix == ".md":
            text, linked = with_links(source)
            target.write_text(text)
            waiting += linked
        else:
            shutil.copyfile(source, target)
    return list(done.values())


def _list_of(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    rows = "\n".join(f"- [{name}]({place(folder / name).name})" for name in names)
    return f"# {folder.relative_to(ROOT)}\n\n{rows}\n"


def with_links(page: Path) -> tuple[str, list[Path]]:
    """A page's text, whose links fit the site; and the files that it links to. A link to no file stays as it is."""
    linked, lines, is_code = [], [], False
    here = place(page).parent

    def fitting(match: re.Match[str]) -> str:
        target = (page.parent / match[1]).resolve()
        if not target.exists():
            return match[0]
        target = target / "README.md" if (target / "README.md").exists() else target
        linked.append(target)
        up = "../" * len(here.parts)
        return f"]({up}{place(target)}{match[2] or ''})"

    for line in page.read_text(encoding="utf-8").splitlines():
        is_code ^= line.lstrip().startswith("```")
        lines.append(line if is_code else _LINK.sub(fitting, line))
    return "\n".join(lines) + "\n", linked


def navigation(pages: list[Listed]) -> list[dict[str, object]]:
    """The navigation as Zensical has it: rooms, groups, pages."""
    rooms: dict[str, list[object]] = {"Documentation": ["index.md"]}
    groups: dict[tuple[str, str], list[object]] = {}
    for one in pages:
        room = rooms.setdefault(one.room, [])
        if one.group and (one.room, one.group) not in groups:
            room.append({one.group: groups.setdefault((one.room, one.group), [])})
        groups.get((one.room, one.group), room).append({one.title: one.page})
    rooms["Repository"] = [{title: str(place(ROOT / name))} for name, title in REPOSITORY.items()]
    return [{"Home" if name == "Documentation" else name: entries} for name, entries in rooms.items()]


def toml(value: object) -> str:
    """A list, a dict or a text as a value of TOML on one line."""
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(key)} = {toml(entry)}' for key, entry in value.items())} }}"
    return json.dumps(value, ensure_ascii=False)


def llms(pages: list[Listed]) -> str:
    """The list of pages for programs that read Markdown (llmstxt.org)."""
    lines, room = ["# pyspark-log", "", f"> {SUMMARY}"], ""
    for one in pages:
        if one.room != room:
            room = one.room
            lines += ["", f"## {room}", ""]
        lines.append(f"- [{one.title}]({one.page}): {one.about}")
    return "\n".join(lines) + "\n"


def redirect(to: str) -> str:
    """A page that leads to another one, with the heading that was asked for."""
    return (
        f'<!doctype html><meta charset="utf-8"><title>Moved</title><link rel="canonical" href="{to}">'
        f'<script>location.replace("{to}" + location.hash)</script>'
        f'<noscript><meta http-equiv="refresh" content="0; url={to}"></noscript><a href="{to}">It has moved.</a>\n'
    )


def build(folder: Path) -> None:
    """Builds all of it in a folder, in place of what was built there before."""
    copies, site, settings = folder / "docs", folder / "site", folder / "zensical.toml"
    for one in (copies, site):
        shutil.rmtree(one, ignore_errors=True)
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    pages, places = listed(index), copy_all(copies)
    config = (DOCS / "zensical.toml").read_text(encoding="utf-8")
    settings.write_text(
        config.replace("[project]\n", f"[project]\nnav = {toml(navigation(pages))}\n", 1), encoding="utf-8"
    )
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", settings]
    if subprocess.run(command, check=False).returncode:
        sys.exit(1)
    for path in places:
        if path.suffix == ".md":
            shutil.copyfile(copies / path, site / path)
    (site / "llms.txt").write_text(llms(pages), encoding="utf-8")
    of_users = (copies / one.page for one in pages if one.room != "Internals")
    whole = "\n".join(path.read_text(encoding="utf-8") for path in of_users)
    (site / "llms-full.txt").write_text(whole, encoding="utf-8")
    for name, to in moved(index).items():
        (site / f"{name}.html").write_text(redirect(to.removesuffix(".md") + ".html"), encoding="utf-8")
    print(f"{len(pages)} pages are in {site}. To read them: python -m http.server --directory {site}")


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve())
