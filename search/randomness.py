"""Where a round's randomness comes from."""

import hashlib

import numpy as np

from ansor.task.task import Task


def round_rng(seed: int, task: Task, round_index: int) -> np.random.Generator:
    """
    Start the generator of one round: a function of its three arguments, so nothing random outlives a round.

    The task enters by the structure of its computation and its target; renaming an operator changes nothing.
    """
    text = f"{task.compute_dag.structure_hash}\n{task.target}"
    word = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
    return np.random.default_rng(np.random.SeedSequence([seed, word, round_index]))
