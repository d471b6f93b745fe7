"""Binding arrays that are just as a function describes them: the common case, in a fraction of the time.

`ansor.runtime.arguments` explains what is wrong with an argument, views foreign arrays and deduces sizes,
which takes longer than a small kernel does. What is bound here would be bound there in the same way;
everything else is left to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ansor.alignment import address_of
from ansor.dtypes import to_numpy
from ansor.runtime.arguments import allocate_host
from ansor.runtime.signature import Argument, Signature

Array = NDArray[Any]


class Form(NamedTuple):
    """What an array must look like, for which argument."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    argument: Argument

    @classmethod
    def of(cls, argument: Argument) -> Form:
        return cls(to_numpy(argument.dtype), cast("tuple[int, ...]", argument.shape), argument)


@dataclass(frozen=True, slots=True)
class PlainCall:
    """
    The arguments of a function without symbolic sizes, its outputs the last of them.

    Attributes
    ----------
    signature
        The function's.
    forms
        Of all arguments.
    inputs
        How many of them are inputs.
    apart
        Positions of an output and another argument, which may not share memory, and the bytes of each.
    """

    signature: Signature
    forms: tuple[Form, ...]
    inputs: int
    apart: tuple[tuple[int, int, int, int], ...]

    @classmethod
    def of(cls, signature: Signature) -> PlainCall | None:
        """Prepare to compare arrays with a signature; None if it is of another kind."""
        inputs = len(signature.inputs)
        if signature.sizes or signature.arguments[:inputs] != signature.inputs:
            return None
        forms = tuple(map(Form.of, signature.arguments))
        size = [prod(form.shape) * form.dtype.itemsize for form in forms]
        pairs = [(i, j) for i in range(inputs, len(forms)) for j in range(i)]
        return cls(signature, forms, inputs, tuple((i, j, size[i], size[j]) for i, j in pairs))

    def bind(self, values: Sequence[object]) -> tuple[list[int], tuple[Array, ...]] | None:
        """Tell the addresses of all arguments, and the outputs made here if only inputs are given.

        Returns
        -------
        tuple[list[int], tuple[Array, ...]] | None
            None unless every value is a writable array of numpy of just the right dtype and shape, and the
            outputs lie apart.
        """
        complete = len(values) == len(self.forms)
        if not complete and len(values) != self.inputs:
            return None
        addresses: list[int] = []
        for value, (dtype, shape, _) in zip(values, self.forms, strict=False):  # Inputs come first.
            if (
                type(value) is not np.ndarray
                or value.dtype != dtype
                or value.shape != shape
                or not value.flags.carray
            ):
                return None
            addresses.append(address_of(value))
        if not complete:
            arrays = cast("list[Array]", [*values])
            for form in self.forms[len(values) :]:
                arrays.append(allocate_host(self.signature, form.argument, form.shape, arrays))
                addresses.append(address_of(arrays[-1]))
            return addresses, tuple(arrays[len(values) :])
        for i, j, size, other in self.apart:
            if addresses[i] < addresses[j] + other and addresses[j] < addresses[i] + size:
                return None
        return addresses, ()
