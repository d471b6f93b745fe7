"""The space of a template, and one point of it.

A `ConfigSpace` is the product of the dimensions that a template defines: the same thing as the columns of a
family, listed by a person. A point is a `ConfigEntity`: one entity by dimension. Points are numbered, the
first dimension running fastest, so any point has an index and a row of coordinates.

A template meets both as its argument `cfg`, a `Config`: it first defines dimensions, then uses the choices.
The first run of a template collects the dimensions; every later one is given a point.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ansor.errors import DefinitionError
from ansor.schedule.manual import Loop, LoopLike
from ansor.te.expr import IterVar, int_value
from ansor.te.tensor import ComputeOp
from sketches.templates.choices import (
    AnnotateEntity,
    AnyEntity,
    Dimension,
    KnobEntity,
    ReorderEntity,
    SplitEntity,
    TemplateAxis,
    annotate_dimension,
    axis_name,
    knob_dimension,
    reorder_dimension,
    split_dimension,
)

_KINDS = {"sp": SplitEntity, "re": ReorderEntity, "an": AnnotateEntity, "ot": KnobEntity}


class ConfigEntity(Mapping[str, AnyEntity]):
    """One point of a space: an entity by name of dimension, and its index (-1 for one made by hand)."""

    def __init__(self, entities: Mapping[str, AnyEntity], index: int = -1) -> None:
        self._entities = dict(entities)
        self.index = index

    def __getitem__(self, name: str) -> AnyEntity:
        return self._entities[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entities)

    def __len__(self) -> int:
        return len(self._entities)

    def to_json(self) -> dict[str, Any]:
        """The form of AutoTVM's logs: index, and (name, kind, value) by dimension."""
        kinds = {cls: word for word, cls in _KINDS.items()}
        rows = [[name, kinds[type(one)], _plain(one.value)] for name, one in self.items()]
        return {"index": self.index, "entity": rows}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ConfigEntity:
        """
        Invert `to_json`.

        Raises
        ------
        DefinitionError
            If an entity is of an unknown kind.
        """
        entities: dict[str, AnyEntity] = {}
        for name, kind, value in data["entity"]:
            if kind not in _KINDS:
                raise DefinitionError(f"configuration entity {name!r}: unknown kind {kind!r}")
            entities[name] = _KINDS[kind](tuple(value) if isinstance(value, list) else value)
        return cls(entities, int(data.get("index", -1)))

    def __str__(self) -> str:
        return ", ".join(f"{name}={_plain(one.value)}" for name, one in self.items())

    def __repr__(self) -> str:
        return f"<configuration {self.index}: {self}>"


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


class ConfigSpace:
    """
    All configurations of a template at one size.

    Parameters
    ----------
    dimensions
        Open decisions by name, in the order of definition.
    filters
        Conditions on whole configurations.
    """

    def __init__(
        self,
        dimensions: Mapping[str, Dimension],
        filters: Sequence[Callable[[ConfigEntity], bool]] = (),
    ) -> None:
        self.dimensions: Mapping[str, Dimension] = dict(dimensions)
        self.filters = tuple(filters)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the dimensions."""
        return tuple(self.dimensions)

    @property
    def dims(self) -> tuple[int, ...]:
        """Choices of each dimension."""
        return tuple(map(len, self.dimensions.values()))

    @property
    def size(self) -> int:
        """Number of configurations, those that a filter refuses included; at least 1."""
        return prod(self.dims)

    def __len__(self) -> int:
        return self.size

    def coordinates(self, index: int) -> tuple[int, ...]:
        """Position of a configuration's choice in each dimension."""
        if not 0 <= index < self.size:
            raise IndexError(f"configuration {index} of {self.size}")
        found: list[int] = []
        for count in self.dims:
            index, position = divmod(index, count)
            found.append(position)
        return tuple(found)

    def index_of(self, coordinates: Sequence[int]) -> int:
        """Invert `coordinates`."""
        index = 0
        for count, position in zip(reversed(self.dims), reversed(coordinates), strict=True):
            index = index * count + int(position)
        return index

    def __getitem__(self, index: int) -> ConfigEntity:
        coordinates = self.coordinates(index)
        chosen = zip(self.dimensions.items(), coordinates, strict=True)
        return ConfigEntity({name: dimension[at] for (name, dimension), at in chosen}, index)

    def accepts(self, config: Mapping[str, AnyEntity] | int) -> bool:
        """Whether the filters let a configuration, or that of an index, through."""
        if not self.filters:
            return True
        chosen = ConfigEntity(config) if isinstance(config, Mapping) else self[operator.index(config)]
        return all(keep(chosen) for keep in self.filters)

    def coordinates_of(self, config: Mapping[str, AnyEntity]) -> tuple[int, ...]:
        """Positions of what a configuration chooses; 0 where it chooses nothing that is in the space."""
        return tuple(
            dimension.position_of(config[name]) if name in config else 0
            for name, dimension in self.dimensions.items()
        )

    def pick(self, **values: Any) -> ConfigEntity:
        """
        Find a configuration by the values of its choices; a dimension that is not named takes its first.

        For a split the parts' extents, outermost first (the first is not compared); for the others, the
        order, the annotations, the value.

        Raises
        ------
        DefinitionError
            If there is no such dimension or no such choice.
        """
        for name in values:
            if name not in self.dimensions:
                raise unknown_name(name, self.names)
        found = [self._find(name, values[name]) if name in values else 0 for name in self.dimensions]
        return self[self.index_of(found)]

    def _find(self, name: str, value: Any) -> int:
        wanted = tuple(value) if isinstance(value, list) else value
        dimension = self.dimensions[name]
        for position, entity in enumerate(dimension.entities):
            same = entity.value == wanted
            if isinstance(entity, SplitEntity) and isinstance(wanted, tuple):
                same = len(entity.size) == len(wanted) and entity.size[1:] == wanted[1:]
            if same:
                return position
        raise DefinitionError(f"{name!r} has no choice {value!r}; it is a {dimension}")

    def adapt(self, config: Mapping[str, AnyEntity]) -> ConfigEntity:
        """Find the configuration most like one of the same template at another size."""
        found = [
            dimension.nearest(config[name]) if name in config else 0
            for name, dimension in self.dimensions.items()
        ]
        return self[self.index_of(found)]

    def rows(self, coordinates: NDArray[np.int64]) -> NDArray[np.float32]:
        """
        Features of configurations.

        Parameters
        ----------
        coordinates
            Shape ``(configurations, dimensions)``.

        Returns
        -------
        NDArray[np.float32]
            The dimensions' features side by side, shape ``(configurations, columns)``.
        """
        parts = [np.empty((len(coordinates), 0), np.float32)]
        for number, dimension in enumerate(self.dimensions.values()):
            table = np.array([entity.features for entity in dimension.entities], np.float32)
            parts.append(table[coordinates[:, number]])
        return np.concatenate(parts, axis=1)

    def to_json(self) -> dict[str, list[Any]]:
        """The choices of each dimension by its name, as plain values."""
        return {name: [_plain(one.value) for one in each.entities] for name, each in self.dimensions.items()}

    def __str__(self) -> str:
        width = max(map(len, self.names), default=0)
        lines = [f"  {name:{width}}  {dimension}" for name, dimension in self.dimensions.items()]
        count = len(self.filters)
        limited = f", limited by {count} filter{'s' * (count != 1)}" if count else ""
        size = f"{self.size} configuration{'s' * (self.size != 1)}"
        return "\n".join([f"ConfigSpace of {size}{limited}", *lines])


class Config:
    """
    The argument `cfg` of a template: define dimensions, then use what was chosen, `cfg["name"]`.

    Parameters
    ----------
    space
        Dimensions that are known already; None collects them.
    choice
        What was chosen; where it says nothing, a dimension's first entity, or what `draw` gives.
    draw
        Chooses where `choice` says nothing.
    """

    def __init__(
        self,
        space: ConfigSpace | None = None,
        choice: Mapping[str, AnyEntity] | None = None,
        draw: Callable[[Dimension], AnyEntity] | None = None,
    ) -> None:
        self._draw = draw
        self._known = None if space is None else space.dimensions
        self._defined: dict[str, Dimension] = {}
        self._filters: list[Callable[[ConfigEntity], bool]] = []
        self._choice = dict(choice or {})
        for name in self._choice:
            if self._known is not None and name not in self._known:
                raise unknown_name(name, tuple(self._known))

    @property
    def space(self) -> ConfigSpace:
        """The dimensions defined so far."""
        return ConfigSpace(self._defined, self._filters)

    @property
    def chosen(self) -> dict[str, AnyEntity]:
        """What is chosen of all that is defined so far."""
        return {name: self[name] for name in self._defined}

    def define_split(
        self,
        name: str,
        axis: LoopLike | int,
        policy: str = "factors",
        *,
        num_outputs: int = 2,
        max_factor: int | None = None,
        no_tail: bool = False,
        candidate: Sequence[Sequence[int]] | None = None,
        filter: Callable[[SplitEntity], bool] | None = None,  # noqa: A002 (AutoTVM's name)
    ) -> tuple[TemplateAxis, ...]:
        """
        Leave open how a loop is split.

        Parameters
        ----------
        name
            Name of the dimension.
        axis
            An axis of an operation, or an extent.
        policy, num_outputs, max_factor, no_tail, candidate, filter
            As in `split_dimension`; "factors" lists exact splits, "power2" and "candidate" also others.

        Returns
        -------
        tuple[TemplateAxis, ...]
            The loops to be, outermost first, for `define_reorder` and `define_annotate`.

        Raises
        ------
        DefinitionError
            If the name is taken, the extent is unknown, or there is no such split.
        """

        def make() -> Dimension:
            title = f"split of {axis_name(axis)}"
            extent = _extent_of(title, axis)
            return split_dimension(title, extent, policy, num_outputs, max_factor, no_tail, candidate, filter)

        made = self._define(name, make)
        first = made[0]
        parts = len(first.size) if isinstance(first, SplitEntity) else num_outputs
        return tuple(TemplateAxis(f"{name}.{part}") for part in range(parts))

    def define_reorder(
        self,
        name: str,
        axes: Sequence[LoopLike | TemplateAxis],
        policy: str = "all",
        *,
        interval: tuple[int, int] | None = None,
        candidate: Sequence[Sequence[object]] | None = None,
        spatial: Sequence[Sequence[object]] | None = None,
        reduce: Sequence[Sequence[object]] | None = None,
    ) -> None:
        """Leave open how loops nest; see `reorder_dimension` for the policies."""

        def make() -> Dimension:
            title = f"order of {', '.join(map(axis_name, axes))}"
            return reorder_dimension(title, axes, policy, interval, candidate, spatial, reduce)

        self._define(name, make)

    def define_annotate(
        self, name: str, axes: Sequence[LoopLike | TemplateAxis], policy: str = "try_unroll_vec"
    ) -> None:
        """Leave open how loops are executed; see `annotate_dimension` for the policies."""
        title = f"annotation of {', '.join(map(axis_name, axes))}"
        self._define(name, lambda: annotate_dimension(title, axes, policy))

    def define_knob(self, name: str, candidate: Sequence[Any]) -> None:
        """Leave a value open: `cfg[name].val` is one of the candidates."""
        self._define(name, lambda: knob_dimension("value", candidate))

    def multi_filter(self, filter: Callable[[ConfigEntity], bool]) -> None:  # noqa: A002 (AutoTVM's name)
        """Refuse configurations for which `filter` is false."""
        self._filters.append(filter)

    def _define(self, name: str, make: Callable[[], Dimension]) -> Dimension:
        if name in self._defined:
            raise DefinitionError(f"the template defines {name!r} twice; give each decision its own name")
        if self._known is not None:
            if name not in self._known:
                raise DefinitionError(
                    f"the template defines {name!r} for some configurations only; what it defines must not "
                    "depend on what is chosen"
                )
            made = self._known[name]
        else:
            try:
                made = make()
            except DefinitionError as error:
                raise DefinitionError(f"{name!r}: {error}") from None
        self._defined[name] = made
        if self._draw is not None and name not in self._choice:
            self._choice[name] = self._draw(made)
        return made

    def __getitem__(self, name: str) -> Any:
        if name not in self._defined:
            raise unknown_name(name, tuple(self._defined))
        return self._choice.get(name, self._defined[name][0])

    def __setitem__(self, name: str, entity: AnyEntity) -> None:
        """Overrule the choice, from inside the template."""
        if name not in self._defined:
            raise unknown_name(name, tuple(self._defined))
        self._choice[name] = entity

    def __str__(self) -> str:
        return str(ConfigEntity(self._choice)) or "of first choices"


def unknown_name(name: str, known: Sequence[str]) -> DefinitionError:
    """Say that a dimension does not exist, and which do."""
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    listed = ", ".join(known) or "none yet; define before use"
    return DefinitionError(f"the template defines no {name!r}; {hint}defined are {listed}")


def _extent_of(title: str, axis: LoopLike | int) -> int:
    extent: int | None = None
    if isinstance(axis, Loop) and isinstance(axis.op, ComputeOp):
        axes = {one.name: one for one in (*axis.op.axis, *axis.op.reduce_axis)}
        extent = int_value(axes[axis.name].extent) if axis.name in axes else None
    elif isinstance(axis, IterVar):
        extent = int_value(axis.extent)
    elif isinstance(axis, int) and not isinstance(axis, bool):
        extent = axis
    if extent is None or extent < 1:
        raise DefinitionError(
            f"{title}: its extent must be a known number; give an axis of an operation (op.axis, "
            f"op.reduce_axis) or the extent itself, found {axis!r}"
        )
    return extent
