"""Arrays that are just as described are bound as `bind` does it; nothing else is bound without it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.dtypes import DTYPES
from ansor.errors import ArgumentError
from ansor.runtime.arguments import bind
from ansor.runtime.plain_call import PlainCall
from ansor.runtime.signature import Argument
from tests.runtime_kernels import axpy, scale


def add(shape: tuple[int, ...] = (3, 4), dtype: str = "float32") -> ansor.Module:
    """C = A + B and D = A - B, of constant shape."""
    a, b = te.placeholder(shape, dtype, name="A"), te.placeholder(shape, dtype, name="B")
    c = te.compute(shape, lambda *i: a[i] + b[i], name="C")
    d = te.compute(shape, lambda *i: a[i] - b[i], name="D")
    return ansor.build(te.create_schedule([c, d]), [a, b, c, d], name="both")


def candidates() -> list[object]:
    """What a caller might pass for a float32 array of shape (3, 4): three that fit, others of every kind."""
    whole = np.arange(24, dtype=np.float32)
    fits, frozen = np.zeros((3, 4), np.float32), np.zeros((3, 4), np.float32)
    frozen.flags.writeable = False
    return [
        fits,
        whole[:12].reshape(3, 4),
        whole[6:18].reshape(3, 4),  # shares memory with the one before
        frozen,
        fits.view(np.recarray),
        np.zeros((4, 3), np.float32).T,
        np.zeros((3, 8), np.float32)[:, ::2],
        np.zeros(49, np.uint8)[1:].view(np.float32).reshape(3, 4),
        np.zeros((3, 4)),
        np.zeros((3, 4), ">f4"),
        np.zeros((4, 3), np.float32),
        np.zeros(12, np.float32),
        np.float32(1),
        [[0.0] * 4] * 3,
        None,
    ]


@pytest.mark.parametrize("count", [2, 4])
def test_what_is_bound_is_what_bind_binds(count: int) -> None:
    signature = add().signature
    plain = PlainCall.of(signature)
    assert plain is not None
    rest = [np.zeros((3, 4), np.float32) for _ in range(count - 2)]
    taken = 0
    for values in product(candidates(), repeat=2):
        for given in [(*values, *rest), (*rest, *values)] if rest else [values]:
            found = plain.bind(given)
            if found is None:
                continue
            addresses, outputs = found
            expected = bind(signature, given)
            taken += 1
            assert len(addresses) == 4
            assert tuple(addresses[:count]) == expected.addresses[:count]
            assert [x.shape for x in outputs] == [x.shape for x in expected.outputs]
            assert [x.ctypes.data for x in outputs] == addresses[count:]
    # Three fit; as outputs no array twice, nor two that share memory.
    assert taken == (9 if count == 2 else 9 + 4)


def test_outputs_begin_elsewhere_in_a_page_than_inputs_and_each_other() -> None:
    """As those that `bind` makes."""
    shape = (64, 64)
    kernel = add(shape)
    plain = PlainCall.of(kernel.signature)
    assert plain is not None
    inputs = [ansor.aligned_empty(shape, "float32") for _ in range(2)]
    found = plain.bind(inputs)
    assert found is not None
    in_page = [address % 4096 for address in found[0]]
    assert in_page == [address % 4096 for address in bind(kernel.signature, inputs).addresses]
    assert len(set(in_page[1:])) == 3


def test_numbers_of_arguments_that_do_not_fit_are_left_to_bind() -> None:
    plain = PlainCall.of(add().signature)
    assert plain is not None
    x = np.zeros((3, 4), np.float32)
    assert [plain.bind([x] * n) is None for n in range(6)] == [True, True, False, True, True, True]


def test_symbolic_sizes_are_left_to_bind() -> None:
    assert PlainCall.of(axpy().signature) is None


def test_outputs_before_inputs_are_left_to_bind() -> None:
    signature = add().signature
    first, *others = signature.arguments
    turned = type(signature)(
        signature.name, signature.symbol, (*others, first), (), signature.triple, signature.cpu
    )
    assert isinstance(first, Argument)
    assert PlainCall.of(turned) is None


def test_a_call_computes_and_explains_as_before() -> None:
    kernel = add()
    a, b = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    c, d = kernel(a, b)
    np.testing.assert_array_equal(c, a + b)
    np.testing.assert_array_equal(d, a - b)
    assert c.ctypes.data % 64 == d.ctypes.data % 64 == 0
    assert kernel(a, b, d, c) is None
    np.testing.assert_array_equal(d, a + b)
    b.flags.writeable = False
    np.testing.assert_array_equal(kernel(a, b)[1], a - b)
    with pytest.raises(ArgumentError, match=r"'C'.*shares memory with 'A'"):
        kernel(a, b, a, d)
    with pytest.raises(ArgumentError, match=r"'[CD]'.*shares memory with '[CD]'"):
        kernel(a, b, c, c)
    with pytest.raises(ArgumentError, match=r"'B'.*dimension 0 must be 3"):
        kernel(a, np.zeros((4, 4), np.float32))
    with pytest.raises(ArgumentError, match="has no size 'n'"):
        kernel(a, b, sizes={"n": 3})


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_plain(dtype: str) -> None:
    kernel = scale(dtype, (3, 2))
    plain = PlainCall.of(kernel.signature)
    assert plain is not None
    x = np.zeros((3, 2), np.uint8).astype(ansor.dtypes.to_numpy(dtype))
    assert plain.bind([x]) is not None
    assert plain.bind([x[:0]]) is None
