"""How good translations are: BLEU, exact match, and both ordered by sentence length."""

from collections.abc import Sequence
from itertools import pairwise

Tokens = Sequence[str]
Bin = tuple[int, int]  # (smallest length, largest length), both included


def bleu(hypotheses: Sequence[Tokens], references: Sequence[Tokens]) -> float:
    """Return the corpus BLEU of the hypotheses, from 0 to 100, with one reference each.

    BLEU (Papineni et al. 2002, https://aclanthology.org/P02-1040) as sacrebleu computes it (Post 2018,
    https://aclanthology.org/W18-6319): the geometric mean of the precisions of 1 to 4 words in a row, counted over
    the whole corpus, times a penalty for output that is too short. It is not the mean over sentences. The tokens
    count as they are, also those that hold a space, so a figure compares only with figures on the same tokens.

    A hypothesis may be empty. A corpus without any four words in a row scores 0, right or not.

    Raises ValueError for different numbers of sentences, none at all, or an empty reference; TypeError for a
    sentence that is a string instead of tokens, or a token that is no string.
    """
    _check_sentences(hypotheses, references)
    import sacrebleu  # here: it costs time that only those who score should pay

    # sacrebleu takes text and splits it at spaces: a token with a space would become two, an empty one none. BLEU only
    # asks which tokens are equal, so each different token is given a number, and the numbers are the text.
    numbers: dict[str, int] = {}
    outputs, targets = ([_numbered(tokens, numbers) for tokens in side] for side in (hypotheses, references))
    score = sacrebleu.corpus_bleu(outputs, [targets], tokenize="none").score
    return min(score, 100.0)  # rounding can give 100.00000000000004


def _numbered(tokens: Tokens, numbers: dict[str, int]) -> str:
    """Write the number of each token, and give the next numbers to new ones."""
    for token in tokens:
        if not isinstance(token, str):
            raise TypeError(f"a token must be a string; got {token!r} of {type(token).__name__}")
    return " ".join(str(numbers.setdefault(token, len(numbers))) for token in tokens)


def exact_match(hypotheses: Sequence[Tokens], references: Sequence[Tokens]) -> float:
    """Return the share of hypotheses, from 0 to 1, that equal their reference token by token.

    Raises the errors of `bleu`, but takes any tokens that can be compared.
    """
    _check_sentences(hypotheses, references)
    pairs = zip(hypotheses, references, strict=True)
    return sum(tuple(output) == tuple(target) for output, target in pairs) / len(hypotheses)


def by_length(lengths: Sequence[int], bins: Sequence[Bin]) -> list[list[int]]:
    """Return for each bin the positions in `lengths` whose length lies in it, both ends included.

    A length outside of all bins is in no list; a bin without any length gives an empty list.

    >>> by_length([4, 25, 10, 11], bins=[(1, 10), (11, 20)])
    [[0, 2], [3]]

    Raises ValueError for no bins, a bin whose ends are in the wrong order, or bins that overlap.
    """
    _check_bins(bins)
    return [[i for i, length in enumerate(lengths) if low <= length <= high] for low, high in bins]


def bleu_by_length(
    hypotheses: Sequence[Tokens], references: Sequence[Tokens], source_lengths: Sequence[int], bins: Sequence[Bin]
) -> list[float]:
    """Return the corpus BLEU of each bin of source lengths, from 0 to 100 (as in figure 2 of
    Bahdanau et al. 2015, https://arxiv.org/abs/1409.0473).

    Sentences outside of all bins do not count.

    Raises the errors of `bleu` and `by_length`, and ValueError for a bin without sentences: it has no BLEU, and a
    NaN would only leave a gap in a curve that nobody notices.
    """
    _check_sentences(hypotheses, references)
    if len(source_lengths) != len(hypotheses):
        raise ValueError(f"source_lengths must have one length a sentence: {len(source_lengths)} for {len(hypotheses)}")
    groups = by_length(source_lengths, bins)
    empty = [ends for ends, group in zip(bins, groups, strict=True) if not group]
    if empty:
        raise ValueError(
            f"no sentence in the bins {empty}; "
            f"the source lengths go from {min(source_lengths)} to {max(source_lengths)}"
        )
    return [bleu([hypotheses[i] for i in group], [references[i] for i in group]) for group in groups]


def _check_sentences(hypotheses: Sequence[Tokens], references: Sequence[Tokens]) -> None:
    if len(hypotheses) != len(references):
        raise ValueError(f"every hypothesis needs one reference; got {len(hypotheses)} and {len(references)}")
    if len(hypotheses) == 0:
        raise ValueError("hypotheses and references are empty: there is nothing to score")
    for name, side in (("hypotheses", hypotheses), ("references", references)):
        for i, sentence in enumerate(side):
            if isinstance(sentence, str):
                raise TypeError(f"{name}[{i}] must be a sequence of tokens, not one string: {sentence[:40]!r}")
    for i, reference in enumerate(references):
        if len(reference) == 0:
            raise ValueError(f"references[{i}] is empty: nothing can be compared with it")


def _check_bins(bins: Sequence[Bin]) -> None:
    if len(bins) == 0:
        raise ValueError("bins is empty; it needs pairs such as (1, 10)")
    for low, high in bins:
        if low > high:
            raise ValueError(f"bin ({low}, {high}) is reversed: it must be (smallest length, largest length)")
    ordered = sorted(bins)
    for (low, high), (next_low, next_high) in pairwise(ordered):
        if next_low <= high:
            raise ValueError(
                f"bins ({low}, {high}) and ({next_low}, {next_high}) overlap: both ends belong to a bin, "
                "so the next one starts one higher"
            )
