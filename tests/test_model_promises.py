"""What every model of the course promises: no look into the future, and padding that changes nothing.

A lesson with a new model adds one line to `CAUSAL`, to `PADDED`, or to both.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from course_utils.lessons.attention_layer import scaled_dot_product_attention
from course_utils.lessons.attention_translator import (
    AdditiveDecoder,
    AttentionDecoder,
    AttentionTranslator,
    LuongDecoder,
)
from course_utils.lessons.masking import (
    CharacterModel,
    causal_attention,
    leaks_future,
    masked_attention,
    other_inputs,
    padding_mask,
)
from course_utils.lessons.multi_head import MultiHeadAttention, attend, pytorch_attend
from course_utils.lessons.rnn_translator import Encoder, RNNTranslator

N_IDS, TIME = 9, 7
LENGTHS = torch.tensor([5, 7, 1, 4])


class Call(nn.Module):
    """A model together with the way to call it."""

    def __init__(self, model: nn.Module, call: Callable[..., Tensor]) -> None:
        super().__init__()
        self.model, self.call = model, call

    def forward(self, *inputs: Any) -> Tensor:
        return self.call(self.model, *inputs)


def ids(seed: int, *shape: int) -> Tensor:
    tokens = torch.randint(N_IDS, shape, generator=torch.Generator().manual_seed(seed))
    tokens[..., 0] = N_IDS - 1  # so that the probe knows the largest id
    return tokens


SOURCE, TARGET = ids(1, len(LENGTHS), TIME), ids(2, len(LENGTHS), 6)
RNN = partial(RNNTranslator, N_IDS, N_IDS, 4, 6, 5)
ATTENTION = partial(AttentionTranslator, N_IDS, N_IDS, 4, 6)
DECODERS = (AttentionDecoder, AdditiveDecoder, LuongDecoder)


def reads_target(model: nn.Module, target: Tensor) -> Tensor:
    """A translator as a function of the target that it is given."""
    return model(SOURCE, LENGTHS, target)


def valid(states: Tensor, lengths: Tensor) -> Tensor:
    """The states at real tokens, one after the other: (all tokens, features)."""
    return states[padding_mask(lengths, states.shape[1]).squeeze(1)]


def attends(model: nn.Module, tokens: Tensor, lengths: Tensor) -> Tensor:
    x = model(tokens)
    return valid(masked_attention(x, x, x, padding_mask(lengths, tokens.shape[1]))[0], lengths)


def sees_words(model: nn.Module, tokens: Tensor, lengths: Tensor) -> Tensor:
    """A multi-head layer over embedded tokens, whose padding it does not see."""
    embedding, layer = model
    return valid(layer(embedding(tokens), mask=padding_mask(lengths.unsqueeze(1), tokens.shape[1])), lengths)


# Name -> model and token ids (batch, time), or numbers (batch, time, features). Outputs are (batch, time, ...).
CAUSAL: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "01 translator": lambda: (Call(RNN(), reads_target), TARGET),
    **{f"02 {d.__name__}": lambda d=d: (Call(ATTENTION(decoder=d), reads_target), TARGET) for d in DECODERS},
    "05 character model": lambda: (CharacterModel(N_IDS, causal_attention, 8), ids(0, 4, TIME)),
    **{
        f"06 multi-head, {f.__name__}": lambda f=f: (
            Call(MultiHeadAttention(12, 3, attend=f), partial(nn.Module.__call__, is_causal=True)),
            torch.randn(4, TIME, 12),
        )
        for f in (attend, pytorch_attend)
    },
}

# Models that do look ahead: the same test must find them.
LOOKS_AHEAD: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "01 encoder": lambda: (Call(Encoder(N_IDS, 4, 3), lambda m, x: m(x, torch.full((4,), TIME))[0]), ids(0, 4, TIME)),
    "05 character model": lambda: (CharacterModel(N_IDS, scaled_dot_product_attention, 8), ids(0, 4, TIME)),
}

# Name -> model, called with (token ids, lengths). All numbers that it returns belong to real tokens or to whole
# sentences, in the order of the sentences, so none of them may depend on padding.
PADDED: dict[str, Callable[[], nn.Module]] = {
    "01 encoder, states": lambda: Call(Encoder(N_IDS, 4, 3), lambda m, x, n: valid(m(x, n)[0], n)),
    "01 encoder, result": lambda: Call(Encoder(N_IDS, 4, 3), lambda m, x, n: m(x, n)[1]),
    "01 translator": lambda: Call(RNN(), lambda m, x, n: m(x, n, TARGET[:1].expand(len(n), -1))),
    **{
        f"02 {d.__name__}": lambda d=d: Call(
            ATTENTION(decoder=d), lambda m, x, n: m(x, n, TARGET[:1].expand(len(n), -1))
        )
        for d in DECODERS
    },
    "05 attention": lambda: Call(nn.Embedding(N_IDS, 4), attends),
    "06 multi-head": lambda: Call(nn.ModuleList([nn.Embedding(N_IDS, 12), MultiHeadAttention(12, 3)]), sees_words),
}

# Models to which padding is like any other word: the same test must find them.
READS_PADDING: dict[str, Callable[[], nn.Module]] = {
    "the last state": lambda: Call(Encoder(N_IDS, 4, 3), lambda m, x, n: m(x, n)[0][:, -1]),
    "no mask": lambda: Call(nn.Embedding(N_IDS, 4), lambda m, x, n: valid(m(x).cumsum(1) + m(x).mean(1, True), n)),
    "in training only": lambda: Call(
        nn.Embedding(N_IDS, 4), lambda m, x, n: valid(m(x) + (m(x).mean(1, True) if m.training else 0), n)
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
