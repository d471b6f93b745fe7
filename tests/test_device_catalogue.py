"""Every workload of the catalogue, of random small sizes: programs of all sketches are right on a device."""

from __future__ import annotations

import pytest

from ansor.workloads import CATALOGUE
from tests.device_kernels import each_device
from tests.device_laws import case_of_seed

BLOCKS = 3


@each_device
@pytest.mark.parametrize("block", range(BLOCKS))
def test_sampled_programs_compute_what_the_catalogue_says(kind: str, block: int) -> None:
    """One of each sketch; `python -m experiments.fuzz --target opencl` runs more."""
    for seed in range(block, len(CATALOGUE), BLOCKS):
        case, ran = case_of_seed(seed), 0
        try:
            for space in case.spaces:
                for state in case.programs(space, 1):
                    case.check(state, kind)
                    ran += 1
        except Exception as error:
            error.add_note(f"seed {seed}: {case.name}")
            raise
        assert ran == len(case.spaces), case.name


def test_a_seed_is_a_workload_of_random_sizes() -> None:
    """The same one again, and another one a round of the catalogue later."""
    rounds = [
        [case_of_seed(seed + first) for seed in range(len(CATALOGUE))] for first in (0, 0, len(CATALOGUE))
    ]
    assert [case.workload for case in rounds[0]] == list(CATALOGUE)
    assert [case.name for case in rounds[0]] == [case.name for case in rounds[1]]
    assert all(mine.name != other.name for mine, other in zip(rounds[0], rounds[2], strict=True))
