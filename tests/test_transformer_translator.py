"""Lesson 10: PyTorch's decoder layer, a search equal to looking at everything, and writing that ends."""

from itertools import pairwise
from statistics import mean
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from course_utils.benchmarks import measured
from course_utils.benchmarks.attention_translator import LESSON_10, TRAININGS, TRANSFORMER
from course_utils.benchmarks.transformer_translator import LATE, SENTENCES
from course_utils.corpora.vocabulary import Vocabulary
from course_utils.lessons.attention_translator import AttentionTranslator, reversal_pairs
from course_utils.lessons.masking import padding_mask
from course_utils.lessons.rnn_translator import greedy_decode, train_translator, translate
from course_utils.lessons.sequence_models import longest_chain
from course_utils.lessons.transformer_block import pre_norm_block
from course_utils.lessons.transformer_translator import (
    DecoderBlock,
    TransformerTranslator,
    all_sentences,
    beam_search,
    best_of_beam,
    copy_decoder_layer,
    cross_weights,
    head_errors,
    head_maps,
    next_word,
    shift_right,
    wrong_by_position,
)
from course_utils.training import batches_by_length
from tests.helpers import few, generator, ids, leading, numbers, seeds, sizes

# ------------------------------------------------------------------ the block


@few
@given(st.integers(1, 3), st.integers(1, 3), sizes, sizes, st.booleans(), seeds)
def test_block_is_pytorchs_decoder_layer(batch, n_heads, n_target, n_source, is_masked, seed) -> None:
    """Outputs and all gradients, with copied weights; norms and biases are not at their first values."""
    torch.manual_seed(seed)
    theirs = nn.TransformerDecoderLayer(4 * n_heads, n_heads, 7, dropout=0.0, batch_first=True).double()
    for weights in theirs.parameters():
        nn.init.normal_(weights, std=0.5)
    ours = DecoderBlock(4 * n_heads, n_heads, 7).double()
    copy_decoder_layer(theirs, ours)
    x, states = (numbers(seed + i, batch, n, 4 * n_heads).requires_grad_() for i, n in enumerate((n_target, n_source)))
    lengths = torch.randint(1, n_source + 1, (batch, 1))
    mask = padding_mask(lengths, n_source) if is_masked else None
    causal = nn.Transformer.generate_square_subsequent_mask(n_target, dtype=torch.float64)
    hidden = ~mask[:, 0, 0] if mask is not None else None
    wanted = theirs(x, states, tgt_mask=causal, memory_key_padding_mask=hidden)
    got = ours(x, states, mask)
    torch.testing.assert_close(got, wanted, rtol=1e-8, atol=1e-8)
    factors = numbers(seed + 2, *wanted.shape)
    gradients = [torch.autograd.grad((out * factors).sum(), (x, states)) for out in (got, wanted)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-7)


def test_parts_of_the_block_can_be_others() -> None:
    """The order of the joints is an argument, as in lesson 08: here lesson 08's own for two of the three parts."""

    def order(x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3):
        x = x + self_attention(norm_1(x), is_causal=True)
        return pre_norm_block(x, lambda y: cross_attention(y, states, mask=mask), mlp, norm_2, norm_3)

    torch.manual_seed(0)
    block = DecoderBlock(8, 2, 5, order=order)
    theirs = nn.TransformerDecoderLayer(8, 2, 5, dropout=0.0, batch_first=True, norm_first=True)
    copy_decoder_layer(theirs, block)
    x, states = torch.randn(2, 3, 8), torch.randn(2, 4, 8)
    causal = nn.Transformer.generate_square_subsequent_mask(3)
    torch.testing.assert_close(block(x, states), theirs(x, states, tgt_mask=causal))


# ------------------------------------------------------------------ the model


def tiny(n_source: int = 9, n_target: int = 5, **others) -> TransformerTranslator:
    return TransformerTranslator(n_source, n_target, d_model=8, n_heads=2, d_hidden=16, **others)


@pytest.mark.parametrize("side", ["source", "target"])
def test_more_tokens_than_positions_is_an_error(side: str) -> None:
    model = tiny(longest=6)
    shapes = {"source": (2, 4), "target": (2, 4)}
    for n in (6, 7):
        tokens = {name: torch.ones(*shape, dtype=torch.long) for name, shape in {**shapes, side: (2, n)}.items()}
        lengths = torch.full((2,), tokens["source"].shape[1])
        if n == 6:
            model(tokens["source"], lengths, tokens["target"])
        else:
            with pytest.raises(ValueError, match="the model has 6 positions, got 7 tokens"):
                model(tokens["source"], lengths, tokens["target"])


def test_writing_past_the_last_position_is_an_error() -> None:
    torch.manual_seed(0)
    model = tiny(longest=6)
    with torch.no_grad():
        model.output.bias.copy_(torch.tensor([0.0, 0.0, 0.0, -1e4, 0.0]))  # it never stops
    source, lengths = torch.ones(1, 4, dtype=torch.long), torch.tensor([4])
    step: Any = model.step
    state = model.start(source, lengths)
    assert len(greedy_decode(step, state, torch.tensor([2]), 3, 6)[0]) == 6
    with pytest.raises(ValueError, match="positions"):
        greedy_decode(step, state, torch.tensor([2]), 3, 7)


def test_each_word_can_see_every_source_word_and_the_words_before() -> None:
    torch.manual_seed(0)
    model = tiny()
    source, lengths, target = torch.randint(4, 9, (1, 5)), torch.tensor([5]), torch.randint(4, (1, 6))
    logits = model(source, lengths, target)
    for i in range(5):
        other = source.clone()
        other[0, i] = (source[0, i] - 3) % 5 + 4
        changed = (model(other, lengths, target) != logits).any(dim=-1)
        assert changed.all()
    for j in range(6):
        other = target.clone()
        other[0, j] = (target[0, j] + 1) % 4
        changed = (model(source, lengths, other) != logits).any(dim=-1)[0]
        assert changed.tolist() == [False] * j + [True] * (6 - j)


def test_size_is_that_of_lesson_02s_translator() -> None:
    ours, theirs = TransformerTranslator(211, 334), AttentionTranslator(211, 334)
    sizes_ = [sum(p.numel() for p in model.parameters()) for model in (ours, theirs)]
    assert abs(sizes_[0] - sizes_[1]) < 0.01 * min(sizes_)


def test_cross_weights_are_those_of_the_forward_pass() -> None:
    """With values that are all equal to one vector, the weights would not matter: here they do, in each layer."""
    torch.manual_seed(0)
    model = tiny(n_target=7)
    source, lengths = torch.randint(4, 9, (3, 6)), torch.tensor([6, 2, 4])
    target = torch.randint(7, (3, 5))
    weights = cross_weights(model, source, lengths, target)
    assert weights.shape == (3, 2, 2, 5, 6)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(3, 2, 2, 5))
    assert (weights[1, ..., 2:] == 0).all()
    torch.testing.assert_close(model.attention_map(source, lengths, target), weights.mean(dim=(1, 2)))
    states, mask = model.encode(source, lengths)
    x = model.target_words(target)
    block: Any = model.decoder[0]
    x = block.norm_1(x + block.self_attention(x, is_causal=True))
    torch.testing.assert_close(weights[:, 0], block.cross_attention.weights(x, states, mask))
    assert not block.cross_attention._forward_hooks, "the hooks are gone"


# ------------------------------------------------------------------ the chain


def test_chain_of_the_transformer_does_not_grow() -> None:
    def chain(model: nn.Module, n: int) -> int:
        words = torch.full((2, n), 4)
        return longest_chain(model(words, torch.tensor([n, n]), words).sum())

    transformer, recurrent = tiny(), AttentionTranslator(9, 5, 6, 8)
    assert len({chain(transformer, n) for n in (1, 2, 7, 30)}) == 1
    chains = [chain(recurrent, n) for n in range(2, 7)]
    assert {b - a for a, b in pairwise(chains)} == {chains[1] - chains[0]}, "the same for each word"
    assert chains[1] - chains[0] > 20
    one, two = (chain(tiny(n_layers=n), 5) for n in (1, 2))
    assert two > 1.5 * one


# ------------------------------------------------------------------ beam search


def best_of_all(ask, n_words: int, stop: int, max_length: int, alpha: float) -> list[tuple[list[int], float]]:
    found = []
    for words in all_sentences(n_words, stop, max_length):
        rows = [torch.tensor([[2, *words[:n]]]) for n in range(len(words))]
        logs = [torch.log_softmax(ask(row)[0], dim=-1)[word] for row, word in zip(rows, words, strict=True)]
        found.append((words, float(sum(logs)) / len(words) ** alpha))
    return sorted(found, key=lambda result: -result[1])


def test_all_sentences() -> None:
    assert list(all_sentences(2, 0, 2)) == [[0], [1, 0], [1, 1]]
    assert sum(1 for _ in all_sentences(4, 3, 4)) == 1 + 3 + 9 + 27 * 4


@settings(max_examples=10, deadline=None)
@given(seeds, st.sampled_from([0.0, 0.6, 1.0]))
@torch.no_grad()
def test_a_beam_that_holds_everything_finds_the_best_of_all(seed: int, alpha: float) -> None:
    torch.manual_seed(seed)
    model = tiny(n_target=4)
    for weights in model.parameters():
        weights.mul_(2)
    ask = next_word(model, torch.tensor([4, 7, 5, 6]))
    found = beam_search(ask, torch.tensor([2]), 3, 500, 3, alpha)
    wanted = best_of_all(ask, 4, 3, 3, alpha)
    assert len(found) == len(wanted) and {tuple(words) for words, _ in found} == {tuple(words) for words, _ in wanted}
    assert [score for _, score in found] == pytest.approx([score for _, score in wanted], abs=1e-5)
    narrow = beam_search(ask, torch.tensor([2]), 3, 3, 3, alpha)
    assert len(narrow) == 3 and narrow[0][1] <= wanted[0][1] + 1e-5


@few
@given(seeds, st.integers(1, 5), st.integers(1, 6))
@torch.no_grad()
def test_what_a_search_gives(seed: int, beam_size: int, max_length: int) -> None:
    """At most beam_size different sentences, best first; each ends with its first stop token or at the limit."""
    torch.manual_seed(seed)
    model = tiny(n_target=5)
    ask = next_word(model, torch.randint(4, 9, (3,)))
    found = beam_search(ask, torch.tensor([2]), 3, beam_size, max_length)
    assert 1 <= len(found) <= beam_size and len({tuple(words) for words, _ in found}) == len(found)
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
    for words, _ in found:
        assert 3 not in words[:-1] and (words[-1] == 3 or len(words) == max_length)


@pytest.mark.parametrize("training", [True, False])
def test_a_beam_of_one_is_greedy_decoding(training: bool) -> None:
    torch.manual_seed(3)
    words = [f"w{i}" for i in range(9)]
    vocabulary = Vocabulary.build([words])
    model = TransformerTranslator(len(vocabulary), len(vocabulary), 16, 2, 16).train(training)
    with torch.no_grad():
        for weights in model.parameters():
            weights.mul_(3)
    sentences = [words[i : i + 4] for i in range(6)]
    greedy = translate(model, sentences, vocabulary, vocabulary, max_length=12)
    for sentence, wanted in zip(sentences, greedy, strict=True):
        with torch.no_grad():
            ask = next_word(model, torch.tensor(vocabulary.encode(sentence)))
            ((tokens, _),) = beam_search(ask, torch.tensor([vocabulary.start]), vocabulary.stop, 1, 12)
        assert tuple(vocabulary.decode([t for t in tokens if t != vocabulary.stop])) == wanted


@torch.no_grad()
def test_a_translation_with_beams_does_not_depend_on_padding() -> None:
    """`next_word` reads one sentence alone; the same sentence with padding gives the same logits."""
    torch.manual_seed(0)
    model = tiny()
    source, rows = torch.tensor([4, 7, 5]), torch.tensor([[2, 4, 1], [2, 0, 4]])
    alone = next_word(model, source)(rows)
    padded = F.pad(source, (0, 4), value=8).expand(2, -1)
    together = model(padded, torch.tensor([3, 3]), rows)[:, -1]
    torch.testing.assert_close(alone, together)


# ------------------------------------------------------------------ a task whose map is known


@pytest.fixture(scope="module")
def reverser():
    pairs = reversal_pairs(2000, letters="abcde", shortest=2, longest=5)
    make = lambda n, m: TransformerTranslator(n, m, 32, 2, 32)  # noqa: E731
    return train_translator(make, pairs, steps=500, batch_size=32, learning_rate=1e-2, warmup=0.2)


def test_it_learns_to_write_backwards(reverser) -> None:
    pairs = reversal_pairs(100, seed=5, letters="abcde", shortest=2, longest=5)
    sources = [pair.source for pair in pairs]
    answers = translate(reverser.model, sources, reverser.english, reverser.french)
    assert sum(answer == pair.target for answer, pair in zip(answers, pairs, strict=True)) >= 90
    with torch.no_grad():
        found = [best_of_beam(reverser, source, 3) for source in sources[:20]]
    beams = [tuple(reverser.french.decode(words)) for words, _ in found]
    assert sum(beam == pair.target for beam, pair in zip(beams, pairs, strict=False)) >= 17
    assert mean(wrong_by_position(reverser, pairs, width=1, until=3)) < 0.1


def test_maps_of_heads(reverser) -> None:
    pairs = reversal_pairs(30, seed=6, letters="abcde", shortest=2, longest=5)
    maps = head_maps(reverser, pairs, batch_size=7)
    for heads, pair in zip(maps, pairs, strict=True):
        assert heads.shape == (2, 2, len(pair.target), len(pair.source))
        torch.testing.assert_close(heads.sum(dim=-1), torch.ones(heads.shape[:-1]))
    for one, other in zip(maps, head_maps(reverser, pairs, batch_size=100), strict=True):
        torch.testing.assert_close(one, other)
    errors = head_errors(maps, pairs)
    assert [len(layer) for layer in errors.heads] == [2, 2] and len(errors.layers) == 2
    gold = [torch.zeros(2, 2, len(p.target), len(p.source)) for p in pairs]
    for heads, pair in zip(gold, pairs, strict=True):
        for i, j in pair.sure:
            heads[..., j, i] = 1
    assert head_errors(gold, pairs) == ([[0, 0], [0, 0]], [0, 0], 0)


@few
@given(leading, sizes, st.sampled_from([torch.int64, torch.int32, torch.int16]), st.integers(0, 9), seeds)
def test_shifted_targets_are_what_batches_hold(lead, time, dtype, start_id, seed) -> None:
    """As lesson 01's batches have them, in any shape."""
    targets = ids(seed, 9, *lead, time).to(dtype)
    read = shift_right(targets, start_id)
    assert read.dtype == dtype and read.shape == targets.shape
    for row, wanted in zip(read.reshape(-1, time).tolist(), targets.reshape(-1, time).tolist(), strict=True):
        assert row == [start_id, *wanted[:-1]]
    sentences = [[5, 6], [7]]
    batch = next(batches_by_length(sentences, sentences, batch_size=2, generator=generator(seed)))
    real = torch.arange(3) < batch.target_lengths.unsqueeze(1)
    assert torch.equal(shift_right(batch.target_out, Vocabulary.start)[real], batch.target_in[real])


# ------------------------------------------------------------------ the stored tables


def rows_of(name: str, trained_on: str) -> list[dict]:
    rows = [row for row in measured("translator")["rows"] if (row["model"], row["trained_on"]) == (name, trained_on)]
    assert [row["seed"] for row in rows] == list(range({**TRAININGS, **LESSON_10}[trained_on][1]))
    return rows


def means(rows: list[dict]) -> list[float]:
    return [mean(values) for values in zip(*(row["bleu"] for row in rows), strict=True)]


RNN = "dot product, old state"


def test_the_stored_trainings_show_what_the_lesson_reads_from_them() -> None:
    transformer = rows_of(TRANSFORMER, "all lengths, 1,000 steps")
    longer = [rows_of(name, "all lengths, 1,500 steps") for name in (TRANSFORMER, RNN)]
    for ours, theirs in ((transformer, rows_of(RNN, "all lengths")), longer):
        ours, theirs = means(ours), means(theirs)
        assert all(abs(a - b) < 2 for a, b in zip(ours[:4], theirs[:4], strict=True)) and ours[4] < theirs[4] - 3
    luong = rows_of("dot product, new state", "all lengths")
    best = [min((e, i, h) for i, layer in enumerate(r["aer_heads"]) for h, e in enumerate(layer)) for r in transformer]
    assert {i for _, i, _ in best} == {1}, "the best single head stands in the second block"
    for row in transformer:
        single = [error for layer in row["aer_heads"] for error in layer]
        assert row["aer"] < min(single), "the mean of all heads is better than each of them"
        assert row["aer"] > max(r["aer"] for r in luong), "not as good as Luong's"
        beams = row["beam_search"]
        assert 5 < beams["better"] < 25 and beams["worse"] == 0
        assert 0.5 < beams["beam"] - beams["greedy"] < 2, "about one point"


def test_no_translator_goes_far_beyond_the_lengths_that_it_was_trained_on() -> None:
    for name in (TRANSFORMER, RNN):
        (short,), full = rows_of(name, "at most 20 words, 1,500 steps"), rows_of(name, "all lengths, 1,500 steps")
        drops = [a - b for a, b in zip(means(full), short["bleu"], strict=True)]
        assert max(drops[:3]) < 10 and 15 < drops[3] < drops[4] and short["bleu"][4] < 50


def test_late_words_are_what_the_lesson_reads_from_them() -> None:
    rnn, transformer, moved = (row["wrong"] for row in measured("late_words")["rows"])
    assert [row["model"] for row in measured("late_words")["rows"]] == list(LATE)
    assert max(transformer[:4]) < 0.02 < min(transformer[5:]), "about one word of a hundred, then more"
    assert max(transformer[:4]) < mean(rnn[:4]) and max(rnn[6:]) < max(rnn[:6]), "no more at the end than before"
    assert transformer[-1] > 5 * max(rnn)
    assert moved[-1] < transformer[-1] / 2 and all(m > t for m, t in zip(moved[:4], transformer[:4], strict=True))


def test_stored_maps_belong_to_the_sentences() -> None:
    rows = measured("cross_maps")["rows"]
    assert [row["source"] for row in rows] == [" ".join(pair.source) for pair in SENTENCES]
    for row, pair in zip(rows, SENTENCES, strict=True):
        weights: Tensor = torch.tensor(row["weights"])
        assert weights.shape == (len(pair.target), len(pair.source))
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(len(pair.target)), atol=5e-3, rtol=0)
