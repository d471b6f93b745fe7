"""Lanes of several vectors brought into the order of memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ansor.codegen.llvm.text import Value
from ansor.codegen.llvm.vectors import Vectors


def interleaved(v: Vectors, values: list[Value]) -> Iterator[Value]:
    """Lane 0 of all values side by side, then lane 1 of all, and so on, in as many vectors; at least two."""
    (first, second, *others), lanes = values, values[0].lanes
    for part in range(len(values)):
        places = [divmod(part * lanes + place, len(values)) for place in range(lanes)]  # lane, which value
        result = v.permuted(first, second, [lane + lanes * (which == 1) for lane, which in places])
        for number, value in enumerate(others, 2):
            chosen = [lanes + lane if which == number else kept for kept, (lane, which) in enumerate(places)]
            result = v.permuted(result, value, chosen)
        yield result


def turned(v: Vectors, values: list[Value]) -> list[Value]:
    """For each lane of some vectors, no more than lanes, a vector that begins with its elements.

    Interleaving each vector of the first half with its partner in the second one moves the first binary digit
    of an element's number behind the last. Once for each digit that tells vectors apart, and those that tell
    lanes come first.
    """
    lanes, bits = values[0].lanes, (len(values) - 1).bit_length()
    width = 1 << bits
    found = values + [replace(values[0], text="poison")] * (width - len(values))
    for _ in range(bits):
        pairs = list(zip(found[: width // 2], found[width // 2 :], strict=True))
        found = [
            v.permuted(a, b, [start + at // 2 + lanes * (at % 2) for at in range(lanes)])
            for a, b in pairs
            for start in (0, lanes // 2)
        ]
    return [
        v.permuted(vector, vector, range(start, start + width))
        for vector in found
        for start in range(0, lanes, width)
    ]
