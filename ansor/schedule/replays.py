"""Replaying many histories that begin alike: the sketches of a computation differ in their last steps."""

from __future__ import annotations

from collections.abc import Sequence

from ansor.schedule.dag import ComputeDAG
from ansor.schedule.state import State
from ansor.schedule.step_base import Step


class Replays:
    """Replays histories one after another; what one begins with as the last one did is not done again."""

    def __init__(self) -> None:
        self._states: tuple[State, ...] = ()

    def along(self, dag: ComputeDAG, steps: Sequence[Step]) -> tuple[State, ...]:
        """
        Give the states that a history leads through: that before each step, and that after all of them.

        Raises
        ------
        ScheduleError
            If a step is illegal; the message names its position in the history.
        """
        last = self._states
        states = list(last) if last and last[0].dag is dag else [State.initial(dag)]
        same = 0
        for old, new in zip(states[-1].steps, steps, strict=False):
            if old is not new and old != new:
                break
            same += 1
        del states[same + 1 :]
        try:
            for position in range(same, len(steps)):
                states.append(states[-1].replayed(position, steps[position]))
        finally:
            self._states = tuple(states)
        return self._states
