"""Lesson 10: the Transformer of 2017: an encoder that reads, a decoder that writes.

Vaswani et al. 2017 (https://arxiv.org/abs/1706.03762) for the model, Sutskever et al.
2014 (https://arxiv.org/abs/1409.3215) for the beam search, in which a sentence that has
ended keeps its place, Wu et al. 2016 (https://arxiv.org/abs/1609.08144) for scores that
are divided by a power of the length.

Masks are boolean, True = may attend, as in lesson 05. Vectors are (..., tokens,
d_model), heads are (..., heads, tokens, d_k).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_utils.corpora.pairs import Pair
from course_utils.corpora.vocabulary import Vocabulary, pad_batch
from course_utils.lessons.attention_translator import (
    corpus_alignment_error_rate,
    links_from_map,
)
from course_utils.lessons.masking import padding_mask
from course_utils.lessons.multi_head import MultiHeadAttention, attend, copy_weights
from course_utils.lessons.rnn_translator import STEPS, Trained
from course_utils.lessons.self_attention import sinusoidal_encoding
from course_utils.lessons.transformer_block import MLP, LayerNorm, TransformerBlock


def shift_right(
    targets: Int[Tensor, "... time"], start_id: int
) -> Int[Tensor, "... time"]:
    """What the decoder reads while it must answer `targets`.

    At position 0 that is `start_id`; at every later position it is the target before.
    So the last target of each row is never read. The result has as many positions as
    `targets` (at least one), its dtype, and its device. Any number of leading
    dimensions, including none.
    """
    first = torch.full_like(targets[..., :1], start_id)
    return torch.cat([first, targets[..., :-1]], dim=-1)


def decoder_block(
    x: Float[Tensor, "... target d_model"],
    states: Float[Tensor, "... source d_model"],
    mask: Bool[Tensor, "..."] | None,
    self_attention: Callable[..., Tensor],
    cross_attention: Callable[..., Tensor],
    mlp: Callable[[Tensor], Tensor],
    norm_1: Callable[[Tensor], Tensor],
    norm_2: Callable[[Tensor], Tensor],
    norm_3: Callable[[Tensor], Tensor],
) -> Float[Tensor, "... target d_model"]:
    """One block of the decoder of 2017, in the order of lesson 08's `post_norm_block`.

    Three parts, one after the other: self-attention, cross-attention, MLP. After each
    part its input is added, and the sum goes through a norm of its own: `norm_1` after
    the self-attention, `norm_2` after the cross-attention, `norm_3` after the MLP.

    `x` are the vectors of the words that are written, `states` what the encoder has
    made of the source. Both attentions are lesson 06's layers, called as
    `attention(x, data=None, mask=None, is_causal=False)`. In the self-attention no
    position sees a later one, and there is no other mask. In the cross-attention `x`
    asks, keys and values come from `states`, and `mask` is True where the source may be
    attended to; None hides nothing. Any number of leading dimensions, including none.
    """
    x = norm_1(x + self_attention(x, is_causal=True))
    x = norm_2(x + cross_attention(x, states, mask=mask))
    return norm_3(x + mlp(x))


def beam_search(
    next_logits: Callable[
        [Int[Tensor, "beams time"]], Float[Tensor, "beams vocabulary"]
    ],
    start: Int[Tensor, " time"],
    stop_id: int,
    beam_size: int,
    max_length: int,
    alpha: float = 1.0,
) -> list[tuple[list[int], float]]:
    """The sentences that a beam search finds, as (tokens, score), best score first.

    `next_logits(rows)` gives the logits of the token that follows each row. Each row is
    `start` (at least one token, no part of a sentence), then the tokens of a sentence
    so far. A sentence ends with `stop_id`, or with its token number `max_length`. The
    tokens of a result are a list of ints; the stop token is one of them. A result
    without it was cut off.

    The search holds `beam_size` sentences, fewer only where fewer exist. At every step
    each sentence that has not ended is continued by every token of the vocabulary. One
    that has ended is not, and keeps its place. The other places go to the continuations
    with the largest sum of log-probabilities, those of the tokens after `start`. It
    stops when all that it holds have ended: `next_logits` is called at most
    `max_length` times, and only with sentences that have not ended.

    A score is the sum of the log-probabilities of all tokens of the sentence, divided
    by the number of these tokens to the power of `alpha`. Places are given by sums (at
    one step all continuations are equally long). Of equal sums, the continuation of the
    sentence that ranked higher one step before wins; of the same sentence, the smaller
    token. Of equal scores, the sentence that ended first comes first, then the one that
    ranked higher. Logits are converted to float32; new tensors are made on the device
    of `start`.
    """
    beams, sums = start.unsqueeze(0), torch.zeros(1, device=start.device)
    ended: list[tuple[list[int], float]] = []
    for length in range(1, max_length + 1):
        log_probs = torch.log_softmax(next_logits(beams).float(), dim=-1)
        totals = (sums.unsqueeze(1) + log_probs).flatten()
        # `topk` may take any of equal numbers; a stable sort takes the first.
        order = totals.argsort(descending=True, stable=True)[: beam_size - len(ended)]
        parents, words = order // log_probs.shape[1], order % log_probs.shape[1]
        beams = torch.cat([beams[parents], words.unsqueeze(1)], dim=1)
        sums = totals[order]
        done = (words == stop_id) | (length == max_length)
        for row in done.nonzero().flatten().tolist():
            tokens = beams[row, len(start) :].tolist()
            ended.append((tokens, float(sums[row]) / length**alpha))
        beams, sums = beams[~done], sums[~done]
        if len(beams) == 0:
            break
    return sorted(ended, key=lambda result: result[1], reverse=True)


# ------------------------------------------------------------------ the model


class DecoderBlock(nn.Module):
    """Lesson 08's block with a second attention, which looks at the encoder's states.

    `order` says how the parts are joined; the others are as in `TransformerBlock`.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_hidden: int,
        *,
        order: Callable = decoder_block,
        attend: Callable = attend,
        norm: Callable[[int], nn.Module] = LayerNorm,
        mlp: Callable[[int, int], nn.Module] = MLP,
    ) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, n_heads, attend)
        self.cross_attention = MultiHeadAttention(d_model, n_heads, attend)
        self.mlp = mlp(d_model, d_hidden)
        self.norm_1, self.norm_2, self.norm_3 = (norm(d_model) for _ in range(3))
        self.order = order

    def forward(
        self,
        x: Float[Tensor, "... target d_model"],
        states: Float[Tensor, "... source d_model"],
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "... target d_model"]:
        attentions = self.self_attention, self.cross_attention
        norms = self.norm_1, self.norm_2, self.norm_3
        return self.order(x, states, mask, *attentions, self.mlp, *norms)


class WordVectors(nn.Module):
    """The vector of each word times √d_model, plus that of its position (lesson 04)."""

    def __init__(self, n_words: int, d_model: int, longest: int) -> None:
        super().__init__()
        self.words = nn.Embedding(n_words, d_model)
        positions = sinusoidal_encoding(longest, d_model)
        self.register_buffer("positions", positions, persistent=False)

    def forward(
        self, tokens: Int[Tensor, "batch time"]
    ) -> Float[Tensor, "batch time d_model"]:
        longest, d_model = self.positions.shape
        time = tokens.shape[1]
        if time > longest:
            raise ValueError(f"the model has {longest} positions, got {time} tokens")
        return self.words(tokens) * d_model**0.5 + self.positions[:time]


class TransformerLayers(nn.Module):
    """What the Transformer learns: blocks that read the source, blocks that write."""

    def __init__(
        self,
        n_source: int,
        n_target: int,
        d_model: int = 64,
        n_heads: int = 4,
        d_hidden: int = 328,
        n_layers: int = 2,
        longest: int = 128,
        attend: Callable = attend,
    ) -> None:
        super().__init__()
        self.source_words = WordVectors(n_source, d_model, longest)
        self.target_words = WordVectors(n_target, d_model, longest)
        for vectors in (self.source_words, self.target_words):
            nn.init.normal_(vectors.words.weight, std=d_model**-0.5)
        sizes = d_model, n_heads, d_hidden
        # `n_layers` blocks of the one kind, and as many of the other.
        self.encoder, self.decoder = (
            nn.ModuleList(block(*sizes, attend=attend) for _ in range(n_layers))
            for block in (TransformerBlock, DecoderBlock)
        )
        self.output = nn.Linear(d_model, n_target)


class Transformer(TransformerLayers):
    """The model of 2017."""

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The states (batch, source, d_model), and the mask that hides padding."""
        mask = padding_mask(lengths.unsqueeze(1), source.shape[1])
        x = self.source_words(source)
        for block in self.encoder:
            x = block(x, mask)
        return x, mask

    def decode(self, tokens: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        """The last vectors (batch, target, d_model) of the words that are read."""
        x = self.target_words(tokens)
        for block in self.decoder:
            x = block(x, states, mask)
        return x

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch target"],
    ) -> Float[Tensor, "batch target vocabulary"]:
        """For training: the logits of the word after each right word, all at once."""
        return self.output(self.decode(target, *self.encode(source, lengths)))


def cross_weights(
    model: Transformer,
    source: Int[Tensor, "batch source"],
    lengths: Int[Tensor, " batch"],
    target: Int[Tensor, "batch target"],
) -> Float[Tensor, "batch layers heads target source"]:
    """Where each head of each cross-attention looks while the model runs.

    Row j belongs to the step that reads `target[j]` and *writes* the word after it.
    """
    seen: list[Tensor] = []

    def look(layer: MultiHeadAttention, args: tuple, kwargs: dict, _: Tensor) -> None:
        seen.append(layer.weights(*args, **kwargs))

    hooks = [
        layer.register_forward_hook(look, with_kwargs=True)
        for name, layer in model.named_modules()
        if name.endswith("cross_attention")
    ]
    model(source, lengths, target)
    for hook in hooks:
        hook.remove()
    return torch.stack(seen, dim=1)


class TransformerTranslator(Transformer):
    """The Transformer with the methods of lesson 02's translator."""

    def start(
        self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """For writing: the states, their mask, and the words read so far: none."""
        return *self.encode(source, lengths), source.new_zeros(len(source), 0)

    def step(
        self, tokens: Int[Tensor, " batch"], state: tuple[Tensor, Tensor, Tensor]
    ) -> tuple[Float[Tensor, "batch vocabulary"], tuple[Tensor, Tensor, Tensor]]:
        """The logits of one word. All words so far are read again (until lesson 13)."""
        states, mask, read = state
        read = torch.cat([read, tokens.unsqueeze(1)], dim=1)
        last = self.decode(read, states, mask)[:, -1]
        return self.output(last), (states, mask, read)

    def attention_map(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """The mean over all layers and heads: (batch, target, source)."""
        return cross_weights(self, source, lengths, target).mean(dim=(1, 2))


@torch.no_grad()
def copy_decoder_layer(theirs: nn.TransformerDecoderLayer, ours: DecoderBlock) -> None:
    """Puts the weights of PyTorch's layer into our block."""
    copy_weights(theirs.self_attn, ours.self_attention)
    copy_weights(theirs.multihead_attn, ours.cross_attention)
    ours.mlp.get_submodule("up").load_state_dict(theirs.linear1.state_dict())
    ours.mlp.get_submodule("down").load_state_dict(theirs.linear2.state_dict())
    for number in (1, 2, 3):
        norm, copy = getattr(theirs, f"norm{number}"), getattr(ours, f"norm_{number}")
        copy.gain.copy_(norm.weight)
        copy.bias.copy_(norm.bias)


# ------------------------------------------------------------------ training

# As many parameters and as many steps as lesson 02's translator.
SETTINGS = {"steps": STEPS, "learning_rate": 6e-3, "warmup": 0.2}


# ------------------------------------------------------------------ where it looks


@torch.no_grad()
def head_maps(
    trained: Trained, pairs: Sequence[Pair], *, batch_size: int = 100
) -> list[Float[Tensor, "layers heads target source"]]:
    """The cross-attention of each head while the model has to write `pair.target`.

    Row j is the step that *writes* word j of the target.
    """
    device = next(trained.model.parameters()).device
    maps = []
    for first in range(0, len(pairs), batch_size):
        some = pairs[first : first + batch_size]
        source, lengths = pad_batch(
            [trained.english.encode(pair.source) for pair in some], Vocabulary.pad
        )
        target, _ = pad_batch(
            [trained.french.encode(pair.target) for pair in some], Vocabulary.pad
        )
        read = shift_right(target, Vocabulary.start)
        inputs = source.to(device), lengths.to(device), read.to(device)
        weights = cross_weights(trained.model, *inputs)
        maps += [
            w[..., : len(pair.target), : len(pair.source)].cpu()
            for w, pair in zip(weights, some, strict=True)
        ]
    return maps


def error_rate(maps: Iterable[Tensor], pairs: Sequence[Pair]) -> float:
    """The alignment error rate of the largest weight in each row of the maps."""
    return corpus_alignment_error_rate(map(links_from_map, maps), pairs)


class HeadErrors(NamedTuple):
    """Alignment error rates of the single heads, and of means of their weights."""

    heads: list[list[float]]  # layers, heads
    layers: list[float]  # the mean over the heads of a layer
    mean: float  # the mean over all heads


def head_errors(maps: Sequence[Tensor], pairs: Sequence[Pair]) -> HeadErrors:
    """How far the links of each head, and of averaged heads, are from the gold ones.

    `maps` are those of `head_maps`: (layers, heads, target, source), one per pair.
    """
    n_layers, n_heads = maps[0].shape[:2]
    by_layer = [
        [error_rate([m[i, head] for m in maps], pairs) for head in range(n_heads)]
        for i in range(n_layers)
    ]
    layers = [error_rate([m[i].mean(0) for m in maps], pairs) for i in range(n_layers)]
    return HeadErrors(
        by_layer, layers, error_rate([m.mean((0, 1)) for m in maps], pairs)
    )


# ------------------------------------------------------------------ where it errs


@torch.no_grad()
def wrong_by_position(
    trained: Trained, pairs: Sequence[Pair], *, width: int = 5, until: int = 45
) -> list[float]:
    """The share of wrong next words at target positions 0 to 4, 5 to 9, and so on.

    The translator is given the right words before each position, so an error does not
    cause another one. The words are those of `pairs`, the stop tokens included.
    """
    english, french = trained.english, trained.french
    source, lengths = pad_batch([english.encode(p.source) for p in pairs], english.pad)
    target, n = pad_batch(
        [[*french.encode(p.target), french.stop] for p in pairs], french.pad
    )
    device = next(trained.model.parameters()).device
    read = shift_right(target, french.start).to(device)
    logits = trained.model(source.to(device), lengths.to(device), read)
    wrong = logits.argmax(dim=-1).cpu() != target
    real = torch.arange(target.shape[1]) < n.unsqueeze(1)
    return [
        wrong[:, i : i + width][real[:, i : i + width]].float().mean().item()
        for i in range(0, until, width)
    ]


# ------------------------------------------------------------------ writing


def next_word(
    model: Transformer, source: Int[Tensor, " source"]
) -> Callable[[Int[Tensor, "beams time"]], Float[Tensor, "beams vocabulary"]]:
    """What `beam_search` asks, for one sentence: the source is read once, here."""
    states, mask = model.encode(
        source.unsqueeze(0), torch.tensor([len(source)], device=source.device)
    )

    def next_logits(rows: Int[Tensor, "beams time"]) -> Tensor:
        beams = len(rows)
        everywhere = states.expand(beams, -1, -1), mask.expand(beams, -1, -1, -1)
        return model.output(model.decode(rows, *everywhere)[:, -1])

    return next_logits


def best_of_beam(
    trained: Trained, sentence: Sequence[str], beam_size: int, alpha: float = 1.0
) -> tuple[list[int], float]:
    """The best translation that a beam finds: its words, and the score."""
    device = next(trained.model.parameters()).device
    source = torch.tensor(trained.english.encode(sentence), device=device)
    start = torch.tensor([Vocabulary.start], device=device)
    ask = next_word(trained.model, source)
    best = beam_search(ask, start, Vocabulary.stop, beam_size, 100, alpha)[0]
    tokens, score = best
    return [word for word in tokens if word != Vocabulary.stop], score


def all_sentences(n_words: int, stop_id: int, max_length: int) -> Iterator[list[int]]:
    """Every sentence that a search over `n_words` tokens can end with, one by one."""
    for length in range(1, max_length + 1):
        for words in product(range(n_words), repeat=length):
            *before, last = words
            if stop_id not in before and (last == stop_id or length == max_length):
                yield list(words)
