"""Colour conversion of a full-HD image three ways: as defined, scheduled by hand, and tuned.

    python -m experiments.rgb_to_yuv --trials 64

A real user's program: each pixel of an interleaved image becomes three weighted sums of its red, green and
blue. The same program, under its default schedule, one written by hand (fuse, split, parallel, vectorize,
unroll), and the best one that tuning finds, is checked against numpy and timed in turn.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt

import ansor
from ansor import te
from experiments import command
from experiments.harness import OUT, machine, positive_number, speedup
from experiments.search.runs import whole
from experiments.turns import interleave

Array = npt.NDArray[np.float32]
YUV = ((0.299, 0.587, 0.114), (-0.14713, -0.28886, 0.436), (0.615, -0.51499, -0.10001))
"""Rows Y, U, V; columns R, G, B (ITU-R BT.601, analogue)."""


@ansor.register_workload
def rgb_to_yuv_image(height: int, width: int) -> list[te.Tensor]:
    """Define the image Y, U, V of an image R, G, B, shape (height, width, 3)."""
    rgb = te.placeholder((height, width, 3), name="rgb")

    def weights(channel: te.Expr, source: int) -> te.Expr:
        y, u, v = (te.const(row[source], "float32") for row in YUV)
        return te.select(channel == 0, y, te.select(channel == 1, u, v))

    yuv = te.compute(
        (height, width, 3),
        lambda y, x, c: (
            rgb[y, x, 0] * weights(c, 0) + rgb[y, x, 1] * weights(c, 1) + rgb[y, x, 2] * weights(c, 2)
        ),
        name="yuv",
    )
    return [rgb, yuv]


def reference(rgb: Array) -> Array:
    """What numpy computes."""
    return rgb @ np.array(YUV, np.float32).T


def default_schedule(height: int, width: int) -> tuple[ansor.Schedule, list[te.Tensor]]:
    """Three loops, one after another."""
    args = rgb_to_yuv_image(height, width)
    return te.create_schedule(args[-1]), args


def hand_schedule(
    height: int, width: int, pixels: int = 16, blocks: int = 32
) -> tuple[ansor.Schedule, list[te.Tensor]]:
    """Blocks of pixels on threads, `pixels` of one channel in the lanes of a vector, channels unrolled."""
    args = rgb_to_yuv_image(height, width)
    yuv = args[-1]
    s = te.create_schedule(yuv)
    y, x, channel = yuv.op.axis
    image = s[yuv].fuse(y, x)
    image, inner = s[yuv].split(image, factor=pixels)
    block, group = s[yuv].split(image, nparts=blocks)
    s[yuv].reorder(block, group, channel, inner)
    s[yuv].parallel(block)
    s[yuv].unroll(channel)
    s[yuv].vectorize(inner)
    return s, args


def tuned_schedule(
    height: int, width: int, trials: int, log: Path, verbose: int = 1
) -> tuple[ansor.Schedule, list[te.Tensor]]:
    """The best of `trials` new programs and of what the log already holds."""
    log.parent.mkdir(parents=True, exist_ok=True)
    task = ansor.SearchTask(rgb_to_yuv_image, (height, width), target="llvm")
    options = ansor.TuningOptions(
        num_measure_trials=trials, measure_callbacks=[ansor.RecordToFile(log)], verbose=verbose
    )
    whole(task.tune(options))
    return task.apply_best(log)


def checked_kernel(name: str, schedule: ansor.Schedule, args: list[te.Tensor], rgb: Array) -> ansor.Module:
    """The compiled program.

    Raises
    ------
    AssertionError
        If it does not compute what numpy does.
    """
    kernel = ansor.build(schedule, args, target="llvm", name=f"rgb_to_yuv_{name}")
    np.testing.assert_allclose(kernel(rgb), reference(rgb), rtol=1e-3, atol=1e-5)
    return kernel


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=positive_number, default=1920)
    parser.add_argument("--height", type=positive_number, default=1080)
    parser.add_argument("--trials", type=positive_number, default=64, help="programs to measure")
    parser.add_argument("--log", type=Path, help="the tuning log")
    arguments = parser.parse_args(argv)
    height, width = arguments.height, arguments.width
    log = arguments.log or OUT / f"rgb_to_yuv-{width}x{height}.json"

    rgb = np.random.default_rng(0).uniform(size=(height, width, 3)).astype(np.float32)
    schedules = {
        "default": default_schedule(height, width),
        "by hand": hand_schedule(height, width),
        "tuned": tuned_schedule(height, width, arguments.trials, log),
    }
    out = np.empty_like(rgb)
    calls = {"numpy": lambda: np.matmul(rgb, np.array(YUV, np.float32).T, out=out)}
    for name, (schedule, args) in schedules.items():
        print(f"--- {name}\n\n{ansor.lower(schedule, args, simple_mode=True)}\n")
        kernel = checked_kernel(name.replace(" ", "_"), schedule, args, rgb)
        calls[name] = lambda kernel=kernel: kernel(rgb, out)  # type: ignore[misc]

    times = interleave(calls)
    megabytes = 2 * rgb.nbytes / 1e6
    print(f"--- {width} x {height} pixels on {machine()}, timed in turn\n")
    for name, seconds in times.items():
        ratio = speedup(seconds, times["default"])
        print(
            f"{name:8} {median(seconds) * 1e3:8.3f} ms  {megabytes / 1e3 / median(seconds):6.1f} GB/s  "
            f"{ratio.median:6.2f} x default ({ratio.low:.2f} .. {ratio.high:.2f})"
        )
    print(f"\nlog: {log}")
    return 0


if __name__ == "__main__":
    command.run(main)
