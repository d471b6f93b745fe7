"""Whether the iterations of a loop may be executed in any order, or all at once.

Two iterations are independent if no element that one of them writes is touched by the other. It is enough
to see, for every buffer that the loop writes and that outlives an iteration, one position (a dimension, or
the flattened index) which all accesses compute as `c*v + outer + inner`: the same `c` and the same `outer`
in all of them, and the values of `inner`, taken over everything that varies within one iteration, spread
less than `|c|`. Then different `v` mean different elements. What cannot be seen this way counts as
dependent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import gcd

from ansor.ir.accesses import accesses_of
from ansor.ir.affine import Affine
from ansor.ir.bounds import Bounds, End
from ansor.ir.nest import Buffer, For
from ansor.ir.rewriting import reads_memory
from ansor.ir.strides import flat_form
from ansor.te.expr import (
    INDEX_DTYPE,
    Binary,
    BinaryOp,
    Const,
    Expr,
    Load,
    Var,
    distinct_nodes,
    free_vars,
    int_value,
)


class IndependenceTest:
    """Decides independence of loops; `bounds` hold every loop variable around and inside them.

    A loop that passes may be run in any order if the loops around it that are not run in order pass, too.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._simplifier = bounds.simplifier
        self._atom_facts: dict[int, tuple[frozenset[Var], bool]] = {}

    def independent(self, loop: For) -> bool:
        if int_value(loop.extent) == 1:
            return True
        found = accesses_of(loop.body)
        return all(
            any(
                self._separates(position, loop.var, found.bound)
                for position in self._positions(buffer, [*writes, *found.reads.get(buffer, ())])
            )
            for buffer, writes in found.writes.items()
            if buffer not in found.allocated
        )

    def separates(
        self, buffer: Buffer, touched: list[tuple[Expr, ...]], var: Var, inner: Collection[Var]
    ) -> bool:
        """Whether accesses, given by indices, touch different elements for different values of `var`.

        `inner` are the variables that may differ between two accesses for one value of `var`. They may
        differ by multiples of more than all that `var` does: `16*i + 2*var + j` tells the `var` below 8
        apart, whatever `i` is, if `j` is below 2.
        """
        return any(
            self._separates(position, var, inner, far=True)
            for position in (*self._positions(buffer, touched), *self._fused(touched, {var, *inner}))
        )

    def _positions(self, buffer: Buffer, touched: list[tuple[Expr, ...]]) -> Iterable[list[Affine]]:
        """Per way to look at an index: that position in all accesses."""
        forms = [[self._simplifier.affine(index) for index in indices] for indices in touched]
        yield from (list(column) for column in zip(*forms, strict=True))
        if len(buffer.shape) > 1:
            flat = [flat_form(self._simplifier, buffer, indices) for indices in touched]
            if all(form is not None for form in flat):
                yield [form for form in flat if form is not None]

    def _fused(self, touched: list[tuple[Expr, ...]], varying: Collection[Var]) -> Iterable[list[Affine]]:
        """Per run of indices that are the pieces of one number, `x // (m*k), x // k % m, x % k`: that number.

        Constant extents need no such look: with these the flattened index is put together again. `varying`
        are the variables that the extents must not be made of.
        """
        for last in range(len(touched[0])):
            found = [self._whole(indices[: last + 1], varying) for indices in touched]
            whole = [number for number, _ in found if number is not None]
            if len(whole) == len(touched) and len({extents for _, extents in found}) == 1:
                yield whole

    def _whole(
        self, indices: tuple[Expr, ...], varying: Collection[Var]
    ) -> tuple[Affine | None, tuple[object, ...]]:
        """The number that the last of some indices are pieces of, and the extents of all but the first."""
        affine = self._simplifier.affine
        number: Affine | None = None
        extents: list[object] = []
        step: Expr = Const(1, INDEX_DTYPE)
        for index in reversed(indices):
            base, divisor, modulus = _piece(index)
            form = affine(base)
            if number is not None and form.key() != number.key():
                break
            number = form
            if affine(divisor).key() != affine(step).key():
                break
            if modulus is None:
                return number if extents else None, tuple(extents)
            if reads_memory(modulus) or not free_vars(modulus).isdisjoint(varying):
                break
            extents.append(affine(modulus).key())
            step = Binary(BinaryOp.MUL, step, modulus, modulus.dtype)
        return None, ()

    def _separates(self, forms: list[Affine], var: Var, inner: Collection[Var], *, far: bool = False) -> bool:
        own = next(iter(self._simplifier.affine(var).terms), None)
        if own is None:
            return False
        step = forms[0].terms.get(own, 0)
        outer: dict[int, int] | None = None
        varying: list[Affine] = []
        for form in forms:
            inside: dict[int, int] = {}
            fixed: dict[int, int] = {}
            for number, coefficient in form.terms.items():
                if number == own:
                    continue
                variables, loads = self._facts(number)
                if var in variables:
                    return False
                (inside if loads or not variables.isdisjoint(inner) else fixed)[number] = coefficient
            if form.terms.get(own, 0) != step or (outer is not None and fixed != outer):
                return False
            outer = fixed
            varying.append(Affine(inside, form.const))
        if self._spread(varying) < abs(step):
            return True
        return far and step != 0 and self._far_apart(varying, Affine({own: step}, 0))

    def _spread(self, forms: list[Affine]) -> End:
        """How far apart values of the forms are at most."""
        ends = [self._simplifier.table.interval(form) for form in forms]
        return max(high for _, high in ends) - min(low for low, _ in ends)

    def _far_apart(self, forms: list[Affine], own: Affine) -> bool:
        """Whether values of `own` are told apart in sums with the forms, some terms of which are far."""
        (step,) = own.terms.values()
        coefficients = {abs(c) for form in forms for c in form.terms.values()}
        for least in sorted(c for c in coefficients if c > abs(step)):
            period = gcd(*(c for c in coefficients if c >= least))
            near = ({n: c for n, c in form.terms.items() if c % period} for form in forms)
            spread = self._spread([Affine(t, form.const) for t, form in zip(near, forms, strict=True)])
            if spread < abs(step) and self._spread([own]) + spread < period:
                return True
        return False

    def _facts(self, number: int) -> tuple[frozenset[Var], bool]:
        """The variables of an atom, and whether it reads memory."""
        facts = self._atom_facts.get(number)
        if facts is None:
            nodes = list(distinct_nodes(self._simplifier.table.atoms[number].node))
            variables = frozenset(node for node in nodes if isinstance(node, Var))
            facts = variables, any(isinstance(node, Load) for node in nodes)
            self._atom_facts[number] = facts
        return facts


def _piece(index: Expr) -> tuple[Expr, Expr, Expr | None]:
    """`x`, `d` and `m` of an index `x // d % m`; no `m` where it is a quotient, or `x` itself."""
    modulus = None
    if isinstance(index, Binary) and index.op is BinaryOp.FLOORMOD:
        modulus, index = index.b, index.a
    if isinstance(index, Binary) and index.op is BinaryOp.FLOORDIV:
        return index.a, index.b, modulus
    return index, Const(1, index.dtype), modulus
