"""Timing in turn: the order of rounds, what is done again, pauses."""

import itertools
import threading
import time

import pytest

from experiments import turns


def test_interleaving_alternates_and_drops_the_first_round() -> None:
    order: list[str] = []
    times = turns.interleave(
        {name: lambda name=name: order.append(name) for name in "ab"},
        repeats=3,
        min_seconds=0.0,
        settle_seconds=0.0,
    )  # type: ignore[misc]
    assert "".join(order) == "bbaa" + "aabb" + "bbaa" + "aabb"
    assert {name: len(values) for name, values in times.items()} == {"a": 3, "b": 3}


def test_a_timing_that_was_disturbed_is_done_again() -> None:
    """The least disturbed one counts, whatever its time is; after two more there is none."""
    clock, calls = iter([0.0, 1e12, 1e12, 1e12 + 1, 0.0, 1e12]), iter([0.5, 2.0, 0.1])
    assert turns.least_disturbed(lambda number: next(calls), 0.0, lambda: next(clock)) == 2.0
    assert list(calls) == list(clock) == []
    quiet = iter([3.0, 3.0])
    assert turns.least_disturbed(lambda number: 5.0, 0.0, lambda: next(quiet)) == 5.0
    assert turns.least_disturbed(lambda number: 5.0, 0.0, None) == 5.0


def test_a_pause_lasts_until_the_threads_of_the_process_rest() -> None:
    def spin() -> None:
        until = time.perf_counter() + 0.3
        while time.perf_counter() < until:
            pass

    start = time.perf_counter()
    thread = threading.Thread(target=spin)
    thread.start()
    turns.rest(0.05, at_most=30.0)
    assert time.perf_counter() - start >= 0.3
    assert not thread.is_alive()


def quiet_turns(monkeypatch: pytest.MonkeyPatch, *shares: float) -> turns.QuietTurns:
    """Time something twice, which takes 1, 2, 3 ... seconds in the rounds that count or may count."""
    times, told = (float(number // 2) for number in itertools.count()), iter(shares)
    monkeypatch.setattr(turns, "PATIENCE", 0.0)
    found = turns.quiet_turns(
        {"a": lambda number: next(times)}, 2, 0.0, 0.0, quiet=lambda: next(told), least=0.9
    )
    assert list(told) == []
    return found


@pytest.mark.parametrize(
    ("shares", "found"),
    [
        # Nothing is done again on a quiet machine.
        ([1.0, 0.91, 0.95], turns.QuietTurns({"a": [1, 2]}, [0.91, 0.91], 0)),
        # A round lies between two answers, one taken again has both for itself.
        ([1.0, 0.5, 1.0, 0.95, 0.99, 1.0, 1.0], turns.QuietTurns({"a": [3, 4]}, [0.95, 1.0], 2)),
        ([0.5, 1.0, 1.0, 1.0, 0.9], turns.QuietTurns({"a": [2, 3]}, [1.0, 0.9], 1)),
        # So many more rounds as were asked for, and no more.
        ([0.1, 0.1, 0.2, 0.3, 0.4, 0.2, 0.3], turns.QuietTurns({"a": [3, 4]}, [0.3, 0.2], 2)),
    ],
)
def test_rounds_that_were_disturbed_are_taken_again_and_the_quietest_count(
    shares: list[float], found: turns.QuietTurns, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert quiet_turns(monkeypatch, *shares) == found
