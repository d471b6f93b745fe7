"""What a template leaves open: dimensions, each a list of entities, each of which can be applied.

A *dimension* is one open decision of a template: how a loop is split, in which order loops nest, how they are
annotated, or any value at all. It is a finite list in a fixed order. An *entity* is one of its members and
knows how to act on a schedule, by the ordinary calls of the schedule, so that what a template makes is an
ordinary history of steps.

Entities have numeric features, which a model learns from and by which the nearest entity of another size is
found: tile lengths in powers of two, positions of loops, kinds of annotations.

The names of dimensions' policies are those of AutoTVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from math import ceil, isnan, log2, nan, prod
from typing import Any, Final, Union

import numpy as np

from ansor.checks import check_integer
from ansor.errors import DefinitionError
from ansor.schedule.manual import Loop, LoopLike, Schedule, TensorLike
from sketches.factors import enumerate_factorizations

Plain = Union[int, float, str, bool, None, tuple["Plain", ...]]
"""What a knob may hold: anything that prints, compares and can be written as JSON."""

_LARGE: Final = 1e30
"""Numbers from here on are features no more, which are float32."""
REORDER_LIMIT: Final = 8
"""Most loops of which all orders are listed."""
ANNOTATIONS: Final = ("none", "unroll", "vec", "parallel")


@dataclass(frozen=True, slots=True)
class SplitEntity:
    """
    Lengths of the parts of a split loop.

    Parameters
    ----------
    size
        Extents, outermost first. The first is what the others leave, and only said for reading: -1 will do.
    """

    size: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", tuple(self.size))
        if not self.size or any(length < 1 for length in self.size[1:]):
            raise DefinitionError(
                f"SplitEntity({list(self.size)}): give the parts' extents, outermost first, "
                "each at least 1; the first may be -1"
            )

    @property
    def value(self) -> tuple[int, ...]:
        return self.size

    @property
    def features(self) -> tuple[float, ...]:
        return tuple(log2(length) if length > 0 else nan for length in self.size)

    def apply(self, s: Schedule, op: TensorLike, axis: LoopLike) -> tuple[Loop, ...]:
        """Split a loop of the stage of `op`; gives the parts, outermost first."""
        if len(self.size) == 1:
            return (Loop(axis.name, s[op].op),)
        return s[op].split(axis, factors=self.size[1:])


@dataclass(frozen=True, slots=True)
class ReorderEntity:
    """An order of loops: `perm[k]` is the position, in the list given, of the k-th loop from outside."""

    perm: tuple[int, ...]

    @property
    def value(self) -> tuple[int, ...]:
        return self.perm

    @property
    def features(self) -> tuple[float, ...]:
        return tuple(float(self.perm.index(loop)) for loop in range(len(self.perm)))

    def apply(self, s: Schedule, op: TensorLike, axes: Sequence[LoopLike]) -> list[LoopLike]:
        """Put the loops into this order; gives them in it."""
        _check_count("order", self.perm, axes)
        ordered = [axes[position] for position in self.perm]
        s[op].reorder(*ordered)
        return ordered


@dataclass(frozen=True, slots=True)
class AnnotateEntity:
    """How each of some loops is executed: "none", "unroll", "vec" or "parallel"."""

    anns: tuple[str, ...]

    @property
    def value(self) -> tuple[str, ...]:
        return self.anns

    @property
    def features(self) -> tuple[float, ...]:
        return tuple(float(ann == kind) for ann in self.anns for kind in ANNOTATIONS[1:])

    def apply(self, s: Schedule, op: TensorLike, axes: Sequence[LoopLike]) -> list[LoopLike]:
        """Annotate the loops; gives them back."""
        _check_count("annotation", self.anns, axes)
        stage = s[op]
        for axis, ann in zip(axes, self.anns, strict=True):
            if ann == "unroll":
                stage.unroll(axis)
            elif ann == "vec":
                stage.vectorize(axis)
            elif ann == "parallel":
                stage.parallel(axis)
        return list(axes)


@dataclass(frozen=True, slots=True)
class KnobEntity:
    """A value that the template uses as it likes; `feature` stands for it as a number."""

    val: Plain
    feature: float = 0.0

    @property
    def value(self) -> Plain:
        return self.val

    @property
    def features(self) -> tuple[float, ...]:
        return (self.feature,)


AnyEntity = Union[SplitEntity, ReorderEntity, AnnotateEntity, KnobEntity]


def _check_count(what: str, choice: Sequence[object], axes: Sequence[LoopLike]) -> None:
    if len(choice) != len(axes):
        raise DefinitionError(
            f"this {what} is of {len(choice)} loops, found {len(axes)} to apply it to: "
            + ", ".join(axis.name for axis in axes)
        )


@dataclass(frozen=True, slots=True)
class Dimension:
    """One open decision: what it is about, for reading, and its entities in order."""

    title: str
    entities: tuple[AnyEntity, ...]

    def __len__(self) -> int:
        return len(self.entities)

    def __getitem__(self, position: int) -> AnyEntity:
        return self.entities[position]

    def position_of(self, entity: AnyEntity) -> int:
        """Position of an entity, or the first that is as good; 0 if there is none."""
        alike = [at for at, mine in enumerate(self.entities) if _said(mine) == _said(entity)]
        return next((at for at in alike if self.entities[at] == entity), next(iter(alike), 0))

    def nearest(self, entity: AnyEntity) -> int:
        """
        Position of the entity that is most like one of another space.

        Of splits only inner lengths are compared, because the outer one follows from the loop's extent.
        """
        for position, mine in enumerate(self.entities):
            if mine.value == entity.value:
                return position
        theirs = entity.features
        return min(range(len(self)), key=lambda position: _distance(self.entities[position], theirs))

    def __str__(self) -> str:
        first, last = self.entities[0].value, self.entities[-1].value
        shown = f"{_text(first)}" if len(self) == 1 else f"{_text(first)} .. {_text(last)}"
        return f"{self.title}: {len(self)} choice{'s' * (len(self) != 1)}, {shown}"


def _said(entity: AnyEntity) -> tuple[object, ...]:
    """What an entity does, wherever it stands: of splits the inner lengths."""
    value = entity.size[1:] if isinstance(entity, SplitEntity) else entity.value
    return type(entity), type(value), value


def _distance(entity: AnyEntity, features: tuple[float, ...]) -> float:
    skip = 1 if isinstance(entity, SplitEntity) and len(features) > 1 else 0
    pairs = list(zip(entity.features, features, strict=False))[skip:]
    return sum(abs(a - b) for a, b in pairs if not isnan(a) and not isnan(b))


def _text(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)


# -- splits ------------------------------------------------------------------------------------------


def split_dimension(
    title: str,
    extent: int,
    policy: str,
    num_outputs: int,
    max_factor: int | None,
    no_tail: bool,
    candidate: Sequence[Sequence[int]] | None,
    keep: Callable[[SplitEntity], bool] | None,
) -> Dimension:
    """
    List the ways to split a loop of `extent` iterations.

    Parameters
    ----------
    title
        What is split.
    policy
        "factors": lengths whose product divides the extent; "power2": powers of two; "verbose": both;
        "candidate": those given.
    num_outputs
        Number of parts, at least 1.
    max_factor
        Largest length of a part but the first.
    no_tail
        Only splits without a remainder.
    candidate
        Lists of extents, for the policy "candidate".
    keep
        Only splits for which it is true.

    Raises
    ------
    DefinitionError
        If the policy or an argument is wrong, or nothing is left to choose from.
    """
    num_outputs = check_integer(f"{title}: num_outputs", num_outputs, low=1)
    if max_factor is not None:
        max_factor = check_integer(f"{title}: max_factor", max_factor, low=1)
    if (policy == "candidate") != (candidate is not None):
        raise DefinitionError(f"{title}: policy='candidate' and candidate=[[...], ...] go together")
    lengths = _listed(title, extent, policy, num_outputs - 1, candidate or ())
    found = [SplitEntity((ceil(extent / prod(row)), *row)) for row in sorted(lengths)]
    found = [
        entity
        for entity in found
        if (max_factor is None or all(length <= max_factor for length in entity.size[1:]))
        and (not no_tail or prod(entity.size) == extent)
        and (keep is None or keep(entity))
    ]
    return Dimension(title, _some(title, found))


def _listed(
    title: str, extent: int, policy: str, inner: int, candidate: Sequence[Sequence[int]]
) -> set[tuple[int, ...]]:
    """The lengths of so many inner parts that a policy lists."""
    match policy:
        case "factors":
            listed = enumerate_factorizations(extent, inner, extent) if inner else [()]
            return {tuple(int(length) for length in row) for row in listed}
        case "power2":
            powers = [1 << exponent for exponent in range(extent.bit_length())]
            return {row for row in product(powers, repeat=inner) if prod(row) <= extent}
        case "verbose":
            both = (_listed(title, extent, one, inner, ()) for one in ("factors", "power2"))
            return set[tuple[int, ...]]().union(*both)
        case "candidate":
            given = {_inner_lengths(title, row) for row in candidate}
            if len(parts := sorted({1 + len(row) for row in given})) > 1:
                raise DefinitionError(
                    f"{title}: candidates have {' and '.join(map(str, parts))} parts; all must have as many"
                )
            return given
        case _:
            raise DefinitionError(
                f"{title}: unknown policy {policy!r}; known are 'factors', 'power2', 'verbose' and "
                "'candidate'"
            )


def _inner_lengths(title: str, row: Sequence[int]) -> tuple[int, ...]:
    if not isinstance(row, (list, tuple)) or not row or not all(isinstance(x, int) for x in row):
        raise DefinitionError(f"{title}: a candidate is a list of extents such as [-1, 8], found {row!r}")
    return SplitEntity(tuple(row)).size[1:]


# -- orders, annotations, values ---------------------------------------------------------------------


def reorder_dimension(
    title: str,
    axes: Sequence[object],
    policy: str,
    interval: tuple[int, int] | None,
    candidate: Sequence[Sequence[object]] | None,
    spatial: Sequence[Sequence[object]] | None,
    reduce: Sequence[Sequence[object]] | None,
) -> Dimension:
    """
    List orders of loops.

    Parameters
    ----------
    title
        What is ordered.
    axes
        The loops.
    policy
        "identity": as given; "all": every order; "interval_all": those that permute the loops from
        ``interval[0]`` up to, not including, ``interval[1]``; "candidate": those given; "interleave": those
        that keep the order inside each chain of `spatial` and `reduce`.

    Raises
    ------
    DefinitionError
        If the policy or an argument is wrong, or there are too many loops to list all orders.
    """
    count = len(axes)
    orders: Sequence[tuple[int, ...]]
    match policy:
        case "identity":
            orders = [tuple(range(count))]
        case "all":
            orders = _all_orders(title, count, 0, count)
        case "interval_all":
            begin, end = interval or (0, count)
            if interval is None or not 0 <= begin < end <= count:
                raise DefinitionError(
                    f"{title}: policy='interval_all' needs interval=(begin, end) within (0, {count}), "
                    f"found {interval!r}"
                )
            orders = _all_orders(title, count, begin, end)
        case "candidate":
            orders = [tuple(_position(title, axes, axis) for axis in row) for row in candidate or ()]
        case "interleave":
            orders = _interleaved(title, axes, (*(spatial or ()), *(reduce or ())))
        case _:
            raise DefinitionError(
                f"{title}: unknown policy {policy!r}; known are 'identity', 'all', 'interval_all', "
                "'candidate' and 'interleave'"
            )
    for order in orders:
        if sorted(order) != list(range(count)):
            raise DefinitionError(
                f"{title}: an order must name each of the {count} loops once, found {order}"
            )
    return Dimension(title, _some(title, [ReorderEntity(order) for order in dict.fromkeys(orders)]))


def _all_orders(title: str, count: int, begin: int, end: int) -> list[tuple[int, ...]]:
    """All orders of so many loops that permute those from `begin` up to, not including, `end`."""
    if end - begin > REORDER_LIMIT:
        raise DefinitionError(
            f"{title}: all orders of {end - begin} loops are too many to list; permute at most "
            f"{REORDER_LIMIT} with policy='interval_all', or name some with policy='candidate'"
        )
    head, tail = tuple(range(begin)), tuple(range(end, count))
    return [(*head, *order, *tail) for order in permutations(range(begin, end))]


def _interleaved(
    title: str, axes: Sequence[object], chains: Sequence[Sequence[object]]
) -> list[tuple[int, ...]]:
    """All orders that keep that inside of each chain."""
    if not all(isinstance(chain, (list, tuple)) for chain in chains):
        raise DefinitionError(
            f"{title}: policy='interleave' takes lists of chains of loops, as in "
            "spatial=[[yo, yi], [xo, xi]], reduce=[[ko, ki]]"
        )
    positions = [[_position(title, axes, axis) for axis in chain] for chain in chains]
    return list(_merges([chain for chain in positions if chain]))


def _position(title: str, axes: Sequence[object], axis: object) -> int:
    for position, known in enumerate(axes):
        if axis is known or (isinstance(axis, (Loop, TemplateAxis)) and axis == known):
            return position
    if isinstance(axis, int) and 0 <= axis < len(axes):
        return axis
    raise DefinitionError(f"{title}: {axis!r} is not one of its loops {', '.join(map(axis_name, axes))}")


def _merges(chains: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    if not any(chains):
        yield ()
        return
    for number, chain in enumerate(chains):
        if chain:
            rest = [*chains[:number], chain[1:], *chains[number + 1 :]]
            for order in _merges(rest):
                yield (chain[0], *order)


def annotate_dimension(title: str, axes: Sequence[object], policy: str) -> Dimension:
    """
    List annotations of some loops, given outermost first.

    Parameters
    ----------
    title
        What is annotated.
    axes
        The loops.
    policy
        "none", or words joined by "_", as in "try_unroll_vec": each loop gets one of them, where "try" allows
        "none" too. Only the last loop is ever vectorised and only the first parallel.

    Raises
    ------
    DefinitionError
        If a word is unknown.
    """
    words = [("none" if word == "try" else word) for word in policy.split("_")]
    if not axes or any(word not in ANNOTATIONS for word in words):
        raise DefinitionError(
            f"{title}: policy {policy!r} of {len(axes)} loops; it must be 'none' or words out of "
            "'try', 'unroll', 'vec' and 'parallel' joined by '_', for at least one loop"
        )
    last = len(axes) - 1
    places = {"vec": last, "parallel": 0}
    choices = [
        [word for word in dict.fromkeys(words) if places.get(word, at) == at] or ["none"]
        for at in range(len(axes))
    ]
    return Dimension(title, tuple(AnnotateEntity(row) for row in product(*choices)))


def knob_dimension(title: str, candidates: Sequence[Any]) -> Dimension:
    """
    List the values of a knob.

    Numbers are their own features; if anything else is among them, places in the list are.
    """
    if not isinstance(candidates, Iterable) or isinstance(candidates, (str, bytes)):
        raise DefinitionError(f"{title}: candidates must be a list of values, found {candidates!r}")
    candidates = list(candidates)
    if not candidates:
        raise DefinitionError(f"{title}: there is nothing to choose from; give it at least one value")
    values = [value.item() if isinstance(value, np.generic) else value for value in candidates]
    values = [tuple(value) if isinstance(value, list) else value for value in values]
    numbers = [float(x) for x in values if isinstance(x, (int, float)) and abs(x) < _LARGE]
    features: Sequence[float] = numbers if len(numbers) == len(values) else range(len(values))
    return Dimension(title, tuple(KnobEntity(x, float(at)) for x, at in zip(values, features, strict=True)))


def _some(title: str, entities: Sequence[AnyEntity]) -> tuple[AnyEntity, ...]:
    if not entities:
        raise DefinitionError(f"{title}: there is nothing to choose from; loosen its limits")
    return tuple(entities)


@dataclass(frozen=True, slots=True)
class TemplateAxis:
    """A loop that a split will make, to be named in the order and annotation of loops."""

    name: str

    def __str__(self) -> str:
        return self.name


def axis_name(axis: object) -> str:
    """Name of a loop, or its number."""
    return str(getattr(axis, "name", axis))
