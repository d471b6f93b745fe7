"""Vectorized loops as accesses to several elements at once.

A thread moves up to 16 bytes with one instruction, if they are consecutive and their address is a multiple
of their size. A vectorized loop becomes such accesses where each of its stores is one, or of what it stores
something is loaded by one: that is loaded as vectors, computed with element by element, and put together
again for stores of vectors. A plain copy is one assignment, of any dtype, and so is one that stores zeros
where a condition does not hold. The private arrays of a thread are registers, or nearly, and stay single
elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ansor.codegen.c.dialect import HALVES, Dialect
from ansor.codegen.c.expressions import Expressions
from ansor.codegen.c.text import Text, indented, ternary
from ansor.dtypes import dtype_info
from ansor.ir.copies import copied
from ansor.ir.nest import If, Seq, Stmt, Store
from ansor.ir.rewriting import reads_memory
from ansor.ir.strides import flat_form
from ansor.te.buffer import Buffer
from ansor.te.expr import Const, Expr, Load, Select, Var, children, free_vars, rewrite, substitute
from ansor.te.structure import same_structure

_BYTES: Final = 16
_WORD: Final = 4
_LANES: Final = (16, 8, 4, 2)
_PARTS: Final = "xyzw"
_MOST_PIECES: Final = 16
_LINE: Final = 100
"""Columns from which on the elements of a vector have a line each."""


class Vectors:
    """Writes the vectorized loops of one kernel."""

    def __init__(self, expressions: Expressions, condition: Callable[[If], Text]) -> None:
        """`condition` writes the condition of an `If`, whose lines are those of `expressions`."""
        self._e = expressions
        self._dialect: Dialect = expressions.dialect
        self._condition = condition

    def loop(self, var: Var, extent: int, body: Stmt) -> list[str] | None:
        """The lines of a vectorized loop; None if it is not made of vector accesses."""
        for lanes in _LANES:
            pieces = extent // lanes
            if extent % lanes or not 1 <= pieces <= _MOST_PIECES or not self._fits(body, var, lanes):
                continue
            starts = range(0, extent, lanes)
            return [line for start in starts for line in self._piece(body, var, range(start, start + lanes))]
        return None

    # -- what can be a vector ----------------------------------------------------------------------------

    def _fits(self, stmt: Stmt, var: Var, lanes: int) -> bool:
        """Whether each store in `stmt` is an access to so many elements at once, or made of such ones."""
        match stmt:
            case Store():
                return self._store_fits(stmt, var, lanes)
            case Seq(stmts=stmts):
                return bool(stmts) and all(self._fits(one, var, lanes) for one in stmts)
            case If(cond=cond, then=then, other=None):
                return var not in free_vars(cond) and not reads_memory(cond) and self._fits(then, var, lanes)
            case _:
                return False

    def _store_fits(self, store: Store, var: Var, lanes: int) -> bool:
        if self._is_copy(store, var, lanes):
            return True
        if lanes > len(_PARTS):
            return False
        if self._e.is_async(store, 1):
            return False  # Elements that are copied one by one without waiting are better than one vector.
        whole = self._is_vector(store.buffer, store.indices, var, lanes)
        return whole or bool(self._loads(store.value, var, lanes))

    def _is_copy(self, store: Store, var: Var, lanes: int) -> bool:
        """Whether a store moves consecutive elements from memory to memory, or zeros in their place."""
        load, cond = copied(store.value) or (None, None)
        return (
            load is not None
            and (cond is None or var not in free_vars(cond))
            and self._is_vector(store.buffer, store.indices, var, lanes)
            and self._is_vector(load.buffer, load.indices, var, lanes)
        )

    def _is_vector(self, buffer: Buffer, indices: Sequence[Expr], var: Var, lanes: int) -> bool:
        """Whether the elements along `var` are consecutive, aligned, and not too many for one access."""
        if buffer.scope not in self._dialect.spaces or lanes * dtype_info(buffer.dtype).bytes > _BYTES:
            return False
        if not indices or any(reads_memory(index) for index in indices):
            return False
        simplifier = self._e.bounds.simplifier
        flat = flat_form(simplifier, buffer, indices)
        if flat is None or flat.const % lanes:
            return False
        step = 0
        for number, factor in flat.terms.items():
            node = simplifier.table.atoms[number].node
            if node is var:
                step = factor
            elif factor % lanes or var in free_vars(node):
                return False
        return step == 1

    def _loads(self, value: Expr, var: Var, lanes: int) -> list[Load]:
        """The loads that are done whatever is chosen and are vectors, each once."""
        found: list[Load] = []
        seen: set[int] = set()
        stack = [value]
        while stack:
            node = stack.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, Load):
                if self._is_vector(node.buffer, node.indices, var, lanes):
                    found.append(node)
            elif isinstance(node, Select) and node.lazy:
                stack.append(node.cond)
            else:
                stack.extend(reversed(children(node)))
        return found

    # -- writing -----------------------------------------------------------------------------------------

    def _piece(self, stmt: Stmt, var: Var, lanes: range) -> list[str]:
        """The iterations `lanes` of a loop over `var` around `stmt`."""
        match stmt:
            case Seq(stmts=stmts):
                return [line for one in stmts for line in self._piece(one, var, lanes)]
            case If(then=then):
                cond = self._condition(stmt)
                before = self._e.lines()
                return [*before, f"if ({cond.text}) {{", *indented(self._piece(then, var, lanes)), "}"]
            case Store():
                copy = self._is_copy(stmt, var, len(lanes))
                return self._copied(stmt, var, lanes) if copy else self._stored(stmt, var, lanes)
            case _:
                raise AssertionError(f"a {type(stmt).__name__} is no vector")

    def _copied(self, store: Store, var: Var, lanes: range) -> list[str]:
        found = copied(store.value)
        assert found is not None
        (source, cond), dtype = found, store.buffer.dtype
        first = Store(
            store.buffer,
            _placed(store.indices, var, lanes.start),
            substitute(store.value, {var: Const(lanes.start, var.dtype)}),
        )
        if self._e.is_async(first, len(lanes)):
            return self._e.async_copy(first, len(lanes))
        bytes_ = len(lanes) * dtype_info(dtype).bytes
        type_ = self._dialect.copy_type(bytes_, dtype, len(lanes))
        to = self._at(store.buffer, store.indices, var, lanes.start, type_, const=False)
        from_ = self._at(source.buffer, source.indices, var, lanes.start, type_)
        if cond is None:
            return [*self._e.lines(), f"{to} = {from_};"]
        self._e.start(cond)
        test = self._e.value(cond)
        zeros = ["0"] * (len(lanes) if len(lanes) <= self._dialect.most_lanes else bytes_ // _WORD)
        zero = self._dialect.make_vector.format(type=type_, lanes=", ".join(zeros))
        return [*self._e.lines(), f"{to} = {ternary(test, Text(from_), Text(zero)).text};"]

    def _stored(self, store: Store, var: Var, lanes: range) -> list[str]:
        groups: list[tuple[Load, list[Var]]] = []
        loaded: dict[int, list[Var]] = {}
        before: list[str] = []
        for load in self._loads(store.value, var, len(lanes)):
            known = next((parts for other, parts in groups if same_structure(load, other)), None)
            if known is None:
                known = self._loaded(load, var, lanes, before)
                groups.append((load, known))
            loaded[id(load)] = known
        values = [
            _lane(store.value, loaded, position, var, Const(lane, var.dtype))
            for position, lane in enumerate(lanes)
        ]
        self._e.start(*values)
        texts = [self._e.stored(value).text for value in values]
        before += self._e.lines()
        if self._is_vector(store.buffer, store.indices, var, len(lanes)):
            type_ = self._dialect.vector_type(store.buffer.dtype, len(lanes))
            to = self._at(store.buffer, store.indices, var, lanes.start, type_, const=False)
            return [*before, *self._e.lines(), *self._assigned(to, type_, texts)]
        for lane, text in zip(lanes, texts, strict=True):
            indices = _placed(store.indices, var, lane)
            self._e.start(*indices)
            to = self._e.access(store.buffer, indices).text
            before += [*self._e.lines(), f"{to} = {text};"]
        return before

    def _loaded(self, load: Load, var: Var, lanes: range, before: list[str]) -> list[Var]:
        """Load a vector; gives variables that stand for its elements."""
        dtype = load.buffer.dtype
        type_ = self._dialect.vector_type(dtype, len(lanes))
        from_ = self._at(load.buffer, load.indices, var, lanes.start, type_)
        name = self._e.names.fresh(f"{load.buffer.name}.v")
        before += [*self._e.lines(), f"const {type_} {name} = {from_};"]
        parts = []
        for part in _PARTS[: len(lanes)]:
            element = Var(f"{name}.{part}", dtype)
            text = f"{name}.{part}"
            if dtype in HALVES:
                self._e.bits[element] = text
                text = f"{self._e.helpers.use(f'ansor_from_{dtype}')}({text})"
            self._e.names.bind(element, text)
            parts.append(element)
        return parts

    def _at(
        self, buffer: Buffer, indices: tuple[Expr, ...], var: Var, lane: int, type_: str, const: bool = True
    ) -> str:
        """A vector in memory, from an iteration of `var` on."""
        placed = _placed(indices, var, lane)
        self._e.start(*placed)
        element = self._e.access(buffer, placed).text
        qualifier = f"{'const ' if const else ''}{self._dialect.spaces[buffer.scope]}"
        return f"*({qualifier}{type_}*)&{element}"

    def _assigned(self, to: str, type_: str, texts: list[str]) -> list[str]:
        """The assignment of a vector of these elements."""
        line = self._dialect.make_vector.format(type=type_, lanes=", ".join(texts))
        if len(to) + len(line) <= _LINE:
            return [f"{to} = {line};"]
        head, foot = self._dialect.make_vector.format(type=type_, lanes="\n").split("\n")
        return [f"{to} = {head}", *indented([*(f"{text}," for text in texts[:-1]), texts[-1]]), f"{foot};"]


def _lane(value: Expr, loaded: dict[int, list[Var]], position: int, var: Var, lane: Const) -> Expr:
    """The value in one iteration, its vector loads replaced by the elements that they loaded."""

    def visit(node: Expr) -> Expr | None:
        return loaded[id(node)][position] if id(node) in loaded else None

    return substitute(rewrite(value, visit), {var: lane})


def _placed(indices: tuple[Expr, ...], var: Var, lane: int) -> tuple[Expr, ...]:
    """Indices in one iteration."""
    return tuple(substitute(index, {var: Const(lane, var.dtype)}) for index in indices)
