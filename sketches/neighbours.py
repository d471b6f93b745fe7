"""Families next to each other: the same sketch with one stage computed somewhere else.

Which moves a family offers, and the family that a move leads to, depend on structure alone, so both are
worked out once, with all tile lengths 1, and known while the families are: none is kept here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary, ref

from ansor.errors import ScheduleError
from ansor.schedule.state import State
from ansor.schedule.steps import Step
from sketches.derive import Sketch
from sketches.family import Family
from sketches.locations import Move, is_movable, moves
from sketches.sample import ProgramSpace


@dataclass(frozen=True, slots=True)
class Relocation:
    """Compute a stage as `move` says, in place of what the family does with it."""

    stage: int
    move: Move


def chosen_moves(family: Family) -> dict[int, Step]:
    """Moves that a family makes after its sketch, by stage."""
    return {step.stage: step for step in family.steps[len(family.sketch.steps) :]}


@dataclass(eq=False)
class Neighbourhood:
    """The families of a space and the ways between them, worked out as they are asked for."""

    space: ProgramSpace
    _offers: WeakKeyDictionary[Family, tuple[Relocation, ...]] = field(default_factory=WeakKeyDictionary)
    _led_to: WeakKeyDictionary[Family, dict[Relocation, ref[Family] | None]] = field(
        default_factory=WeakKeyDictionary
    )
    """Where moves lead, None for illegal ones; neither end keeps the other."""

    def relocations(self, family: Family) -> tuple[Relocation, ...]:
        """All single changes of place that a family offers, from the last stage to the first."""
        known = self._offers.get(family)
        if known is None:
            known = self._offers[family] = tuple(self._find_relocations(family))
        return known

    def _find_relocations(self, family: Family) -> list[Relocation]:
        if not self.space.context.moves_stages:
            return []
        found: list[Relocation] = []
        chosen = chosen_moves(family)
        state = family.sketch.bare
        for stage_id in range(len(state.stages) - 1, -1, -1):
            if not is_movable(state, stage_id):
                continue
            own = chosen.get(stage_id)
            options = dict.fromkeys(moves(state, stage_id))
            found.extend(Relocation(stage_id, move) for move in options if move != own)
            if own is not None:
                state = state.apply(own)
        return found

    def relocated(self, family: Family, relocation: Relocation) -> Family | None:
        """
        Find the family that one change of place leads to; other stages go where they were, if they still can.

        Returns
        -------
        Family | None
            None if the change is illegal.
        """
        ways = self._led_to.setdefault(family, {})
        known = ways.get(relocation)
        found = None if known is None else known()
        if found is None and (known is not None or relocation not in ways):
            chosen = {**chosen_moves(family), relocation.stage: relocation.move}
            found = self.family_with(family.sketch, chosen)
            ways[relocation] = None if found is None else ref(found)
        return found

    def family_with(self, sketch: Sketch, chosen: Mapping[int, Step | None]) -> Family | None:
        """Find the family of a sketch that makes these moves, as far as on offer; None if that is illegal."""
        state = sketch.bare
        try:
            for stage_id in range(len(state.stages) - 1, -1, -1):
                move = chosen.get(stage_id)
                if move is None or not is_movable(state, stage_id):
                    continue
                if any(move == offered for offered in moves(state, stage_id)):
                    state = state.apply(move)
            state.with_bounds()
            return self.space.family(sketch, state)
        except ScheduleError:
            return None

    def families(self, sketch: Sketch, at_most: int) -> list[Family] | None:
        """List every family of a sketch, or None if there are more than `at_most`."""
        fixed = not self.space.context.moves_stages
        states = [sketch.bare]
        for stage_id in range(len(states[0].stages) - 1, -1, -1):
            following: list[State] = []
            for state in states:
                movable = not fixed and is_movable(state, stage_id)
                options: list[Move] = moves(state, stage_id) if movable else [None]
                for move in dict.fromkeys(options):
                    try:
                        following.append(state if move is None else state.apply(move))
                    except ScheduleError:
                        continue
            if len(following) > at_most:
                return None
            states = following
        found: dict[Family, None] = {}
        for state in states:
            try:
                state.with_bounds()
                found[self.space.family(sketch, state)] = None
            except ScheduleError:
                continue
        return list(found)
