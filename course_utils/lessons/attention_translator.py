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
from string import ascii_lowercase
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_utils.corpora.pairs import Link, Pair
from course_utils.corpora.vocabulary import Vocabulary, pad_batch
from course_utils.lessons.rnn_translator import Encoder, Trained, train_translator


def alignment_scores(
    query: Float[Tensor, "... hidden"], states: Float[Tensor, "... time hidden"]
) -> Float[Tensor, "... time"]:
    """How well each state fits the query: their dot products (Luong et al. 2015).

    `query` is one state of the decoder, `states` are the encoder's states at every
    position. score_i is the sum of query * states_i over `hidden`. Any number of
    leading dimensions, including none; both inputs have the same ones.
    """
    return (query.unsqueeze(-2) * states).sum(dim=-1)


def attention_weights(
    scores: Float[Tensor, "... time"], lengths: Int[Tensor, "..."]
) -> Float[Tensor, "... time"]:
    """Softmax of the scores over the valid positions of each sentence.

    Valid are the first `lengths` positions, at least one: their weights sum to 1.
    Weights of padded positions (position >= length) are exactly 0, whatever their score
    is (NaN and infinity too), and no gradient at all goes to such a score. The dtype
    stays that of the scores, float16 too; new tensors are made on the device of the
    inputs. Any number of leading dimensions, including none: `lengths` has one number
    per sentence.
    """
    positions = torch.arange(scores.shape[-1], device=scores.device)
    padding = positions >= lengths.unsqueeze(-1)
    # exp(-inf) is 0 in every dtype. A large negative number would not do: -1e9 does not
    # exist in float16.
    return torch.softmax(scores.masked_fill(padding, -torch.inf), dim=-1)


def context_vector(
    weights: Float[Tensor, "... time"], states: Float[Tensor, "... time hidden"]
) -> Float[Tensor, "... hidden"]:
    """The sum of the encoder's states, each times its weight.

    Over all positions i: the sum of weights_i * states_i. Any number of leading
    dimensions, including none. A position of weight 0 adds nothing, as long as its
    state is a finite number (the encoder's states are, at padding too).
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
    """Writes one word: its logits, the new state s_t, and the attention weights.

    `previous` is the embedding of the word before (y_{t-1}), `state` is the decoder's
    state before (s_{t-1}), `states` are the encoder's (h_1 ... h_T): the first
    `lengths` of each sentence are valid. The order is that of Bahdanau et al. 2014:
    the old state asks, and the same context goes into the cell and into the output.

    Three functions are given. `score(query, states)` gives the scores,
    `cell(x, state)` the next state, `output(z)` the logits. The cell was made for x =
    the previous word, then the context, side by side in the last dimension; the output
    for z = the new state, then the context. Any number of leading dimensions, including
    none.
    """
    weights = attention_weights(score(state, states), lengths)
    context = context_vector(weights, states)
    state = cell(torch.cat([previous, context], dim=-1), state)
    return output(torch.cat([state, context], dim=-1)), state, weights


def alignment_error_rate(
    links: set | frozenset, sure: set | frozenset, possible: set | frozenset
) -> float:
    """How far links A are from gold ones: 1 - (|A and S| + |A and P|) / (|A| + |S|).

    Links are tuples (source position, target position). The `sure` ones S must be
    found; the `possible` ones P may be, and P contains S (Och and Ney 2003). 0 is
    perfect: all of S is found and nothing outside of P. 1 is the worst. Where A and S
    are both empty nothing is wrong and nothing is missing: 0.0.
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
    """Scores of a small network: v · tanh(query W_q + states_i W_s) (Bahdanau 2014)."""
    return torch.tanh((query @ w_query).unsqueeze(-2) + states @ w_states) @ v


State = tuple[
    Float[Tensor, "batch source hidden"],  # the encoder's states
    Int[Tensor, " batch"],  # how many of them are valid
    Float[Tensor, "batch hidden"],  # the decoder's state
]


class AttentionDecoder(nn.Module):
    """Writes a sentence; before each word it looks at all states of the encoder."""

    def __init__(
        self, n_words: int, embedding_size: int, hidden_size: int, scale: float = 0.2
    ) -> None:
        super().__init__()
        self.scale = scale
        self.embedding = nn.Embedding(n_words, embedding_size)
        self.first_state = nn.Linear(hidden_size, hidden_size)
        self.cell = nn.GRUCell(embedding_size + hidden_size, hidden_size)
        self.output = nn.Linear(2 * hidden_size, n_words)

    def start(self, last: Float[Tensor, "batch hidden"]) -> Tensor:
        """The state before the first word, as wide as `last`."""
        return torch.tanh(self.first_state(last))

    def score(self, query: Tensor, states: Tensor) -> Float[Tensor, "batch time"]:
        """Your dot products, times `scale`. Another kind of score is another class."""
        return self.scale * alignment_scores(query, states)

    def forward(
        self, tokens: Int[Tensor, "batch time"], state: State
    ) -> tuple[
        Float[Tensor, "batch time vocabulary"],
        State,
        Float[Tensor, "batch time source"],
    ]:
        """The word after each of `tokens`: its logits; the last state; its weights."""
        states, lengths, hidden = state
        later = nn.Identity()  # changes nothing: the real layer runs after the loop
        steps, weights = [], []
        for previous in self.embedding(tokens).unbind(dim=1):
            z, hidden, w = decoder_step(
                previous, hidden, states, lengths, self.score, self.cell, later
            )
            steps.append(z)
            weights.append(w)
        logits = self.output(torch.stack(steps, dim=1))
        return logits, (states, lengths, hidden), torch.stack(weights, dim=1)


class AdditiveDecoder(AttentionDecoder):
    """The same decoder with additive scores: about one twentieth more parameters."""

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
        """See `additive_scores`: scores that need no factor."""
        return additive_scores(query, states, self.w_query, self.w_states, self.v)


class LuongDecoder(AttentionDecoder):
    """The other order (Luong et al. 2015, simplified): the new state s_t asks.

    The context goes to the output only, not into the state: the paper's tanh layer and
    its "input feeding" are left out. So no state waits for an attention: all states
    come from one call of `nn.GRU`, and all weights from one matrix product.
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
    """Lesson 01's encoder, and a decoder with attention (`hidden_size` is even)."""

    def __init__(
        self,
        n_source: int,
        n_target: int,
        embedding_size: int = 76,
        hidden_size: int = 128,
        decoder: Callable[[int, int, int], AttentionDecoder] = AttentionDecoder,
    ) -> None:
        super().__init__()
        self.encoder = Encoder(n_source, embedding_size, hidden_size // 2)
        self.decoder = decoder(n_target, embedding_size, hidden_size)

    def start(
        self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]
    ) -> State:
        """*All* states of the encoder, how many are valid, and the first state."""
        states, last = self.encoder(source, lengths)
        return states, lengths, self.decoder.start(last)

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch target"],
    ) -> Float[Tensor, "batch target vocabulary"]:
        """For training: the logits of the word after each right word."""
        return self.decoder(target, self.start(source, lengths))[0]

    def attention_map(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Weights (batch, target, source): row j is the step that *writes* word j."""
        return self.decoder(target, self.start(source, lengths))[2]

    def step(self, tokens: Int[Tensor, " batch"], state: State) -> tuple[Tensor, State]:
        """For writing: logits (batch, vocabulary); only the last state moves on."""
        logits, state, _ = self.decoder(tokens.unsqueeze(1), state)
        return logits.squeeze(1), state


# ------------------------------------------------------------------ alignments


@torch.no_grad()
def attention_maps(
    trained: Trained[Any], pairs: Sequence[Pair], *, batch_size: int = 100
) -> list[Float[Tensor, "target source"]]:
    """The weights of a trained translator that has to write exactly `pair.target`.

    The translator is any with a method `attention_map`, as `AttentionTranslator` has.
    One row per target word, one column per source word: row j is the step that writes
    word j.
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


@torch.no_grad()
def change_one_state(
    trained: Trained[AttentionTranslator], pairs: Sequence[Pair], steps: int
) -> tuple[
    Bool[Tensor, "words time time"],
    Float[Tensor, "words time"],
    Bool[Tensor, "words time"],
]:
    """Replaces each state of each sentence, one at a time, by another sentence's.

    The translator writes `steps` words for the source of each pair. For each of them,
    every state in turn is replaced by the state of another sentence at the same place.
    Returns for each word: which score moved (replaced state, score), the weights of the
    right states, and whether another word is written. All sources are equally long.
    """
    model = trained.model
    source = torch.tensor([trained.english.encode(pair.source) for pair in pairs])
    n, time = source.shape
    states, lengths, hidden = model.start(source, torch.full((n,), time))
    tokens = torch.full((n, 1), Vocabulary.start)
    moved, weights, changed = [], [], []
    for _ in range(steps):
        logits, (_, _, later), a = model.decoder(tokens, (states, lengths, hidden))
        written, scores = logits.argmax(dim=-1), model.decoder.score(hidden, states)
        moves, changes = [], []
        for i in range(time):
            mixed = states.clone()
            mixed[:, i] = states[:, i].roll(1, dims=0)
            others, _, _ = model.decoder(tokens, (mixed, lengths, hidden))
            moves.append(model.decoder.score(hidden, mixed) != scores)
            changes.append((others.argmax(dim=-1) != written).squeeze(1))
        moved.append(torch.stack(moves, dim=1))
        weights.append(a.squeeze(1))
        changed.append(torch.stack(changes, dim=1))
        tokens, hidden = written, later
    return torch.cat(moved), torch.cat(weights), torch.cat(changed)


def links_from_map(weights: Float[Tensor, "target source"]) -> set[Link]:
    """Links each target word to the source word with the largest weight."""
    return {(i, j) for j, i in enumerate(weights.argmax(dim=-1).tolist())}


def diagonal_links(pair: Pair) -> set[Link]:
    """Links each target word to the source word at the same relative place."""
    n, m = len(pair.source), len(pair.target)
    return {(((2 * j + 1) * n) // (2 * m), j) for j in range(m)}


def crossing_links(pair: Pair) -> set[Link]:
    """The sure links that cross another one: words in another order on either side."""
    return {
        (i, j)
        for i, j in pair.sure
        if any((i - other_i) * (j - other_j) < 0 for other_i, other_j in pair.sure)
    }


def repeated_links(pair: Pair) -> set[Link]:
    """The sure links of source words that stand more than once in their sentence."""
    return {(i, j) for i, j in pair.sure if pair.source.count(pair.source[i]) > 1}


def link_kinds(pair: Pair) -> dict[str, set[Link]]:
    """The sure links of a pair in three kinds; each link is in exactly one of them.

    "word twice": the source word stands more than once in its sentence. The others are
    "crossing" if they cross another link, else "in order".
    """
    twice = repeated_links(pair)
    crossing = crossing_links(pair) - twice
    in_order = set(pair.sure) - crossing - twice
    return {"in order": in_order, "crossing": crossing, "word twice": twice}


def best_single_links(pair: Pair) -> set[Link]:
    """The best single link of each target word: a sure one, else a possible one."""
    by_value = (
        [(0, j) for j in range(len(pair.target))],
        sorted(pair.possible),
        sorted(pair.sure),
    )
    # Later ones replace earlier ones
    chosen = {j: i for links in by_value for i, j in links}
    return {(i, j) for j, i in chosen.items()}


def share_found(
    links: Iterable[Iterable[Link]], wanted: Iterable[Iterable[Link]]
) -> float:
    """The share of all `wanted` links of a corpus that is in `links`.

    Both have one set per pair. Raises ValueError for different numbers of sets, and
    when no link is wanted.
    """
    found, wanted = _of_corpus(links), _of_corpus(wanted)
    if len(found) != len(wanted):
        raise ValueError(f"one set per pair, got {len(found)} and {len(wanted)} sets")
    total = sum(map(len, wanted))
    if total == 0:
        raise ValueError("wanted has no link, so there is no share of them")
    return sum(len(a & w) for a, w in zip(found, wanted, strict=True)) / total


def weight_near(
    maps: Sequence[Float[Tensor, "target source"]],
    links: Sequence[Iterable[Link]],
    distance: int = 1,
) -> float:
    """The mean weight within `distance` places of a link, over all linked target words.

    `maps` and `links` have one entry per pair. Raises ValueError for different numbers
    of entries, and when there is no link.
    """
    if len(maps) != len(links):
        raise ValueError(f"one entry per pair, got {len(maps)} maps, {len(links)} sets")
    shares = []
    for weights, group in zip(maps, links, strict=True):
        near = torch.zeros(weights.shape, dtype=torch.bool)
        for i, j in group:
            near[j, max(0, i - distance) : i + distance + 1] = True
        shares += (weights * near).sum(dim=-1)[near.any(dim=-1)].tolist()
    if not shares:
        raise ValueError("links has no link, so no weight is near one")
    return sum(shares) / len(shares)


def corpus_alignment_error_rate(
    links: Iterable[Iterable[Link]], pairs: Sequence[Pair]
) -> float:
    """The alignment error rate over all links of a corpus: long sentences count more.

    `links` has one set per pair. All links of a pair without gold links count as wrong,
    so leave such pairs out. Raises ValueError unless there are as many sets as pairs.
    """
    found = _of_corpus(links)
    if len(found) != len(pairs):
        raise ValueError(f"one set per pair, got {len(found)} for {len(pairs)} pairs")
    sure = [pair.sure for pair in pairs]
    possible = [pair.possible for pair in pairs]
    return alignment_error_rate(*map(_numbered, (found, sure, possible)))


def _of_corpus(links: Iterable[Iterable[Link]]) -> list[set[Link]]:
    return [set(group) for group in links]


def _numbered(links: Iterable[Iterable[Link]]) -> set[tuple[int, int, int]]:
    """The links of all sentences in one set, each with the number of its sentence."""
    return {(n, *link) for n, group in enumerate(links) for link in group}


class WordTable(NamedTuple):
    """What IBM model 1 has learned: how likely an English word becomes a French one.

    Only words that have met in a sentence have a place in it. A vocabulary of 10,000
    words on each side would need 100 million places otherwise.
    """

    english: Vocabulary
    french: Vocabulary
    meetings: Int[Tensor, " meetings"]  # English id * len(french) + French id, sorted
    probabilities: Float[Tensor, " meetings"]

    def look_up(
        self, source: Sequence[str], target: Sequence[str]
    ) -> Float[Tensor, "target source"]:
        """How likely each source word becomes each target word: 0 if they never met."""
        rows = torch.tensor(self.english.encode(source), dtype=torch.long)
        columns = torch.tensor(self.french.encode(target), dtype=torch.long)
        wanted = rows * len(self.french) + columns.unsqueeze(1)
        place = torch.searchsorted(self.meetings, wanted)
        place = place.clamp(max=len(self.meetings) - 1)
        met = self.meetings[place] == wanted
        return torch.where(met, self.probabilities[place], 0)

    def links(self, pair: Pair) -> set[Link]:
        """Links each target word to the source word that most likely became it.

        A word that has met none of them gets no link.
        """
        chances = self.look_up(pair.source, pair.target)
        if chances.numel() == 0:
            return set()
        return {(i, j) for i, j in links_from_map(chances) if chances[j, i] > 0}


def ibm_model_1(pairs: Sequence[Pair], iterations: int = 8) -> WordTable:
    """Learns which word becomes which, from sentence pairs alone (Brown et al. 1993).

    At first every word may become every word. Each iteration of this "expectation-
    maximisation" shares out every French word among the English words of its sentence
    (and the empty word, here the start token), in proportion to the table so far; the
    sums of these shares give the next table. Word order plays no part.
    """
    english = Vocabulary.build(pair.source for pair in pairs)
    french = Vocabulary.build(pair.target for pair in pairs)
    met, word = _meetings(pairs, english, french)
    # `place` says for each meeting where in the table its two words stand.
    meetings, place = torch.unique(met, return_inverse=True)
    row = meetings // len(french)
    table = torch.full((len(meetings),), 1 / len(french), dtype=torch.float64)
    for _ in range(iterations):
        chance = table[place]
        share = chance / torch.bincount(word, weights=chance)[word]
        counts = torch.bincount(place, weights=share)
        total = torch.bincount(row, weights=counts)
        table = counts / total.clamp(min=1e-300)[row]
    return WordTable(english, french, meetings, table)


def _meetings(
    pairs: Sequence[Pair], english: Vocabulary, french: Vocabulary
) -> tuple[Int[Tensor, " meetings"], Int[Tensor, " meetings"]]:
    """Each French word meets each English word of its sentence, and the empty word.

    Of each meeting: the two ids in one number (as in `WordTable`), and which French
    word of the corpus it was, counted from 0.
    """
    met, word, n_words = [], [], 0
    for pair in pairs:
        e = torch.tensor([Vocabulary.start, *english.encode(pair.source)])
        f = torch.tensor(french.encode(pair.target), dtype=torch.long)
        met.append((e * len(french) + f.unsqueeze(1)).flatten())
        word.append((n_words + torch.arange(len(f))).repeat_interleave(len(e)))
        n_words += len(f)
    return torch.cat(met), torch.cat(word)


# ------------------------------------------------------------------ a task whose map is
# known


def reversal_pairs(
    count: int,
    *,
    letters: str = ascii_lowercase,
    shortest: int = 3,
    longest: int = 8,
    seed: int = 0,
) -> list[Pair]:
    """Pairs whose target is the source backwards: gold links on the anti-diagonal."""
    rng = random.Random(seed)
    pairs = []
    for _ in range(count):
        source = tuple(rng.choices(letters, k=rng.randint(shortest, longest)))
        links = frozenset((len(source) - 1 - j, j) for j in range(len(source)))
        pairs.append(Pair(source, source[::-1], links, links))
    return pairs


def train_reversal(
    decoder: Callable[..., AttentionDecoder],
    seed: int = 0,
    letters: str = ascii_lowercase,
) -> Trained[AttentionTranslator]:
    """A small translator that has learned to write rows of letters backwards.

    Its `scale` is 1: with 0.2, it looks at the right letter in 33 to 58 % of the steps.
    """
    make_model = partial(
        AttentionTranslator,
        embedding_size=16,
        hidden_size=32,
        decoder=partial(decoder, scale=1.0),
    )
    pairs = reversal_pairs(10_000, letters=letters)
    return train_translator(
        make_model,
        pairs,
        steps=700,
        batch_size=64,
        learning_rate=1e-2,
        warmup=0.3,
        seed=seed,
    )
