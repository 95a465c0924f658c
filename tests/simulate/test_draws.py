"""Numbers that stand for chance."""

import pytest

from policyd.simulate.draws import DrawnNumbers, spread


def test_each_part_has_one_number():
    numbers = spread("ns/train", 41)

    assert sorted(int(each * 41) for each in numbers) == list(range(41))


def test_the_same_name_gives_the_same_numbers():
    assert spread("ns/train", 41) == spread("ns/train", 41)
    assert spread("ns/train", 41) != spread("ns/other", 41)
    assert DrawnNumbers("a").next() == DrawnNumbers("a").next() != DrawnNumbers("b").next()


def test_names_have_nothing_to_do_with_each_other():
    rows = [spread(f"ns/job-{number}", 41) for number in range(400)]
    sums = [sum(column) / 400 for column in zip(*rows, strict=True)]
    spread_of_sums = sum((each - 0.5) ** 2 for each in sums) / 41

    assert spread_of_sums == pytest.approx(1 / 12 / 400, rel=0.6)


def test_a_sequence_is_even():
    rng = DrawnNumbers("a")
    numbers = [rng.next() for _ in range(20_000)]

    assert 0 <= min(numbers) < max(numbers) < 1
    assert sum(numbers) / 20_000 == pytest.approx(0.5, abs=0.01)
