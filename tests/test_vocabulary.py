"""Ids and words are each other's inverse, special strings in a text stay text, and batches keep their lengths."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_utils.corpora.vocabulary import Vocabulary, pad_batch

SENTENCES = [("the", "cat", "sees", "the", "dog"), ("a", "dog", "sees", "the", "bird")]


def test_special_ids_and_order_by_count_then_alphabet():
    vocabulary = Vocabulary.build(SENTENCES)
    assert vocabulary.words == ("<pad>", "<unk>", "<s>", "</s>", "the", "dog", "sees", "a", "bird", "cat")
    assert (vocabulary.pad, vocabulary.unk, vocabulary.start, vocabulary.stop) == (0, 1, 2, 3)
    assert len(vocabulary) == 10


@settings(deadline=None)
@given(st.permutations(SENTENCES[0] + SENTENCES[1]))
def test_the_order_of_the_text_does_not_matter(tokens):
    assert Vocabulary.build([tokens]).words == Vocabulary.build(SENTENCES).words


def test_min_count_and_max_size():
    assert Vocabulary.build(SENTENCES, min_count=2).words[4:] == ("the", "dog", "sees")
    assert Vocabulary.build(SENTENCES, max_size=6).words[4:] == ("the", "dog")
    assert Vocabulary.build(SENTENCES, max_size=6, min_count=3).words[4:] == ("the",)
    assert len(Vocabulary.build(SENTENCES, max_size=1000)) == 10


def test_sentences_may_be_a_generator():
    assert Vocabulary.build(sentence for sentence in SENTENCES).words == Vocabulary.build(SENTENCES).words


def test_encode_and_decode():
    vocabulary = Vocabulary(["the", "cat"])
    assert vocabulary.encode(("the", "big", "cat")) == [4, 1, 5]
    assert vocabulary.encode(()) == []
    assert vocabulary.decode([2, 4, 5, 3, 0, 0, 1]) == ("<s>", "the", "cat", "</s>", "<pad>", "<pad>", "<unk>")
    assert vocabulary.decode(torch.tensor([5, 4])) == ("cat", "the")


@pytest.mark.parametrize("wrong", [-1, 6, 100])
def test_decode_refuses_ids_without_a_word(wrong):
    with pytest.raises(IndexError, match=f"id {wrong} .* 0 to 5"):
        Vocabulary(["the", "cat"]).decode([4, wrong])


def test_decode_refuses_what_is_no_whole_number():
    wrong: Any = [4.0]
    with pytest.raises(TypeError):
        Vocabulary(["the", "cat"]).decode(wrong)


def test_special_strings_in_a_text_are_unknown_words():
    vocabulary = Vocabulary.build([("the", "<pad>", "</s>", "<unk>", "<s>")])
    assert vocabulary.words[4:] == ("the",)
    assert vocabulary.encode(("<pad>", "<s>", "</s>", "the")) == [1, 1, 1, 4]
    assert "<pad>" not in vocabulary
    assert vocabulary.unknown(("<pad>", "the")) == ["<pad>"]


def test_unknown_words_come_in_order_and_once():
    vocabulary = Vocabulary(["the", "cat"])
    assert vocabulary.unknown(("zebra", "the", "ant", "zebra", "cat")) == ["zebra", "ant"]
    assert "cat" in vocabulary
    assert "zebra" not in vocabulary


WORDS = st.text(alphabet="abc<>/pads", min_size=1, max_size=5)


@settings(deadline=None)
@given(st.lists(st.lists(WORDS, max_size=6), max_size=6))
def test_known_words_survive_the_round_trip(sentences):
    vocabulary = Vocabulary.build([*sentences, ["a"]])
    for sentence in sentences:
        unknown = vocabulary.unknown(sentence)
        assert set(unknown) == set(sentence) & {"<pad>", "<s>", "</s>"}
        expected = tuple("<unk>" if word in unknown else word for word in sentence)
        assert vocabulary.decode(vocabulary.encode(sentence)) == expected
        assert min(vocabulary.encode(sentence), default=1) >= 1


def test_a_string_is_not_a_sentence():
    vocabulary = Vocabulary(["t", "h", "e"])
    for call in (vocabulary.encode, vocabulary.unknown, Vocabulary, lambda text: Vocabulary.build([text])):
        with pytest.raises(TypeError, match="tokenize it first: 'the'"):
            call("the")


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"max_size.*4"):
        Vocabulary.build(SENTENCES, max_size=4)
    with pytest.raises(ValueError, match=r"min_count.*0"):
        Vocabulary.build(SENTENCES, min_count=0)
    with pytest.raises(ValueError, match="no word is there 9 times or more, among 6 different words"):
        Vocabulary.build(SENTENCES, min_count=9)
    with pytest.raises(ValueError, match="no word"):
        Vocabulary.build([])
    with pytest.raises(ValueError, match=r"repeated.*cat"):
        Vocabulary(["cat", "dog", "cat"])
    with pytest.raises(ValueError, match=r"repeated.*<pad>"):
        Vocabulary(["cat", "<pad>"])


def test_the_shown_form_is_short():
    vocabulary = Vocabulary(str(number) for number in range(5000))
    assert repr(vocabulary) == "<Vocabulary of 5,004 words: <pad> <unk> <s> </s> 0 1 2 3 4 ...>"


# ------------------------------------------------------------------------------------------------ batches


def test_pad_batch():
    tokens, lengths = pad_batch([[5, 6, 7], [8], [9, 4]], pad_id=0)
    assert tokens.tolist() == [[5, 6, 7], [8, 0, 0], [9, 4, 0]]
    assert lengths.tolist() == [3, 1, 2]
    assert tokens.dtype == lengths.dtype == torch.int64


def test_pad_batch_uses_the_pad_id_it_gets():
    tokens, _ = pad_batch([[1], [2, 3]], pad_id=-100)
    assert tokens.tolist() == [[1, -100], [2, 3]]


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=7), min_size=1, max_size=5))
def test_lengths_give_the_sequences_back(sequences):
    tokens, lengths = pad_batch(sequences, pad_id=0)
    assert tokens.shape == (len(sequences), max(map(len, sequences)))
    assert [row[:n].tolist() for row, n in zip(tokens, lengths, strict=True)] == sequences
    assert sum(tokens[b, n:].sum() for b, n in enumerate(lengths)) == 0


def test_pad_batch_names_what_is_wrong():
    with pytest.raises(ValueError, match="sequences is empty"):
        pad_batch([], pad_id=0)
    with pytest.raises(ValueError, match=r"sequences\[1\] is empty"):
        pad_batch([[4], []], pad_id=0)
    no_lists: Any = [4, 5]
    with pytest.raises(TypeError, match=r"sequences\[0\].*got 4"):
        pad_batch(no_lists, pad_id=0)
    no_id: Any = 1.5
    with pytest.raises(TypeError, match=r"sequences\[1\].*got \[1\.5\]"):
        pad_batch([[4], [no_id]], pad_id=0)
