"""The pages of the documentation: their blocks of code, the programs that these make up, headings and links.

A program is a sequence of blocks that share a namespace and a directory; it begins at a heading of the
second level, or at a Python block whose first line is an import.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import ansor

ROOT = Path(ansor.__file__).parent.parent
README = ROOT / "README.md"
PAGES = (README, *sorted((ROOT / "docs").glob("*.md")))
RUN = ("python", "sh", "c", "output")
LOOKED_AT = ("console", "text")

_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_FILE_NAME = re.compile(r"^(?:# |/\* )(\S+\.(?:py|c))(?: \*/)?$")
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, language and text, the line of its first character, the headings above it."""

    page: Path
    kind: str
    text: str
    line: int
    section: str
    heading: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file_name(self) -> str | None:
        """The file that this is the text of: a comment in the first line says so."""
        found = _FILE_NAME.match(self.text.splitlines()[0]) if self.kind in ("python", "c") else None
        return found[1] if found else None

    @property
    def imports(self) -> bool:
        return self.kind == "python" and self.text.startswith(("import ", "from "))


def blocks(page: Path) -> Iterator[Block]:
    section = heading = kind = ""
    lines: list[str] = []
    start = 0
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.startswith("```") and not start:
            kind, start, lines = line.removeprefix("```"), number + 1, []
        elif line == "```":
            yield Block(page, kind, "\n".join(lines) + "\n", start, section, heading)
            start = 0
        elif start:
            lines.append(line)
        elif line.startswith("#"):
            heading = line.lstrip("# ")
            section = heading if line.startswith("## ") else section
    assert not start, f"{page.name}: the block of line {start} is not closed"


def programs(page: Path) -> list[list[Block]]:
    found: list[list[Block]] = []
    for block in blocks(page):
        if block.kind not in RUN:
            continue
        if not found or block.imports or found[-1][-1].section != block.section:
            found.append([])
        found[-1].append(block)
    return found


def prose(page: Path) -> str:
    """A page without its blocks."""
    return _FENCED.sub("", page.read_text())


def links(page: Path) -> list[str]:
    return _LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """What may stand behind the `#` of a link to a page: its headings, as Markdown is usually rendered."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        assert slug not in found, f"{page.name}: two headings are called {heading!r}"
        found.add(slug)
    return found
