"""`collector_paused`: the collector of cycles rests inside, and is what it was afterwards."""

import gc

import pytest

from ansor.collector import collector_paused


def test_the_collector_rests_inside_and_runs_afterwards():
    with collector_paused():
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_does_not_leave_the_collector_off():
    with pytest.raises(KeyError), collector_paused():
        raise KeyError
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
