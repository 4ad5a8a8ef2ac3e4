"""Lesson 01: an RNN reads an English sentence into one vector, and a second RNN writes
French from that vector.

Elman 1990 (https://doi.org/10.1207/s15516709cog1402_1) for the recurrent step, Cho et
al. 2014 (https://arxiv.org/abs/1406.1078) for the GRU and the encoder-decoder,
Sutskever et al. 2014 (https://arxiv.org/abs/1409.3215) for translation with it.

Sentences in a batch have different lengths, so shorter ones are padded. `lengths`
counts the tokens that are valid, from the left; what stands behind them never changes a
state, a loss or a translation.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_utils import training
from course_utils.cache import code_key, remembered
from course_utils.corpora.english_french import checksum
from course_utils.corpora.pairs import Pair
from course_utils.corpora.vocabulary import Vocabulary, pad_batch
from course_utils.training import (
    TranslationBatch,
    Translator,
    batches_by_length,
    one_thread,
    train,
)


def rnn_step(
    x: Float[Tensor, "... inputs"],
    h: Float[Tensor, "... hidden"],
    w_x: Float[Tensor, "inputs hidden"],
    w_h: Float[Tensor, "hidden hidden"],
    b: Float[Tensor, " hidden"],
) -> Float[Tensor, "... hidden"]:
    """One recurrent step (Elman 1990): the new state is tanh(x W_x + h W_h + b).

    `x` is what the network reads now, `h` its state so far. Any number of leading
    dimensions, including none.
    """
    return torch.tanh(x @ w_x + h @ w_h + b)


def gru_step(
    x: Float[Tensor, "... inputs"],
    h: Float[Tensor, "... hidden"],
    w_x: Float[Tensor, "inputs three_hidden"],
    w_h: Float[Tensor, "hidden three_hidden"],
    b_x: Float[Tensor, " three_hidden"],
    b_h: Float[Tensor, " three_hidden"],
) -> Float[Tensor, "... hidden"]:
    """One step of a gated recurrent unit (Cho et al. 2014), equal to `nn.GRUCell`.

    Each weight holds three blocks side by side: reset gate, update gate, candidate.
    Both gates lie between 0 and 1. An update gate at 1 copies the old state unchanged,
    so the unit can keep what it read long ago.
    """
    x_reset, x_update, x_candidate = (x @ w_x + b_x).chunk(3, dim=-1)
    h_reset, h_update, h_candidate = (h @ w_h + b_h).chunk(3, dim=-1)
    reset = torch.sigmoid(x_reset + h_reset)
    update = torch.sigmoid(x_update + h_update)
    candidate = torch.tanh(x_candidate + reset * h_candidate)
    return update * h + (1 - update) * candidate


def last_valid_state(
    states: Float[Tensor, "... time hidden"], lengths: Int[Tensor, "..."]
) -> Float[Tensor, "... hidden"]:
    """The state after each sentence's last valid token: position `lengths - 1`.

    `lengths` has one number per sentence, from 1 to time. Usually its shape is
    (batch,), but the function also works for one sentence, shape (), and for shapes
    like (2, 3): `len(lengths)` and a loop over it would fail there. The values at later
    positions, even NaN, change neither the result nor the gradient. New tensors are
    made on the device of the inputs.
    """
    last = (lengths - 1)[..., None, None].expand(*lengths.shape, 1, states.shape[-1])
    return states.gather(-2, last).squeeze(-2)


def masked_cross_entropy(
    logits: Float[Tensor, "... time vocabulary"],
    targets: Int[Tensor, "... time"],
    lengths: Int[Tensor, "..."],
) -> Float[Tensor, ""]:
    """Mean over all valid tokens of -log softmax(logits)[target], in nats.

    The first `lengths` positions of a sentence are valid (0 to time; at least one token
    in all). Every valid token counts the same, whatever sentence it is in: a mean over
    tokens, not a mean of the sentences' means. The values at padded positions (logits
    of NaN or infinity, ids outside the vocabulary) change neither the loss nor its
    gradient, which is exactly zero there. New tensors are made on the device of the
    inputs.
    """
    positions = torch.arange(targets.shape[-1], device=targets.device)
    valid = positions < lengths.unsqueeze(-1)
    # Padding is left out, not multiplied by zero: zero times NaN is NaN.
    return F.cross_entropy(logits[valid], targets[valid])


def reverse_valid(values: Tensor, lengths: Int[Tensor, " batch"]) -> Tensor:
    """Reverses the first `lengths` positions of each row; padding stays where it is.

    `values` is (batch, time) ids or (batch, time, hidden) states: [a b c - -] of length
    3 becomes [c b a - -]. Doing it twice gives `values` again.
    """
    positions = torch.arange(values.shape[1], device=values.device)
    # (batch, time), negative at padding
    mirrored = lengths.unsqueeze(1) - 1 - positions
    order = torch.where(mirrored >= 0, mirrored, positions)
    rows = torch.arange(values.shape[0], device=values.device).unsqueeze(1)
    return values[rows, order]


def greedy_decode(
    step: Callable[
        [Int[Tensor, " batch"], object],
        tuple[Float[Tensor, "batch vocabulary"], object],
    ],
    state: object,
    start_tokens: Int[Tensor, " batch"],
    stop_id: int,
    max_length: int,
) -> list[list[int]]:
    """Writes one sentence per row, token by token, always taking the likeliest token.

    `step(tokens, state)` reads the last token of each sentence and gives the logits of
    the next one and the new state, which may be any object. The first tokens that it
    reads are `start_tokens` (one per sentence), then its own. A sentence ends before
    `stop_id` (the answer holds neither the start nor the stop token, nor what follows),
    or with `max_length` tokens. `step` is called at most `max_length` times, and no
    more once all sentences have ended. Returns one list of Python ints per sentence.
    New tensors are made on the device of `start_tokens`.
    """
    tokens = start_tokens
    ended = torch.zeros_like(tokens, dtype=torch.bool)
    sentences: list[list[int]] = [[] for _ in tokens]
    for _ in range(max_length):
        if ended.all():
            break
        logits, state = step(tokens, state)
        tokens = logits.argmax(dim=-1)
        ended = ended | (tokens == stop_id)
        for row in (~ended).nonzero().flatten().tolist():
            sentences[row].append(int(tokens[row]))
    return sentences


class Encoder(nn.Module):
    """Reads in both directions: one GRU from the left, one from the right."""

    def __init__(self, n_words: int, embedding_size: int, hidden_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_words, embedding_size)
        self.rightward = nn.GRU(embedding_size, hidden_size, batch_first=True)
        self.leftward = nn.GRU(embedding_size, hidden_size, batch_first=True)

    def forward(
        self, source: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]
    ) -> tuple[
        Float[Tensor, "batch time two_hidden"], Float[Tensor, "batch two_hidden"]
    ]:
        """The states at every word, and the two last states, each two side by side.

        States of both directions stand at the word they have just read. At padded
        positions they mean nothing.
        """
        rightward, _ = self.rightward(self.embedding(source))
        # Only the words are reversed, so this GRU too meets all words before any
        # padding.
        leftward, _ = self.leftward(self.embedding(reverse_valid(source, lengths)))
        last = torch.cat(
            [last_valid_state(rightward, lengths), last_valid_state(leftward, lengths)],
            dim=-1,
        )
        return torch.cat([rightward, reverse_valid(leftward, lengths)], dim=-1), last


class Decoder(nn.Module):
    """Writes a sentence from one vector, the context, which it sees at every step."""

    def __init__(
        self, n_words: int, embedding_size: int, context_size: int, hidden_size: int
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_words, embedding_size)
        self.first_state = nn.Linear(context_size, hidden_size)
        self.rnn = nn.GRU(embedding_size + context_size, hidden_size, batch_first=True)
        self.output = nn.Linear(hidden_size + context_size, n_words)

    def start(
        self, context: Float[Tensor, "batch context"]
    ) -> Float[Tensor, "batch hidden"]:
        """The state before the first word."""
        return torch.tanh(self.first_state(context))

    def forward(
        self,
        tokens: Int[Tensor, "batch time"],
        context: Float[Tensor, "batch context"],
        hidden: Float[Tensor, "batch hidden"],
    ) -> tuple[Float[Tensor, "batch time vocabulary"], Float[Tensor, "batch hidden"]]:
        """Logits of the word after each of `tokens`, and the state after the last."""
        context = context.unsqueeze(1).expand(-1, tokens.shape[1], -1)
        states, last = self.rnn(
            torch.cat([self.embedding(tokens), context], dim=-1), hidden.unsqueeze(0)
        )
        return self.output(torch.cat([states, context], dim=-1)), last.squeeze(0)


State = tuple[Float[Tensor, "batch context"], Float[Tensor, "batch hidden"]]


class RNNTranslator(nn.Module):
    """Encoder, one vector of `context_size` numbers, decoder."""

    def __init__(
        self,
        n_source: int,
        n_target: int,
        embedding_size: int = 64,
        hidden_size: int = 128,
        context_size: int = 128,
    ) -> None:
        super().__init__()
        self.encoder = Encoder(n_source, embedding_size, hidden_size // 2)
        self.bottleneck = nn.Linear(hidden_size // 2 * 2, context_size)
        self.decoder = Decoder(n_target, embedding_size, context_size, hidden_size)

    def start(
        self, source: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]
    ) -> State:
        """The one vector of each sentence, and the decoder's state before it writes."""
        _, last = self.encoder(source, lengths)
        context = torch.tanh(self.bottleneck(last))
        return context, self.decoder.start(context)

    def forward(
        self,
        source: Int[Tensor, "batch source_time"],
        source_lengths: Int[Tensor, " batch"],
        target_in: Int[Tensor, "batch target_time"],
    ) -> Float[Tensor, "batch target_time vocabulary"]:
        """For training: the logits of the word after each right word."""
        return self.decoder(target_in, *self.start(source, source_lengths))[0]

    def step(
        self, tokens: Int[Tensor, " batch"], state: State
    ) -> tuple[Float[Tensor, "batch vocabulary"], State]:
        """For writing: the logits of one word. The vector stays, the state moves on."""
        context, hidden = state
        logits, hidden = self.decoder(tokens.unsqueeze(1), context, hidden)
        return logits.squeeze(1), (context, hidden)


def translation_loss(model: nn.Module, batch: TranslationBatch) -> Float[Tensor, ""]:
    """What `train` makes smaller: nats per token, stop tokens included."""
    logits = model(batch.source, batch.source_lengths, batch.target_in)
    return masked_cross_entropy(logits, batch.target_out, batch.target_lengths)


@torch.no_grad()
def translate(
    model: Translator,
    sentences: Sequence[Sequence[str]],
    source_vocabulary: Vocabulary,
    target_vocabulary: Vocabulary,
    *,
    max_length: int = 100,
    batch_size: int = 128,
) -> list[tuple[str, ...]]:
    """The greedy translation of each sentence (a sequence of words), in their order.

    `model` is any translator with `start(source, lengths) -> state` and `step(tokens,
    state) -> (logits, state)`. A translation ends at `max_length` words at the latest.
    Sentences of like length share a batch, which saves work and changes no translation.
    Raises ValueError when a sentence is empty.
    """
    if not all(len(sentence) > 0 for sentence in sentences):
        raise ValueError("sentences must not be empty: there would be no last state")
    device = next(model.parameters()).device
    order = sorted(range(len(sentences)), key=lambda row: len(sentences[row]))
    translations: dict[int, tuple[str, ...]] = {}
    for first in range(0, len(order), batch_size):
        rows = order[first : first + batch_size]
        ids = [source_vocabulary.encode(sentences[row]) for row in rows]
        source, lengths = pad_batch(ids, source_vocabulary.pad)
        state = model.start(source.to(device), lengths.to(device))
        start = torch.full((len(rows),), target_vocabulary.start, device=device)
        stop = target_vocabulary.stop
        answers = greedy_decode(model.step, state, start, stop, max_length)
        for row, answer in zip(rows, answers, strict=True):
            translations[row] = tuple(target_vocabulary.decode(answer))
    return [translations[row] for row in range(len(sentences))]


STEPS, BATCH_SIZE, LEARNING_RATE, WARMUP = 1000, 32, 6e-3, 0.1  # about 30 s on one core


Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True)
class Trained(Generic[Model]):
    """A translator, its two vocabularies, and the loss of each training step."""

    model: Model
    english: Vocabulary
    french: Vocabulary
    losses: list[float]


@one_thread()
def train_translator(
    make_model: Callable[[int, int], Model],
    pairs: Sequence[Pair],
    *,
    steps: int = STEPS,
    batch_size: int = BATCH_SIZE,
    learning_rate: float = LEARNING_RATE,
    warmup: float = WARMUP,
    seed: int = 0,
    vocabulary_size: int | None = None,
) -> Trained[Model]:
    """The lesson's training in one call: the same seed gives the same model.

    It runs on one thread, so that the model does not depend on their number.

    `make_model(n_source, n_target)` makes the translator from the sizes of both
    vocabularies. `vocabulary_size` limits each of them to so many entries, the four
    special ones included: the most frequent words stay, and each rarer word is read and
    learned as `<unk>`. None keeps all words.
    """
    english = Vocabulary.build(
        (pair.source for pair in pairs), max_size=vocabulary_size
    )
    french = Vocabulary.build((pair.target for pair in pairs), max_size=vocabulary_size)
    torch.manual_seed(seed)
    model = make_model(len(english), len(french))
    batches = batches_by_length(
        [english.encode(pair.source) for pair in pairs],
        [french.encode(pair.target) for pair in pairs],
        batch_size=batch_size,
        generator=torch.Generator().manual_seed(seed),
    )
    losses = train(
        model,
        batches,
        translation_loss,
        steps=steps,
        learning_rate=learning_rate,
        warmup=warmup,
    )
    return Trained(model, english, french, losses)


def bottleneck_translator(pairs: Sequence[Pair]) -> Trained[RNNTranslator]:
    """This lesson's model, trained as in the lesson: 30 s, later from the cache."""

    def run() -> dict[str, Any]:
        trained = train_translator(RNNTranslator, pairs)
        return {"weights": trained.model.state_dict(), "losses": trained.losses}

    key = code_key(sys.modules[__name__], training, torch.__version__, checksum(pairs))
    kept = remembered("bottleneck", key, run)
    english = Vocabulary.build(pair.source for pair in pairs)
    french = Vocabulary.build(pair.target for pair in pairs)
    model = RNNTranslator(len(english), len(french))
    model.load_state_dict(kept["weights"])
    return Trained(model, english, french, kept["losses"])
