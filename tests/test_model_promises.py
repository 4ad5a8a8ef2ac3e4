"""What every model of the course promises: no look into the future, and padding that changes nothing.

A lesson with a new model adds one line to `CAUSAL`, to `PADDED`, or to both; a translator one to `TRANSLATORS`.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from course_utils.corpora.vocabulary import Vocabulary
from course_utils.lessons.attention_layer import scaled_dot_product_attention
from course_utils.lessons.attention_translator import (
    AdditiveDecoder,
    AttentionDecoder,
    AttentionTranslator,
    LuongDecoder,
)
from course_utils.lessons.fast_decoding import attend_linear
from course_utils.lessons.flash_attention import attend_in_tiles
from course_utils.lessons.language_model import GPT2, CopyModel, LanguageModel, attend_rotary
from course_utils.lessons.masking import (
    CharacterModel,
    causal_attention,
    leaks_future,
    masked_attention,
    other_inputs,
    padding_mask,
)
from course_utils.lessons.multi_head import MultiHeadAttention, attend, attend_in_steps
from course_utils.lessons.pre_norm import RMSNorm, SwiGLU, attend_normed, small_model
from course_utils.lessons.rnn_translator import Encoder, RNNTranslator, translate, translation_loss
from course_utils.lessons.sequence_models import (
    D_MODEL,
    attention_core,
    cnn_core,
    dilated_cnn_core,
    rnn_core,
)
from course_utils.lessons.transformer_block import TransformerBlock, post_norm_block, pre_norm_block
from course_utils.lessons.transformer_translator import TransformerTranslator
from course_utils.training import TranslationBatch
from tests.helpers import N_SOURCE, N_TARGET, FunctionModule, ids, loud, source_batch, target_batch

N_IDS, TIME = 9, 7
LENGTHS = torch.tensor([5, 7, 1, 4])


def some_ids(seed: int, *shape: int) -> Tensor:
    tokens = ids(seed, N_IDS, *shape)
    tokens[..., 0] = N_IDS - 1  # so that the probe knows the largest id
    return tokens


SOURCE, TARGET = some_ids(1, len(LENGTHS), TIME), some_ids(2, len(LENGTHS), 6)
RNN = partial(RNNTranslator, N_IDS, N_IDS, 4, 6, 5)
ATTENTION = partial(AttentionTranslator, N_IDS, N_IDS, 4, 6)
TRANSFORMER = partial(TransformerTranslator, N_IDS, N_IDS, 8, 2, 16)
DECODERS = (AttentionDecoder, AdditiveDecoder, LuongDecoder)
BLOCKS = (post_norm_block, pre_norm_block)


def reads_target(model: nn.Module, target: Tensor) -> Tensor:
    """A translator as a function of the target that it is given."""
    return model(SOURCE, LENGTHS, target)


def writes(model: nn.Module, source: Tensor, lengths: Tensor) -> Tensor:
    """A translator as a function of the source: the same words are written for every sentence."""
    return model(source, lengths, TARGET[:1].expand(len(lengths), -1))


def looks(model: Any, source: Tensor, lengths: Tensor) -> Tensor:
    """The weights of each real word of the source at every step."""
    maps = model.attention_map(source, lengths, TARGET[:1].expand(len(lengths), -1))
    return valid(maps.transpose(1, 2), lengths)


def valid(states: Tensor, lengths: Tensor) -> Tensor:
    """The states at real tokens, one after the other: (all tokens, features)."""
    return states[padding_mask(lengths, states.shape[1]).squeeze(1)]


def attends(model: nn.Module, tokens: Tensor, lengths: Tensor) -> Tensor:
    x = model(tokens)
    return valid(masked_attention(x, x, x, padding_mask(lengths, tokens.shape[1]))[0], lengths)


def sees_words(embedding: nn.Module, layer: nn.Module, tokens: Tensor, lengths: Tensor) -> Tensor:
    """A multi-head layer over embedded tokens, whose padding it does not see."""
    return valid(layer(embedding(tokens), mask=padding_mask(lengths.unsqueeze(1), tokens.shape[1])), lengths)


# Name -> model and token ids (batch, time), or numbers (batch, time, features). Outputs are (batch, time, ...).
CAUSAL: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "01 translator": lambda: (FunctionModule(reads_target, RNN()), TARGET),
    **{f"02 {d.__name__}": lambda d=d: (FunctionModule(reads_target, ATTENTION(decoder=d)), TARGET) for d in DECODERS},
    "05 character model": lambda: (CharacterModel(N_IDS, causal_attention, 8), some_ids(0, 4, TIME)),
    **{
        f"06 multi-head, {f.__name__}": lambda f=f: (
            FunctionModule(partial(nn.Module.__call__, is_causal=True), MultiHeadAttention(12, 3, attend=f)),
            torch.randn(4, TIME, 12),
        )
        for f in (attend, attend_in_steps)
    },
    **{
        f"08 {order.__name__}": lambda order=order: (
            FunctionModule(partial(nn.Module.__call__, is_causal=True), TransformerBlock(12, 3, 16, order=order)),
            torch.randn(4, TIME, 12),
        )
        for order in BLOCKS
    },
    **{
        f"07 {core.__name__}": lambda core=core: (core(), torch.randn(4, TIME, D_MODEL))
        for core in (rnn_core, cnn_core, dilated_cnn_core, attention_core)
    },
    "10 translator": lambda: (FunctionModule(reads_target, TRANSFORMER()), TARGET),
    "10 translator, in steps": lambda: (FunctionModule(reads_target, TRANSFORMER(attend=attend_in_steps)), TARGET),
    "09 language model": lambda: (loud(LanguageModel(N_IDS, 8, 2, 2, TIME), 10), some_ids(0, 4, TIME)),
    "09 language model, in steps": lambda: (
        loud(LanguageModel(N_IDS, 8, 2, 2, TIME, partial(attend_rotary, attend=attend_in_steps)), 10),
        some_ids(0, 4, TIME),
    ),
    "13 linear attention": lambda: (
        loud(LanguageModel(N_IDS, 8, 2, 2, TIME, attend_linear), 10),
        some_ids(0, 4, TIME),
    ),
    "09 GPT-2": lambda: (loud(GPT2(N_IDS, 8, 2, 2, TIME), 10), some_ids(0, 4, TIME)),
    "09 copy model": lambda: (CopyModel(2, 8), some_ids(0, 4, TIME)),
    "14 language model, in tiles": lambda: (
        loud(LanguageModel(N_IDS, 8, 2, 2, TIME, partial(attend_rotary, attend=attend_in_tiles)), 10),
        some_ids(0, 4, TIME),
    ),
    "12 small model": lambda: (small_model(8, 4, TIME, RMSNorm, SwiGLU), some_ids(0, 4, TIME)),
    "12 normed queries and keys": lambda: (
        FunctionModule(partial(nn.Module.__call__, is_causal=True), MultiHeadAttention(12, 3, attend=attend_normed)),
        torch.randn(4, TIME, 12),
    ),
}

# Models that do look ahead: the same test must find them.
LOOKS_AHEAD: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "01 encoder": lambda: (
        FunctionModule(lambda m, x: m(x, torch.full((4,), TIME))[0], Encoder(N_IDS, 4, 3)),
        some_ids(0, 4, TIME),
    ),
    "05 character model": lambda: (CharacterModel(N_IDS, scaled_dot_product_attention, 8), some_ids(0, 4, TIME)),
    "07 zeros on both sides": lambda: (
        FunctionModule(lambda conv, x: conv(x.mT).mT, nn.Conv1d(5, 5, 3, padding=1)),
        torch.randn(4, TIME, 5),
    ),
    "09 language model": lambda: (
        loud(LanguageModel(N_IDS, 8, 2, 2, TIME, lambda q, k, v, mask, is_causal: attend(q, k, v)), 10),
        some_ids(0, 4, TIME),
    ),
}

# Name -> model, called with (token ids, lengths). All numbers that it returns belong to real tokens or to whole
# sentences, in the order of the sentences, so none of them may depend on padding.
PADDED: dict[str, Callable[[], nn.Module]] = {
    "01 encoder, states": lambda: FunctionModule(lambda m, x, n: valid(m(x, n)[0], n), Encoder(N_IDS, 4, 3)),
    "01 encoder, result": lambda: FunctionModule(lambda m, x, n: m(x, n)[1], Encoder(N_IDS, 4, 3)),
    "01 context": lambda: FunctionModule(lambda m, x, n: m.start(x, n)[0], RNN()),
    "01 translator": lambda: FunctionModule(writes, RNN()),
    **{f"02 {d.__name__}": lambda d=d: FunctionModule(writes, ATTENTION(decoder=d)) for d in DECODERS},
    **{f"02 {d.__name__}, map": lambda d=d: FunctionModule(looks, ATTENTION(decoder=d)) for d in DECODERS},
    "05 attention": lambda: FunctionModule(attends, nn.Embedding(N_IDS, 4)),
    "06 multi-head": lambda: FunctionModule(sees_words, nn.Embedding(N_IDS, 12), MultiHeadAttention(12, 3)),
    **{
        f"08 {order.__name__}": lambda order=order: FunctionModule(
            sees_words, nn.Embedding(N_IDS, 12), TransformerBlock(12, 3, 16, order=order)
        )
        for order in BLOCKS
    },
    "14 multi-head, in tiles": lambda: FunctionModule(
        sees_words, nn.Embedding(N_IDS, 12), MultiHeadAttention(12, 3, attend_in_tiles)
    ),
    "10 encoder": lambda: FunctionModule(lambda m, x, n: valid(m.encode(x, n)[0], n), TRANSFORMER()),
    "10 translator": lambda: FunctionModule(writes, TRANSFORMER()),
    "10 translator, map": lambda: FunctionModule(looks, TRANSFORMER()),
}

# Models to which padding is like any other word: the same test must find them.
READS_PADDING: dict[str, Callable[[], nn.Module]] = {
    "the last state": lambda: FunctionModule(lambda m, x, n: m(x, n)[0][:, -1], Encoder(N_IDS, 4, 3)),
    "no mask": lambda: FunctionModule(
        lambda m, x, n: valid(m(x).cumsum(1) + m(x).mean(1, True), n), nn.Embedding(N_IDS, 4)
    ),
    "in training only": lambda: FunctionModule(
        lambda m, x, n: valid(m(x) + (m(x).mean(1, True) if m.training else 0), n), nn.Embedding(N_IDS, 4)
    ),
}


def assert_padding_changes_nothing(model: nn.Module, tokens: Tensor, lengths: Tensor) -> None:
    """Other ids in the padding, more padding, and no padding at all: always the same numbers."""

    def run(tokens: Tensor, lengths: Tensor) -> Tensor:
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)  # the same dropout
            return model(tokens, lengths)

    padding = ~padding_mask(lengths, tokens.shape[1]).squeeze(1)
    other = torch.where(padding, other_inputs(tokens, torch.Generator().manual_seed(0)), tokens)
    for training in (True, False):
        model.train(training)
        assert torch.equal(run(other, lengths), run(tokens, lengths)), f"other ids in the padding, training={training}"
    wider = torch.cat([tokens, tokens[:, :3]], dim=1)
    torch.testing.assert_close(run(wider, lengths), run(tokens, lengths), msg="more padding")
    alone = [run(row[None, :n], n[None]) for row, n in zip(tokens, lengths, strict=True)]
    torch.testing.assert_close(torch.cat(alone), run(tokens, lengths), msg="no padding")


@pytest.mark.parametrize("name", CAUSAL)
def test_no_output_depends_on_a_later_input(name: str) -> None:
    torch.manual_seed(0)
    model, inputs = CAUSAL[name]()
    assert not leaks_future(model, inputs)


@pytest.mark.parametrize("name", LOOKS_AHEAD)
def test_models_that_look_ahead_are_found(name: str) -> None:
    torch.manual_seed(0)
    model, inputs = LOOKS_AHEAD[name]()
    assert leaks_future(model, inputs)


@pytest.mark.parametrize("name", PADDED)
def test_padding_changes_nothing(name: str) -> None:
    torch.manual_seed(0)
    assert_padding_changes_nothing(PADDED[name](), SOURCE, LENGTHS)


@pytest.mark.parametrize("name", READS_PADDING)
def test_models_that_read_padding_are_found(name: str) -> None:
    torch.manual_seed(0)
    with pytest.raises(AssertionError):
        assert_padding_changes_nothing(READS_PADDING[name](), SOURCE, LENGTHS)


# ------------------------------------------------------------------ translators

# Called with the sizes of both vocabularies.
TRANSLATORS: dict[str, Callable[..., Any]] = {
    "01 translator": RNNTranslator,
    **{f"02 {d.__name__}": partial(AttentionTranslator, decoder=d) for d in DECODERS},
    "10 translator": lambda n, m, hidden_size, embedding_size=0: TransformerTranslator(n, m, hidden_size, 4, 64),
}


@pytest.fixture(params=itertools.product(TRANSLATORS, ("training", "evaluation")), ids=", ".join)
def translator(request: pytest.FixtureRequest) -> Any:
    """In float64, where two ways to the same number agree to 1e-12."""
    name, mode = request.param
    torch.manual_seed(0)
    model = TRANSLATORS[name](N_SOURCE, N_TARGET, embedding_size=6, hidden_size=8)
    return loud(model).double().train(mode == "training")


same = partial(torch.testing.assert_close, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("columns", [0, 1, 9])
def test_padding_of_both_sides_changes_no_logit_no_loss_and_no_gradient(translator: Any, columns: int) -> None:
    (source, n_source), (target, n_target) = source_batch(columns), target_batch(columns)
    logits = translator(source, n_source, target)
    loss = translation_loss(translator, TranslationBatch(source, n_source, target, target, n_target))
    total = torch.tensor(0.0)
    for row, (n, m) in enumerate(zip(n_source, n_target, strict=True)):
        one = slice(row, row + 1)
        alone, words = (source[one, :n], n_source[one]), target[one, :m]
        same(logits[row, :m], translator(*alone, words)[0])
        total = total + translation_loss(translator, TranslationBatch(*alone, words, words, n_target[one])) * m
    total = total / n_target.sum()
    same(loss, total)
    weights = list(translator.parameters())
    for got, expected in zip(torch.autograd.grad(loss, weights), torch.autograd.grad(total, weights), strict=True):
        same(got, expected)


def test_stepping_gives_the_logits_of_the_whole_target_at_once(translator: Any) -> None:
    source, lengths = source_batch()
    target = ids(5, N_TARGET, len(source), 6)
    state, stepped = translator.start(source, lengths), []
    for tokens in target.T:
        logits, state = translator.step(tokens, state)
        stepped.append(logits)
    same(torch.stack(stepped, dim=1), translator(source, lengths, target))


@pytest.mark.parametrize("name", TRANSLATORS)
def test_translations_do_not_depend_on_the_company(name: str) -> None:
    torch.manual_seed(1)
    words = [f"w{i}" for i in range(9)]
    vocabulary = Vocabulary.build([words])
    model = loud(TRANSLATORS[name](len(vocabulary), len(vocabulary), hidden_size=16), 3)
    say = partial(translate, model, source_vocabulary=vocabulary, target_vocabulary=vocabulary, max_length=12)
    texts = [tuple(words[i] for i in ids(row, 9, 1 + row % 6)) for row in range(40)]
    together = say(texts)
    assert together == [say([text])[0] for text in texts]
    assert together == say(texts, batch_size=7)
    assert together == say(texts[::-1])[::-1]
    assert len(set(together)) > 10, "a model that always says the same would prove nothing"
