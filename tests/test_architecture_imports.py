"""The import directions, by the standard library alone; `make lint` checks them with import-linter."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = {"ansor": 0, "sketches": 1, "measure": 1, "costmodel": 2, "search": 3}
FLOORS = {"te": 0, "ir": 1, "schedule": 2, "task": 3, "codegen": 4, "workloads": 4, "runtime": 5}
DOORS = {"ansor/__init__.py", "ansor/__main__.py"}
"""The two modules of `ansor` that see everything."""


def sources() -> list[Path]:
    return sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted module) of every import in a file, lazy and type-only ones included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def allowed(importer: str, imported: str) -> bool:
    mine, other = importer.split("/")[0], imported.split(".")[0]
    if other not in ROOMS:
        return True
    return mine == other or ROOMS[other] < ROOMS[mine]


def test_rooms_import_downwards_only() -> None:
    wrong = [
        f"{name}:{line} imports {module}"
        for path in sources()
        if (name := path.relative_to(ROOT).as_posix()) not in DOORS
        for line, module in imports(path)
        if not allowed(name, module)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("importer", "imported"),
    [("sketches/a.py", "measure.b"), ("ansor/te/a.py", "search"), ("costmodel/a.py", "search.x")],
)
def test_the_rule_bites(importer: str, imported: str) -> None:
    assert not allowed(importer, imported)


def test_floors_of_ansor_import_downwards_only() -> None:
    """Inside `ansor` every package sees only lower ones; imports inside functions and for types count too."""
    wrong = []
    for path in sources():
        name = path.relative_to(ROOT).as_posix()
        mine = name.split("/")[1]
        if not name.startswith("ansor/") or mine not in FLOORS:
            continue
        for line, module in imports(path):
            parts = module.split(".")
            if parts[0] == "ansor" and len(parts) > 1 and FLOORS.get(parts[1], -1) > FLOORS[mine]:
                wrong.append(f"{name}:{line} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_only_the_facade_is_imported_by_experiments() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in sorted((ROOT / "experiments").rglob("*.py"))
        for line, module in imports(path)
        if module.split(".")[0] in ROOMS and module.split(".")[0] != "ansor"
    ]
    assert not wrong, "\n".join(wrong)


def test_no_module_is_named_like_one_of_the_standard_library() -> None:
    import sys

    clashes = [
        path.relative_to(ROOT).as_posix() for path in sources() if path.stem in sys.stdlib_module_names
    ]
    assert [name for name in clashes if not name.endswith("__.py")] == []


def test_files_hold_one_idea() -> None:
    """Past 500 lines look for a second idea; past 700 there is one."""
    long = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in sources()}
    assert {name: lines for name, lines in long.items() if lines > 700} == {}


def test_every_package_is_typed_and_listed_for_installation() -> None:
    import tomllib

    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = sorted({path.parent.relative_to(ROOT).as_posix().replace("/", ".") for path in sources()})
    assert sorted(listed) == found
    assert all((ROOT / room / "py.typed").exists() for room in ROOMS)
