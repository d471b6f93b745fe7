"""The facade: lazy, complete, equal for Python and for type checkers, and not fooled by foreign modules."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ansor
from ansor.siblings import SIBLINGS, check_siblings

ROOT = Path(ansor.__file__).parent.parent


def python(code: str, cwd: Path, *, path: Path = ROOT) -> subprocess.CompletedProcess[str]:
    env = {"PYTHONPATH": str(path), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )


def test_import_loads_no_library(tmp_path: Path) -> None:
    code = (
        "import sys, ansor\n"
        "heavy = {'numpy', 'llvmlite', 'xgboost', 'sklearn', 'networkx', 'click', 'rich', 'scipy'}\n"
        "ours = {'search', 'costmodel', 'sketches', 'measure'}\n"
        "print(sorted((heavy | ours) & set(sys.modules)))"
    )
    done = python(code, tmp_path)
    assert done.stdout.strip() == "[]", done.stderr


def _typed_names() -> list[str]:
    tree = ast.parse((ROOT / "ansor" / "__init__.py").read_text())
    block = next(
        node
        for node in tree.body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    )
    homes = []
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        homes += [f"{node.module}.{alias.asname}" for alias in node.names]
    return homes


def test_type_checkers_see_the_names_that_python_finds() -> None:
    lazy = [f"{module}.{name}" for module, names in ansor._EXPORTS.items() for name in names]
    assert sorted(_typed_names()) == sorted([*lazy, "ansor.te", "ansor.workloads"])


def test_every_public_name_resolves() -> None:
    for name in ansor.__all__:
        assert getattr(ansor, name) is not None, name
    assert set(ansor.__all__) <= set(dir(ansor))


def test_no_public_name_is_also_a_submodule() -> None:
    submodules = {path.stem for path in (ROOT / "ansor").iterdir() if path.suffix in ("", ".py")}
    assert submodules & set(ansor.__all__) <= {"te", "workloads"}


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'autotune'"):
        ansor.autotune  # noqa: B018
    with pytest.raises(AttributeError, match=r"'RPCRunner'; .* docs/tvm\.md says which of TVM's"):
        ansor.RPCRunner  # noqa: B018
    assert "RPCRunner" in (ROOT / "docs" / "tvm.md").read_text()


def test_a_misspelt_name_is_answered_by_the_one_meant(tmp_path: Path) -> None:
    done = python("import ansor; ansor.TuningOption", tmp_path)
    assert "Did you mean: 'TuningOptions'?" in done.stderr


@pytest.mark.parametrize("name", SIBLINGS)
def test_foreign_module_is_refused_by_its_path(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("raise SystemExit('the foreign file was executed')\n")
    done = python("import ansor; ansor.SearchTask", tmp_path)
    assert f"needs its own package '{name}' from {ROOT}" in done.stderr
    assert str(tmp_path / f"{name}.py") in done.stderr
    assert "rename that file" in done.stderr


def test_foreign_namespace_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match="but Python found"):
        check_siblings(home=tmp_path)


def test_own_packages_are_accepted() -> None:
    check_siblings()
