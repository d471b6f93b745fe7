"""Names that are told apart by numbers, in programs that are shown and compiled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansor.numbered import NumberedNames

NAMES = st.lists(st.sampled_from(["x", "x_1", "x_2", "x_1_1", "y"]), max_size=30)


@given(NAMES, NAMES, NAMES)
def test_each_has_the_least_number_that_is_free(taken: list[str], first: list[str], later: list[str]) -> None:
    names, used = NumberedNames(taken), set(taken)

    def check(wanted: str, names: NumberedNames, used: set[str]) -> None:
        numbers = (wanted if number == 0 else f"{wanted}_{number}" for number in range(100))
        expected = next(name for name in numbers if name not in used)
        assert names.fresh(wanted) == expected
        used.add(expected)

    for wanted in first:
        check(wanted, names, used)
    copied, copied_used = names.copy(), set(used)
    copied.take(later)
    copied_used.update(later)
    for wanted in first:
        check(wanted, copied, copied_used)
    for wanted in later:
        check(wanted, names, used)


@pytest.mark.timeout(20)
def test_very_many_that_would_be_called_the_same() -> None:
    names = NumberedNames()
    assert [names.fresh("t") for _ in range(100_000)][-1] == "t_99999"
