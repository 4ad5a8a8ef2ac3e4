"""Lesson 01: the functions that a learner writes, and the promise that padding never changes anything."""

import functools
import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from course_utils.benchmarks import measured
from course_utils.corpora.pairs import Pair
from course_utils.corpora.vocabulary import Vocabulary
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
from tests.helpers import N_SOURCE, N_TARGET, few, generator, ids, loud, numbers, seeds, source_batch

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
    assert torch.equal(states.grad, expected)


@few
@given(st.integers(1, 4), st.integers(1, 6), seeds)
def test_reverse_valid_turns_ids_too_and_is_its_own_inverse(batch: int, time: int, seed: int) -> None:
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
    assert torch.equal(clean.grad, dirty.grad)
    assert (dirty.grad[padding] == 0).all()
    assert (dirty.grad[~padding] != 0).all()


# ------------------------------------------------------------------ decoding

START, STOP = 2, 3


class Script:
    """A step function that says, whatever it reads, what stands in its script. Keeps what it was given."""

    def __init__(self, *rows: list[int]) -> None:
        self.rows = torch.tensor(rows)
        self.read: list[list[int]] = []

    def __call__(self, tokens: Tensor, state: tuple[str, int]) -> tuple[Tensor, tuple[str, int]]:
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
    def step(tokens: Tensor, state: None) -> tuple[Tensor, None]:
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
    assert model.encode(source, lengths).shape == (len(source), 5)
    with torch.no_grad():
        model.bottleneck.weight.zero_()
    logits = model(source, lengths, torch.full((len(source), 4), START))
    assert torch.equal(logits, logits[:1].expand_as(logits))


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
    settings_ = {"batches": [torch.ones(1, 2)] * 5, "steps": 5, "learning_rate": 0.1} | changes
    with pytest.raises(ValueError, match=message):
        train(nn.Linear(2, 1), settings_.pop("batches"), squares, **settings_)


# ------------------------------------------------------------------ the stored table


def test_the_stored_table_shows_what_the_lesson_reads_from_it() -> None:
    rows = measured("bottleneck")["rows"]
    widths = {row["context_size"]: row["bleu"] for row in rows if row["hidden_size"] == 512}
    times = {row["steps"]: row["bleu"] for row in rows if row["hidden_size"] == 128}
    assert max(widths[8]) < 6
    for bleu in (widths[32], widths[128], widths[512], *times.values()):
        assert bleu == sorted(bleu, reverse=True), "every curve falls"
    for narrow, wide in itertools.pairwise([32, 128, 512]):
        assert all(a < b for a, b in zip(widths[narrow], widths[wide], strict=True)), "wider is better"
    assert [round(widths[32][0]), round(widths[128][1]), round(widths[512][2])] == [40, 34, 29], "the fall has moved"
    assert max(bleu[-1] for bleu in widths.values()) < 13
    short, long = sorted(times)
    assert long == 4 * short and all(a < b for a, b in zip(times[short], times[long], strict=True))
    for bleu in times.values():
        assert 6 < bleu[0] / bleu[-1] < 8, "about one seventh"


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
