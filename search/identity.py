"""When two programs are the same, and where a round's randomness comes from."""

import hashlib

import numpy as np

from ansor.schedule.state import State
from ansor.task.task import Task


def program_key(state: State) -> str:
    """
    Digest of a program: equal keys, equal programs.

    It covers the printed loops with all extents filled, and the steps of ours, whose effect on storage the
    loops do not show.
    """
    ours = "".join(f"\n{step.to_json()}" for step in state.steps if not step.in_reference)
    return hashlib.blake2b(f"{state.with_bounds()}{ours}".encode(), digest_size=16).hexdigest()


def round_rng(seed: int, task: Task, round_index: int) -> np.random.Generator:
    """
    Start the generator of one round: a function of its three arguments, so nothing random outlives a round.

    The task enters by the structure of its computation and its target; renaming an operator changes nothing.
    """
    text = f"{task.compute_dag.structure_hash}\n{task.target}"
    word = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
    return np.random.default_rng(np.random.SeedSequence([seed, word, round_index]))
