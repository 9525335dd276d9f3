"""Head scores and roles on hand-made attention, and against their literal twins."""

import numpy as np
import pytest

from hf_nmt_interp.analysis.roles import (
    COMMON,
    DIRECTIONS,
    HEAD_SCORES,
    RELATIONS,
    Confidence,
    Positional,
    RareWords,
    Relation,
    Syntactic,
    View,
    roles_of,
    short_role,
)
from tests.reference import roles as twin


def looks_at(*heads, rest=0.1):
    """Attention [H, Q, K] of heads that give 0.9 of their weight to these keys, one for each query."""
    size = max(max(keys) for keys in heads) + 1
    size = max(size, len(heads[0]))
    weights = np.full((len(heads), len(heads[0]), size), rest / (size - 1))
    for head, keys in enumerate(heads):
        weights[head, np.arange(len(keys)), keys] = 1 - rest
    return weights


def view(weights, **more):
    return View(weights, np.arange(weights.shape[1]), np.arange(weights.shape[2]), **more)


def test_confidence_is_the_mean_over_tokens_of_the_largest_weight():
    score = Confidence()
    score.add(view(np.array([[[0.5, 0.3], [0.1, 0.7]], [[0.0, 0.2], [0.2, 0.0]]])))  # what is missing went to EOS
    score.add(view(np.array([[[0.9]], [[0.5]]])))
    assert score.columns()["confidence"] == pytest.approx([(0.5 + 0.7 + 0.9) / 3, (0.2 + 0.2 + 0.5) / 3])


def test_positional_head_looks_at_one_relative_position():
    score = Positional()
    previous, first, following = [0, *range(9)], [0] * 10, [*range(1, 10), 0]
    score.add(view(looks_at(previous, first, following)))
    columns = score.columns()
    assert columns["position"][0] == -1
    assert columns["position_share"] == pytest.approx([1, 0.1, 1])  # the first token has none before it
    rows = [{name: values[head] for name, values in columns.items()} for head in range(3)]
    assert [roles_of(row) for row in rows] == [["positional: -1"], [], ["positional: +1"]]
    score.add(view(looks_at([0, 0, 0], [0, 0, 0], [2, 2, 2])))  # 9 of 9 and 1 of 2 tokens
    assert score.columns()["position_share"][0] == pytest.approx(10 / 11)


def test_a_perfect_previous_token_head_of_eight_tokens_is_positional():
    score = Positional()
    score.add(view(looks_at([0, *range(7)])))
    assert score.columns() == {"position": [-1], "position_share": [1.0]}
    assert roles_of({name: values[0] for name, values in score.columns().items()}) == ["positional: -1"]


def test_positions_count_in_the_sequence_with_its_special_tokens():
    score = Positional()
    # queries 1 and 2 (0 is a language code) look at keys 3 and 4
    score.add(View(np.array([[[1.0, 0.0], [0.0, 1.0]]]), np.array([1, 2]), np.array([3, 4])))
    assert score.columns() == {"position": [2], "position_share": [1.0]}


def test_syntactic_head_beats_the_best_fixed_position_by_a_tenth():
    score = Syntactic()
    # four subjects: two right before their verb, one two words before, one after it
    subjects = [Relation(0, 1, "nsubj"), Relation(1, 2, "nsubj"), Relation(3, 5, "nsubj"), Relation(7, 6, "nsubj")]
    finds_all = [1, 2, 1, 5, 5, 3, 7, 6]  # both directions, but verb 2's subject only (1 -> 2 and 2 -> 1), 1 -> 0 not
    always_next = [1, 2, 3, 4, 5, 6, 7, 7]
    score.add(view(looks_at(finds_all, always_next), relations=[*subjects, Relation(0, 2, "nsubj:pass")]))
    columns = score.columns()
    assert columns["nsubj_baseline"] == [0.5, 0.5]
    assert columns["nsubj_to_head"] == [1.0, 0.5]
    assert columns["nsubj_to_dependent"] == [0.75, 0.25]
    assert "obj_to_head" not in columns
    rows = [{name: values[head] for name, values in columns.items()} for head in range(2)]
    assert roles_of(rows[0]) == ["syntactic: nsubj_to_head", "syntactic: nsubj_to_dependent"]
    assert roles_of(rows[1]) == []


@pytest.mark.parametrize(("accuracy", "expected"), [(0.55, ["syntactic: obj_to_head"]), (0.549, [])])
def test_ten_percent_are_relative_to_the_baseline(accuracy, expected):
    row = {"obj_to_head": accuracy, "obj_to_dependent": 0.0, "obj_baseline": 0.5}
    assert roles_of(row) == expected


def test_rare_words_head_looks_at_the_rarest_tokens():
    score = RareWords()
    common = np.array([True, True, False, False])
    counts = np.array([90, 80, 7, 3])
    rare, second, often = [3, 3, 3, 0], [2, 2, 2, 2], [0, 0, 0, 3]
    score.add(view(looks_at(rare, second, often), counts=counts, common=common))
    score.add(view(looks_at([1, 1], [1, 1], [0, 0])[:, :, :2], counts=counts[:2], common=common[:2]))  # not counted
    assert score.columns() == {"rarest": [1.0, 0.0, 0.0], "two_rarest": [1.0, 1.0, 0.0]}
    assert roles_of({"rarest": 0.3, "two_rarest": 0.51}) == ["rare words"]
    assert roles_of({"rarest": 0.3, "two_rarest": 0.5}) == []


# ----------------------------------------------------------------------------------------------------------- the twins
def random_attention(rng: np.random.Generator, queries: int, keys: int, heads: int = 3) -> np.ndarray:
    """Attention [H, Q, K] that leaves a part to EOS; every second head mostly looks one token back."""
    weights = rng.dirichlet(np.full(keys + 1, 0.3), size=(heads, queries))[:, :, :keys]
    for q in range(1, min(queries, keys + 1)):
        weights[::2, q, q - 1] += rng.random(len(weights[::2])) < 0.9
    return weights


def by_head(columns: dict, head: int) -> dict:
    return {name: values[head] for name, values in columns.items()}


@pytest.mark.parametrize("seed", range(5))
def test_confidence_and_position_agree_with_the_twin(seed):
    rng = np.random.default_rng(seed)
    found, seen = {make: make() for make in (Confidence, Positional)}, []
    for _ in range(6):
        keys, queries = np.sort(rng.choice(12, rng.integers(1, 9), replace=False)), np.arange(rng.integers(1, 9))
        weights = random_attention(rng, len(queries), len(keys))
        seen.append((weights, queries.tolist(), keys.tolist()))
        for score in found.values():
            score.add(View(weights, queries, keys))
    for head in range(3):
        own = [(weights[head].tolist(), queries, keys) for weights, queries, keys in seen]
        expected = twin.position(own), twin.position_share(own, twin.position(own))
        row = by_head(found[Positional].columns(), head)
        assert (row["position"], row["position_share"]) == (expected[0], pytest.approx(expected[1], abs=1e-12))
        assert roles_of(row) == [f"positional: {expected[0]:+d}"] * twin.is_positional(expected[1])
        confidence = found[Confidence].columns()["confidence"][head]
        assert confidence == pytest.approx(twin.confidence([weights for weights, *_ in own]), abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_syntax_agrees_with_the_twin(seed):
    rng = np.random.default_rng(seed)
    score, seen = Syntactic(), []
    for _ in range(12):
        words = int(rng.integers(3, 9))
        pairs = [(d, max(0, d - 1) if rng.random() < 0.5 else int(rng.integers(words))) for d in range(1, words)]
        relations = [Relation(d, h, str(rng.choice([*RELATIONS, "det"]))) for d, h in pairs if d != h]
        weights = random_attention(rng, words, words)
        for dependent, head, _ in relations:  # one head knows the trees
            weights[1, dependent, head] += 1
        seen.append((weights, relations))
        score.add(view(weights, relations=relations))
    columns, roles = score.columns(), 0
    for head in range(3):
        own = [(weights[head].tolist(), [tuple(r) for r in relations]) for weights, relations in seen]
        row, expected = by_head(columns, head), []
        for relation in RELATIONS:
            fixed = twin.baseline(own, relation)
            assert row[f"{relation}_baseline"] == pytest.approx(fixed, abs=1e-12)
            for direction in DIRECTIONS:
                accuracy = twin.accuracy(own, relation, direction == "to_head")
                assert row[f"{relation}_{direction}"] == pytest.approx(accuracy, abs=1e-12)
                expected += [f"syntactic: {relation}_{direction}"] * twin.is_syntactic(accuracy, fixed)
        assert roles_of(row) == expected
        roles += len(expected)
    assert roles


@pytest.mark.parametrize("seed", range(5))
def test_rare_words_agree_with_the_twin(seed):
    rng = np.random.default_rng(seed)
    # frequencies are all different, so that the 500 most frequent are the same for both
    counts = {f"w{i}": int(n) for i, n in enumerate(rng.permutation(np.arange(2, COMMON + 42)))}
    frequent = sorted(counts, key=counts.__getitem__, reverse=True)[:COMMON]
    score, seen = RareWords(), []
    for number in range(8):
        tokens = [str(token) for token in rng.choice([*counts, "unseen"], rng.integers(1, 9))]
        tokens = [token for token in tokens if token in frequent] or frequent[:1] if number % 4 == 0 else tokens
        weights = random_attention(rng, len(tokens), len(tokens))
        common = np.array([token in frequent for token in tokens])
        score.add(view(weights, counts=np.array([counts.get(token, 0) for token in tokens]), common=common))
        seen.append((weights, tokens))
    assert {all(token in frequent for token in tokens) for _, tokens in seen} == {False, True}
    for head in range(3):
        own = [(weights[head].tolist(), tokens, counts) for weights, tokens in seen]
        row = by_head(score.columns(), head)
        shares = [twin.rare_share(own, number) for number in (1, 2)]
        assert [row["rarest"], row["two_rarest"]] == pytest.approx(shares, abs=1e-12)
        assert roles_of(row) == ["rare words"] * twin.is_rare_words(shares[1])


def kind_of(value):
    return list[type(value[0])] if isinstance(value, list) else type(value)


def test_scores_describe_what_they_give():
    """Columns and facts are those declared, of the types declared."""
    common, relations = np.array([True, False]), [Relation(0, 1, name) for name in ("nsubj", "obj", "amod", "advmod")]
    seen = view(looks_at([1, 0], [1, 1]), counts=np.array([9, 1]), common=common, relations=relations)
    for make in HEAD_SCORES.values():
        score = make()
        score.add(seen)
        columns = score.columns()
        assert {name: kind_of(values[0]) for name, values in columns.items()} == make.column_types
        if make.fact_types:
            assert {name: kind_of(values[0]) for name, values in score.facts(seen).items()} == make.fact_types
        cells = make.cells({name: values[0] for name, values in columns.items()})
        assert all(cells.values())
        assert list(make.cells({})) == list(cells)
        assert not any(make.cells({}).values())


def test_short_roles():
    assert [short_role(role) for role in ("positional: -1", "syntactic: obj_to_dependent", "rare words")] == [
        *("-1", "obj→dep", "rare"),
    ]
    assert short_role("unknown") == "unknown"
    assert short_role("unknown: 5") == "5"
