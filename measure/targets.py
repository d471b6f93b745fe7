"""Targets of a log's lines: which of them are one, and where a program for another may serve.

Two questions are asked of two targets. *May a program for the one serve on the other?* (`same_target`.) It
may if it is good and legal there as far as one can tell: the kind is the same, the CPU or GPU model where
both name one, and of a CPU the architecture. A CPU target without a triple is this machine's: that is what it
compiles for. *Do times for the one count for the other?* (`target_group`.) They do if all that is equal, what
only one of them names included, and the cores and limits asked for. Targets that name no number of cores are
for those that a machine has, or was told to use: of these the record tells, and times with other numbers do
not count for each other (`other_conditions`). Keys and the rest of a triple differ between versions without
meaning another target, so they are never compared.

Source: `load_best_record` of TVM 0.16.
"""

from __future__ import annotations

import shlex
from functools import lru_cache
from typing import Final

from ansor.task.isa import architecture_of
from ansor.task.target import UNSAID_ARCH, Target
from measure.record import AnyTask, LoggedTask

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


def cores_of(task: AnyTask) -> int | None:
    """Cores that programs of a task used on a CPU whose target names no number; None where nothing tells."""
    if not _is_silent(target_text(task)):
        return None
    if isinstance(task, LoggedTask):
        return task.hardware[0] if task.hardware else None
    return task.hardware_params.num_cores


@lru_cache(maxsize=1024)
def _is_silent(text: str) -> bool:
    """Whether a target is a CPU and names no number of cores."""
    kind, options = target_options(text)
    return kind in _COMPILED_FOR_A_TRIPLE and "num-cores" not in options


def other_conditions(recorded: AnyTask, target: Target | str, num_cores: int | None = None) -> str:
    """
    Say under which other conditions a record was measured than those that are asked for.

    Parameters
    ----------
    recorded
        Task of the record.
    target, num_cores
        The conditions that are asked for; `num_cores` counts where `target` names none. None, there or in the
        record, is any.

    Returns
    -------
    str
        "for the target llvm -num-cores=2", "with 2 cores"; empty if the record's time counts.
    """
    text = target_text(recorded)
    if target_group(text) != target_group(str(target)):
        return f"for the target {text}"
    cores = cores_of(recorded)
    if cores is None or num_cores is None or cores == num_cores:
        return ""
    return f"with {cores} core{'' if cores == 1 else 's'}"


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
