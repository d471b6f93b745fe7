"""Reading the configuration of a program off its steps, while the template runs.

A template applies its choices one after the other. Run against the steps of a program, what is left open can
therefore be read where it is applied: the split that comes next in the program tells the lengths, the order
of loops tells the permutation. What a template looks at without applying it, as the value of a knob, must be
guessed; `Reading.guessed` says what was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ansor.schedule.manual import LoopLike, Schedule, TensorLike
from ansor.schedule.stages import Annotation
from ansor.schedule.steps import AnnotationStep, ReorderStep, SplitStep, Step
from sketches.templates.choices import AnnotateEntity, AnyEntity, KnobEntity, ReorderEntity, SplitEntity
from sketches.templates.config import Config, ConfigSpace

_WORDS: Final = {Annotation.UNROLL: "unroll", Annotation.VECTORIZE: "vec", Annotation.PARALLEL: "parallel"}


class DiffersError(Exception):
    """The program goes on otherwise than any choice of the template."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The steps of the program whose configuration is looked for."""

    steps: tuple[Step, ...]
    texts: tuple[str, ...]

    @classmethod
    def of(cls, steps: Sequence[Step]) -> Wanted:
        return cls(tuple(steps), tuple(map(_text, steps)))

    def agreement(self, steps: Sequence[Step]) -> int:
        """Count the first steps that agree."""
        count = 0
        for step, text in zip(steps, self.texts, strict=False):
            if _text(step) != text:
                break
            count += 1
        return count

    def is_made_by(self, steps: Sequence[Step]) -> bool:
        """Whether these are the steps."""
        return len(steps) == len(self.steps) == self.agreement(steps)


@dataclass(frozen=True, slots=True)
class Reading:
    """
    What a run against a program told.

    Attributes
    ----------
    agreement
        How many steps agreed, and whether the function ran on from there.
    complete
        Whether all did, and there was no other.
    choice
        What was chosen in the end: read where that was possible, elsewhere as given.
    guessed
        Dimensions of which that is only a guess, in the order in which the function looked at them.
    fixed
        Dimensions that were not to be read.
    """

    agreement: tuple[int, bool]
    complete: bool
    choice: Mapping[str, AnyEntity]
    guessed: tuple[str, ...]
    fixed: frozenset[str]


class ReadingConfig(Config):
    """
    A `Config` that reads what it chooses off the steps of a program, where a choice is applied.

    Parameters
    ----------
    space
        The dimensions.
    choice
        An entity of each, for where nothing is read.
    fixed
        Dimensions that are not to be read.
    wanted
        The program.
    """

    def __init__(
        self,
        space: ConfigSpace,
        choice: Mapping[str, AnyEntity],
        fixed: frozenset[str],
        wanted: Wanted,
    ) -> None:
        super().__init__(space, choice)
        self._dimensions = space.dimensions
        self._fixed = fixed
        self._wanted = wanted
        self._picked = dict(choice)
        self._guessed: dict[str, None] = {}
        self._settled: set[str] = set()  # Read, or overruled by the template.
        self._agreed = 0

    def reading(self, steps: Sequence[Step] | None) -> Reading:
        """
        Say what the run told.

        Parameters
        ----------
        steps
            What it made; None if it did not end.
        """
        agreed = self._agreed if steps is None else self._wanted.agreement(steps)
        complete = steps is not None and self._wanted.is_made_by(steps)
        return Reading((agreed, steps is not None), complete, self._picked, tuple(self._guessed), self._fixed)

    def __getitem__(self, name: str) -> Any:
        entity = super().__getitem__(name)
        if name in self._settled:
            return entity
        if name in self._fixed or isinstance(entity, KnobEntity):
            return self.guess(name)
        return _Open(self, name)

    def __setitem__(self, name: str, entity: AnyEntity) -> None:
        super().__setitem__(name, entity)
        self._settled.add(name)

    def guess(self, name: str) -> AnyEntity:
        """Take what is given for an answer, where nothing is known."""
        if name not in self._settled:
            self._guessed.setdefault(name)
        return self._picked[name]

    def knows(self, name: str) -> bool:
        """Whether a choice need not be read any more."""
        return name in self._settled

    def read(self, name: str, s: Schedule, op: TensorLike, loops: Any) -> AnyEntity:
        """
        Find the entity of a dimension that makes the next steps of the program.

        Raises
        ------
        DiffersError
            If there is none, or the steps until here are others already.
        """
        done = s.state.steps
        self._agreed = self._wanted.agreement(done)
        if self._agreed < len(done):
            raise DiffersError
        entities = self._dimensions[name].entities
        found = _fitting(entities, s, op, loops, self._wanted.steps[len(done) :])
        if not found:
            raise DiffersError
        self._guessed.pop(name, None)
        if len(found) > 1:  # The longest of them: another may be right.
            self._guessed[name] = None
        self._picked[name] = found[0]
        self[name] = found[0]
        return found[0]


class _Open:
    """Stands for an entity that is read when it is applied, and guessed when it is looked at."""

    def __init__(self, config: ReadingConfig, name: str) -> None:
        self._config = config
        self._name = name

    def apply(self, s: Schedule, op: TensorLike, *loops: Any, **named: Any) -> Any:
        given = (*loops, *named.values())
        if len(given) != 1 or self._config.knows(self._name):
            entity: Any = self._config.guess(self._name)
        else:
            entity = self._config.read(self._name, s, op, given[0])
        return entity.apply(s, op, *loops, **named)

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._config.guess(self._name), attribute)

    def __eq__(self, other: object) -> bool:
        return self._config.guess(self._name) == other

    def __hash__(self) -> int:
        return hash(self._config.guess(self._name))


def _fitting(
    entities: Sequence[AnyEntity], s: Schedule, op: TensorLike, loops: Any, following: Sequence[Step]
) -> list[AnyEntity]:
    """Entities that make the beginning of the steps that follow, those first that make more of them."""
    step = following[0] if following else None
    match entities[0]:
        case SplitEntity(size) if len(size) > 1:
            lengths = tuple(step.lengths) if isinstance(step, SplitStep) and step.inner_to_outer else None
            return [one for one in entities if isinstance(one, SplitEntity) and one.size[1:] == lengths]
        case ReorderEntity():
            order = _order(_positions(s, op, loops), step)
            return [one for one in entities if isinstance(one, ReorderEntity) and one.perm == order]
        case AnnotateEntity():
            return _annotations(entities, s[op].stage_id, _positions(s, op, loops), following)
        case _:  # It makes no step.
            return list(entities)


def _positions(s: Schedule, op: TensorLike, loops: Sequence[LoopLike]) -> list[int]:
    """Where the loops stand in their stage; -1 for one that is not there."""
    names = [loop.name for loop in s[op].leaf_iter_vars]
    return [names.index(loop.name) if loop.name in names else -1 for loop in loops]


def _order(positions: Sequence[int], step: Step | None) -> tuple[int, ...] | None:
    """The permutation of loops at these positions that a step makes; None if it does something else."""
    if not isinstance(step, ReorderStep):
        return None
    ordered = [step.order[place] for place in sorted(positions) if 0 <= place < len(step.order)]
    return tuple(positions.index(one) for one in ordered if one in positions)


def _annotations(
    entities: Sequence[AnyEntity], stage: int, positions: Sequence[int], following: Sequence[Step]
) -> list[AnyEntity]:
    """Annotations that make the beginning of the steps that follow, the longest first.

    That none is made fits always.
    """
    made: list[tuple[int, str]] = []
    for step in following:
        if not isinstance(step, AnnotationStep) or step.stage != stage:
            break
        made.append((step.iterator, _WORDS.get(Annotation(step.annotation), "")))
    found: list[tuple[int, AnyEntity]] = []
    for one in entities:
        assert isinstance(one, AnnotateEntity)
        pairs = zip(positions, one.anns, strict=False)
        own = [(position, word) for position, word in pairs if word != "none"]
        if own == made[: len(own)]:
            found.append((len(own), one))
    return [one for _, one in sorted(found, key=lambda pair: -pair[0])]


def _text(step: Step) -> str:
    return repr(step.to_json())
