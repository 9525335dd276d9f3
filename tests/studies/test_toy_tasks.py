"""Toy tasks: what they draw is what the paper says, and depends on seed and step alone."""

import numpy as np
import pytest

from hf_nmt_interp.studies.toy_tasks import COPY_TASKS, KEYWORD, LENGTH, CopyTask, draw_keyword, permutations

every_task = pytest.mark.parametrize("task", COPY_TASKS.values(), ids=list(COPY_TASKS))


def test_permutations_of_few_words_are_all_drawn_and_equally_often():
    drawn = permutations(np.random.default_rng(0), np.array([5, 7, 9]), 6000, length=2)
    kinds, counts = np.unique(drawn, axis=0, return_counts=True)
    assert kinds.tolist() == [[5, 7], [5, 9], [7, 5], [7, 9], [9, 5], [9, 7]]
    assert abs(counts - 1000).max() < 120  # four standard deviations


@every_task
def test_no_word_is_there_twice_and_none_is_new(task):
    source, target = task.draw(seed=1, step=2, number=200)
    assert source.shape == target.shape == (200, LENGTH)
    assert all(len(set(row)) == LENGTH for row in source.tolist())
    assert set(source.flat) == set(range(task.words))
    assert np.array_equal(np.sort(source), np.sort(target))


def test_which_words_are_there():
    always, some = (COPY_TASKS[name].draw(0, 0, 50)[0] for name in ("40-of-40", "40-of-60"))
    assert {frozenset(row) for row in always.tolist()} == {frozenset(range(40))}
    assert len({frozenset(row) for row in some.tolist()}) == 50
    source, _ = COPY_TASKS["mixture"].draw(0, 0, 200)
    kinds = [frozenset(row) for row in source.tolist()]
    assert set(kinds) == {frozenset(range(40)), frozenset(range(40, 80))}
    assert 70 < kinds.count(frozenset(range(40))) < 130


def test_the_order_of_the_output():
    for name in ("40-of-40", "40-of-60", "mixture", "40-of-80"):
        source, target = COPY_TASKS[name].draw(3, 4, 5)
        assert np.array_equal(source, target)
    task = COPY_TASKS["permuted"]
    for step in (0, 1):
        source, target = task.draw(3, step, 5)
        for row, wanted in zip(source, target, strict=True):
            assert [row[place] for place in task.order(3)] == wanted.tolist()  # eq. 25
    assert sorted(task.order(3)) == list(range(LENGTH))
    assert task.order(3).tolist() != task.order(4).tolist()


def test_only_seed_and_step_matter():
    def draws(seed, step):
        return [CopyTask(60).draw(seed, step, 4)[0].tolist(), draw_keyword(seed, step, 4)[0].tolist()]

    np.random.seed(7)
    first = draws(0, 5)
    np.random.seed(8)
    assert draws(0, 5) == first
    for other in (draws(1, 5), draws(0, 6), draws(5, 0)):
        assert all(a != b for a, b in zip(other, first, strict=True))


def test_half_of_the_sequences_have_the_keyword_once():
    x, place = draw_keyword(0, 0, 400)
    assert x.shape == (400, LENGTH)
    assert ((x == KEYWORD).sum(1) == (place >= 0)).all()
    assert (place >= 0).sum() == 200
    assert all(x[i, where] == KEYWORD for i, where in enumerate(place) if where >= 0)
    assert len(set(place[place >= 0])) > 35  # everywhere
    assert set(x.flat) == set(range(LENGTH))
    others = np.bincount(x[place < 0].flat, minlength=LENGTH)[1:]
    assert abs(others / others.sum() - 1 / 39).max() < 0.01
