"""Runs the samples of docs/guides/tables.md in a session with the jars of Delta or Iceberg, in their order.

    python -m tests.campaigns.table_samples KIND FOLDER

KIND is delta or iceberg; FOLDER is for the page's folders. Records come between the samples, and changes of rows. It
prints what is found in the table as JSON, as its last line. The jar is that of the page for the PySpark at hand.
"""

import json
import sys
from pathlib import Path

import pyarrow as pa

from pyspark_log import Store
from tests import samples
from tests.campaigns import table_driver

SAMPLES = {one.name.removeprefix("tables.md: "): one for one in samples.samples() if one.name.startswith("tables.md: ")}
_DELTA, _ICEBERG = "How do I get a topic into a Delta table?", "And into an Iceberg table?"
_ROWS = f"{_DELTA} #2"
_CHANGES = "How do the changes of a table get into a topic?"
_UPKEEP, _NEW_FIELD = "What do I do about small files?", "What if the values get a new field?"
#: Of the page, without the field that is new.
_FIELDS = "carrier STRING, dep_delay INT"


class Reader:
    """A reader of the page, with the samples that it has run so far."""

    def __init__(self, kind, folder):
        self.kind, self.folder, self.names = kind, Path(folder), {}
        self.store = samples.make_world(self.folder)
        self.table = f"delta.`{folder}/data/flights`" if kind == "delta" else "lake.db.flights"
        self.facts = {}

    def run(self, name):
        """Runs a sample."""
        code = SAMPLES[name].code_in(self.folder)
        for jar in table_driver.all_jars(self.kind).values():
            code = code.replace(jar, table_driver.jar(self.kind))
        exec(compile(code, name, "exec"), self.names)

    def append(self):
        """Thirty records with a field that the first ones lack, into one partition."""
        values = [f'{{"carrier": "C9", "dep_delay": {number}, "gate": "G1"}}' for number in range(30)]
        self.store.append("flights", pa.record_batch({"key": ["N1"] * 30, "value": values}), partition=0)

    def query(self, text):
        """The rows of a query over the table, as lists."""
        rows = self.names["spark"].sql(text.format(table=self.table)).collect()
        return [list(row) for row in rows]

    def files(self):
        """How many files the table has."""
        if self.kind == "delta":
            return self.names["spark"].sql(f"DESCRIBE DETAIL {self.table}").first().numFiles
        return self.query("SELECT count(*) FROM {table}.files")[0][0]

    def look(self, name):
        """Notes the rows in the table, and how many of them have different places in the topic."""
        self.facts[name] = self.query("SELECT count(*), count(DISTINCT partition, offset) FROM {table}")[0]

    def look_last(self):
        """Notes also how many rows have which gate, and how many are of late flights."""
        self.look("last")
        self.facts["gates"] = dict(self.query("SELECT coalesce(gate, ''), count(*) FROM {table} GROUP BY 1"))
        self.facts["late"] = self.query("SELECT count(*) FROM {table} WHERE dep_delay > 60")[0][0]


def delta(reader):
    """The samples of Delta."""
    for name in (_DELTA, _ROWS, f"{_DELTA} #3", _CHANGES):
        reader.run(name)
    reader.look("first")
    reader.query("UPDATE {table} SET dep_delay = 0 WHERE partition = 0 AND offset < 20")
    reader.query("DELETE FROM {table} WHERE partition = 0 AND offset < 5")
    reader.append()
    reader.names["into_delta"](reader.names["flights"](_FIELDS))
    before = reader.files()
    reader.run(_UPKEEP)
    reader.facts["files"] = [before, reader.files()]
    reader.run(_CHANGES)
    reader.append()
    reader.run(_NEW_FIELD)
    reader.run(_CHANGES)
    reader.look_last()
    reader.run("Is each record in the table once?")
    reader.facts["next"] = reader.names["starting_offsets"]["flights"]
    store = Store.open(reader.store.path)
    kinds = [
        json.loads(value)["_change_type"] for value in store.topic("changes").read().to_table()["value"].to_pylist()
    ]
    reader.facts["changes"] = {kind: kinds.count(kind) for kind in kinds}


def iceberg(reader):
    """The samples of Iceberg."""
    for name in (_ROWS, _ICEBERG):
        reader.run(name)
    reader.look("first")
    reader.append()
    reader.names["into_iceberg"](reader.names["flights"](_FIELDS))
    before = reader.files()
    reader.run(f"{_UPKEEP} #2")
    reader.facts["files"] = [before, reader.files()]
    reader.append()
    reader.run(f"{_NEW_FIELD} #2")
    reader.look_last()


def main(kind, folder):
    """See above."""
    reader = Reader(kind, folder)
    {"delta": delta, "iceberg": iceberg}[kind](reader)
    print(json.dumps(reader.facts))


if __name__ == "__main__":
    main(*sys.argv[1:])
