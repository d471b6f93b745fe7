"""When two programs are compiled to the same code: when they have equal plans."""

import hashlib

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
