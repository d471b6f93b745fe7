"""Colour conversion as its user writes it: default schedule, hand schedule, tuned; on small images."""

import numpy as np
import pytest

import ansor
from experiments import rgb_to_yuv


def image(height, width):
    return np.random.default_rng(1).uniform(size=(height, width, 3)).astype(np.float32)


def check(schedule, args, height, width):
    kernel = rgb_to_yuv.checked_kernel("test", schedule, args, image(height, width))
    assert kernel.entry_name == "rgb_to_yuv_test"


@pytest.mark.parametrize(("height", "width"), [(1, 1), (5, 7), (9, 64)])
def test_the_default_schedule(height, width):
    schedule, args = rgb_to_yuv.default_schedule(height, width)

    check(schedule, args, height, width)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (5, 7), (9, 64), (16, 48)])
@pytest.mark.parametrize("pixels", [4, 16])
def test_the_hand_schedule_serves_every_size(height, width, pixels):
    schedule, args = rgb_to_yuv.hand_schedule(height, width, pixels, blocks=4)

    check(schedule, args, height, width)


def test_the_hand_schedule_at_full_size():
    """No guard is left: the pixels of 1920 x 1080 divide by 16 and by 32 blocks."""
    schedule, args = rgb_to_yuv.hand_schedule(1080, 1920)
    text = str(ansor.lower(schedule, args, simple_mode=True))

    assert [line.split(" in ")[1] for line in text.splitlines() if line.endswith(":")] == [
        "0..32:",
        "0..4050:",
        "0..3:",
        "0..16:",
    ]
    assert "parallel" in text
    assert "unroll c" in text
    assert "if " not in text


def test_tuning_writes_a_log_and_gives_a_right_program(tmp_path):
    log = tmp_path / "rgb.json"
    schedule, args = rgb_to_yuv.tuned_schedule(16, 32, trials=2, log=log, verbose=0)

    assert log.read_text().count("\n") >= 1
    check(schedule, args, 16, 32)


def test_the_whole_comparison_runs(tmp_path, capsys):
    log = str(tmp_path / "small.json")
    assert rgb_to_yuv.main(["--width", "32", "--height", "16", "--trials", "1", "--log", log]) == 0
    shown = capsys.readouterr().out
    for name in ("numpy", "default", "by hand", "tuned"):
        assert f"\n{name:8} " in shown
