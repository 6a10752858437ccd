"""Avro schemas by chance, as JSON has them, and changed ones that may read what they wrote."""

PRIMITIVES = ("boolean", "int", "long", "float", "double", "bytes", "string")
_INTS = ("date", "time-millis", "timestamp-millis")
_LONGS = (
    "timestamp-millis", "timestamp-micros", "timestamp-nanos", "local-timestamp-millis", "local-timestamp-micros",
    "time-micros", "date",
)  # fmt: skip
#: What a primitive type becomes when a schema is changed; most of these can be read.
_CHANGED = {
    "int": ("long", "float", "double", "string"), "long": ("float", "double", "int"), "float": ("double", "long"),
    "string": ("bytes", "int"), "bytes": ("string", "double"), "double": ("float",), "boolean": ("int",),
}  # fmt: skip


class AvroDraws:
    """Schemas of one sequence of chances."""

    def __init__(self, pick, *, plain=False):
        """`pick`: a random.Random. `plain`: without logical types, and each name is used once."""
        self._pick, self._plain = pick, plain
        self._count, self._named = 0, {}

    def schema(self):
        """A record."""
        self._named = {}
        return self._record(3)

    def _type(self, depth):
        kinds = ["primitive"] * 3 + ["logical", "enum", "fixed"]
        kinds += ["record", "array", "map", "union", "union", "named"] * (depth > 0)
        kind = self._pick.choice(kinds)
        if kind == "named" and self._named and not self._plain:
            return self._pick.choice(list(self._named))
        if kind == "logical" and not self._plain:
            return self._logical()
        makers = {
            "record": self._record, "array": self._array, "map": self._map, "union": self._union,
            "enum": self._enum, "fixed": self._fixed,
        }  # fmt: skip
        return makers[kind](depth - 1) if kind in makers else self._pick.choice(PRIMITIVES)

    def _name(self):
        self._count += 1
        name = {"name": f"N{self._count}"}
        if self._pick.random() < 0.3:
            name["namespace"] = self._pick.choice(("a", "a.b", ""))
        elif self._pick.random() < 0.2:
            name["name"] = f"x.y.N{self._count}"
        if self._pick.random() < 0.2:
            name["aliases"] = [f"Old{self._count}"]
        return name

    def _finished(self, made):
        """Later parts of the schema may name it, unless its namespace is that of what it is in."""
        if "." in full_name(made):
            self._named[full_name(made)] = made
        return made

    def _record(self, depth):
        fields = [self.field(at, depth) for at in range(self._pick.randint(1, 5))]
        if self._pick.random() < 0.1:
            fields.insert(self._pick.randint(1, len(fields)), {"name": "nothing", "type": "null"})
        return self._finished({"type": "record", **self._name(), "fields": fields})

    def field(self, at, depth):
        """A field, sometimes with a default."""
        made = {"name": f"f{at}", "type": self._type(depth)}
        # A writer's do not matter, and Java takes its records' for wrong where a reader has other names of fields.
        if self._pick.random() < 0.3 and not self._plain:
            made["default"] = self.default(made["type"])
        return made

    def _enum(self, _):
        symbols = self._pick.sample(["A", "B", "C", "_d", "E5"], self._pick.randint(1, 5))
        return self._finished({"type": "enum", **self._name(), "symbols": symbols})

    def _fixed(self, _):
        return self._finished({"type": "fixed", **self._name(), "size": self._pick.randint(1, 20)})

    def _array(self, depth):
        return {"type": "array", "items": self._type(depth)}

    def _map(self, depth):
        return {"type": "map", "values": self._type(depth)}

    def _union(self, depth):
        branches = []
        for _ in range(self._pick.choice((1, 1, 2, 4))):
            named = dict(self._named)
            more = self._type(depth)
            union = as_union([*branches, more], both_sizes=not self._plain)
            if len(union) == len(branches) + (len(more) if isinstance(more, list) else 1):
                branches = union
            else:
                self._named = named
        if "null" not in branches:
            branches.insert(self._pick.randint(0, len(branches)), "null")
        return branches

    def _logical(self):
        kind = self._pick.choice(("int", "long", "long", "decimal", "fixed decimal", "uuid"))
        if kind == "uuid":
            return {"type": "string", "logicalType": "uuid"}
        if kind in ("int", "long"):
            return {"type": kind, "logicalType": self._pick.choice(_INTS if kind == "int" else _LONGS)}
        # Some have more digits than their bytes, or a scale beyond their digits, and are no decimals.
        scale = self._pick.choice((0, 2, 9))
        digits = {"logicalType": "decimal", "precision": self._pick.randint(1, 38), "scale": scale}
        if kind == "decimal":
            return {"type": "bytes", **digits}
        return self._finished({"type": "fixed", **self._name(), "size": self._pick.randint(1, 17), **digits})

    def default(self, kind):  # noqa: PLR0911  (one for each type)
        """A default of a type."""
        if isinstance(kind, list):
            return self.default(kind[0])
        if isinstance(kind, str) and kind in self._named:
            return self.default(self._named[kind])
        if isinstance(kind, str):
            return {
                "null": None, "boolean": True, "string": "é", "bytes": "\u00ff", "float": 0.5, "double": -3,
            }.get(kind, self._pick.randint(-99, 2**31 - 1))  # fmt: skip
        name = kind["type"]
        if name == "record":
            return {field["name"]: self.default(field["type"]) for field in kind["fields"]}
        if name == "array":
            return [self.default(kind["items"])] * self._pick.randint(0, 2)
        if name == "map":
            return {"k": self.default(kind["values"])}
        if name == "enum":
            return self._pick.choice(kind["symbols"])
        if name == "fixed":
            return "\0" * (kind["size"] - 1) + "\5"
        return "\5" if kind["logicalType"] == "decimal" else self.default(name)

    # ---- evolution

    def changed(self, schema):
        """A schema that is like another one, in which some parts differ."""
        if isinstance(schema, list):
            return self._changed_union(schema)
        if isinstance(schema, str):
            return self._changed_primitive(schema)
        changed = dict(schema)
        if changed["type"] in ("record", "enum", "fixed"):
            self._rename(changed)
        if changed["type"] == "array":
            changed["items"] = self.changed(changed["items"])
        elif changed["type"] == "map":
            changed["values"] = self.changed(changed["values"])
        elif changed["type"] == "fixed":
            changed["size"] += self._pick.random() < 0.1
        elif changed["type"] == "enum":
            self._change_symbols(changed)
        elif changed["type"] == "record":
            # Java takes aliases of fields only in a record that has the writer's name, also as an alias.
            self._change_fields(changed, with_aliases=changed["name"] == schema["name"] or changed["aliases"] != [])
        if self._pick.random() < 0.1:
            return as_union([changed, "null", "string"])
        return changed

    def _changed_primitive(self, kind):
        if kind != "null" and self._pick.random() < 0.25:
            return self._pick.choice(_CHANGED[kind])
        return as_union([kind, "null", "boolean"]) if self._pick.random() < 0.15 else kind

    def _changed_union(self, branches):
        changed = [self.changed(branch) for branch in branches]
        if self._pick.random() < 0.3:
            self._pick.shuffle(changed)
        if self._pick.random() < 0.2 and len(changed) > 1:
            changed.pop()
        if self._pick.random() < 0.2:
            changed.append(self._pick.choice(PRIMITIVES))
        return as_union(changed) if self._pick.random() < 0.9 else changed[0]

    def _rename(self, changed):
        """Gives a type another name, mostly with the old one as an alias."""
        if self._pick.random() < 0.15:
            aliases = [full_name(changed)] if self._pick.random() < 0.7 else []
            self._count += 1
            # In the same namespace, since enums and fixed within a union are compared by Java with theirs.
            place = changed["name"].rpartition(".")
            changed |= {"name": f"{place[0]}{place[1]}New{self._count}", "aliases": aliases}

    def _change_symbols(self, changed):
        symbols = list(changed["symbols"])
        if self._pick.random() < 0.3:
            symbols[self._pick.randrange(len(symbols))] = "NEW"
        if self._pick.random() < 0.3:
            self._pick.shuffle(symbols)
        changed["symbols"] = symbols
        if self._pick.random() < 0.5:
            changed["default"] = symbols[0]

    def _change_fields(self, changed, *, with_aliases):
        fields = []
        for field in changed["fields"]:
            kind = self._pick.random()
            made = {"name": field["name"], "type": self.changed(field["type"])}
            if kind < 0.1:
                continue
            if kind < 0.25:
                aliases = [field["name"]] if with_aliases and self._pick.random() < 0.9 else []
                made |= {"name": f"{field['name']}_new", "aliases": aliases}
            fields.append(made)
        if self._pick.random() < 0.4 or not fields:
            added = {"name": "added", "type": self._type(1)}
            if self._pick.random() < 0.85:
                added["default"] = self.default(added["type"])
            fields.append(added)
        if self._pick.random() < 0.3:
            self._pick.shuffle(fields)
        changed["fields"] = fields


def full_name(schema):
    """The name of a type with its namespace, unless that is the one of what it is in."""
    namespace = schema.get("namespace")
    return schema["name"] if "." in schema["name"] or not namespace else f"{namespace}.{schema['name']}"


def as_union(branches, *, both_sizes=False):
    """A union of branches that may be unions, and in which no type is twice.

    `both_sizes`: whether it may have float and double. Where a reader's union has both, Java takes the first of them
    for a whole number, and digits are lost, while their one column takes it as it is.
    """
    flat, seen = [], set()
    for branch in branches:
        for part in branch if isinstance(branch, list) else [branch]:
            name = part if isinstance(part, str) else full_name(part) if "name" in part else part["type"]
            if name not in seen and (both_sizes or not {name, *seen} >= {"float", "double"}):
                seen.add(name)
                flat.append(part)
    return flat
