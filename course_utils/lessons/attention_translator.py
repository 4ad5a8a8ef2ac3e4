"""Lesson 02: at every step the decoder looks back at all states of the encoder, and
takes what it needs.

Bahdanau et al. 2014 (https://arxiv.org/abs/1409.0473) for attention in a translator and
for additive scores, Luong et al. 2015 (https://arxiv.org/abs/1508.04025) for
dot-product scores and the other order of the step, Och and Ney 2003
(https://aclanthology.org/J03-1002) for the alignment error rate, Brown et al. 1993
(https://aclanthology.org/J93-2003) for IBM model 1, which finds alignments without a
neural network.

`lengths` counts the valid positions of a sentence, from the left. Padded positions get
a weight of exactly zero, so what stands there never changes a state, a loss or a
translation.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_utils.corpora.pairs import Link, Pair
from course_utils.corpora.vocabulary import Vocabulary, pad_batch
from course_utils.lessons.rnn_translator import Encoder, Trained, train_translator


def alignment_scores(
    query: Float[Tensor, "... hidden"], states: Float[Tensor, "... time hidden"]
) -> Float[Tensor, "... time"]:
    """How well each encoder state fits the decoder state: their dot products (Luong et
    al. 2015).

    `query` is one state of the decoder, `states` are the encoder's states at every
    position. score_i is the sum of query * states_i over `hidden`. Any number of
    leading dimensions, also none; both inputs have the same ones.
    """
    return (query.unsqueeze(-2) * states).sum(dim=-1)


def attention_weights(
    scores: Float[Tensor, "... time"], lengths: Int[Tensor, "..."]
) -> Float[Tensor, "... time"]:
    """Softmax of the scores over the valid positions: the first `lengths` ones of each
    sentence, at least one.

    Weights of valid positions sum to 1. Weights of padded positions (position >=
    length) are exactly 0, whatever their score is (also NaN or infinity), and exactly
    no gradient goes to such a score. The dtype stays that of the scores, float16 too;
    new tensors are made on the device of the inputs. Any number of leading dimensions,
    also none: `lengths` has one number per sentence.
    """
    positions = torch.arange(scores.shape[-1], device=scores.device)
    padding = positions >= lengths.unsqueeze(-1)
    # exp(-inf) is 0 in every dtype. A large negative number would not do: -1e9 does not
    # exist in float16.
    return torch.softmax(scores.masked_fill(padding, -torch.inf), dim=-1)


def context_vector(
    weights: Float[Tensor, "... time"], states: Float[Tensor, "... time hidden"]
) -> Float[Tensor, "... hidden"]:
    """The weighted sum of the encoder's states: the sum over all positions i of
    weights_i * states_i.

    Any number of leading dimensions, also none. A position of weight 0 adds nothing, as
    long as its state is a finite number (the encoder's states are, at padding too).
    """
    return (weights.unsqueeze(-1) * states).sum(dim=-2)


def decoder_step(
    previous: Float[Tensor, "... embedding"],
    state: Float[Tensor, "... hidden"],
    states: Float[Tensor, "... time hidden"],
    lengths: Int[Tensor, "..."],
    score: Callable[[Tensor, Tensor], Tensor],
    cell: Callable[[Tensor, Tensor], Tensor],
    output: Callable[[Tensor], Tensor],
) -> tuple[
    Float[Tensor, "... vocabulary"],
    Float[Tensor, "... hidden"],
    Float[Tensor, "... time"],
]:
    """One word of the decoder (Bahdanau et al. 2014): returns its logits, the new
    state, the attention weights.

    `previous` is the embedded word before (y_{t-1}), `state` the decoder's state before
    (s_{t-1}), `states` are the encoder's states (h_1 ... h_T), of which the first
    `lengths` of each sentence are valid. The four lines:

    - attention asks with the old state: weights from `score(state, states)`, such as
      `alignment_scores`, and `lengths`;
    - the context c_t is the weighted sum of `states`;
    - the new state s_t is `cell(x, state)`, where x is [previous, context] side by side
      (`nn.GRUCell` is such a cell);
    - the logits are `output(z)`, where z is [new state, context] side by side
      (`nn.Linear` is such an output).
    """
    weights = attention_weights(score(state, states), lengths)
    context = context_vector(weights, states)
    state = cell(torch.cat([previous, context], dim=-1), state)
    return output(torch.cat([state, context], dim=-1)), state, weights


def alignment_error_rate(
    links: set | frozenset, sure: set | frozenset, possible: set | frozenset
) -> float:
    """How far the `links` A are from gold ones: 1 - (|A and S| + |A and P|) / (|A| +
    |S|) (Och and Ney 2003).

    Links are tuples (source position, target position). The `sure` ones S must be
    found; the `possible` ones P may be, and P contains S. 0 is perfect: all of S is
    found and nothing outside of P. 1 is the worst. Where A and S are both empty nothing
    is wrong and nothing is missing: 0.0.
    """
    if len(links) + len(sure) == 0:
        return 0.0
    return 1 - (len(links & sure) + len(links & possible)) / (len(links) + len(sure))


# ------------------------------------------------------------------ the model


def additive_scores(
    query: Float[Tensor, "... hidden"],
    states: Float[Tensor, "... time hidden"],
    w_query: Float[Tensor, "hidden size"],
    w_states: Float[Tensor, "hidden size"],
    v: Float[Tensor, " size"],
) -> Float[Tensor, "... time"]:
    """A small network in place of the dot product: score_i = v · tanh(query W_q +
    states_i W_s) (Bahdanau 2014).
    """
    return torch.tanh((query @ w_query).unsqueeze(-2) + states @ w_states) @ v


State = tuple[
    Float[Tensor, "batch source hidden"],  # the encoder's states
    Int[Tensor, " batch"],  # how many of them are valid
    Float[Tensor, "batch hidden"],  # the decoder's state
]


class AttentionDecoder(nn.Module):
    """Writes a sentence, and looks at all states of the encoder before each word. The
    order is Bahdanau's.
    """

    def __init__(
        self, n_words: int, embedding_size: int, hidden_size: int, scale: float = 0.2
    ) -> None:
        """`scale` is a factor for the dot products: large ones make a softmax that no
        longer learns (lesson 03).
        """
        super().__init__()
        self.scale = scale
        self.embedding = nn.Embedding(n_words, embedding_size)
        self.first_state = nn.Linear(hidden_size, hidden_size)
        self.cell = nn.GRUCell(embedding_size + hidden_size, hidden_size)
        self.output = nn.Linear(2 * hidden_size, n_words)

    def start(
        self, last: Float[Tensor, "batch hidden"]
    ) -> Float[Tensor, "batch hidden"]:
        """The state before the first word."""
        return torch.tanh(self.first_state(last))

    def score(
        self,
        query: Float[Tensor, "batch hidden"],
        states: Float[Tensor, "batch time hidden"],
    ) -> Float[Tensor, "batch time"]:
        """Dot products, times `scale`. Another kind of score is another class."""
        return self.scale * alignment_scores(query, states)

    def forward(
        self, tokens: Int[Tensor, "batch time"], state: State
    ) -> tuple[
        Float[Tensor, "batch time vocabulary"],
        State,
        Float[Tensor, "batch time source"],
    ]:
        """Reads `tokens` one after the other: logits of the word after each, the last
        state, the weights.

        weights[:, t] belong to the step that has read token t: they are those of the
        word that it *writes*.
        """
        states, lengths, hidden = state
        features, weights = [], []
        for previous in self.embedding(tokens).unbind(dim=1):
            # The logits are needed only after the loop, where one product makes those
            # of all steps.
            z, hidden, w = decoder_step(
                previous, hidden, states, lengths, self.score, self.cell, lambda z: z
            )
            features.append(z)
            weights.append(w)
        return (
            self.output(torch.stack(features, dim=1)),
            (states, lengths, hidden),
            torch.stack(weights, dim=1),
        )


class AdditiveDecoder(AttentionDecoder):
    """The same decoder with additive scores: slower, and about one twentieth more
    parameters.
    """

    def __init__(self, n_words: int, embedding_size: int, hidden_size: int) -> None:
        super().__init__(n_words, embedding_size, hidden_size)
        self.w_query = nn.Parameter(
            torch.randn(hidden_size, hidden_size // 2) / hidden_size**0.5
        )
        self.w_states = nn.Parameter(
            torch.randn(hidden_size, hidden_size // 2) / hidden_size**0.5
        )
        self.v = nn.Parameter(torch.randn(hidden_size // 2) / (hidden_size // 2) ** 0.5)

    def score(
        self,
        query: Float[Tensor, "batch hidden"],
        states: Float[Tensor, "batch time hidden"],
    ) -> Float[Tensor, "batch time"]:
        """See `additive_scores`: the tanh keeps the scores small, so they need no
        factor.
        """
        return additive_scores(query, states, self.w_query, self.w_states, self.v)


class LuongDecoder(AttentionDecoder):
    """The other order (Luong et al. 2015): the decoder first reads y_{t-1}, then asks
    with the new state s_t.

    The context goes to the output only, not into the state. So no state waits for an
    attention: all states come from one call of `nn.GRU`, and the weights of all steps
    from one matrix product.
    """

    def __init__(
        self, n_words: int, embedding_size: int, hidden_size: int, scale: float = 0.2
    ) -> None:
        super().__init__(n_words, embedding_size, hidden_size, scale)
        del self.cell
        self.rnn = nn.GRU(embedding_size, hidden_size, batch_first=True)

    def forward(
        self, tokens: Int[Tensor, "batch time"], state: State
    ) -> tuple[
        Float[Tensor, "batch time vocabulary"],
        State,
        Float[Tensor, "batch time source"],
    ]:
        """As in `AttentionDecoder`."""
        states, lengths, hidden = state
        queries, last = self.rnn(self.embedding(tokens), hidden.unsqueeze(0))
        scores = self.scale * queries @ states.transpose(1, 2)
        weights = attention_weights(
            scores, lengths.unsqueeze(1).expand(-1, tokens.shape[1])
        )
        logits = self.output(torch.cat([queries, weights @ states], dim=-1))
        return logits, (states, lengths, last.squeeze(0)), weights


class AttentionTranslator(nn.Module):
    """Encoder, attention, decoder. Embeddings of 76 numbers give it as many parameters
    as lesson 01's, within 1 %.
    """

    def __init__(
        self,
        n_source: int,
        n_target: int,
        embedding_size: int = 76,
        hidden_size: int = 128,
        decoder: Callable[[int, int, int], nn.Module] = AttentionDecoder,
    ) -> None:
        """`hidden_size` is even: the two directions of the encoder share it. `decoder`
        makes the decoder.
        """
        super().__init__()
        self.encoder = Encoder(n_source, embedding_size, hidden_size // 2)
        self.decoder = decoder(n_target, embedding_size, hidden_size)

    def start(
        self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]
    ) -> State:
        """What `step` needs first: the encoder's states, their number, and the state
        before the first word.
        """
        states, last = self.encoder(source, lengths)
        return states, lengths, self.decoder.start(last)

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch target"],
    ) -> Float[Tensor, "batch target vocabulary"]:
        """Logits of the word after each word of `target`: the start token and the right
        words ("teacher forcing").
        """
        return self.decoder(target, self.start(source, lengths))[0]

    def attention_map(
        self,
        source: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch target"],
    ) -> Float[Tensor, "batch target source"]:
        """The weights of every step. Step t reads target[:, t] and *writes* the next
        word: row t is that word's.
        """
        return self.decoder(target, self.start(source, lengths))[2]

    def step(
        self, tokens: Int[Tensor, " batch"], state: State
    ) -> tuple[Float[Tensor, "batch vocabulary"], State]:
        """One word for `greedy_decode`: the encoder's states stay the same, the
        decoder's state moves on.
        """
        logits, state, _ = self.decoder(tokens.unsqueeze(1), state)
        return logits.squeeze(1), state


# ------------------------------------------------------------------ alignments


@torch.no_grad()
def attention_maps(
    trained: Trained, pairs: Sequence[Pair], *, batch_size: int = 100
) -> list[Float[Tensor, "target source"]]:
    """The attention of a trained translator on each pair, when it has to write exactly
    `pair.target`.

    One row a target word, one column a source word: row j is the step that writes word
    j.
    """
    device = next(trained.model.parameters()).device
    maps = []
    for first in range(0, len(pairs), batch_size):
        some = pairs[first : first + batch_size]
        source, lengths = pad_batch(
            [trained.english.encode(pair.source) for pair in some], Vocabulary.pad
        )
        # The last word is written but not read: as many steps as words.
        read = [
            [Vocabulary.start, *trained.french.encode(pair.target[:-1])]
            for pair in some
        ]
        target_in, _ = pad_batch(read, Vocabulary.pad)
        weights = trained.model.attention_map(
            source.to(device), lengths.to(device), target_in.to(device)
        )
        maps += [
            w[: len(p.target), : len(p.source)].cpu()
            for w, p in zip(weights, some, strict=True)
        ]
    return maps


def links_from_map(weights: Float[Tensor, "target source"]) -> set[Link]:
    """Links each target word to the source word with the largest weight: (source
    position, target position).
    """
    return {(i, j) for j, i in enumerate(weights.argmax(dim=-1).tolist())}


def diagonal_links(pair: Pair) -> set[Link]:
    """Links each target word to the source word at the same place: as if both languages
    had the same order.
    """
    n, m = len(pair.source), len(pair.target)
    return {(((2 * j + 1) * n) // (2 * m), j) for j in range(m)}


def crossing_links(pair: Pair) -> set[Link]:
    """The sure links that cross another sure link: words that stand in another order in
    the other language.
    """
    return {
        (i, j)
        for i, j in pair.sure
        if any((i - other_i) * (j - other_j) < 0 for other_i, other_j in pair.sure)
    }


def best_single_links(pair: Pair) -> set[Link]:
    """The best that one link for each target word can do: a sure one where there is
    one, else a possible one.
    """
    by_value = (
        [(0, j) for j in range(len(pair.target))],
        sorted(pair.possible),
        sorted(pair.sure),
    )
    # Later ones replace earlier ones
    chosen = {j: i for links in by_value for i, j in links}
    return {(i, j) for j, i in chosen.items()}


def corpus_alignment_error_rate(
    links: Iterable[Iterable[Link]], pairs: Sequence[Pair]
) -> float:
    """The alignment error rate over all links of a corpus: long sentences count more.
    `links` has a set a pair.
    """
    found = {(n, *link) for n, group in enumerate(links) for link in group}
    sure = {(n, *link) for n, pair in enumerate(pairs) for link in pair.sure}
    possible = {(n, *link) for n, pair in enumerate(pairs) for link in pair.possible}
    return alignment_error_rate(found, sure, possible)


class WordTable(NamedTuple):
    """What IBM model 1 has learned: `probabilities[e, f]` is how likely the English
    word e becomes f.
    """

    english: Vocabulary
    french: Vocabulary
    probabilities: Float[Tensor, "english french"]

    def links(self, pair: Pair) -> set[Link]:
        """Links each target word to the source word that most likely became it."""
        rows, columns = (
            self.english.encode(pair.source),
            self.french.encode(pair.target),
        )
        return links_from_map(self.probabilities[rows][:, columns].T)


def ibm_model_1(pairs: Sequence[Pair], iterations: int = 8) -> WordTable:
    """Learns which word becomes which, from sentence pairs alone, by
    expectation-maximisation (Brown et al. 1993).

    At first every word may become every word. Each iteration shares out every French
    word among the English words of its sentence (and the empty word, here the start
    token), in proportion to the table so far; the sums of these shares give the next
    table. Word order plays no part.
    """
    english = Vocabulary.build(pair.source for pair in pairs)
    french = Vocabulary.build(pair.target for pair in pairs)
    rows, columns, group = _meetings(pairs, english, french)
    table = torch.full((len(english), len(french)), 1 / len(french))
    for _ in range(iterations):
        chance = table[rows, columns]
        share = chance / torch.bincount(group, weights=chance)[group]
        counts = torch.zeros_like(table).index_put_(
            (rows, columns), share.float(), accumulate=True
        )
        table = counts / counts.sum(dim=1, keepdim=True).clamp(min=1e-9)
    return WordTable(english, french, table)


def _meetings(
    pairs: Sequence[Pair], english: Vocabulary, french: Vocabulary
) -> tuple[
    Int[Tensor, " meetings"], Int[Tensor, " meetings"], Int[Tensor, " meetings"]
]:
    """Each French word meets each English word of its sentence: both ids, and the
    number of the French word.

    The French words of the whole corpus are numbered from 0, so the meetings of one of
    them share a number.
    """
    rows, columns, group, n_words = [], [], [], 0
    for pair in pairs:
        e = torch.tensor([Vocabulary.start, *english.encode(pair.source)])
        f = torch.tensor(french.encode(pair.target))
        rows.append(e.repeat(len(f)))
        columns.append(f.repeat_interleave(len(e)))
        group.append((n_words + torch.arange(len(f))).repeat_interleave(len(e)))
        n_words += len(f)
    return torch.cat(rows), torch.cat(columns), torch.cat(group)


# ------------------------------------------------------------------ a task whose map is
# known


def reversal_pairs(
    count: int,
    *,
    letters: str = "abcdefghijkl",
    shortest: int = 3,
    longest: int = 10,
    seed: int = 0,
) -> list[Pair]:
    """Pairs whose target is the source from right to left. The gold links are the
    anti-diagonal.
    """
    rng = random.Random(seed)
    pairs = []
    for _ in range(count):
        source = tuple(rng.choices(letters, k=rng.randint(shortest, longest)))
        links = frozenset((len(source) - 1 - j, j) for j in range(len(source)))
        pairs.append(Pair(source, source[::-1], links, links))
    return pairs


def train_reversal(decoder: Callable[..., nn.Module], seed: int = 0) -> Trained:
    """A small translator that turns rows of letters round. Scores of 32 numbers are
    small, so they need no factor.
    """
    make_model = partial(
        AttentionTranslator,
        embedding_size=16,
        hidden_size=32,
        decoder=partial(decoder, scale=1.0),
    )
    pairs = reversal_pairs(10_000)
    return train_translator(
        make_model,
        pairs,
        steps=1000,
        batch_size=64,
        learning_rate=1e-2,
        warmup=0.3,
        seed=seed,
    )
