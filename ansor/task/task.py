"""`Task`: everything that defines one tuning problem, and nothing that happens to it.

Records, builders and feature extraction see a task; tuning itself (`SearchTask`) lives with the search.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING

from ansor.errors import DefinitionError
from ansor.task.hardware import HardwareParams
from ansor.task.target import Target

if TYPE_CHECKING:
    from ansor.schedule.dag import ComputeDAG


TaskKey = tuple[str, str, int]
"""Workload key, target text and layout option."""


class LayoutRewriteOption(IntEnum):
    """What a schedule may do to the layout of constant inputs; the numbers are those of log records."""

    NO_REWRITE = 0
    INSERT_TRANSFORM_STAGE = 1
    REWRITE_FOR_PRE_TRANSFORMED = 2


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One computation to be tuned for one target; compared by identity, looked up by `key`.

    `dag` is None for a task that was read from a log and whose workload is not registered here.
    What `hardware_params` do not say is filled in from the target.
    `input_names` are the inputs whose data the user supplies (index tensors and the like).
    `alternatives` compute the same by other algorithms (`ansor.task.alternatives`), each a task with a
    computation and a key of its own; `direct` is the task whose alternative this one is, and whose answers
    are the right ones. `cpu` is what a task that was read from a log ran on, None for this machine's CPU.
    """

    dag: ComputeDAG | None
    workload_key: str
    target: Target
    target_host: Target | None
    hardware_params: HardwareParams
    layout_rewrite_option: LayoutRewriteOption = LayoutRewriteOption.NO_REWRITE
    input_names: tuple[str, ...] = ()
    desc: str = ""
    alternatives: tuple[Task, ...] = ()
    direct: Task | None = None
    cpu: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "hardware_params", self.hardware_params.completed(self.target))

    @classmethod
    def create(
        cls,
        dag: ComputeDAG | None,
        workload_key: str,
        target: Target | str,
        *,
        target_host: Target | str | None = None,
        hardware_params: HardwareParams | None = None,
        layout_rewrite_option: int = 0,
        input_names: tuple[str, ...] = (),
        desc: str = "",
    ) -> Task:
        """Make a task from what people write: target texts, and default hardware parameters."""
        resolved = Target(target)
        return cls(
            dag,
            workload_key,
            resolved,
            Target(target_host) if target_host else None,
            hardware_params or HardwareParams.for_target(resolved),
            LayoutRewriteOption(layout_rewrite_option),
            tuple(input_names),
            desc,
        )

    @property
    def key(self) -> TaskKey:
        """What makes two tasks the same in a log, and run times of their programs comparable."""
        return (self.workload_key, str(self.target), int(self.layout_rewrite_option))

    @property
    def compute_dag(self) -> ComputeDAG:
        """The computation.

        Raises
        ------
        DefinitionError
            If the task came from a log and its workload is not known here.
        """
        if self.dag is None:
            raise DefinitionError(
                f"the task {self.workload_key!r} was read from a log and has no definition here; "
                "register its workload function (@ansor.register_workload) before reading"
            )
        return self.dag

    @property
    def algorithms(self) -> tuple[Task, ...]:
        """The task itself, then its alternatives."""
        return (self, *self.alternatives)

    def algorithm_of(self, dag: ComputeDAG) -> Task:
        """The algorithm with this very computation; the task itself if it is none of an alternative."""
        return next((one for one in self.alternatives if one.dag is dag), self)

    def with_dag(self, dag: ComputeDAG) -> Task:
        """Return the same task with its computation supplied."""
        return replace(self, dag=dag)
