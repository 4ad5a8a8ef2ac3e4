"""Lesson 01: the functions that a learner writes, and the promise that padding never changes anything."""

import copy
import functools
import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from course_utils.benchmarks import measured
from course_utils.corpora.pairs import Pair
from course_utils.corpora.vocabulary import Vocabulary
from course_utils.figures import rnn_translator as figures
from course_utils.lessons.rnn_translator import (
    RNNTranslator,
    greedy_decode,
    gru_step,
    last_valid_state,
    masked_cross_entropy,
    reverse_valid,
    train_translator,
    translate,
    translation_loss,
)
from course_utils.training import batches_by_length, one_thread, train
from tests.helpers import N_SOURCE, N_TARGET, few, generator, gradient, ids, loud, numbers, seeds, source_batch

# ------------------------------------------------------------------ one step


def test_gru_with_an_open_update_gate_keeps_its_state() -> None:
    h = numbers(0, 3, 4, dtype=torch.float32)
    b_x = torch.tensor([0.0, 100.0, 0.0]).repeat_interleave(4)
    got = gru_step(
        numbers(1, 3, 2, dtype=torch.float32), h, torch.zeros(2, 12), torch.zeros(4, 12), b_x, torch.zeros(12)
    )
    torch.testing.assert_close(got, h)


# ------------------------------------------------------------------ lengths


def test_last_valid_state_ignores_nan_in_padding() -> None:
    states, lengths = numbers(0, 3, 5, 2), torch.tensor([2, 5, 1])
    states[0, 2:] = torch.nan
    states[2, 1:] = torch.inf
    states.requires_grad_()
    last_valid_state(states, lengths).sum().backward()
    expected = torch.zeros(3, 5, 2)
    for row, length in enumerate(lengths):
        expected[row, length - 1] = 1
    assert torch.equal(gradient(states), expected)


@few
@given(st.integers(1, 4), st.integers(1, 6), seeds)
def test_reverse_valid_takes_ids_too_and_is_its_own_inverse(batch: int, time: int, seed: int) -> None:
    values, lengths = ids(seed, 9, batch, time), ids(seed, time + 1, batch)
    got = reverse_valid(values, lengths)
    assert torch.equal(got[0, : lengths[0]], values[0, : lengths[0]].flip(0))
    assert torch.equal(reverse_valid(got, lengths), values)


# ------------------------------------------------------------------ loss


def test_loss_of_equal_logits_is_log_of_the_vocabulary() -> None:
    loss = masked_cross_entropy(torch.zeros(2, 3, 7), ids(0, 7, 2, 3), torch.tensor([0, 2]))
    torch.testing.assert_close(loss, torch.tensor(7.0).log())


@pytest.mark.parametrize("rubbish", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("rubbish_id", [0, -100, 10**6])
def test_loss_and_gradient_ignore_padding(rubbish: float, rubbish_id: int) -> None:
    lengths = torch.tensor([2, 4, 1])
    padding = torch.arange(4) >= lengths.unsqueeze(1)
    clean, targets = numbers(0, 3, 4, 5), ids(1, 5, 3, 4)
    dirty = clean.masked_fill(padding.unsqueeze(-1), rubbish)
    clean.requires_grad_()
    dirty.requires_grad_()
    loss = masked_cross_entropy(clean, targets, lengths)
    dirty_loss = masked_cross_entropy(dirty, targets.masked_fill(padding, rubbish_id), lengths)
    loss.backward()
    dirty_loss.backward()
    assert torch.equal(loss, dirty_loss)
    assert torch.equal(gradient(clean), gradient(dirty))
    assert (gradient(dirty)[padding] == 0).all()
    assert (gradient(dirty)[~padding] != 0).all()


# ------------------------------------------------------------------ decoding

START, STOP = 2, 3


class Script:
    """A step function that says, whatever it reads, what stands in its script. Keeps what it was given."""

    def __init__(self, *rows: list[int]) -> None:
        self.rows = torch.tensor(rows)
        self.read: list[list[int]] = []

    def __call__(self, tokens: Tensor, state: Any) -> tuple[Tensor, tuple[str, int]]:
        self.read.append(tokens.tolist())
        name, position = state
        logits = F.one_hot(self.rows[:, position], 10).float() - 5
        return logits, (name, position + 1)


def run(script: Script, max_length: int) -> list[list[int]]:
    start_tokens = torch.full((len(script.rows),), START)
    answer = greedy_decode(script, ("any object", 0), start_tokens, STOP, max_length)
    assert start_tokens.tolist() == [START] * len(script.rows)
    return answer


def test_decoding_ends_each_sentence_at_its_own_stop() -> None:
    script = Script([5, 6, STOP, 7, 8], [STOP, 5, 5, 5, 5], [9, 9, 9, STOP, 5])
    assert run(script, 5) == [[5, 6], [], [9, 9, 9]]
    assert len(script.read) == 4, "step is not called once all sentences have ended"
    assert script.read[0] == [START] * 3
    assert [row[2] for row in script.read] == [START, 9, 9, 9], "each token is fed back"


def test_decoding_ends_at_max_length() -> None:
    script = Script([5, 6, 7, 8], [4, STOP, 4, 4])
    assert run(script, 3) == [[5, 6, 7], [4]]
    assert len(script.read) == 3
    assert run(Script([5, 6], [4, 4]), 0) == [[], []]


def test_decoding_nothing() -> None:
    def step(tokens: Tensor, state: object) -> tuple[Tensor, object]:
        raise AssertionError("there is nothing to decode")

    assert greedy_decode(step, None, torch.zeros(0, dtype=torch.long), STOP, 5) == []


def test_decoding_feeds_back_the_likeliest_token() -> None:
    # A chain of words: after word i comes i + 1, and after the last one the stop token.
    table = torch.full((10, 10), -1.0)
    for word, following in [(START, 5), (5, 6), (6, 9), (9, STOP), (4, 9)]:
        table[word, following] = 0.0
    answer = greedy_decode(lambda tokens, state: (table[tokens], state), None, torch.tensor([START, 4, 9]), STOP, 7)
    assert answer == [[5, 6, 9], [9], []]


# ------------------------------------------------------------------ the model


@pytest.fixture(params=[True, False], ids=["training", "evaluation"])
def model(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    model = RNNTranslator(N_SOURCE, N_TARGET, embedding_size=6, hidden_size=8, context_size=5)
    return loud(model).train(request.param)


def test_states_of_both_directions_stand_at_their_word(model: RNNTranslator) -> None:
    source, lengths = source_batch(columns=2)
    states, last = model.encoder(source, lengths)
    both = states.shape[-1] // 2
    changed = source.clone()
    changed[1, 3] = (changed[1, 3] + 1) % N_SOURCE
    moved = (model.encoder(changed, lengths)[0] - states).abs().amax(dim=0) > 0
    n = int(lengths[1])
    assert moved[:3, :both].sum() == 0, "from the left: words before a change do not notice it"
    assert moved[3:n, :both].any(dim=-1).all()
    assert moved[:4, both:].any(dim=-1).all()
    assert moved[4:n, both:].sum() == 0, "from the right: words after a change do not notice it"
    torch.testing.assert_close(last[:, both:], states[:, 0, both:])


def test_the_context_is_all_that_the_decoder_knows() -> None:
    torch.manual_seed(0)
    model = RNNTranslator(N_SOURCE, N_TARGET, embedding_size=6, hidden_size=8, context_size=5)
    source, lengths = source_batch()
    assert model.start(source, lengths)[0].shape == (len(source), 5)
    with torch.no_grad():
        model.bottleneck.weight.zero_()
    logits = model(source, lengths, torch.full((len(source), 4), START))
    torch.testing.assert_close(logits, logits[:1].expand_as(logits))  # rows may differ in their last bit


# ------------------------------------------------------------------ translating

SOURCE_WORDS = ["a", "bird", "cat", "dog", "eats", "fish", "green", "has", "in"]
TARGET_WORDS = ["un", "oiseau", "chat", "chien", "mange", "poisson", "vert"]


def some_sentences(words: list[str], how_many: int, seed: int, shortest: int = 1) -> list[tuple[str, ...]]:
    lengths = ids(seed, 6, how_many) + shortest
    return [tuple(words[i] for i in ids(seed + row, len(words), n)) for row, n in enumerate(lengths.tolist())]


@pytest.fixture
def vocabularies() -> tuple[Vocabulary, Vocabulary]:
    return Vocabulary.build([SOURCE_WORDS]), Vocabulary.build([TARGET_WORDS])


def test_what_translate_refuses_and_nothing_to_translate(vocabularies: tuple) -> None:
    model = RNNTranslator(*map(len, vocabularies), hidden_size=16)
    assert translate(model, [], *vocabularies) == []
    with pytest.raises(ValueError, match="empty"):
        translate(model, [("a",), ()], *vocabularies)


def test_it_learns_twenty_pairs_by_heart(vocabularies: tuple) -> None:
    source_vocabulary, target_vocabulary = vocabularies
    sources = some_sentences(SOURCE_WORDS, 20, seed=1, shortest=3)  # long enough to be all different
    targets = some_sentences(TARGET_WORDS, 20, seed=2)
    torch.manual_seed(0)
    model = RNNTranslator(len(source_vocabulary), len(target_vocabulary), embedding_size=32, hidden_size=64)
    batches = batches_by_length(
        [source_vocabulary.encode(text) for text in sources],
        [target_vocabulary.encode(text) for text in targets],
        batch_size=20,
        generator=generator(0),
    )
    losses = train(model, batches, translation_loss, steps=120, learning_rate=1e-2)
    assert losses[0] > 2 and losses[-1] < 0.1
    assert translate(model, sources, *vocabularies) == targets


# ------------------------------------------------------------------ training.py


def pairs(how_many: int) -> tuple[list[list[int]], list[list[int]]]:
    return [[4] * (1 + i % 5) for i in range(how_many)], [[i + 10] * (i % 3) for i in range(how_many)]


def test_batches_hold_every_pair_once_an_epoch() -> None:
    sources, targets = pairs(22)
    seen = []
    for batch in batches_by_length(sources, targets, batch_size=4, generator=generator(0), steps=6):
        for row, n in enumerate(batch.target_lengths.tolist()):
            words = batch.target_out[row, : n - 1].tolist()
            assert batch.target_in[row].tolist()[:n] == [2, *words]
            assert batch.target_out[row].tolist()[:n] == [*words, 3]
            seen.append((batch.source[row, : batch.source_lengths[row]].tolist(), words))
        assert batch.target_in[:, batch.target_lengths.max() :].numel() == 0
    assert sorted(seen) == sorted(zip(sources, targets, strict=True))


def test_batches_are_of_like_length_shuffled_and_repeatable() -> None:
    sources, targets = pairs(100)

    def draw(seed: int, steps: int) -> list[list[list[int]]]:
        batches = batches_by_length(sources, targets, batch_size=10, generator=generator(seed), steps=steps)
        return [batch.target_in.tolist() + batch.source.tolist() for batch in batches]

    assert draw(0, 25) == draw(0, 25)
    assert draw(0, 10) != draw(1, 10)
    first, second = draw(0, 20)[:10], draw(0, 20)[10:]
    assert first != second
    batches = list(batches_by_length(sources, targets, batch_size=10, generator=torch.Generator(), steps=10))
    assert all(batch.source_lengths.max() == batch.source_lengths.min() for batch in batches)
    order = [int(batch.source_lengths[0]) for batch in batches]
    assert order != sorted(order)


@pytest.mark.parametrize(
    ("sources", "targets", "batch_size", "message"),
    [
        ([[4]], [[4], [5]], 2, "got 1 and 2"),
        ([], [], 2, "sources is empty"),
        ([[4], []], [[4], [4]], 2, r"sources\[1\] is an empty"),
        ([[4]], [[4]], 0, "batch_size"),
    ],
)
def test_bad_pairs_are_named(sources: list, targets: list, batch_size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        batches_by_length(sources, targets, batch_size=batch_size, generator=torch.Generator())


def squares(model: nn.Module, batch: Tensor) -> Tensor:
    return (model(batch) - 3).square().mean()


def test_train_makes_the_loss_smaller_and_leaves_the_mode() -> None:
    torch.manual_seed(0)
    for mode in (True, False):
        model = nn.Linear(2, 1).train(mode)
        losses = train(model, itertools.repeat(torch.ones(4, 2)), squares, steps=200, learning_rate=0.1)
        assert len(losses) == 200 and losses[-1] < 1e-2 < losses[0]
        assert model.training == mode


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"clip": 0.0}, "clip"),
        ({"warmup": 1.0}, "warmup"),
        ({"batches": [torch.ones(1, 2)]}, "ended after 1 of 5"),
        ({"batches": [torch.full((1, 2), torch.nan)] * 5}, "loss of step 0 is nan"),
    ],
)
def test_bad_settings_are_named(changes: dict, message: str) -> None:
    settings_: dict[str, Any] = {"batches": [torch.ones(1, 2)] * 5, "steps": 5, "learning_rate": 0.1} | changes
    with pytest.raises(ValueError, match=message):
        train(nn.Linear(2, 1), settings_.pop("batches"), squares, **settings_)


def test_a_step_of_training_is_adam_with_a_clipped_gradient() -> None:
    """By hand: three steps of Adam whose gradients are shortened, at the learning rates of one cycle."""
    torch.manual_seed(0)
    model, batches = nn.Linear(2, 1), [numbers(i, 4, 2, dtype=torch.float32) for i in range(3)]
    start = copy.deepcopy(model)
    losses = train(model, batches, squares, steps=3, learning_rate=0.1, warmup=0.5, clip=0.5)
    adam = torch.optim.Adam(start.parameters(), betas=(0.9, 0.98))
    # Up from 1/25 of the rate to the rate, and then halfway down to 1/25e4 of it.
    for batch, loss, rate in zip(batches, losses, (0.1 / 25, 0.1, (0.1 + 0.1 / 25e4) / 2), strict=True):
        adam.param_groups[0]["lr"] = rate
        wrong = squares(start, batch)
        assert loss == pytest.approx(wrong.item())
        gradients = torch.autograd.grad(wrong, list(start.parameters()))
        length = torch.cat([g.flatten() for g in gradients]).norm()
        assert length > 0.5
        for parameter, g in zip(start.parameters(), gradients, strict=True):
            parameter.grad = g * 0.5 / length
        adam.step()
    for got, expected in zip(model.parameters(), start.parameters(), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_rare_words_train_the_unknown_word() -> None:
    """With a limit, the most frequent words of each side stay, and `<unk>` is learned from the others."""
    examples = [Pair(("a", "b"), ("x", "y")), Pair(("b", "c"), ("z", "y")), Pair(("d", "b", "a"), ("y",))]
    sizes = []

    def make_model(n_source: int, n_target: int) -> RNNTranslator:
        sizes.append((n_source, n_target))
        return RNNTranslator(n_source, n_target, embedding_size=8, hidden_size=16, context_size=8)

    every = train_translator(make_model, examples, steps=4)
    limited = train_translator(make_model, examples, steps=4, vocabulary_size=6)
    assert sizes == [(8, 7), (6, 6)]
    assert every.english.words[4:] == ("b", "a", "c", "d") and every.french.words[4:] == ("y", "x", "z")
    assert limited.english.words[4:] == ("b", "a") and limited.french.words[4:] == ("y", "x")
    for trained, learns in ((every, False), (limited, True)):
        torch.manual_seed(0)
        before = make_model(len(trained.english), len(trained.french))
        for old, new in ((before.encoder, trained.model.encoder), (before.decoder, trained.model.decoder)):
            moved = (old.embedding.weight != new.embedding.weight).any(dim=-1)
            assert bool(moved[Vocabulary.unk]) == learns and not moved[Vocabulary.pad]


def test_sentences_with_more_words_than_the_vocabulary_holds() -> None:
    """As in real text: most words are rare. 12,000 different ones on each side, 10,000 entries."""
    numbered = [(f"w{i}", f"v{i}") for i in range(12_000)]
    frequent = [Pair(tuple(w for w, _ in numbered[:n]), tuple(v for _, v in numbered[:n])) for n in (3, 5, 8)] * 4
    rare = [Pair((w, "w0"), ("v1", v)) for w, v in numbered]
    make_model = functools.partial(RNNTranslator, embedding_size=4, hidden_size=8, context_size=4)
    trained = train_translator(make_model, frequent + rare, steps=2, vocabulary_size=10_000)
    assert len(trained.english) == len(trained.french) == 10_000
    assert {"w0", "w7"} <= set(trained.english.words) and {"v0", "v7"} <= set(trained.french.words)
    (words,) = translate(trained.model, [("w0", "never", "seen")], trained.english, trained.french, max_length=5)
    assert set(words) <= set(trained.french.words)


# ------------------------------------------------------------------ the stored table


def test_the_stored_table_shows_what_the_lesson_reads_from_it() -> None:
    table = measured("bottleneck")
    for row in table["rows"]:
        assert row["bleu"][-1] < row["bleu"][0] / 3, "every curve falls"
        assert all(longer < shorter + 0.5 for shorter, longer in itertools.pairwise(row["bleu"]))
    own = [row["bleu"] for row in table["rows"] if (row["hidden_size"], row["steps"]) == (128, 1000)]
    assert len(own) == 3
    for bleu in own:
        assert bleu[0] > 40 and bleu[1] < bleu[0] / 2 and bleu[-1] < bleu[0] / 5

    means = figures.mean_bleu(table)  # (vector, states, steps) -> BLEU by length
    widths = [means[size, 512, 1000] for size in (8, 32, 128, 512)]
    assert max(widths[0]) < 10, "with 8 numbers it fails on all sentences"
    more_training = [(means[128, 128, 1000], means[128, 128, 4000]), (means[512, 512, 1000], means[512, 512, 4000])]
    for worse, better in (*itertools.pairwise(widths), *more_training):
        assert all(a < b for a, b in zip(worse, better, strict=True))
    assert all(a < b for a, b in zip(means[512, 512, 1000], means[128, 512, 4000], strict=True))


def test_the_mean_of_the_seeds_is_taken_for_each_setting() -> None:
    def row(size: int, steps: int, *bleu: float) -> dict:
        return {"context_size": size, "hidden_size": 16, "steps": steps, "bleu": list(bleu)}

    table = {"rows": [row(4, 10, 50.0, 20.0), row(4, 20, 1.0, 2.0), row(4, 10, 60.0, 40.0)]}
    assert figures.mean_bleu(table) == {(4, 16, 10): [55.0, 30.0], (4, 16, 20): [1.0, 2.0]}


def test_one_thread_gives_the_number_of_threads_back() -> None:
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            with pytest.raises(KeyError), one_thread():
                assert torch.get_num_threads() == 1
                raise KeyError
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_a_translator_does_not_depend_on_the_number_of_threads() -> None:
    make_model = functools.partial(RNNTranslator, embedding_size=8, hidden_size=16, context_size=8)
    examples = [Pair(("a", "b", "c"), ("x", "y")), Pair(("b", "a"), ("y",)), Pair(("c",), ("x", "x", "y"))]
    before, losses = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            losses.append(train_translator(make_model, examples, steps=5).losses)
    finally:
        torch.set_num_threads(before)
    assert losses[0] == losses[1] and len(losses[0]) == 5
