"""The bench says that a bar holds or is missed only where its rounds say so."""

from __future__ import annotations

import pytest
from bench import child
from bench.figures import Figure, costs, merged, milliseconds, ratio
from bench.timing import spent


@pytest.mark.parametrize(
    ("rounds", "verdict"),
    [
        ([1.0, 1.1, 1.2, 1.3, 1.4], "holds"),
        ([2.1, 2.2, 2.3, 2.4, 2.5], "missed"),
        ([1.0, 1.5, 1.9, 2.2, 2.6], "too noisy to say"),  # though its median is below the bar
        ([1.0, 1.1, 1.2, 1.3, 90.0], "holds"),  # one round that was disturbed decides nothing
    ],
)
def test_a_bar_within_the_middle_half_is_neither_held_nor_missed(
    rounds: list[float], verdict: str
) -> None:
    assert ratio("g: x", rounds, [1.0] * len(rounds), at_most=2).verdict == verdict
    turned = [-value for value in rounds]
    assert ratio("g: x", turned, [1.0] * len(rounds), at_least=-2).verdict == verdict


def test_a_single_value_is_judged_by_itself() -> None:
    assert Figure("g: x", 3, "MB", 3).verdict == "holds"
    assert Figure("g: x", 4, "MB", 3).verdict == "missed"
    assert Figure("g: x", 4, "MB").verdict is None


def test_noise_within_a_run_goes_down_when_it_is_measured_again() -> None:
    noisy = [0.008, 0.012, 0.010] * 7
    once = milliseconds("g: x", noisy)
    (thrice,) = merged(merged([once], [once]), [once])
    assert once.middle_half == (8, 12)
    assert thrice.middle_half == (10, 10)
    assert thrice.value == once.value


def test_a_difference_between_runs_is_still_seen() -> None:
    runs = [milliseconds("g: x", [value] * 9, at_most=0.011) for value in (0.008, 0.010, 0.012)]
    (figure,) = merged(merged(runs[:1], runs[1:2]), runs[2:])
    assert figure.middle_half is not None
    lower, upper = figure.middle_half
    assert lower < 10 < upper


def test_figures_of_one_value_get_a_spread_when_they_are_measured_again() -> None:
    first, second, third = (Figure("g: x", value, "MB", 3) for value in (2.0, 2.5, 2.2))
    (figure,) = merged(merged([first], [second]), [third])
    assert (figure.value, figure.verdict) == (2.2, "holds")
    assert figure.middle_half is not None


def test_what_was_written_is_counted_for_each_operation(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "file"
    found = spent(4, lambda: [file.write_bytes(b"x" * 10_000) for _ in range(4)])
    names = [figure.name for figure in costs("g: x", [found])]
    if found.written_bytes is None:
        assert names == ["g: x", "g: x, processor time"]
    else:
        # Whole pages on a disk, nothing in memory.
        assert found.written_bytes == 0 or 10_000 <= found.written_bytes <= 65_536
        assert names == ["g: x", "g: x, processor time", "g: x, written"]


def test_the_memory_of_a_child_is_not_that_of_its_parent() -> None:
    ballast = bytearray(150_000_000)
    ballast[::4096] = bytes([1]) * len(range(0, len(ballast), 4096))
    small, large = child.run("print(1)"), child.run("x = b'1' * 50_000_000; print(2)")
    assert (small.numbers, large.numbers) == ([1], [2])
    assert small.peak_megabytes < 50 < large.peak_megabytes < 150
    del ballast
