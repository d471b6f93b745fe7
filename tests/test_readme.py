"""The README and the pages of `docs/`, run: Python, commands and C; what these print; names and links.

A Python block that begins with a comment such as `# norms.py`, and any C block, is written to the file of
that name. An `output` block is what the block before it prints, where a line `...` stands for any lines.
`console` blocks are not run, only looked at. `tests.documentation` says what a program is.
"""

import io
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import click
import pytest

import ansor
from ansor import knobs
from ansor.intrinsics import pattern
from ansor.schedule.manual import Schedule, StageHandle
from ansor.task import registry
from search.cli.main import cli, run
from tests.documentation import (
    LOOKED_AT,
    PAGES,
    README,
    ROOT,
    RUN,
    Block,
    anchors,
    blocks,
    links,
    programs,
    prose,
)

BLOCKS = [block for page in PAGES for block in blocks(page)]
PROGRAMS = [program for page in PAGES for program in programs(page)]
PROSE = "\n".join(map(prose, PAGES))
QUOTED = re.findall(r"`([^`\n]+)`", PROSE)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


class Execution:
    """One program of a page, running in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.scope: dict[str, Any] = {"__name__": "documentation"}
        self.printed = ""
        self.catalogue = dict(registry._FUNCTIONS)

    def run(self, block: Block) -> None:
        if block.kind == "output":
            assert matches(block.text, self.printed), (
                f"{block.place} shows\n{block.text}\nbut the program prints\n{self.printed}"
            )
        elif block.file_name is not None:
            (self.directory / block.file_name).write_text(block.text)
        elif block.kind == "sh":
            self.shell(block)
        else:
            code = compile("\n" * (block.line - 1) + block.text, str(block.page), "exec")
            with redirect_stdout(io.StringIO()) as out:
                exec(code, self.scope)
            self.printed = out.getvalue()

    def shell(self, block: Block) -> None:
        """Run commands one after another: `ansor` in this process, each with the catalogue of a new one."""
        self.printed = ""
        for line in block.text.splitlines():
            name, *words = shlex.split(line)
            if name == "ansor":
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(registry, "_FUNCTIONS", dict(self.catalogue))
                    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as error:
                        code = run(words)
                self.printed += out.getvalue()
                assert code == 0, f"{block.place}: {line}\n{error.getvalue()}"
            else:
                done = subprocess.run([name, *words], capture_output=True, text=True, check=False)
                self.printed += done.stdout
                assert done.returncode == 0, f"{block.place}: {line}\n{done.stderr}"


def matches(shown: str, printed: str) -> bool:
    """Whether `printed` is `shown`, of which a line of three dots stands for any lines."""
    parts = [".*" if line.strip() == "..." else re.escape(line) for line in shown.rstrip().splitlines()]
    return re.fullmatch("\n".join(parts), printed.rstrip(), re.DOTALL) is not None


def title(program: list[Block]) -> str:
    return re.sub(r"\W+", "-", f"{program[0].page.stem} {program[0].heading}".lower()).strip("-")


@pytest.mark.slow
@pytest.mark.usefixtures("small_searches", "kept_workers")
@pytest.mark.parametrize("program", PROGRAMS, ids=title)
def test_programs_run_and_print_what_is_shown(
    program: list[Block], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    registry.registered_workloads()  # Loads the catalogue, which registers itself once.
    monkeypatch.setattr(registry, "_FUNCTIONS", dict(registry._FUNCTIONS))
    monkeypatch.setattr(pattern, "_REGISTERED", dict(pattern._REGISTERED))
    execution = Execution(tmp_path)
    threads = ansor.get_num_threads()
    try:
        for block in program:
            if ("cc " in block.text or ".so" in block.text) and shutil.which("cc") is None:
                pytest.skip("there is no C compiler")
            execution.run(block)
    finally:
        ansor.set_num_threads(threads)


def test_every_block_is_run_or_looked_at() -> None:
    unknown = [f"{block.place}: {block.kind!r}" for block in BLOCKS if block.kind not in (*RUN, *LOOKED_AT)]
    assert not unknown
    assert [block.heading for block in BLOCKS if block.kind == "text"] == ["ansor"]  # the picture
    assert len(PROGRAMS) > 20


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.is_file(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(target), f"{page.name}: {link}"


def test_the_readme_leads_to_every_page() -> None:
    linked = {(ROOT / link.partition("#")[0]).resolve() for link in links(README)}
    assert {page.resolve() for page in PAGES} - {README.resolve()} <= linked


def test_the_readme_names_what_ansor_depends_on() -> None:
    distributions = [re.split(r"[<>=; ]", line)[0] for line in PROJECT["dependencies"]]
    named = [*distributions, *(f"`{extra}`" for extra in PROJECT["optional-dependencies"])]
    assert not [name for name in named if name not in prose(README)]


def test_commands_that_are_not_run_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    options = "".join(path.read_text() for path in (ROOT / "experiments").rglob("*.py"))
    lines = [line for block in BLOCKS if block.kind == "console" for line in block.text.splitlines()]
    lines += [code for code in QUOTED if code.startswith(("make ", "python -m experiments", "ansor "))]
    assert len(lines) > 20
    for line in lines:
        match shlex.split(line):
            case ["make", *rest]:
                assert {word for word in rest if "=" not in word} <= targets, line
            case ["python", "-m", module, *rest]:
                assert (ROOT / f"{module.replace('.', '/')}.py").is_file(), line
                assert all(f'"{word}"' in options for word in rest if word.startswith("--")), line
            case ["pip", "install", what]:
                extras = what.removeprefix(".").strip("[]").split(",") if what != "." else []
                assert set(extras) <= PROJECT["optional-dependencies"].keys(), line
            case ["ansor", "COMMAND", "--help"] | ["ansor", "bench", "NAME", "--help"]:
                pass
            case ["ansor", name, *rest]:
                check_options(cli.commands[name], rest)
            case _:
                pytest.fail(f"the documentation shows {line!r}, which nothing checks")


def check_options(command: click.Command, words: Sequence[str]) -> None:
    known = {name for parameter in command.params for name in parameter.opts}
    shown = {word for word in words if word.startswith("-")}
    assert shown <= known, f"ansor {command.name} has no {', '.join(sorted(shown - known))}"


def test_every_benchmark_is_listed() -> None:
    found = {path.stem for path in (ROOT / "experiments").glob("bench_*.py")}
    explained = set(re.findall(r"^\| `(bench_\w+)` \|", PROSE, re.MULTILINE))
    assert set(re.findall(r"python -m experiments\.(bench_\w+)", README.read_text())) == found
    assert explained == found


def test_files_that_are_named_exist() -> None:
    places = ("ansor", "sketches", "costmodel", "measure", "search", "tests", "experiments", "docs")
    named = {code for code in QUOTED if re.fullmatch(rf"(?:{'|'.join(places)})/[\w/.]*", code)}
    assert len(named) > 30
    assert not [name for name in sorted(named) if not (ROOT / name).exists()]


def test_names_that_are_mentioned_are_public() -> None:
    modules = {path.stem for path in (ROOT / "ansor").iterdir()}
    names = {name for code in QUOTED for name in re.findall(r"^ansor\.(\w+)", code)} - modules
    assert len(names) > 10
    assert names <= set(ansor.__all__), names - set(ansor.__all__)


def test_every_way_to_transform_a_schedule_is_listed() -> None:
    shown = {name for code in QUOTED for name in re.findall(r"\bs(?:\[C\])?\.(\w+)\(", code)}
    reading = {"apply", "dag", "leaf_iter_vars", "op", "schedule", "key", "stage_id"}
    public = {name for name in (*vars(Schedule), *vars(StageHandle)) if not name.startswith("_")}
    assert shown == public - reading


def test_every_environment_variable_is_listed() -> None:
    known = set(re.findall(r"^\| `(ANSOR_\w+)`", knobs.__doc__ or "", re.MULTILINE))
    assert set(re.findall(r"^\| `(ANSOR_\w+)`", PROSE, re.MULTILINE)) == known
    assert set(re.findall(r"ANSOR_\w+", PROSE)) == known
