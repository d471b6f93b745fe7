"""The README, run: its Python, its commands, its C; the output that it shows, the files that it names.

A program is a sequence of blocks that share a namespace and a directory; it begins at a heading of the
second level, or at a Python block whose first line is an import. A Python block that begins with a comment
such as `# norms.py`, and any C block, is written to the file of that name. An `output` block is what the
block before it prints, where a line `...` stands for any lines. `console` blocks are not run, only looked at.
"""

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import ansor
from ansor.intrinsics import pattern
from ansor.task import registry

ROOT = Path(ansor.__file__).parent.parent
README = (ROOT / "README.md").read_text()
FILE_NAME = re.compile(r"^(?:# |/\* )(\S+\.(?:py|c))(?: \*/)?$")
RUN = ("python", "sh", "c", "output")
LOOKED_AT = ("console", "text")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, the line of its first character, the heading above it."""

    kind: str
    text: str
    line: int
    section: str
    heading: str

    @property
    def file_name(self) -> str | None:
        found = FILE_NAME.match(self.text.splitlines()[0]) if self.kind in ("python", "c") else None
        return found[1] if found else None


def blocks() -> Iterator[Block]:
    section = heading = kind = ""
    lines: list[str] = []
    start = 0
    for number, line in enumerate(README.splitlines(), 1):
        if line.startswith("```") and not start:
            kind, start, lines = line.removeprefix("```"), number + 1, []
        elif line == "```":
            yield Block(kind, "\n".join(lines) + "\n", start, section, heading)
            start = 0
        elif start:
            lines.append(line)
        elif line.startswith("#"):
            heading = line.lstrip("# ")
            section = heading if line.startswith("## ") else section
    assert not start, f"the block of line {start} is not closed"


def programs() -> list[list[Block]]:
    found: list[list[Block]] = []
    for block in blocks():
        if block.kind not in RUN:
            continue
        new = block.kind == "python" and block.text.startswith(("import ", "from "))
        if not found or new or found[-1][-1].section != block.section:
            found.append([])
        found[-1].append(block)
    return found


class Execution:
    """One program of the README, running in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.scope: dict[str, Any] = {"__name__": "readme"}
        self.printed = ""
        commands = directory / "bin"
        commands.mkdir()
        script = commands / "ansor"
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m ansor "$@"\n')
        script.chmod(0o755)
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{commands}:{os.environ['PATH']}"}

    def run(self, block: Block) -> None:
        if block.kind == "output":
            assert matches(block.text, self.printed), (
                f"README.md:{block.line} shows\n{block.text}\nbut the program prints\n{self.printed}"
            )
        elif block.file_name is not None:
            (self.directory / block.file_name).write_text(block.text)
        elif block.kind == "sh":
            self.shell(block)
        else:
            code = compile("\n" * (block.line - 1) + block.text, str(ROOT / "README.md"), "exec")
            with redirect_stdout(io.StringIO()) as out:
                exec(code, self.scope)
            self.printed = out.getvalue()

    def shell(self, block: Block) -> None:
        done = subprocess.run(
            ["sh", "-e", "-c", block.text],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"README.md:{block.line}: {done.stderr}"
        self.printed = done.stdout


def matches(shown: str, printed: str) -> bool:
    """Whether `printed` is `shown`, of which a line of three dots stands for any lines."""
    parts = [".*" if line.strip() == "..." else re.escape(line) for line in shown.rstrip().splitlines()]
    return re.fullmatch("\n".join(parts), printed.rstrip(), re.DOTALL) is not None


def title(program: list[Block]) -> str:
    return re.sub(r"\W+", "-", program[0].heading.lower()).strip("-")


@pytest.mark.slow
@pytest.mark.parametrize("program", programs(), ids=title)
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
    unknown = [f"README.md:{b.line}: {b.kind!r}" for b in blocks() if b.kind not in (*RUN, *LOOKED_AT)]
    assert not unknown
    assert [block.heading for block in blocks() if block.kind == "text"] == ["ansor"]  # the picture
    assert len(programs()) > 8


def test_commands_that_are_not_run_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    options = "".join(path.read_text() for path in (ROOT / "experiments").glob("*.py"))
    commands = [shlex.split(line) for b in blocks() if b.kind == "console" for line in b.text.splitlines()]
    commands += [
        shlex.split(code) for code in re.findall(r"`(make [^`]*|python -m experiments[^`]*)`", README)
    ]
    assert len(commands) > 4
    for command in commands:
        match command:
            case ["make", *rest]:
                assert {word for word in rest if "=" not in word} <= targets, command
            case ["python", "-m", module, *rest]:
                assert (ROOT / f"{module.replace('.', '/')}.py").is_file(), command
                assert all(f'"{word}"' in options for word in rest if word.startswith("--")), command
            case _:
                pytest.fail(f"the README shows {shlex.join(command)!r}, which nothing checks")


def test_every_benchmark_is_listed() -> None:
    found = {path.stem for path in (ROOT / "experiments").glob("bench_*.py")}
    listed = set(re.findall(r"python -m experiments\.(bench_\w+)", README))
    assert listed == found


def test_files_that_are_named_exist() -> None:
    named = set(
        re.findall(r"`((?:ansor|sketches|costmodel|measure|search|tests|experiments)/[\w/.]*)`", README)
    )
    assert len(named) > 30
    assert not [name for name in sorted(named) if not (ROOT / name).exists()]


def test_names_that_are_mentioned_are_public() -> None:
    prose = re.sub(r"^```.*?^```", "", README, flags=re.DOTALL | re.MULTILINE)
    names = set(re.findall(r"`ansor\.(\w+)", prose)) - {path.stem for path in (ROOT / "ansor").iterdir()}
    assert names <= set(ansor.__all__), names - set(ansor.__all__)
