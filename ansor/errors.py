"""Every error class of ansor, in one tree.

Expected errors (`ScheduleError`, `BuildError`, `RunError` and its kin) are what a search catches and counts;
everything else is either a mistake in the user's input (`DefinitionError`, `LogFormatError`, `TargetError`)
or a bug in ansor (`LoweringError`) and stops the run. Messages say what was asked, what was found, and what
to do.
"""


class AnsorError(Exception):
    """Base of all errors raised on purpose by ansor."""


class DefinitionError(AnsorError, ValueError):
    """A tensor expression, workload or task is defined wrongly by its author."""


class TargetError(AnsorError, ValueError):
    """A target string or hardware description cannot be used."""


class NoDeviceError(TargetError):
    """There is no device for a target, it cannot be opened, or no library to reach it by is installed."""


class ScheduleError(AnsorError, ValueError):
    """A transform step does not apply to the state it was given; a search prunes and counts it."""


class LoweringError(AnsorError):
    """A legal schedule could not be lowered: a bug in ansor, never caught by a search."""


class ArgumentError(AnsorError, TypeError, ValueError):
    """An array handed to a compiled module has the wrong shape, dtype, layout or device."""


class BuildError(AnsorError):
    """A lowered program could not be compiled, linked or exported."""


class RunError(AnsorError):
    """A compiled program failed while running."""


class WrongAnswerError(RunError):
    """A compiled program ran but broke its contract: wrong values, or memory it must not touch."""


class MeasureTimeoutError(AnsorError):
    """Building or running took longer than its limit."""


class LogWriteError(AnsorError, OSError):
    """A measurement could not be appended to a log (disk full, no permission); the log is unchanged."""


class LogFormatError(AnsorError, ValueError):
    """A tuning log holds a line that cannot be understood; the message carries path and line number."""
