"""What messages of several rooms say alike."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """Write a number of things: "1 trial", "3 trials"."""
    return f"{number} {what}{'' if number == 1 else 's'}"
