"""Lesson 02: the functions that a learner writes, the three decoders, alignments, and padding that gets no weight."""

import math
import random
from collections import defaultdict
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.benchmarks import measured
from course_utils.benchmarks.attention_translator import MODELS, TRAININGS
from course_utils.corpora.pairs import Pair
from course_utils.corpora.vocabulary import Vocabulary
from course_utils.lessons.attention_translator import (
    AdditiveDecoder,
    AttentionDecoder,
    AttentionTranslator,
    LuongDecoder,
    additive_scores,
    alignment_error_rate,
    alignment_scores,
    attention_maps,
    attention_weights,
    best_single_links,
    change_one_state,
    context_vector,
    corpus_alignment_error_rate,
    crossing_links,
    decoder_step,
    diagonal_links,
    ibm_model_1,
    link_kinds,
    links_from_map,
    repeated_links,
    reversal_pairs,
    share_found,
    weight_near,
)
from course_utils.lessons.rnn_translator import RNNTranslator, Trained, train_translator, translate
from tests.helpers import N_SOURCE, N_TARGET, gradient, ids, loud, numbers, source_batch, target_batch

# ------------------------------------------------------------------ scores, weights, context


def test_one_step_of_attention_by_hand() -> None:
    states = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [9.0, 9.0]])
    scores = alignment_scores(torch.tensor([math.log(2), math.log(3)]), states)
    torch.testing.assert_close(scores[:3].exp(), torch.tensor([2.0, 3.0, 6.0]))
    weights = attention_weights(scores, torch.tensor(3))
    torch.testing.assert_close(weights, torch.tensor([2.0, 3.0, 6.0, 0.0]) / 11)
    torch.testing.assert_close(context_vector(weights, states), torch.tensor([8.0, 9.0]) / 11)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("rubbish", [0.0, 1e4, torch.nan, torch.inf, -torch.inf])
def test_padding_gets_no_weight_and_no_gradient(dtype: torch.dtype, rubbish: float) -> None:
    lengths = torch.tensor([2, 4, 1])
    padding = torch.arange(4) >= lengths.unsqueeze(1)
    clean = numbers(0, 3, 4).to(dtype)
    dirty = clean.masked_fill(padding, rubbish).requires_grad_()
    clean.requires_grad_()
    weights = attention_weights(dirty, lengths)
    assert weights.dtype == dtype
    assert (weights[padding] == 0).all() and (weights[~padding] > 0).all()
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(3, dtype=dtype), rtol=0, atol=1e-2)
    assert torch.equal(weights, attention_weights(clean, lengths))
    for scores in (clean, dirty):
        attention_weights(scores, lengths).square().sum().backward()
    assert torch.equal(gradient(clean), gradient(dirty))
    assert (gradient(dirty)[padding] == 0).all() and gradient(dirty).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_weights_of_large_scores_are_finite(dtype: torch.dtype) -> None:
    scores = torch.tensor([[6e4, -6e4, 6e4, 6e4], [-6e4, -6e4, 6e4, 6e4]], dtype=dtype, requires_grad=True)
    weights = attention_weights(scores, torch.tensor([3, 2]))
    expected = torch.tensor([[0.5, 0, 0.5, 0], [0.5, 0.5, 0, 0]], dtype=dtype)
    torch.testing.assert_close(weights, expected)
    weights[0, 0].backward()
    assert gradient(scores).isfinite().all()


def test_additive_scores_by_hand() -> None:
    query, states = torch.tensor([1.0]), torch.tensor([[0.5], [-1.0]])
    got = additive_scores(query, states, torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 1.0]]), torch.tensor([3.0, 1]))
    expected = [3 * math.tanh(1 + 1) + math.tanh(0.5), 3 * math.tanh(1 - 2) + math.tanh(-1)]
    torch.testing.assert_close(got, torch.tensor(expected))


# ------------------------------------------------------------------ one step of the decoder


def test_decoder_step_in_the_order_of_the_lecture() -> None:
    asked, read, written = [], [], []
    states, lengths = torch.tensor([[2.0, 0.0], [0.0, 4.0], [7.0, 7.0]]), torch.tensor(2)

    def score(query: Tensor, keys: Tensor) -> Tensor:
        asked.append(query.tolist())
        return torch.zeros(3)  # equal scores: a weight of 1/2 for each of the two valid states

    def cell(x: Tensor, state: Tensor) -> Tensor:
        read.append((x.tolist(), state.tolist()))
        return state + 10

    def output(z: Tensor) -> Tensor:
        written.append(z.tolist())
        return torch.tensor([0.1, 0.2, 0.7, 0.0])

    got = decoder_step(torch.tensor([5.0]), torch.tensor([-1.0, -2.0]), states, lengths, score, cell, output)
    assert asked == [[-1, -2]], "the question is the old state"
    assert read == [([5, 1, 2], [-1, -2])], "the cell reads [previous, context] and the old state"
    assert written == [[9, 8, 1, 2]], "the output sees [new state, context]"
    logits, state, weights = got
    assert torch.equal(logits, torch.tensor([0.1, 0.2, 0.7, 0.0]))
    assert state.tolist() == [9, 8] and weights.tolist() == [0.5, 0.5, 0]


# ------------------------------------------------------------------ alignment error


@pytest.mark.parametrize(
    ("links", "sure", "possible", "expected"),
    [
        ({(0, 0), (1, 1)}, {(0, 0), (1, 1)}, {(0, 0), (1, 1)}, 0),
        ({(0, 0), (1, 1)}, {(0, 0)}, {(0, 0), (1, 1)}, 0),  # a possible link costs nothing
        ({(0, 0)}, {(0, 0)}, {(0, 0), (1, 1)}, 0),  # nor does one that is not found
        ({(0, 0)}, {(0, 0), (1, 1)}, {(0, 0), (1, 1)}, 1 - (1 + 1) / (1 + 2)),  # a sure one that is missing
        ({(0, 0), (1, 0)}, {(0, 0)}, {(0, 0)}, 1 - (1 + 1) / (2 + 1)),  # a wrong one
        ({(0, 0), (1, 2), (2, 1)}, {(0, 0), (1, 1)}, {(0, 0), (1, 1), (1, 2)}, 1 - (1 + 2) / (3 + 2)),
        ({(0, 1)}, {(1, 0)}, {(1, 0)}, 1),  # the order in a link matters
        (set(), {(0, 0)}, {(0, 0)}, 1),
        ({(0, 0)}, set(), {(0, 0)}, 0),
        ({(0, 0)}, set(), set(), 1),
        (set(), set(), {(0, 0)}, 0),
        (frozenset(), frozenset(), frozenset(), 0),
    ],
)
def test_alignment_error_rate_by_hand(links: set, sure: set, possible: set, expected: float) -> None:
    assert alignment_error_rate(links, sure, possible) == pytest.approx(expected)


TWO = [
    Pair(("a", "b"), ("x", "y"), frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1)})),
    Pair(("c", "d", "e", "f"), ("z",), frozenset(), frozenset({(3, 0)})),
]


def test_corpus_error_counts_all_links_together() -> None:
    assert corpus_alignment_error_rate([{(0, 0), (1, 1)}, {(3, 0)}], TWO) == 0
    # 4 links, 2 sure ones; the second sentence's (0, 0) is not the first's
    got = corpus_alignment_error_rate([{(0, 0), (0, 1), (1, 1)}, {(0, 0)}], TWO)
    assert got == pytest.approx(1 - (2 + 2) / (4 + 2))


def test_corpus_error_without_gold_links_and_with_too_few_sets() -> None:
    no_gold = Pair(("a", "b"), ("x", "y"))
    assert corpus_alignment_error_rate([{(0, 0)}], [no_gold]) == 1, "every link counts as wrong"
    assert corpus_alignment_error_rate([set()], [no_gold]) == 0
    # The two links of the pair without gold links are wrong ones beside the two right ones of the other.
    got = corpus_alignment_error_rate(iter([{(0, 0), (1, 1)}, {(0, 0), (1, 1)}]), [no_gold, TWO[0]])
    assert got == pytest.approx(1 - (2 + 2) / (4 + 2))
    for links in ([{(0, 0)}], [{(0, 0)}] * 3, []):
        with pytest.raises(ValueError, match=f"got {len(links)} for 2 pairs"):
            corpus_alignment_error_rate(links, TWO)


def test_share_found_counts_all_links_together() -> None:
    wanted = [{(0, 0), (1, 1), (2, 2)}, {(0, 0)}, set()]
    assert share_found(wanted, wanted) == 1
    assert share_found([{(0, 0), (2, 1)}, {(0, 0), (5, 5)}, {(1, 1)}], wanted) == 2 / 4
    assert share_found(iter([set(), set(), {(0, 0)}]), iter(wanted)) == 0
    with pytest.raises(ValueError, match="got 2 and 3 sets"):
        share_found(wanted[:2], wanted)
    with pytest.raises(ValueError, match="no link"):
        share_found([{(0, 0)}], [set()])


def test_weight_near_by_hand() -> None:
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1], [0.25, 0.25, 0.25, 0.25]])
    links = {(3, 0), (0, 1)}  # the third row has no link, so it does not count
    assert weight_near([weights], [links], distance=0) == pytest.approx((0.4 + 0.7) / 2)
    assert weight_near([weights], [links]) == pytest.approx((0.7 + 0.8) / 2)
    assert weight_near([weights], [links], distance=9) == pytest.approx(1)
    # A word with two links is one word, and where both are near, no weight counts twice.
    assert weight_near([weights, weights], [{(0, 2), (2, 2)}, {(1, 0)}], 1) == pytest.approx((1 + 0.6) / 2)
    with pytest.raises(ValueError, match="1 maps, 2 sets"):
        weight_near([weights], [links, links])
    with pytest.raises(ValueError, match="no link"):
        weight_near([weights], [set()])


def test_links_of_every_kind() -> None:
    assert links_from_map(torch.tensor([[0.1, 0.9, 0.0], [0.5, 0.3, 0.2]])) == {(1, 0), (0, 1)}
    assert diagonal_links(TWO[0]) == {(0, 0), (1, 1)}
    assert diagonal_links(Pair(("a",) * 3, ("x",) * 6)) == {(0, 0), (0, 1), (1, 2), (1, 3), (2, 4), (2, 5)}
    assert diagonal_links(Pair(("a",) * 5, ("x",))) == {(2, 0)}
    gold = Pair(
        ("a", "b", "c"), ("x", "y", "z"), frozenset({(2, 0), (1, 0)}), frozenset({(1, 0), (2, 0), (0, 0), (2, 1)})
    )
    assert best_single_links(gold) in ({(2, 0), (2, 1), (0, 2)}, {(1, 0), (2, 1), (0, 2)})


def test_crossing_links_are_those_in_another_order() -> None:
    sure = frozenset({(0, 0), (3, 1), (2, 2), (1, 3), (4, 4)})
    assert crossing_links(Pair(tuple("abcde"), tuple("vwxyz"), sure, sure | {(0, 4)})) == {(3, 1), (2, 2), (1, 3)}
    same_word = frozenset({(0, 0), (1, 1), (1, 2), (0, 2)})  # links that share a word do not cross
    assert crossing_links(Pair(("a", "b"), ("x", "y", "z"), same_word, same_word)) == {(0, 2), (1, 1)}
    assert crossing_links(Pair(("a",), ("x", "y"), frozenset({(0, 0), (0, 1)}), frozenset({(0, 0), (0, 1)}))) == set()


def test_repeated_links_are_those_of_words_that_stand_twice() -> None:
    pair = Pair.from_text("the cat sees the dog", "le chat voit le chien", "0-0 1-1 2-2 3-3 4-4", "0-3")
    assert repeated_links(pair) == {(0, 0), (3, 3)}
    assert repeated_links(Pair.from_text("a b", "x x", "0-0 1-1")) == set()


def test_each_sure_link_is_of_one_kind() -> None:
    pair = Pair.from_text(
        "the red car sees the dog", "la voiture rouge voit le chien", "0-0 2-1 1-2 3-3 4-4 5-5", "0-4"
    )
    assert link_kinds(pair) == {
        "in order": {(3, 3), (5, 5)},
        "crossing": {(2, 1), (1, 2)},
        "word twice": {(0, 0), (4, 4)},
    }
    both = Pair.from_text("a b a", "x y", "1-0 0-1 2-1")  # b crosses the first a, and each a stands twice
    assert link_kinds(both) == {"in order": set(), "crossing": {(1, 0)}, "word twice": {(0, 1), (2, 1)}}


def test_ibm_model_1_finds_the_words_of_a_toy_corpus() -> None:
    words = {"the": "la", "house": "maison", "flower": "fleur", "blue": "bleue", "a": "une"}
    texts = ["the house", "the flower", "a flower", "the blue house", "a blue flower", "a house"]
    order = [lambda t: t, lambda t: t[::-1]]
    pairs = [
        Pair(tuple(text.split()), tuple(order[n % 2]([words[word] for word in text.split()])))
        for n, text in enumerate(texts)
    ]
    table = ibm_model_1(pairs, 30)
    english, french = list(words), list(words.values())
    chances = table.look_up(english, french)
    assert torch.equal(chances.argmax(dim=0), torch.arange(len(words)))
    torch.testing.assert_close(chances.sum(dim=0), torch.ones(len(words), dtype=torch.float64))
    pair = Pair(("the", "blue", "house"), ("la", "maison", "bleue"))
    assert table.links(pair) == {(0, 0), (2, 1), (1, 2)}


def test_one_iteration_of_ibm_model_1_by_hand() -> None:
    pairs = [Pair(("a", "b"), ("x", "y")), Pair(("a",), ("x",))]
    ((a_x, b_x), (a_y, b_y)) = ibm_model_1(pairs, 1).look_up(("a", "b"), ("x", "y")).tolist()
    # Shares: in the first pair a third each for (empty, a, b), in the second a half each for (empty, a).
    count_x, count_y = 1 / 3 + 1 / 2, 1 / 3
    assert a_x == pytest.approx(count_x / (count_x + count_y))
    assert a_y == pytest.approx(count_y / (count_x + count_y))
    assert b_x == b_y == pytest.approx(1 / 2)


def plain_ibm_model_1(pairs: list[Pair], iterations: int) -> dict[tuple[str, str], float]:
    """The same by loops over words, with a dictionary as the table."""
    n_french = len({word for pair in pairs for word in pair.target}) + 4
    table: dict[tuple[str, str], float] = defaultdict(lambda: 1 / n_french)
    for _ in range(iterations):
        counts: dict[tuple[str, str], float] = defaultdict(float)
        totals: dict[str, float] = defaultdict(float)
        for pair in pairs:
            source = ("", *pair.source)
            for f in pair.target:
                chance = sum(table[e, f] for e in source)
                for e in source:
                    counts[e, f] += table[e, f] / chance
                    totals[e] += table[e, f] / chance
        table = defaultdict(float, {(e, f): count / totals[e] for (e, f), count in counts.items()})
    return table


@pytest.mark.parametrize("iterations", [1, 2, 7])
def test_ibm_model_1_equals_plain_loops(iterations: int) -> None:
    rng = random.Random(iterations)

    def some(words: str) -> tuple[str, ...]:
        return tuple(rng.choices(words, k=rng.randint(0, 7)))

    pairs = [Pair(some("abcdefg"), some("uvwxyz")) for _ in range(40)]
    assert any(not pair.source for pair in pairs) and any(not pair.target for pair in pairs), "empty sentences too"
    got, expected = ibm_model_1(pairs, iterations), plain_ibm_model_1(pairs, iterations)
    chances = got.look_up([*"abcdefg"], [*"uvwxyz"])
    for i, e in enumerate("abcdefg"):
        for j, f in enumerate("uvwxyz"):
            assert chances[j, i] == pytest.approx(expected[e, f], abs=1e-12)


def test_ibm_model_1_links_only_what_has_met() -> None:
    table = ibm_model_1([Pair(("a", "b"), ("x", "y")), Pair(("c",), ("z",))])
    assert table.links(Pair(("c", "a"), ("x", "z"))) == {(1, 0), (0, 1)}
    assert table.links(Pair(("c",), ("x", "new", "z"))) == {(0, 2)}
    assert (
        table.links(Pair(("new",), ("x",))) == table.links(Pair((), ("x",))) == table.links(Pair(("a",), ())) == set()
    )
    with pytest.raises(ValueError, match="no word"):
        ibm_model_1([])


def test_ibm_model_1_keeps_no_table_of_all_words() -> None:
    """20,000 words on each side would need 3 GB, but each word meets two others."""
    n = 20_000
    table = ibm_model_1([Pair((f"e{i}", f"e{i + 1}"), (f"f{i}",)) for i in range(n)], 2)
    assert len(table.probabilities) == 3 * n  # each French word meets two English ones, and the empty word
    assert table.links(Pair(("e7", "e8"), ("f7",))) <= {(0, 0), (1, 0)}


# ------------------------------------------------------------------ the model


@pytest.fixture(params=[AttentionDecoder, AdditiveDecoder, LuongDecoder])
def model(request: pytest.FixtureRequest) -> AttentionTranslator:
    torch.manual_seed(0)
    return loud(AttentionTranslator(N_SOURCE, N_TARGET, embedding_size=6, hidden_size=8, decoder=request.param))


def test_as_many_parameters_as_lesson_01() -> None:
    counts = [sum(p.numel() for p in kind(211, 334).parameters()) for kind in (RNNTranslator, AttentionTranslator)]
    assert counts[1] == pytest.approx(counts[0], rel=0.01)


@pytest.mark.parametrize("columns", [0, 1, 9])
def test_maps_have_exactly_no_weight_on_padding(model: AttentionTranslator, columns: int) -> None:
    (source, lengths), (target, _) = source_batch(columns), target_batch(columns)
    maps = model.attention_map(source, lengths, target)
    assert maps.shape == (len(source), target.shape[1], source.shape[1])
    assert all((rows[:, n:] == 0).all() for rows, n in zip(maps, lengths, strict=True))
    torch.testing.assert_close(maps.sum(dim=-1), torch.ones(target.shape))


def test_the_old_state_asks_in_one_order_and_the_new_one_in_the_other(model: AttentionTranslator) -> None:
    source, lengths = source_batch()
    target = ids(5, N_TARGET, len(source), 6)
    changed = target.clone()
    changed[:, 2] = (changed[:, 2] + 1) % N_TARGET
    maps, moved = (model.attention_map(source, lengths, words) for words in (target, changed))
    first = int((maps != moved).flatten(2).any(dim=-1).any(dim=0).nonzero()[0])
    # Step 2 reads the changed word. Only in Luong's order it is read before the question is asked.
    assert first == (2 if isinstance(model.decoder, LuongDecoder) else 3)


def test_each_map_is_the_softmax_of_the_scores_of_its_step() -> None:
    torch.manual_seed(0)
    model = AttentionTranslator(N_SOURCE, N_TARGET, embedding_size=6, hidden_size=8)
    source, lengths = source_batch(columns=2)
    target = ids(5, N_TARGET, len(source), 4)
    states, _, hidden = model.start(source, lengths)
    for t, row in enumerate(model.attention_map(source, lengths, target).unbind(dim=1)):
        scores = torch.stack(
            [model.decoder.scale * (hidden * states[:, i]).sum(dim=-1) for i in range(states.shape[1])], dim=1
        )
        expected = [torch.softmax(s[:n], dim=0) for s, n in zip(scores, lengths, strict=True)]
        torch.testing.assert_close(row, nn.utils.rnn.pad_sequence([*expected, row[0]], batch_first=True)[:-1])
        _, (_, _, hidden) = model.step(target[:, t], (states, lengths, hidden))


# ------------------------------------------------------------------ reading the map, and learning

WORDS = [f"w{i}" for i in range(9)]


class Watched(nn.Module):
    """In place of a translator: its step that writes word j attends to the source word with that word's number."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.seen: list[list[int]] = []

    def attention_map(self, source: Tensor, lengths: Tensor, target_in: Tensor) -> Tensor:
        self.seen += target_in.tolist()
        steps = torch.arange(target_in.shape[1]) % source.shape[1]
        return F.one_hot(steps, source.shape[1]).float().expand(len(source), -1, -1)


def test_a_map_has_one_row_for_each_word_that_is_written() -> None:
    vocabulary = Vocabulary.build([WORDS])
    pairs = [Pair(tuple(WORDS[:4]), tuple(WORDS[4:7])), Pair(tuple(WORDS[:2]), ("w8",)), Pair(("w0",), tuple(WORDS))]
    trained = Trained(Watched(), vocabulary, vocabulary, [])
    maps = attention_maps(trained, pairs, batch_size=2)
    assert [tuple(m.shape) for m in maps] == [(3, 4), (1, 2), (9, 1)]
    assert links_from_map(maps[0]) == {(0, 0), (1, 1), (2, 2)}
    start, (w4, w5) = Vocabulary.start, vocabulary.encode(["w4", "w5"])
    assert trained.model.seen[:2] == [[start, w4, w5], [start, 0, 0]], "the last word is written, not read"


@torch.no_grad()
def test_change_one_state_equals_plain_loops() -> None:
    vocabulary = Vocabulary.build([WORDS])
    torch.manual_seed(0)
    model = loud(AttentionTranslator(len(vocabulary), len(vocabulary), embedding_size=6, hidden_size=8))
    sources = [("w0", "w1", "w2", "w3"), ("w4", "w1", "w5", "w0"), ("w6", "w6", "w7", "w8")]
    pairs = [Pair(source, ("w0",)) for source in sources]
    moved, weights, changed = change_one_state(Trained(model, vocabulary, vocabulary, []), pairs, steps=3)
    states, _, hidden = model.start(
        torch.tensor([vocabulary.encode(source) for source in sources]), torch.tensor([4] * 3)
    )
    for n in range(3):
        state, read = hidden[n : n + 1], torch.tensor([vocabulary.start])
        for t in range(3):
            row, one = n + 3 * t, states[n : n + 1]
            logits, (_, _, later) = model.step(read, (one, torch.tensor([4]), state))
            scores = model.decoder.score(state, one)[0]
            torch.testing.assert_close(weights[row], torch.softmax(scores, dim=0))
            for i in range(4):
                mixed = one.clone()
                mixed[0, i] = states[(n - 1) % 3, i]
                other, _ = model.step(read, (mixed, torch.tensor([4]), state))
                assert changed[row, i] == (other.argmax() != logits.argmax())
                assert torch.equal(moved[row, i], model.decoder.score(state, mixed)[0] != scores)
            read, state = logits.argmax(dim=-1), later
    assert changed.any() and not changed.all()


def test_reversal_pairs_are_repeatable_and_reversed() -> None:
    pairs = reversal_pairs(50, seed=1)
    assert pairs == reversal_pairs(50, seed=1) != reversal_pairs(50, seed=2)
    assert {len(pair.source) for pair in pairs} == set(range(3, 9))
    for pair in pairs:
        assert pair.target == pair.source[::-1]
        assert all(pair.source[i] == pair.target[j] for i, j in pair.sure)
        assert len(pair.sure) == len(pair.source) and pair.sure == pair.possible


def test_luongs_order_learns_the_anti_diagonal() -> None:
    task = {"letters": "abcde", "shortest": 2, "longest": 5}
    decoder = partial(LuongDecoder, scale=1.0)
    make_model = partial(AttentionTranslator, embedding_size=12, hidden_size=24, decoder=decoder)
    settings_ = {"steps": 350, "batch_size": 32, "learning_rate": 2e-2, "warmup": 0.3}
    trained = train_translator(make_model, reversal_pairs(2000, **task), **settings_)
    pairs = reversal_pairs(100, seed=5, **task)
    answers = translate(trained.model, [pair.source for pair in pairs], trained.english, trained.french)
    assert sum(answer == pair.target for answer, pair in zip(answers, pairs, strict=True)) >= 80
    maps = attention_maps(trained, pairs)
    assert corpus_alignment_error_rate(map(links_from_map, maps), pairs) < 0.15


# ------------------------------------------------------------------ the stored tables


def rows_of(name: str, trained_on: str = "all lengths") -> list[dict]:
    rows = [row for row in measured("translator")["rows"] if (row["model"], row["trained_on"]) == (name, trained_on)]
    assert [row["seed"] for row in rows] == list(range(TRAININGS[trained_on][1]))
    return rows


def test_the_stored_trainings_show_what_the_lesson_reads_from_them() -> None:
    one_vector, dot, additive, luong = map(rows_of, MODELS)
    assert max(row["bleu"][-1] for row in one_vector) * 5 < min(row["bleu"][-1] for row in dot + additive + luong)
    assert all(4.5 < row["bleu"][0] - row["bleu"][-1] < 10.5 for row in dot), "five to ten points"
    assert all(0.1 < row["bleu"][-1] / row["bleu"][0] < 0.15 for row in one_vector), "about one eighth is left"
    for row in dot:
        assert row["in_order"] > 0.85 and row["crossing"] > 0.7 and row["repeated"] > 0.75 and row["near"] > 0.85
    for key in ("in_order", "crossing"):  # the new state finds more links than both others, in every training
        assert min(row[key] for row in luong) > max(row[key] for row in additive)
    assert min(row["crossing"] for row in luong) > max(row["crossing"] for row in dot)
    assert max(row["in_order"] for row in additive) < min(row["in_order"] for row in dot)
    assert min(row["cpu_seconds"] for row in additive) > max(row["cpu_seconds"] for row in dot)
    assert min(row["cpu_seconds"] for row in dot) > max(row["cpu_seconds"] for row in luong)
    sizes = [rows[0]["parameters"] for rows in (luong, dot, additive)]
    assert sizes == sorted(sizes)


def test_no_model_goes_far_beyond_the_lengths_that_it_was_trained_on() -> None:
    for name in list(MODELS)[1:]:
        best = [max(values) for values in zip(*(row["bleu"] for row in rows_of(name)), strict=True)]
        (short,) = (row["bleu"] for row in rows_of(name, "at most 20 words"))
        drops = [a - b for a, b in zip(best, short, strict=True)]
        assert max(drops[:3]) < 10 and 15 < drops[3] < drops[4] and short[4] < 50


def test_where_each_order_looks() -> None:
    games = {("old state", 26): [], ("old state", 12): [], ("new state", 26): []}
    for row in measured("reversal")["rows"]:
        games[row["asks"], row["letters"]].append(row)
    assert {len(rows) for rows in games.values()} == {5}
    many, few, new = games.values()
    assert min(row["looks_right"] for row in many + new) > 0.95, "clean in all five"
    assert sorted(row["looks_right"] > 0.95 for row in few) == [False, True, True, True, True]
    lost = min(few, key=lambda row: row["looks_right"])
    assert lost["looks_right"] < 0.7 and lost["exact"] > 0.95, "it looks elsewhere and makes few errors"
    assert min(row["exact"] for row in many) > max(row["exact"] for row in new), "the old state makes fewer errors"
