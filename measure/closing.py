"""What builders and runners have in common: processes and files that are released at some time."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from ansor.errors import DefinitionError


class Closing:
    """
    Something that ends with its ``with`` block; most have nothing to release, and can be used later, too.

    Attributes
    ----------
    closed
        Whether it released what it cannot do without.
    """

    closed: bool = False

    def close(self) -> None:
        """Release processes, files and other resources."""

    def check_open(self) -> None:
        """
        Refuse to be used after that.

        Raises
        ------
        DefinitionError
            If it is closed.
        """
        if self.closed:
            name = type(self).__name__
            raise DefinitionError(
                f"this {name} was closed, as the end of a with block does; use it inside of that block, or "
                f"make another {name}"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
