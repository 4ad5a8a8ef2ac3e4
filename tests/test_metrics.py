"""BLEU against figures worked out by hand, and bins that leave no sentence in two places."""

import math
import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_utils.metrics import bleu, bleu_by_length, by_length, exact_match


def words(text: str) -> list[str]:
    return text.split()


MAT = words("the cat sat on the mat")


def test_bleu_by_hand():
    # "the cat sat on a mat": 5 of 6 words ("a" is wrong), 3 of 5 pairs, 2 of 4 triples, 1 of 3 runs of four.
    expected = 100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** (1 / 4)
    assert bleu([words("the cat sat on a mat")], [MAT]) == pytest.approx(expected)


def test_bleu_of_short_output_is_only_the_penalty():
    assert bleu([MAT[:5]], [MAT]) == pytest.approx(100 * math.exp(1 - 6 / 5))


def test_a_repeated_word_counts_as_often_as_the_reference_has_it():
    # 2 of 7 words (Papineni's example). No longer run matches: sacrebleu halves the missing count each time.
    expected = 100 * (2 / 7 * (1 / 2) / 6 * (1 / 4) / 5 * (1 / 8) / 4) ** (1 / 4)
    assert bleu([["the"] * 7], [words("the cat is on the mat .")]) == pytest.approx(expected)


def test_bleu_counts_over_the_corpus_and_is_no_mean():
    hypotheses = [words("the cat sat on a mat"), words("i see the old house")]
    references = [MAT, words("i see the old house")]
    expected = 100 * (10 / 11 * 7 / 9 * 5 / 7 * 3 / 5) ** (1 / 4)
    assert bleu(hypotheses, references) == pytest.approx(expected)
    single = [bleu([hypothesis], [reference]) for hypothesis, reference in zip(hypotheses, references, strict=True)]
    assert abs(bleu(hypotheses, references) - sum(single) / 2) > 2


def test_bleu_is_not_symmetric():
    assert bleu([MAT], [MAT[:5]]) == pytest.approx(100 * (5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** (1 / 4))


def test_tokens_count_as_they_are():
    """With sacrebleu's own tokenizer `don't .` and `do n't .` could become the same; here they may not."""
    right = words("l' arbre n' est pas rouge .")
    assert bleu([right], [right]) == pytest.approx(100)
    assert bleu([words("L' arbre n' est pas rouge .")], [right]) < 100
    assert bleu([["l'arbre", "n'est", "pas", "rouge."]], [right]) < 10


@pytest.mark.parametrize(
    ("hypothesis", "reference", "matches"),
    [
        (["a b", "c", "d", "e"], ["a", "b", "c", "d", "e"], (3, 2, 1, 0)),
        (["a", "b c", "d", "e", "f"], ["a", "b c", "d", "e", "g"], (4, 3, 2, 1)),
        (["a", "", "b", "c", "d"], ["a", "b", "c", "d", "e"], (4, 2, 1, 0)),
        (["a\u202fb", "c", "d", "e", "f"], ["a b", "c", "d", "e", "f"], (4, 3, 2, 1)),
        (["1", "0", "2", "3", "4"], ["0", "1", "2", "3", "4"], (5, 2, 1, 0)),
    ],
)
def test_a_token_is_one_whatever_it_holds(hypothesis, reference, matches):
    """A blank in a token, an empty one, and figures as words: counted by hand as runs of one to four tokens."""
    size = len(hypothesis)
    precisions = [(count or 1 / 2) / (size - n) for n, count in enumerate(matches)]  # a missing one counts half
    penalty = min(1, math.exp(1 - len(reference) / size))
    assert bleu([hypothesis], [reference]) == pytest.approx(100 * penalty * math.prod(precisions) ** (1 / 4))


@pytest.mark.parametrize("name", ["hypotheses", "references"])
def test_numbers_are_no_words(name):
    sides: dict[str, Any] = {"hypotheses": [["a"]], "references": [["a"]]} | {name: [[7]]}
    with pytest.raises(TypeError, match="a token must be a string; got 7 of int"):
        bleu(**sides)


def test_bleu_warns_nobody(caplog, capsys):
    bleu([[*MAT, "."]] * 200, [[*MAT, "."]] * 200)
    assert caplog.text == ""
    assert capsys.readouterr() == ("", "")


def test_ends_of_the_scale():
    assert bleu([MAT], [MAT]) == pytest.approx(100)
    assert bleu([MAT[:5]], [MAT[:5]]) <= 100  # not 100.00000000000004
    assert bleu([[]], [MAT]) == 0
    assert bleu([["the", "cat"]], [["the", "cat"]]) == 0  # no four words in a row: documented


def test_exact_match():
    assert exact_match([MAT, MAT[:5], MAT, []], [MAT, MAT, tuple(MAT), MAT]) == 0.5
    assert exact_match([["a", "b"]], [["b", "a"]]) == 0


def test_by_length_includes_both_ends():
    assert by_length([1, 10, 11, 20, 21, 0], [(1, 10), (11, 20)]) == [[0, 1], [2, 3]]
    assert by_length([5, 15], [(11, 20), (1, 10), (30, 30)]) == [[1], [0], []]


@settings(deadline=None)
@given(st.lists(st.integers(1, 60)), st.lists(st.integers(1, 60), min_size=2, unique=True).map(sorted))
def test_bins_that_touch_hold_every_length_once(lengths, ends):
    bins = [(low, high - 1) for low, high in pairwise(ends)]
    groups = by_length(lengths, bins)
    inside = [i for i, length in enumerate(lengths) if ends[0] <= length < ends[-1]]
    assert sorted(i for group in groups for i in group) == inside
    for (low, high), group in zip(bins, groups, strict=True):
        assert all(low <= lengths[i] <= high for i in group)


def test_bleu_by_length():
    wrong = words("the cat sat on a mat")
    hypotheses, references = [MAT, wrong, MAT, [], wrong], [MAT] * 5
    scores = bleu_by_length(hypotheses, references, [12, 3, 20, 99, 10], [(1, 10), (11, 20)])
    assert scores == pytest.approx([100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** (1 / 4), 100])
    scores = bleu_by_length(hypotheses, references, [12, 3, 20, 99, 10], [(11, 20), (1, 10)])
    assert scores[0] == pytest.approx(100)


@pytest.mark.parametrize("score", [bleu, exact_match, lambda h, r: bleu_by_length(h, r, [1] * len(h), [(1, 10)])])
def test_wrong_sentences_are_named(score):
    with pytest.raises(ValueError, match="2 and 1"):
        score([MAT, MAT], [MAT])
    with pytest.raises(ValueError, match="nothing to score"):
        score([], [])
    with pytest.raises(ValueError, match=r"references\[1\] is empty"):
        score([MAT, MAT], [MAT, []])
    with pytest.raises(TypeError, match=r"hypotheses\[0\].*'the cat'"):
        score(["the cat"], [MAT])
    with pytest.raises(TypeError, match=r"references\[0\].*'the cat'"):
        score([MAT], ["the cat"])


@pytest.mark.parametrize(
    ("bins", "message"),
    [
        ([], "bins is empty"),
        ([(1, 10), (20, 11)], r"\(20, 11\) is reversed"),
        ([(1, 10), (10, 20)], r"\(1, 10\) and \(10, 20\) overlap"),
        ([(10, 20), (1, 10)], r"\(1, 10\) and \(10, 20\) overlap"),
        ([(1, 50), (2, 3), (60, 70)], r"\(1, 50\) and \(2, 3\) overlap"),
        ([(1, 5), (1, 5)], "overlap"),
    ],
)
def test_wrong_bins_are_named(bins, message):
    with pytest.raises(ValueError, match=message):
        by_length([1, 2, 3], bins)
    with pytest.raises(ValueError, match=message):
        bleu_by_length([MAT], [MAT], [2], bins)


def test_an_empty_bin_and_missing_lengths_are_errors():
    with pytest.raises(ValueError, match=r"no sentence in the bins \[\(20, 30\)\].*from 6 to 12"):
        bleu_by_length([MAT, MAT], [MAT, MAT], [12, 6], [(1, 15), (20, 30)])
    with pytest.raises(ValueError, match=r"source_lengths.*1 for 2"):
        bleu_by_length([MAT, MAT], [MAT, MAT], [12], [(1, 15)])


def test_importing_the_module_does_not_load_sacrebleu():
    code = "import sys, course_utils.metrics; sys.exit('sacrebleu' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
