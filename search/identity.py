"""When two programs are compiled to the same code, and where a round's randomness comes from."""

import hashlib

import numpy as np

from ansor.depth import with_depth
from ansor.ir.nest import Buffer
from ansor.ir.printer import Names, format_stmt
from ansor.schedule.state import State
from ansor.task.task import Task
from ansor.te.expr import Var
from measure.emit import lowered


def plan_key(task: Task, state: State) -> str:
    """
    Digest of the loop nest that would be compiled, whatever its variables are called.

    Programs with different keys (`ansor.schedule.identity.program_key`) may have equal plans: a loop may be
    unrolled because a pragma says so, or anyway.

    Raises
    ------
    ScheduleError
        If the program cannot be lowered.
    """
    nest = lowered(state, task.compute_dag.tensors, task.target)
    text = with_depth(lambda: format_stmt(nest.body, _Numbered()))
    text += "".join(f"\nstreamed {position}" for position in nest.streamed)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class _Numbered(Names):
    """Variables called by the order in which they turn up."""

    def of(self, item: Var | Buffer) -> str:
        if isinstance(item, Buffer):
            return super().of(item)
        if item not in self._names:
            self._names[item] = f"%{len(self._names)}"
        return self._names[item]


def round_rng(seed: int, task: Task, round_index: int) -> np.random.Generator:
    """
    Start the generator of one round: a function of its three arguments, so nothing random outlives a round.

    The task enters by the structure of its computation and its target; renaming an operator changes nothing.
    """
    text = f"{task.compute_dag.structure_hash}\n{task.target}"
    word = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
    return np.random.default_rng(np.random.SeedSequence([seed, word, round_index]))
