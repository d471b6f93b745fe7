"""Writing one LLVM function as text: values, scopes, and where each instruction goes.

The function under construction is a stack of open scopes (function body, loop bodies, branches), each with
its own list of lines. A finished scope's lines are appended to its parent's. This gives two things for free
that otherwise need optimiser passes:

- **Hoisting.** A pure instruction goes to the end of the outermost open scope in which all its operands are
  known (their greatest `depth`). That place is before the loop that is being written, so loop-invariant
  addresses, masks and broadcasts leave their loops as they are written.
- **Value numbering.** Each scope remembers the instructions it holds by their text; asking again gives the
  same value.

Instructions that are too dear to be run in vain, divisions above all, stay inside the innermost branch
(`floor`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ansor.ir.nest import Buffer


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA name or literal: `lanes` elements (1: a scalar) of an LLVM type, known from scope `depth` on."""

    text: str
    type: str
    lanes: int = 1
    depth: int = 0

    @property
    def full_type(self) -> str:
        """The LLVM type of the whole value."""
        return vector_type(self.type, self.lanes)


def vector_type(element: str, lanes: int) -> str:
    """`<lanes x element>`, or the element type itself for one lane."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


class ScopeKind(Enum):
    """What closes a scope, and whether code may leave it upwards."""

    FUNCTION = 0
    LOOP = 1
    BRANCH = 2


class Scope:
    """An open region of the function: its lines so far, the values they define, and its current block.

    The values are in `cse` by the text of their instructions. Those that were asked for while the scope was
    the innermost one are also in `known`, by what they are made of, which saves writing texts to find them.
    """

    __slots__ = ("cse", "depth", "hoisted", "kind", "known", "label", "lines", "written")

    def __init__(self, kind: ScopeKind, depth: int, label: str, written: frozenset[Buffer]) -> None:
        self.kind = kind
        self.depth = depth
        self.label = label
        self.written = written
        self.lines: list[str] = []
        self.cse: dict[str, Value] = {}
        self.known: dict[tuple[object, ...], Any] = {}
        self.hoisted = 0


class FunctionText:
    """One function being written; `declarations` is shared by the functions of a module."""

    def __init__(self, declarations: dict[str, str]) -> None:
        self.declarations = declarations
        self.scopes = [Scope(ScopeKind.FUNCTION, 0, "entry", frozenset())]
        self.slots: list[str] = []
        self._names = 0
        self.floor = 0

    @property
    def depth(self) -> int:
        """Depth of the innermost open scope."""
        return len(self.scopes) - 1

    @property
    def known(self) -> dict[tuple[object, ...], Any]:
        """What has been found in the innermost scope, by keys that say what was asked for."""
        return self.scopes[-1].known

    def name(self) -> str:
        """Give a fresh SSA name."""
        self._names += 1
        return f"%v{self._names}"

    def label(self, stem: str) -> str:
        """Give a fresh block label."""
        self._names += 1
        return f"{stem}.{self._names}"

    def pure(self, text: str, type_: str, lanes: int, depth: int) -> Value:
        """The value of the instruction `text`, which may be run anywhere, as often or seldom as we like."""
        scope = self.scopes[depth]
        found = scope.cse.get(text)
        if found is None:
            self._names += 1
            found = Value(f"%v{self._names}", type_, lanes, depth)
            scope.lines.append(f"  {found.text} = {text}")
            scope.cse[text] = found
        return found

    def inside(self, text: str, type_: str, lanes: int, depth: int) -> Value:
        """As `pure`, for instructions that must not leave the branch they are written in."""
        return self.pure(text, type_, lanes, max(depth, self.floor))

    def splat(self, value: Value, lanes: int) -> Value:
        """A scalar in all lanes; a vector stays as it is."""
        if value.lanes == lanes:
            return value
        if not value.text.startswith("%"):
            return Value(f"splat ({value.type} {value.text})", value.type, lanes, value.depth)
        known, key = self.known, ("splat", value.text, lanes)
        found: Value | None = known.get(key)
        if found is None:
            type_, full = value.type, vector_type(value.type, lanes)
            text = f"insertelement {full} poison, {type_} {value.text}, i64 0"
            first = self.pure(text, type_, lanes, value.depth).text
            text = f"shufflevector {full} {first}, {full} poison, <{lanes} x i32> zeroinitializer"
            found = known[key] = self.pure(text, type_, lanes, value.depth)
        return found

    def effect(self, text: str) -> None:
        """Append an instruction without a value to the innermost scope."""
        self.scopes[-1].lines.append(f"  {text}")

    def here(self, text: str, type_: str, lanes: int = 1) -> Value:
        """The value of an instruction that runs exactly here."""
        value = Value(self.name(), type_, lanes, self.depth)
        self.effect(f"{value.text} = {text}")
        return value

    def slot(self, bytes_: int, align: int = 64) -> Value:
        """A stack slot of the whole function."""
        value = Value(self.name(), "ptr")
        self.slots.append(f"  {value.text} = alloca [{bytes_} x i8], align {align}")
        return value

    def declare(self, name: str, text: str) -> None:
        """Note that the module needs this declaration."""
        self.declarations[name] = text

    # -- control flow --------------------------------------------------------------------------------

    def open(self, kind: ScopeKind, label: str, written: frozenset[Buffer] = frozenset()) -> Scope:
        """Start a scope whose first block is `label`."""
        scope = Scope(kind, len(self.scopes), label, written)
        self.scopes.append(scope)
        if kind is ScopeKind.BRANCH:
            self.floor = scope.depth
        return scope

    def close(self) -> Scope:
        """Take the innermost scope off the stack; its lines are the caller's to place."""
        scope = self.scopes.pop()
        if scope.kind is ScopeKind.BRANCH:
            self.floor = max((s.depth for s in self.scopes if s.kind is ScopeKind.BRANCH), default=0)
        return scope

    @contextmanager
    def outside(self, depth: int) -> Iterator[None]:
        """Write in the scope of this depth, or of the innermost branch if that is deeper, for a while."""
        scopes = self.scopes
        self.scopes = scopes[: max(depth, self.floor) + 1]
        yield
        self.scopes = scopes

    def open_loop(self, begin: str, written: frozenset[Buffer]) -> Value:
        """Start the body of a loop that runs at least once; gives its i64 counter, from `begin` on."""
        label = self.label("loop")
        scope = self.open(ScopeKind.LOOP, label, written)
        counter = Value(self.name(), "i64", 1, scope.depth)
        scope.lines += [f"{label}:", begin]  # the second line becomes the phi when the loop is closed
        return counter

    def close_loop(self, counter: Value, end: str) -> None:
        """End the body of the innermost loop: go on while the counter is below `end`."""
        scope = self.close()
        parent = self.scopes[-1]
        exit_label = self.label("exit")
        begin, step, more = scope.lines[1], self.name(), self.name()
        header = scope.lines[0][:-1]
        scope.lines[1] = (
            f"  {counter.text} = phi i64 [ {begin}, %{parent.label} ], [ {step}, %{scope.label} ]"
        )
        parent.lines.append(f"  br label %{header}")
        parent.lines += scope.lines
        parent.lines += [
            f"  {step} = add nuw nsw i64 {counter.text}, 1",
            f"  {more} = icmp ult i64 {step}, {end}",
            f"  br i1 {more}, label %{header}, label %{exit_label}",
            f"{exit_label}:",
        ]
        parent.label = exit_label

    def open_branch(self) -> None:
        """Start one side of a branch; close it with `close`, then `join` the sides."""
        label = self.label("side")
        self.open(ScopeKind.BRANCH, label).lines.append(f"{label}:")

    def join(self, cond: Value, then: Scope, other: Scope | None) -> str:
        """Place the closed sides of a branch on `cond` and meet again; gives the label before it."""
        parent = self.scopes[-1]
        before, meet = parent.label, self.label("meet")
        sides = [then] if other is None else [then, other]
        targets = [side.lines[0][:-1] for side in sides]
        targets += [meet] * (2 - len(targets))
        parent.lines.append(f"  br i1 {cond.text}, label %{targets[0]}, label %{targets[1]}")
        for side in sides:
            parent.lines += side.lines
            parent.lines.append(f"  br label %{meet}")
        parent.lines.append(f"{meet}:")
        parent.label = meet
        return before

    def body(self) -> list[str]:
        """The lines of the finished function, entry label included."""
        assert len(self.scopes) == 1, "a scope was left open"
        return ["entry:", *self.slots, *self.scopes[0].lines]
