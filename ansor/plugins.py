"""What is passed in to be asked later: rules, mutations, models of the user's own.

An object without what it will be asked for is refused where it is given, not rounds later. What goes wrong
in it when it is asked is the author's mistake, and stays what it is, traceback included; a note says which
object it was and what was asked of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from ansor.errors import DefinitionError

GO_ON: Final = "measurements that were logged are kept: with the same log a run goes on from them"
"""What becomes of a run that such a mistake stops."""


def check_plugin(where: str, given: object, needs: Sequence[str], what: str, example: str) -> None:
    """
    Refuse what cannot be asked what it will be asked.

    Parameters
    ----------
    where
        The argument as the user wrote it, for the message.
    given
        What was given.
    needs
        Attributes that it must have.
    what, example
        What it should be, and such an object as code.

    Raises
    ------
    DefinitionError
        If it is a class, or lacks one of them.
    """
    if isinstance(given, type):
        raise DefinitionError(f"{where}={given.__name__}: it is a class; pass an object, {given.__name__}()")
    missing = [name for name in needs if not hasattr(given, name)]
    if missing:
        raise DefinitionError(
            f"{where}={brief(given)}: it is no {what}, for it has no {' and no '.join(missing)}; pass "
            f"{example}"
        )


def items_of(where: str, given: object, what: str) -> tuple[object, ...]:
    """
    Give several things back as a tuple.

    Raises
    ------
    DefinitionError
        If they are no list.
    """
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes, type)):
        raise DefinitionError(f"{where}={brief(given)}: it must be a list of {what}")
    return tuple(given)


@contextmanager
def blaming(asked: str, consequence: str = "") -> Iterator[None]:
    """Add to what is raised here who was asked for what, and what becomes of the rest."""
    try:
        yield
    except Exception as error:
        error.add_note(f"{asked} when this was raised" + (f"; {consequence}" if consequence else ""))
        raise


def brief(answer: object) -> str:
    """Show a value in at most 60 characters."""
    text = repr(answer)
    return text if len(text) <= 60 else f"{text[:57]}..."


def count_of_programs(count: int) -> str:
    """Say how many programs something was asked about."""
    return f"{count} programs" if count != 1 else "one program"
