"""Bars and estimates of long work, on a terminal of our own."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.studies.contribution_study import contribution_study
from hf_nmt_interp.text import progress
from hf_nmt_interp.text.progress import counting, estimate, progress_bars, track


@pytest.fixture
def terminal(monkeypatch):
    """What a terminal of 100 columns shows; loops are shown at once, and all work counts as long."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=100, force_jupyter=False)
    monkeypatch.setattr("rich.console.Console", lambda **options: console)
    monkeypatch.setattr(progress, "_SOON", -1)
    monkeypatch.setattr(progress, "_LONG", 0)
    return written


def test_loops_inside_of_loops_are_shown(terminal):
    with progress_bars():
        for _ in track([[1, 2], [3]], "Outer"):
            assert list(track("ab", "Inner")) == ["a", "b"]
            progress._Screen.bars.refresh()
    shown = terminal.getvalue()
    assert "Outer" in shown
    assert "2/3" in shown
    assert "Inner" in shown
    assert progress._Screen.bars is progress._Screen.console is None


def test_nothing_is_shown_elsewhere(terminal, capsys):
    assert list(track([1], "Loop")) == [1]
    estimate("slow", lambda: pytest.fail("nobody is shown the time"), 1000)
    assert terminal.getvalue() == capsys.readouterr().err == ""


def test_quick_loops_are_not_shown(terminal, monkeypatch):
    monkeypatch.setattr(progress, "_SOON", 60)
    with progress_bars(), counting("Quick", 3) as advance:
        advance(1)
        progress._Screen.bars.refresh()
    assert "Quick" not in terminal.getvalue()


def test_an_error_ends_the_bars(terminal):
    loop = track([1, 2], "Loop")
    with pytest.raises(ZeroDivisionError), progress_bars():
        next(loop) / 0
    assert progress._Screen.bars is None


def test_the_time_of_slow_work_is_told_before_it_starts(terminal, monkeypatch):
    clock = iter([0, 3, 10, 10.06])  # the first time has preparations in it
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with progress_bars():
        estimate("smoothgrad", int, 2000)
        for _ in track([1], "Loop"):
            estimate("inside", int, 2000)
        estimate("few", int, 3)
    assert next(clock, None) is None
    assert "smoothgrad: about 2 min for 2,000 sentences" in terminal.getvalue()
    assert "inside:" not in terminal.getvalue()


def test_an_estimate_does_not_report_errors(terminal):
    def refuse():
        raise InputError("sources", None, "has no words", row=0)

    with progress_bars():
        estimate("lrp", refuse, 100)
    assert "about" not in terminal.getvalue()


def test_a_study_of_contributions_tells_its_time_before_it_starts(terminal, translator_of):
    model, tokenizer = translator_of("marian")
    pairs = ["A dog sleeps."] * 4, ["Ein Hund schläft."] * 4
    with progress_bars():
        contribution_study({"a": model, "b": lambda: model}, tokenizer, *pairs, method="alti")
    shown = terminal.getvalue()
    assert "alti: about" in shown
    assert "for 8 sentences" in shown
    assert shown.index("about") < shown.index("Studying")
