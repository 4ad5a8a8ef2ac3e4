"""Lesson 01: the functions that a learner writes, and the promise that padding never changes anything."""

import functools
import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from course_utils.benchmarks import measured
from course_utils.corpora.pairs import Pair
from course_utils.corpora.vocabulary import Vocabulary, pad_batch
from course_utils.lessons.rnn_translator import (
    RNNTranslator,
    greedy_decode,
    gru_step,
    last_valid_state,
    masked_cross_entropy,
    reverse_valid,
    rnn_step,
    train_translator,
    translate,
    translation_loss,
)
from course_utils.training import TranslationBatch, batches_by_length, one_thread, train

seeds = st.integers(0, 2**16)
leading = st.lists(st.integers(1, 3), max_size=2).map(tuple)
few = settings(max_examples=25, deadline=None)


def numbers(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def ids(seed: int, high: int, *shape: int) -> Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


# ------------------------------------------------------------------ one step


@few
@given(leading, st.integers(1, 5), st.integers(1, 6), seeds)
def test_rnn_step_is_rnn_cell(lead: tuple[int, ...], inputs: int, hidden: int, seed: int) -> None:
    torch.manual_seed(seed)
    cell = nn.RNNCell(inputs, hidden)
    x, h = numbers(seed, *lead, inputs), numbers(seed + 1, *lead, hidden)
    got = rnn_step(x, h, cell.weight_ih.T, cell.weight_hh.T, cell.bias_ih + cell.bias_hh)
    expected = cell(x.reshape(-1, inputs), h.reshape(-1, hidden)).reshape(*lead, hidden)
    torch.testing.assert_close(got, expected)


@few
@given(leading, st.integers(1, 5), st.integers(1, 6), seeds)
def test_gru_step_is_gru_cell(lead: tuple[int, ...], inputs: int, hidden: int, seed: int) -> None:
    torch.manual_seed(seed)
    cell = nn.GRUCell(inputs, hidden)
    x, h = numbers(seed, *lead, inputs), numbers(seed + 1, *lead, hidden)
    got = gru_step(x, h, cell.weight_ih.T, cell.weight_hh.T, cell.bias_ih, cell.bias_hh)
    expected = cell(x.reshape(-1, inputs), h.reshape(-1, hidden)).reshape(*lead, hidden)
    torch.testing.assert_close(got, expected)


def test_gru_with_an_open_update_gate_keeps_its_state() -> None:
    h = numbers(0, 3, 4)
    b_x = torch.tensor([0.0, 100.0, 0.0]).repeat_interleave(4)
    got = gru_step(numbers(1, 3, 2), h, torch.zeros(2, 12), torch.zeros(4, 12), b_x, torch.zeros(12))
    torch.testing.assert_close(got, h)


# ------------------------------------------------------------------ lengths


@few
@given(leading, st.integers(1, 6), st.integers(1, 4), seeds)
def test_last_valid_state_is_a_loop(lead: tuple[int, ...], time: int, hidden: int, seed: int) -> None:
    states = numbers(seed, *lead, time, hidden)
    lengths = ids(seed, time, *lead) + 1
    got = last_valid_state(states, lengths)
    assert got.shape == (*lead, hidden)
    for index in itertools.product(*(range(n) for n in lead)):
        assert torch.equal(got[index], states[index][lengths[index] - 1])


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
@given(st.integers(1, 4), st.integers(1, 6), st.booleans(), seeds)
def test_reverse_valid_is_a_loop_and_its_own_inverse(batch: int, time: int, as_ids: bool, seed: int) -> None:
    values = ids(seed, 9, batch, time) if as_ids else numbers(seed, batch, time, 3)
    lengths = ids(seed, time + 1, batch)
    got = reverse_valid(values, lengths)
    for row, length in enumerate(lengths.tolist()):
        assert torch.equal(got[row, :length], values[row, :length].flip(0))
        assert torch.equal(got[row, length:], values[row, length:])
    assert torch.equal(reverse_valid(got, lengths), values)


# ------------------------------------------------------------------ loss


@few
@given(leading, st.integers(1, 5), st.integers(2, 5), seeds)
def test_loss_is_the_mean_over_valid_tokens(lead: tuple[int, ...], time: int, vocabulary: int, seed: int) -> None:
    logits, targets = numbers(seed, *lead, time, vocabulary), ids(seed, vocabulary, *lead, time)
    lengths = ids(seed, time, *lead) + 1
    total = torch.tensor(0.0)
    for index in itertools.product(*(range(n) for n in lead)):
        length = lengths[index]
        total += F.cross_entropy(logits[index][:length], targets[index][:length], reduction="sum")
    torch.testing.assert_close(masked_cross_entropy(logits, targets, lengths), total / lengths.sum())


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


def test_gradients_of_the_loss_in_double_precision() -> None:
    logits = numbers(0, 2, 3, 4, dtype=torch.float64).requires_grad_()
    targets, lengths = ids(1, 4, 2, 3), torch.tensor([3, 1])
    assert torch.autograd.gradcheck(lambda x: masked_cross_entropy(x, targets, lengths), logits)
    states = numbers(2, 2, 3, 4, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: last_valid_state(x, lengths), states)
    assert torch.autograd.gradcheck(lambda x: reverse_valid(x, lengths), states)


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

LENGTHS = [1, 7, 3, 7, 2, 5]


@pytest.fixture(params=[True, False], ids=["training", "evaluation"])
def model(request: pytest.FixtureRequest) -> RNNTranslator:
    torch.manual_seed(0)
    model = RNNTranslator(11, 13, embedding_size=6, hidden_size=8, context_size=5)
    with torch.no_grad():  # larger weights than at the start: a state that moves a lot shows every leak
        for weight in model.parameters():
            weight.mul_(2)
    return model.train(request.param)


def sentences(high: int) -> list[list[int]]:
    return [ids(row, high - 4, length).add(4).tolist() for row, length in enumerate(LENGTHS)]


def with_rubbish(rows: list[list[int]], high: int, columns: int) -> tuple[Tensor, Tensor]:
    """The padded batch with `columns` columns more, and random words wherever there is padding."""
    tokens, lengths = pad_batch(rows, 0)
    tokens = F.pad(tokens, (0, columns))
    padding = torch.arange(tokens.shape[1]) >= lengths.unsqueeze(1)
    return torch.where(padding, ids(99, high, *tokens.shape), tokens), lengths


@pytest.mark.parametrize("columns", [0, 1, 9])
def test_padding_changes_no_state_and_no_logit(model: RNNTranslator, columns: int) -> None:
    source, source_lengths = with_rubbish(sentences(11), 11, columns)
    target, target_lengths = with_rubbish(sentences(13)[::-1], 13, columns)
    states, last = model.encoder(source, source_lengths)
    context = model.encode(source, source_lengths)
    logits = model(source, source_lengths, target)
    for row, (n, m) in enumerate(zip(source_lengths, target_lengths, strict=True)):
        alone, length = source[row : row + 1, :n], source_lengths[row : row + 1]
        states_alone, last_alone = model.encoder(alone, length)
        close = {"rtol": 0, "atol": 1e-6}
        torch.testing.assert_close(states[row, :n], states_alone[0], **close)
        torch.testing.assert_close(last[row], last_alone[0], **close)
        torch.testing.assert_close(context[row], model.encode(alone, length)[0], **close)
        logits_alone = model(alone, length, target[row : row + 1, :m])
        torch.testing.assert_close(logits[row, :m], logits_alone[0], rtol=0, atol=3e-6)


@pytest.mark.parametrize("columns", [0, 9])
def test_padding_changes_no_loss_and_no_gradient(model: RNNTranslator, columns: int) -> None:
    source, source_lengths = with_rubbish(sentences(11), 11, columns)
    target, target_lengths = with_rubbish(sentences(13)[::-1], 13, columns)
    together = translation_loss(model, TranslationBatch(source, source_lengths, target, target, target_lengths))
    gradients = torch.autograd.grad(together, list(model.parameters()))
    total = torch.tensor(0.0)
    for row, (n, m) in enumerate(zip(source_lengths, target_lengths, strict=True)):
        one = slice(row, row + 1)
        words = target[one, :m]
        alone = TranslationBatch(source[one, :n], source_lengths[one], words, words, target_lengths[one])
        total = total + translation_loss(model, alone) * m
    total = total / target_lengths.sum()
    torch.testing.assert_close(together, total, rtol=0, atol=1e-6)
    for got, expected in zip(gradients, torch.autograd.grad(total, list(model.parameters())), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6)


def test_states_of_both_directions_stand_at_their_word(model: RNNTranslator) -> None:
    source, lengths = with_rubbish(sentences(11), 11, 2)
    states, last = model.encoder(source, lengths)
    both = states.shape[-1] // 2
    changed = source.clone()
    changed[1, 3] = (changed[1, 3] + 1) % 11
    moved = (model.encoder(changed, lengths)[0] - states).abs().amax(dim=0) > 0
    n = int(lengths[1])
    assert moved[:3, :both].sum() == 0, "from the left: words before a change do not notice it"
    assert moved[3:n, :both].any(dim=-1).all()
    assert moved[:4, both:].any(dim=-1).all()
    assert moved[4:n, both:].sum() == 0, "from the right: words after a change do not notice it"
    torch.testing.assert_close(last[:, both:], states[:, 0, both:])


def test_stepping_gives_the_logits_of_the_whole_target_at_once(model: RNNTranslator) -> None:
    source, lengths = with_rubbish(sentences(11), 11, 0)
    target = ids(5, 13, len(LENGTHS), 6)
    state = model.start(source, lengths)
    stepped = []
    for tokens in target.T:
        logits, state = model.step(tokens, state)
        stepped.append(logits)
    torch.testing.assert_close(torch.stack(stepped, dim=1), model(source, lengths, target), rtol=0, atol=3e-6)


def test_the_context_is_all_that_the_decoder_knows() -> None:
    torch.manual_seed(0)
    model = RNNTranslator(11, 13, embedding_size=6, hidden_size=8, context_size=5)
    source, lengths = with_rubbish(sentences(11), 11, 0)
    assert model.encode(source, lengths).shape == (len(LENGTHS), 5)
    with torch.no_grad():
        model.bottleneck.weight.zero_()
    logits = model(source, lengths, torch.full((len(LENGTHS), 4), START))
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


def test_translations_do_not_depend_on_the_company(model: RNNTranslator, vocabularies: tuple) -> None:
    torch.manual_seed(1)
    source_vocabulary, target_vocabulary = vocabularies
    model = RNNTranslator(len(source_vocabulary), len(target_vocabulary), hidden_size=16).train(model.training)
    for weight in model.parameters():
        weight.data.mul_(3)
    texts = some_sentences(SOURCE_WORDS, 40, seed=3)
    together = translate(model, texts, *vocabularies, max_length=12)
    assert together == [translate(model, [text], *vocabularies, max_length=12)[0] for text in texts]
    assert together == translate(model, texts, *vocabularies, max_length=12, batch_size=7)
    assert together == translate(model, texts[::-1], *vocabularies, max_length=12)[::-1]
    assert len(set(together)) > 10, "a model that always says the same would prove nothing"
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
        generator=torch.Generator().manual_seed(0),
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
    for batch in batches_by_length(sources, targets, batch_size=4, generator=torch.Generator().manual_seed(0), steps=6):
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
        generator = torch.Generator().manual_seed(seed)
        batches = batches_by_length(sources, targets, batch_size=10, generator=generator, steps=steps)
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
