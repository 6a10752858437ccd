"""Questions of new users, which once took a minute to answer, or had no answer that was found: where it is now.

Each page is at most two links from the README. The words are what a user types into the site's search; it finds the
sections that have all of them.
"""

import re

import pytest

from tests.paths import DOCS, ROOT

README = ROOT / "README.md"
PLACES = "Where do your records live, and what reads and writes them?"
TRIGGER = "How short can a trigger be, and what does one cost?"
#: For each its page, the heading, and the words.
QUESTIONS = {
    "Which place is for my records?": ("README.md", PLACES, "folder object store"),
    "How do I begin?": ("start/tutorial.md", "1. Records in", "clicks producer"),
    "Which query has how much lag?": ("guides/groups.md", "How do I see a group's lag, and move it?", "lag"),
    "How do I encrypt what clients send?": ("guides/security.md", "How do I encrypt?", "tls"),
    "How do I run Spark on Kubernetes?": ("guides/cluster.md", "Kubernetes", "kubernetes image"),
    "How do I run a server on Kubernetes?": ("guides/production.md", "How it is deployed", "kubernetes server"),
    "What if a checkpoint is lost?": ("guides/streaming.md", "When a checkpoint is lost", "lost checkpoint"),
    "What does a trigger cost?": ("guides/sizing.md", TRIGGER, "trigger cost"),
    "What does it cost in S3?": ("guides/object-stores.md", "The cost of a query a day", "cost request"),
    "What if the disk is full?": ("guides/troubleshooting.md", "The disk is full", "disk full"),
    "When are old records deleted?": ("guides/retention.md", "When are records deleted?", "retention"),
    "How do I upgrade?": ("guides/backup.md", "How do I upgrade?", "upgrade version"),
    "How many partitions?": ("guides/sizing.md", "How many partitions?", "how many partitions"),
    "How do I read Avro with a registry?": ("guides/typed-topics.md", "Typed topics", "avro registry schema"),
    "How do I replay a topic?": ("guides/recipes.md", "Replay a topic into another", "replay"),
    "What do I do after a bug?": ("guides/recipes.md", "In other places", "reprocess"),
    "How do I split a topic?": ("guides/recipes.md", "Fan out by content", "fan out"),
    "What of records that cannot be read?": ("guides/recipes.md", "Dead letters", "dead letters"),
    "How do I move a job?": ("guides/moving-a-job.md", "What changes, and by hand", "format"),
    "What has to run, and when?": ("guides/production.md", "What runs regularly", "cron upkeep backup"),
    "What does PYLOG_PUBLISHER_FENCED mean?": ("reference/errors.md", "Publishes", "PYLOG_PUBLISHER_FENCED"),
    "Which versions of Spark?": ("reference/versions.md", "Which PySpark", "pyspark"),
    "What was tried?": ("reference/versions.md", "What was tried", "tried"),
    "Why not Kafka?": ("concepts/comparison.md", "When to take something else", "kafka comparison"),
    "Can several users share a store?": ("guides/troubleshooting.md", "Several users", "several users"),
}  # fmt: skip


def linked(page):
    """The pages that a page links to."""
    links = re.findall(r"\]\(([^)#:\s]+\.md)", page.read_text(encoding="utf-8"))
    return {(page.parent / link).resolve() for link in links}


def section(page, heading):
    """The text under a heading, with it and the page's title; empty if the page does not have it."""
    _, *sections = re.split(r"^#+ ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    title = sections[0].partition("\n")[0]
    return next((f"{title}\n{text}" for text in sections if text.partition("\n")[0] == heading), "")


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_is_found(question):
    name, heading, words = QUESTIONS[question]
    page = README if name == "README.md" else DOCS / name
    near = {README} | linked(README)
    assert page in near.union(*map(linked, near)), "it is more than two links from the README"
    text = section(page, heading)
    assert text, "the heading is not there"
    assert [word for word in words.split() if not re.search(rf"\b{word}", text, re.IGNORECASE)] == []
