"""Targets of a log's lines: which of them are one, and where a program for another may serve.

Two questions are asked of two targets. *May a program for the one serve on the other?* (`same_target`.) It
may if it is good and legal there as far as one can tell: the kind is the same, the CPU or GPU model where
both name one, and of a CPU the architecture. A CPU target without a triple is this machine's: that is what it
compiles for. *Do times for the one count for the other?* (`target_group`.) They do if all that is equal, what
only one of them names included, and the cores and limits asked for. Targets that name no number of cores are
for those that a machine has, or was told to use, and targets that name no CPU for the machine's: of these the
record tells (`RunsOn`), and times with others do not count for each other (`other_conditions`). Keys and the
rest of a triple differ between versions without meaning another target, so they are never compared.

Source: `load_best_record` of TVM 0.16.
"""

from __future__ import annotations

import shlex
from functools import lru_cache
from typing import Final, NamedTuple

from ansor.task.host import default_num_threads
from ansor.task.isa import architecture_of, cpu_name
from ansor.task.target import UNSAID_ARCH, Target
from measure.records.record import AnyTask, LoggedTask

_COMPARED: Final = ("mcpu", "arch", "device", "model", "mattr")
_ASKED: Final = (
    *("num-cores", "max_num_threads", "max_threads_per_block", "max_shared_memory_per_block"),
    *("max_local_memory_per_block", "thread_warp_size"),
)
"""Compared, too, where times are to count for each other."""
_SAYS_NOTHING: Final = {"mcpu": "native", "model": "unknown", "arch": UNSAID_ARCH}
"""What these options are where they are not named."""
_COMPILED_FOR_A_TRIPLE: Final = ("llvm", "c")


def target_text(task: AnyTask) -> str:
    """Return the target of a task as text, without parsing one that came from a log."""
    return task.target_text if isinstance(task, LoggedTask) else str(task.target)


def same_target(one: Target | str, other: Target | str) -> bool:
    """Whether programs for the one target are meant for the other, too."""
    return _same_target(str(one), str(other))


@lru_cache(maxsize=1024)  # A log asks the same question once a line.
def _same_target(one: str, other: str) -> bool:
    (kind_a, a), (kind_b, b) = _facts(one), _facts(other)
    return kind_a == kind_b and all(a[name] == b[name] for name in a.keys() & b.keys())


@lru_cache(maxsize=1024)
def target_group(text: str) -> tuple[str, ...]:
    """Return what targets have in common whose times count for each other; never fail on odd text."""
    kind, facts = _facts(text)
    options = target_options(text)[1]
    asked = (f"{name}={options[name]}" for name in _ASKED if name in options)
    return (kind, *asked, *(f"{name}={facts[name]}" for name in sorted(facts)))


class RunsOn(NamedTuple):
    """
    What programs for a CPU run on, of what their target leaves unsaid; None for what it says.

    Parameters
    ----------
    cores
        How many.
    cpu
        LLVM's name of it. None for another architecture's.
    """

    cores: int | None = None
    cpu: str | None = None

    def differs(self, other: RunsOn) -> str:
        """Say what of the other one is known to be something else: "with 2 cores"; empty if nothing is."""
        terms = []
        if other.cores is not None and self.cores not in (None, other.cores):
            terms.append(f"with {other.cores} core{'' if other.cores == 1 else 's'}")
        if other.cpu is not None and self.cpu not in (None, other.cpu):
            terms.append(f"on the CPU {other.cpu}")
        return " ".join(terms)


ANYTHING: Final = RunsOn()


def runs_on(task: AnyTask) -> RunsOn:
    """Tell what programs of a task run on, or ran on; None also for what a record leaves unsaid."""
    if isinstance(task, LoggedTask):
        has = RunsOn(task.hardware[0] if task.hardware else None, task.cpu)
    else:
        has = RunsOn(task.hardware_params.num_cores, task.cpu or cpu_name(task.target))
    return _unsaid(target_text(task), has)


def here(target: Target | str) -> RunsOn:
    """Tell what programs for a target would run on in this process."""
    return _unsaid(str(target), RunsOn(default_num_threads(), cpu_name(Target(target))))


@lru_cache(maxsize=1024)
def _unsaid(text: str, has: RunsOn) -> RunsOn:
    """Leave of what a machine has what a target does not say."""
    kind, options = target_options(text)
    if kind not in _COMPILED_FOR_A_TRIPLE:
        return RunsOn()
    named = options.get("mcpu", _SAYS_NOTHING["mcpu"]) != _SAYS_NOTHING["mcpu"]
    return RunsOn(None if "num-cores" in options else has.cores, None if named else has.cpu or None)


def other_conditions(recorded: AnyTask, target: Target | str, machine: RunsOn = ANYTHING) -> str:
    """
    Say under which other conditions a record was measured than those that are asked for.

    Parameters
    ----------
    recorded
        Task of the record.
    target, machine
        The conditions that are asked for. What `machine` or the record leaves unsaid is any.

    Returns
    -------
    str
        "for the target llvm -num-cores=2", "with 2 cores on the CPU znver4"; empty if the record's time
        counts.
    """
    text = target_text(recorded)
    if target_group(text) != target_group(str(target)):
        return f"for the target {text}"
    return machine.differs(runs_on(recorded))


def _facts(text: str) -> tuple[str, dict[str, str]]:
    """Return the kind of a target and the options that are compared."""
    kind, options = target_options(text)
    facts: dict[str, str] = {
        name: options[name]
        for name in _COMPARED
        if name in options and options[name] != _SAYS_NOTHING.get(name)
    }
    if "mattr" in facts:
        facts["mattr"] = ",".join(sorted(facts["mattr"].split(",")))
    if kind in _COMPILED_FOR_A_TRIPLE:
        facts["architecture"] = architecture_of(options.get("mtriple"))
    return kind, facts


def target_options(text: str) -> tuple[str, dict[str, str]]:
    """Split a target's text into its kind and its options as they stand there, whatever they are."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    options: dict[str, str] = {}
    last = ""
    for word in words[1:]:
        if word.startswith("-"):
            last, _, value = word.lstrip("-").partition("=")
            options[last] = value
        elif not options.get(last, "-"):  # `-name value`
            options[last] = word
    return (words[0] if words else ""), options
