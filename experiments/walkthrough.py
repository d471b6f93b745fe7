"""A walk through the schedule primitives: each step prints the loop nest that it makes, and checks it.

    python -m experiments.walkthrough            all of it
    python -m experiments.walkthrough tile       one chapter

Three programs: the sum of two vectors of any length, the sums of a matrix's rows, and matrix addition and
product. The nests are shown as the schedule says them (`simple_mode=True`); what is run is the polished one.
What is for a GPU is shown as CUDA C++, too, which takes neither GPU nor compiler, and run by the interpreter.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import ansor
from ansor import te
from ansor.ir.interp import run_nest
from experiments import command

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Step:
    """One schedule to look at: its arguments, and what numpy computes from inputs of the given shapes."""

    title: str
    schedule: ansor.Schedule
    args: list[te.Tensor]
    shapes: tuple[tuple[int, ...], ...]
    expected: Callable[..., Array]
    target: str = "llvm"

    @property
    def text(self) -> str:
        """The loop nest; for a GPU also the source of its kernels."""
        nest = str(ansor.lower(self.schedule, self.args, simple_mode=True))
        if self.target == "llvm":
            return nest
        source = ansor.build(self.schedule, self.args, target=self.target, name="step").get_source()
        return f"{nest}\n\n{source.rstrip()}"

    def check(self) -> None:
        """Run it on inputs of `shapes`, built or by the interpreter.

        Raises
        ------
        AssertionError
            If it does not compute what numpy does.
        """
        rng = np.random.default_rng(0)
        arrays = [rng.uniform(size=shape).astype(np.float32) for shape in self.shapes]
        expected = self.expected(*arrays)
        if self.target == "llvm":
            found = ansor.build(self.schedule, self.args, target="llvm", name="step")(*arrays)
        else:
            found = np.zeros_like(expected)
            self._interpret(*arrays, found)
        np.testing.assert_allclose(found, expected, rtol=1e-4)

    def _interpret(self, *arrays: Array) -> None:
        nest = ansor.lower(self.schedule, self.args, target=self.target)
        sizes = {
            str(dim): extent
            for tensor, array in zip(self.args, arrays, strict=True)
            for dim, extent in zip(tensor.shape, array.shape, strict=True)
        }
        run_nest(nest, arrays, [sizes[var.name] for var in nest.sizes], check_races=True)


def vector_add() -> Iterator[Step]:
    """A vector of any length, split by 64: the last part is guarded."""
    n = te.var("n")
    a, b = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    c = te.compute((n,), lambda i: a[i] + b[i], name="C")
    args, shapes = [a, b, c], ((1000,), (1000,))

    yield Step("as it is defined", te.create_schedule(c), args, shapes, np.add)

    s = te.create_schedule(c)
    s[c].split(c.op.axis[0], factor=64)
    yield Step("split by 64", s, args, shapes, np.add)

    s = te.create_schedule(c)
    outer, inner = s[c].split(c.op.axis[0], factor=64)
    s[c].parallel(outer)
    s[c].vectorize(inner)
    yield Step("parts on threads, elements in lanes", s, args, shapes, np.add)

    s = te.create_schedule(c)
    outer, inner = s[c].split(c.op.axis[0], factor=64)
    s[c].bind(outer, te.thread_axis("blockIdx.x"))
    s[c].bind(inner, te.thread_axis("threadIdx.x"))
    title = "parts on blocks of a GPU, elements on their threads"
    yield Step(title, s, args, shapes, np.add, target="cuda")


def row_sum() -> Iterator[Step]:
    """A reduction of any length, split by 32; then its partial sums side by side."""
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), name="k")
    b = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="B")
    args, shapes = [a, b], ((70, 90),)

    def expected(x: Array) -> Array:
        return np.asarray(x.sum(axis=1))

    yield Step("as it is defined", te.create_schedule(b), args, shapes, expected)

    s = te.create_schedule(b)
    s[b].split(k, factor=32)
    yield Step("split by 32", s, args, shapes, expected)

    s = te.create_schedule(b)
    s[b].split(k, factor=32)
    outer, _ = s[b].split(b.op.axis[0], factor=32)
    s[b].parallel(outer)
    yield Step("both axes split, blocks of rows on threads", s, args, shapes, expected)

    fixed = te.placeholder((64, 100), name="A")
    k = te.reduce_axis((0, 100), name="k")
    b = te.compute((64,), lambda i: te.sum(fixed[i, k], axis=k), name="B")
    s = te.create_schedule(b)
    _, inner = s[b].split(k, factor=8)
    partial = s.rfactor(b, inner, 1)
    s[partial].set_scope("local")
    s[partial].compute_at(s[b], s[b].op.axis[0])
    s[partial].reorder(s[partial].op.reduce_axis[0], s[partial].op.axis[1])
    s[partial].vectorize(s[partial].op.axis[1])
    yield Step("eight partial sums in lanes (rfactor)", s, [fixed, b], ((64, 100),), expected)


def matrix_add() -> Iterator[Step]:
    """Tiles of 32 x 32, their rows in lanes."""
    a, b = te.placeholder((1024, 1024), name="A"), te.placeholder((1024, 1024), name="B")
    c = te.compute((1024, 1024), lambda i, j: a[i, j] + b[i, j], name="C")
    args, shapes = [a, b, c], ((1024, 1024), (1024, 1024))

    s = te.create_schedule(c)
    s[c].tile(*c.op.axis, 32, 32)
    yield Step("tile", s, args, shapes, np.add)

    s = te.create_schedule(c)
    *_, inner = s[c].tile(*c.op.axis, 32, 32)
    s[c].vectorize(inner)
    yield Step("tile, then vectorize", s, args, shapes, np.add)


def matrix_product() -> Iterator[Step]:
    """From three loops to a blocked product with its tile kept close."""
    n = 256
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    args, shapes = [a, b, c], ((n, n), (n, n))

    yield Step("as it is defined", te.create_schedule(c), args, shapes, np.matmul)

    s = te.create_schedule(c)
    i_outer, j_outer, i_inner, j_inner = s[c].tile(*c.op.axis, 32, 32)
    k_outer, k_inner = s[c].split(k, factor=4)
    s[c].reorder(i_outer, j_outer, k_outer, k_inner, i_inner, j_inner)
    yield Step("tile, split the reduction, reorder", s, args, shapes, np.matmul)

    s = te.create_schedule(c)
    i_outer, j_outer, i_inner, j_inner = s[c].tile(*c.op.axis, 32, 32)
    k_outer, k_inner = s[c].split(k, factor=4)
    s[c].reorder(i_outer, j_outer, k_outer, i_inner, k_inner, j_inner)
    s[c].vectorize(j_inner)
    yield Step("another order, then vectorize", s, args, shapes, np.matmul)

    s = te.create_schedule(c)
    tile = s.cache_write(c, "local")
    i_outer, j_outer, _, _ = s[c].tile(*c.op.axis, 32, 32)
    s[tile].compute_at(s[c], j_outer)
    i, j = s[tile].op.axis
    k_outer, k_inner = s[tile].split(s[tile].op.reduce_axis[0], factor=4)
    s[tile].reorder(k_outer, i, k_inner, j)
    s[tile].unroll(k_inner)
    s[tile].vectorize(j)
    s[c].parallel(i_outer)
    yield Step("the tile computed in memory of its own, tiles' rows on threads", s, args, shapes, np.matmul)


CHAPTERS: dict[str, Callable[[], Iterator[Step]]] = {
    "vector_add": vector_add,
    "row_sum": row_sum,
    "tile": matrix_add,
    "matmul": matrix_product,
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("chapters", nargs="*", metavar="CHAPTER", help=f"some of {', '.join(CHAPTERS)}")
    wanted = parser.parse_args(argv).chapters or list(CHAPTERS)
    if unknown := [name for name in wanted if name not in CHAPTERS]:
        parser.error(f"there is no chapter {', '.join(unknown)}; choose from {', '.join(CHAPTERS)}")
    for name in wanted:
        print(f"=== {name}: {CHAPTERS[name].__doc__}")
        for step in CHAPTERS[name]():
            step.check()
            print(f"\n--- {step.title}\n\n{step.text}")
        print()
    return 0


if __name__ == "__main__":
    command.run(main)
