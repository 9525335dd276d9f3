"""Figures: vectors, the same file each time, their numbers as CSV beside them.

Also for report/style.py and report/alignment.py.
"""

import csv
import re

import numpy as np
import pytest

from hf_nmt_interp.analysis.alignment import WordAlignment
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.report.alignment import plot_alignment
from hf_nmt_interp.report.style import (
    DASHES,
    HATCHES,
    PALETTE,
    bars,
    legend_below,
    line_styles,
    panel_lines,
    panels,
    save,
)


def alignment(source: str, target: str, links: set[tuple[int, int]]) -> WordAlignment:
    words = source.split(), target.split()
    scores = np.zeros((len(words[1]), len(words[0])))
    for i, j in links:
        scores[j, i] = 1
    return WordAlignment(*words, target, scores, links)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return float(
        np.dot([0.2126, 0.7152, 0.0722], [c / 12.92 if c < 0.04 else ((c + 0.055) / 1.055) ** 2.4 for c in parts])
    )


def test_lines_and_bars_are_told_apart_without_colours():
    assert len({style["linestyle"] for style in line_styles(4)}) == 4 == len(DASHES)
    many = [np.dot([0.2126, 0.7152, 0.0722], style["color"][:3]) for style in line_styles(9)]
    assert many == sorted(many)  # from dark to light
    figure, axes = panels(1, 1)
    bars(axes[0, 0], [(str(n), [1.0, None]) for n in range(4)], ["a", "b"])
    assert {patch.get_hatch() for patch in axes[0, 0].patches} == set(HATCHES)
    assert [patch.get_height() for patch in axes[0, 0].patches[:2]] == [1, 0]
    legend_below(figure, axes[0, 0])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["0", "1", "2", "3"]
    assert all(luminance(colour) < 0.5 for colour in PALETTE)  # seen on white


def test_many_panels_go_below_each_other():
    figure, axes = panel_lines(2, 5)
    assert axes.shape == (2, 5)
    assert len(figure.axes) == 10  # the places that are left over are empty
    assert figure.get_size_inches().tolist() == pytest.approx([0.6 + 3 * 3.4, 0.7 + 4 * 2.6])
    assert panel_lines(1, 2)[1].shape == (1, 2)


@pytest.mark.parametrize("kind", ["svg", "pdf", "png"])
def test_the_same_figure_is_the_same_file(tmp_path, kind):
    files = []
    for name in ("one", "two"):
        figure, axes = panels(1, 2)
        axes[0, 0].plot([1, 2], [3, 4])
        save(figure, tmp_path / f"{name}.{kind}", "x,y\n1,3\n2,4\n")
        files.append((tmp_path / f"{name}.{kind}").read_bytes())
        assert (tmp_path / f"{name}.csv").read_text() == "x,y\n1,3\n2,4\n"
    assert files[0] == files[1]
    with pytest.raises(
        InputError, match=r"'.*curves.docx' cannot be written: Format 'docx' is not supported.*; e.g. curves.svg"
    ):
        save(figure, tmp_path / "curves.docx", "")


def test_words_are_no_formulas(tmp_path):
    words = r"$\frac$ $x$ a_b^c \alpha $"
    plot_alignment([alignment(words, words, {(0, 0)})], tmp_path / "pairs.svg")
    figure, axes = panels(1, 1)
    axes[0, 0].plot([1, 1000], [3, 4], label=r"$\frac$")
    axes[0, 0].plot([1, 1000], [4, 5], label="$x$")
    axes[0, 0].set_xscale("log")
    legend_below(figure, axes[0, 0])
    save(figure, tmp_path / "curves.svg", "")
    assert re.findall(r"<!-- (.*) -->", (tmp_path / "pairs.svg").read_text()) == 2 * words.split() + ["found"]
    drawn = re.findall(r"<!-- (.*) -->", (tmp_path / "curves.svg").read_text())
    assert drawn[-2:] == [r"$\frac$", "$x$"]
    assert r"$\mathdefault{10^{2}}$" in drawn  # numbers of a log scale are


def test_alignment_matrices(tmp_path):
    found = [alignment("a red car", "ein rotes Auto", {(0, 0), (1, 1), (2, 1)}), alignment("tea", "", set())]
    plot_alignment(found, tmp_path / "pairs.svg", sure=[{(0, 0), (2, 2)}, set()], possible=[{(1, 1), (2, 2)}, set()])
    text = (tmp_path / "pairs.svg").read_text()
    assert len(re.findall(r"stroke-dasharray", text)) == 2  # one link is only possible, and the legend says so
    rows = list(csv.DictReader((tmp_path / "pairs.csv").open()))
    assert len(rows) == 9
    gold = {(row["source_word"], row["target_word"]): row["gold"] for row in rows if row["gold"]}
    assert gold == {("a", "ein"): "sure", ("red", "rotes"): "possible", ("car", "Auto"): "sure"}
    assert [float(row["p"]) for row in rows[3:6]] == [0, 0.5, 0.5]
    assert [row["found"] for row in rows[3:6]] == ["False", "True", "True"]
    plot_alignment(found[:1], tmp_path / "nogold.pdf")
    with pytest.raises(InputError, match="sure: 1 sets of links for 2 sentence pairs"):
        plot_alignment(found, tmp_path / "x.svg", sure=[set()])
    with pytest.raises(InputError, match="alignments: there is nothing to draw"):
        plot_alignment([], tmp_path / "x.svg")
