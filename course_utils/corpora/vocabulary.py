"""From words to numbers and back, and from sentences of several lengths to one tensor."""

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import index

import torch
from jaxtyping import Int
from torch import Tensor

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")


class Vocabulary:
    """The words that a model knows, each with a number (its id).

    Ids 0 to 3 are not words of the text: `<pad>` fills up short sentences, `<unk>` stands for every unknown word,
    `<s>` and `</s>` start and stop a sentence. They are the attributes `pad`, `unk`, `start` and `stop`. A text that
    contains the string "<pad>" does not get id 0: it is an unknown word like any other.

    `words[i]` is the word with id i, `len` counts the four special ones too, and `word in vocabulary` says whether
    the word has an id of its own in a text.
    """

    pad, unk, start, stop = range(4)

    def __init__(self, words: Iterable[str]):
        """Number the words, the first one with id 4. `Vocabulary.build` finds the words of a corpus.

        Raises ValueError for a word that is there twice or is one of the special strings.
        """
        self.words: tuple[str, ...] = (*SPECIAL, *_tokens(words))
        twice = [word for word, count in Counter(self.words).items() if count > 1]
        if twice:
            raise ValueError(f"every word must be there once, and {SPECIAL} are taken; repeated: {twice[:5]}")
        self._ids = {word: i for i, word in enumerate(self.words) if i >= len(SPECIAL)}

    @classmethod
    def build(
        cls, sentences: Iterable[Sequence[str]], *, max_size: int | None = None, min_count: int = 1
    ) -> "Vocabulary":
        """Take the words of the sentences, the most frequent first; equally frequent ones in the alphabet's order.

        Args:
            sentences: sentences as tokens.
            max_size: the largest `len` of the vocabulary, with the four special words; the rarest words go first.
            min_count: how often a word must be there to be taken.

        Raises ValueError if max_size or min_count is too small, or no word is left; TypeError if a sentence is a
        string (its letters would become the words).
        """
        if max_size is not None and max_size <= len(SPECIAL):
            raise ValueError(
                f"max_size must be above {len(SPECIAL)}, as it counts the special words too; got {max_size}"
            )
        if min_count < 1:
            raise ValueError(f"min_count must be at least 1; got {min_count}")
        counts = Counter(word for sentence in sentences for word in _tokens(sentence) if word not in SPECIAL)
        words = sorted((word for word in counts if counts[word] >= min_count), key=lambda word: (-counts[word], word))
        if not words:
            raise ValueError(f"no word is there {min_count} times or more, among {len(counts)} different words")
        return cls(words[: None if max_size is None else max_size - len(SPECIAL)])

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """Return the id of each token, `unk` for unknown ones. Adds no start and no stop."""
        return [self._ids.get(token, self.unk) for token in _tokens(tokens)]

    def decode(self, ids: Iterable[int] | Tensor) -> tuple[str, ...]:
        """Return the word of each id: a plain look-up that keeps `<pad>` and goes on after `</s>`.

        Raises IndexError for an id that no word has (-1 too: Python would take the last word).
        """
        return tuple(self._word(index(i)) for i in ids)

    def unknown(self, tokens: Sequence[str]) -> list[str]:
        """Return the tokens that `encode` makes `unk`, in their order, each once."""
        return [token for token in dict.fromkeys(_tokens(tokens)) if token not in self]

    def _word(self, i: int) -> str:
        if not 0 <= i < len(self.words):
            raise IndexError(f"id {i} has no word: the ids of this vocabulary are 0 to {len(self.words) - 1}")
        return self.words[i]

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def __repr__(self) -> str:
        first = " ".join(self.words[len(SPECIAL) : len(SPECIAL) + 5])
        return f"<Vocabulary of {len(self):,} words: {' '.join(SPECIAL)} {first} ...>"


def _tokens(sentence: Iterable[str]) -> Iterable[str]:
    if isinstance(sentence, str):
        raise TypeError(f"a sentence must be a sequence of words, not one string; tokenize it first: {sentence[:40]!r}")
    return sentence


def pad_batch(
    sequences: Sequence[Sequence[int]], pad_id: int
) -> tuple[Int[Tensor, "batch time"], Int[Tensor, " batch"]]:
    """Put sequences of ids into one tensor, filled up with `pad_id` at their ends.

    Returns (tokens, lengths), both int64: tokens[b, :lengths[b]] is sequence b, and time is the longest length.
    The lengths must travel with the tokens: without them a model takes the padding for words.

    Raises ValueError for an empty batch or an empty sequence; TypeError for one that is no list of whole numbers.
    """
    if len(sequences) == 0:
        raise ValueError("sequences is empty: a batch needs at least one sequence")
    rows = [_row(sequence, b) for b, sequence in enumerate(sequences)]
    lengths = torch.tensor([len(row) for row in rows])
    tokens = torch.full((len(rows), max(map(len, rows))), pad_id, dtype=torch.int64)
    for b, row in enumerate(rows):
        tokens[b, : len(row)] = torch.tensor(row)
    return tokens, lengths


def _row(sequence: Sequence[int], b: int) -> list[int]:
    try:
        row = [index(i) for i in sequence]  # torch.tensor would cut 1.5 to 1 without a word
    except TypeError as error:
        raise TypeError(f"sequences[{b}] must be a list of whole numbers; got {sequence!r:.60}") from error
    if not row:
        raise ValueError(f"sequences[{b}] is empty: a sequence needs at least one id (a stop, for example)")
    return row
