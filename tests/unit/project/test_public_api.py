"""What users may rely on: the names and signatures in public_api.txt, which a change must change knowingly.

`python tests/unit/project/test_public_api.py` writes the file.
"""

import dataclasses
import enum
import importlib
import inspect
from pathlib import Path

KEPT = Path(__file__).with_name("public_api.txt")
MODULES = ["pyspark_log", "pyspark_log.admin", "pyspark_log.clients", "pyspark_log.errors", "pyspark_log.spark"]


def signature(thing):
    try:
        return str(inspect.signature(thing))
    except (TypeError, ValueError):
        return ""


def members(thing):
    """The public names of a class, with signatures."""
    if isinstance(thing, enum.EnumMeta):
        return [f"{name} = {one.value!r}" for name, one in thing.__members__.items()]
    found = [field.name for field in dataclasses.fields(thing)] if dataclasses.is_dataclass(thing) else []
    for name, value in sorted(vars(thing).items()):
        if name.startswith("_") or name in found:
            continue
        if isinstance(value, (classmethod, staticmethod)):
            found.append(f"{name}{signature(value.__func__)}  # {type(value).__name__}")
        elif inspect.isfunction(value):
            found.append(name + signature(value))
        else:
            found.append(name)
    return found


def described():
    lines = []
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        names = getattr(module, "__all__", None)
        if names is None:
            names = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module_name]
        for name in sorted(names):
            thing = getattr(module, name)
            if name == "__version__":
                continue
            if inspect.isclass(thing):
                bases = ", ".join(base.__name__ for base in thing.__bases__ if base is not object)
                is_error = issubclass(thing, Exception)
                lines.append(f"{module_name}.{name}({bases})" if is_error else f"{module_name}.{name}")
                lines += [f"    {member}" for member in members(thing)]
            elif callable(thing):
                lines.append(f"{module_name}.{name}{signature(thing)}")
            else:
                lines.append(f"{module_name}.{name} = {thing!r}")
    return "\n".join(lines) + "\n"


def test_names_and_signatures_are_those_that_users_know():
    assert described() == KEPT.read_text()


if __name__ == "__main__":
    KEPT.write_text(described())
