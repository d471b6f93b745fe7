"""Asking a builder or a runner, which may be anybody's: what goes wrong in it is said with its name.

One that answers with too few results, too many, or something else is a mistake of its author, and stops the
run: results would be taken for those of other programs. What it raises stays what it is, with a note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from ansor.errors import DefinitionError
from ansor.plugins import GO_ON, blaming, brief, count_of_programs

Result = TypeVar("Result")

_END: Final = object()


def answers(
    who: object, method: str, count: int, kind: type[Result], ask: Callable[[], Iterable[Result]]
) -> Iterator[Result]:
    """
    Yield the results of a builder or a runner, each as soon as it is there.

    Parameters
    ----------
    who, method
        Who is asked, and the name of its method, for the message.
    count
        How many programs it is asked about.
    kind
        What a result is.
    ask
        Calls the method.

    Raises
    ------
    DefinitionError
        If the answer is not one result per program.
    """
    asked = f"{type(who).__name__}.{method} was asked about {count_of_programs(count)}"
    wanted = f"yield one {kind.__name__} per program, in their order; {GO_ON}"
    with blaming(asked, GO_ON):
        given: object = ask()
    if not isinstance(given, Iterable):
        raise DefinitionError(f"{asked} and returned {brief(given)}; {wanted}")
    results = iter(given)
    for number in range(count):
        with blaming(asked, GO_ON):
            result = next(results, _END)
        if result is _END:
            raise DefinitionError(f"{asked} and gave {number or 'no'} result{'s' * (number != 1)}; {wanted}")
        if not isinstance(result, kind):
            raise DefinitionError(f"{asked} and gave {brief(result)} as result {number}; {wanted}")
        yield result
    with blaming(asked, GO_ON):
        more = next(results, _END)
    if more is not _END:
        raise DefinitionError(f"{asked} and gave more results than that; {wanted}")
