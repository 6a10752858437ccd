"""`conf/` shows people the settings as the engine has them."""

from __future__ import annotations

from pyspark_log.config import STORE_CONFIGS, TOPIC_CONFIGS
from tests.paths import ROOT

CONF = ROOT / "conf"


def shown(file: str) -> dict[str, tuple[str, str]]:
    """Name -> (default, the comment above it) of a properties file."""
    settings, comment = {}, []
    for line in (CONF / file).read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            comment.append(line.removeprefix("#").strip())
        else:
            name, equals, value = line.partition("=")
            if equals:
                settings[name] = value, " ".join(comment)
            comment = []
    return settings


def expected(key) -> tuple[str, str]:
    unit = f" [{key.unit}]" if key.unit else ""
    return key.default, key.meaning[0].upper() + key.meaning[1:] + unit


def test_topic_properties_shows_every_setting_of_a_topic():
    assert shown("topic.properties") == {key.name: expected(key) for key in TOPIC_CONFIGS.values()}


def test_store_properties_shows_every_setting_of_a_store():
    keys = [*STORE_CONFIGS.values(), *TOPIC_CONFIGS.values()]
    assert shown("store.properties") == {key.store_name: expected(key) for key in keys}
