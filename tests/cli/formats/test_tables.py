"""Tables: their columns, texts that are too wide, and how long many rows take."""

import time

import pytest

from policyd.cli.formats.tables import table_lines

NAMES = ("NAME", "COUNT", "WHERE")


def lines(*rows):
    return table_lines(NAMES, rows, numbers=("COUNT",))


def test_columns_are_as_wide_as_their_widest_text_and_numbers_are_to_the_right():
    assert lines(("a", "7", "here"), ("漢字", "1000", "")) == [
        "NAME  COUNT  WHERE",
        "a         7  here",
        "漢字   1000",
    ]


def test_texts_are_shown_as_they_are():
    assert lines(("100%s", "%d", ""), ("é%", "{}", ""))[1:] == ["100%s     %d", "é%        {}"]


def test_a_table_without_rows_names_its_columns():
    assert lines() == ["NAME  COUNT  WHERE"]


@pytest.mark.parametrize(
    ("row", "found"),
    [
        pytest.param(
            ("a", "1", "x" * 30), ["a         1  " + "x" * 17, " " * 13 + "x" * 13], id="wide"
        ),
        pytest.param(("a", "1", "x\ny"), ["a         1  x", "             y"], id="lines"),
    ],
)
def test_a_text_that_does_not_fit_goes_on_below(row, found, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")

    assert lines(row)[1:] == found


def test_ten_thousand_rows_take_no_second():
    row = ("team-a/Job/train", "1000", "8 nvidia.com/gpu, 16 cpu, 128Gi memory")
    began = time.process_time()
    shown = lines(*[row] * 10_000)

    assert time.process_time() - began < 1
    assert len(shown) == 10_001
