"""Timing in turn: the order of rounds, what is done again, pauses."""

import threading
import time

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
