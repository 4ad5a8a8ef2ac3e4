"""The tokenizer keeps every sign and leaves split text alone; the loader names every line that it skips."""

import io
import json
import unicodedata
import zipfile

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from course_utils.corpora.pairs import Corpus, Pair, SkippedLine, read_pairs, tokenize

# ------------------------------------------------------------------------------------------------ words

ENGLISH = [  # text, its tokens with spaces between
    ("I'm here; don't go.", "i 'm here ; do n't go ."),
    ("Can't, won't, isn't", "ca n't , wo n't , is n't"),
    ("I'd've said it couldn't've", "i 'd 've said it could n't 've"),
    ("The king's dog", "the king 's dog"),
    ("the kings' dogs", "the kings ' dogs"),
    ("It’s “fine”", 'it \'s " fine "'),
    ("Ten o'clock, ma'am", "ten o'clock , ma'am"),
    ("a well-known add-on", "a well-known add-on"),
    ("a what's-his-name", "a what's-his-name"),
    ("Mr. Smith met Mr.", "mr. smith met mr ."),
    ("It costs $5.00, or 10,000 at 2:30 a.m.", "it costs $ 5.00 , or 10,000 at 2:30 a.m."),
    ("In 2013.", "in 2013 ."),
    ("Well... wait… what?!", "well ... wait ... what ? !"),
    ("the 20th, 60%", "the 20th , 60 %"),
]
FRENCH = [
    ("J'ai vu l'arbre qu'il aime.", "j' ai vu l' arbre qu' il aime ."),
    ("L’arbre", "l' arbre"),
    ("Aujourd'hui, quelqu'un a entr'ouvert la porte", "aujourd'hui , quelqu'un a entr'ouvert la porte"),
    ("D'aujourd'hui jusqu'à lundi", "d' aujourd'hui jusqu' à lundi"),
    ("presqu'une presqu'île", "presqu' une presqu'île"),
    ("Vas-tu t'asseoir ?", "vas -tu t' asseoir ?"),
    ("Est-ce que", "est -ce que"),
    ("Qu'est-ce qu'il y a-t-il", "qu' est -ce qu' il y a -t-il"),
    ("Donne-le-moi et allons-nous-en", "donne -le -moi et allons -nous -en"),
    ("Va-t'en, donne-m'en", "va -t' en , donne -m' en"),
    ("Peut-on ? Peut-être.", "peut -on ? peut-être ."),
    ("ce cessez-le-feu, un rendez-vous, là-bas", "ce cessez-le-feu , un rendez-vous , là-bas"),
    ("c'est-à-dire l'après-midi", "c'est-à-dire l' après-midi"),
    ("le chef-d'œuvre", "le chef-d'œuvre"),
    ("«\u00a0Oui\u202f!\u00a0»", "« oui ! »"),
    ("5\u00a0h\u00a030, 9,4\u2009%", "5 h 30 , 9,4 %"),
    ("M. Dupont mesure 1,80 m.", "m. dupont mesure 1,80 m ."),
]
ALREADY_SPLIT = {
    "eng": [
        "the king 's dog .",
        "i do n't think that he 'll see it .",
        "the men with the blue cow show this boy 's big table to the intelligent student .",
        "the european economic area",
        '" mr. smith , ten o\'clock ! "',
    ],
    "fra": [
        "l' arbre est rouge .",
        "les hommes montrent la table de ce garçon à l' étudiant parce qu' ils ne l' aiment pas .",
        "j' espère qu' il n' écoute pas .",
        "qu' est -ce que c' est ?",
        "va -t' en , donne -le -moi , a -t-il aujourd'hui ?",
    ],
}


@pytest.mark.parametrize(
    ("language", "text", "tokens"), [("eng", *case) for case in ENGLISH] + [("fra", *case) for case in FRENCH]
)
def test_tokens_of_known_sentences(language, text, tokens):
    assert tokenize(text, language) == tuple(tokens.split())


@pytest.mark.parametrize(
    ("language", "text"), [(language, text) for language in ALREADY_SPLIT for text in ALREADY_SPLIT[language]]
)
def test_split_text_comes_back_unchanged(language, text):
    assert " ".join(tokenize(text, language)) == text


def test_the_language_decides_about_a_hyphen():
    assert tokenize("add-on peut-on", "eng") == ("add-on", "peut-on")
    assert tokenize("add-on peut-on", "fra") == ("add", "-on", "peut", "-on")


def test_composed_and_decomposed_accents_are_one_word():
    assert tokenize(unicodedata.normalize("NFD", "Très Élégant"), "fra") == ("très", "élégant")


def test_invisible_characters_vanish():
    assert tokenize("\ufeffthe c\u00adat\u200b.", "eng") == ("the", "cat", ".")


def test_nothing_but_spaces_has_no_token():
    assert tokenize(" \u00a0\u202f\u2009\u2028", "fra") == ()


def test_another_language_is_refused():
    with pytest.raises(ValueError, match=r"'eng', 'fra'.*'deu'"):
        tokenize("der Baum", "deu")


PIECES = st.sampled_from(
    [
        *("don't", "I'm", "'s", "n't", "can't've", "'", "l'arbre", "qu'", "aujourd'hui", "c'est-à-dire", "presqu'île"),
        *("-", "--", "-tu", "-t-il", "t'en", "va-t'en", "allons-nous-en", "est-ce", "rendez-vous", "x"),
        *(".", "...", "…", ",", "?", "«", "»", "a.m.", "Mr.", "M.", "J.-C.", "3.14", "10,000", "2h30"),
        *("\u00a0", "\u202f", "é", "e\u0301", "œ"),
    ]
)
TEXTS = st.one_of(st.text(), st.lists(PIECES).map("".join), st.lists(PIECES).map(" ".join))
LANGUAGES = st.sampled_from(["eng", "fra"])


@settings(deadline=None)  # a busy machine is no error
@given(TEXTS, LANGUAGES)
@example("x'sn't", "eng")
@example("x's-n't", "eng")
@example("x-moi-le-lui", "fra")
@example("x-tu-t'en", "fra")
def test_splitting_twice_changes_nothing(text, language):
    tokens = tokenize(text, language)
    assert tokenize(" ".join(tokens), language) == tokens


@settings(deadline=None)
@given(st.lists(PIECES).map(" ".join), LANGUAGES)
def test_only_spaces_are_put_in(text, language):
    expected = unicodedata.normalize("NFC", text.lower()).replace("…", "...")
    assert "".join(tokenize(text, language)) == "".join(expected.split())


# ------------------------------------------------------------------------------------------------ files


@pytest.fixture
def read(tmp_path):
    """Write bytes or text into a file and read it as pairs."""

    def write_and_read(content, name="pairs.tsv", **options) -> Corpus:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_pairs(path, **options)

    return write_and_read


GO = Pair(("go", "."), ("va", "!"))
HI = Pair(("hi", "."), ("salut", "."))


def test_two_columns(read):
    corpus = read("Go.\tVa !\nHi.\tSalut.\n")
    assert corpus.pairs == [GO, HI]
    assert corpus.skipped == []
    assert corpus.report() == "2 pairs read; no line skipped."


def test_each_side_has_its_own_language(read):
    (pair,) = read("Don't use the add-on.\tPeut-on l'utiliser ?\n").pairs
    assert pair.source == ("do", "n't", "use", "the", "add-on", ".")
    assert pair.target == ("peut", "-on", "l'", "utiliser", "?")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("last", [True, False])
def test_line_ends_and_byte_order_mark(read, end, mark, last):
    corpus = read(mark + "Go.\tVa !" + end + "Hi.\tSalut." + (end if last else ""))
    assert corpus.pairs == [GO, HI]
    assert corpus.skipped == []


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e"])
def test_other_signs_do_not_end_a_line(read, sign):
    corpus = read(f"Go{sign}now.\tVa{sign}!\n")
    assert corpus.skipped == []
    assert corpus.pairs == [Pair(("go", "now", "."), ("va", "!"))]


@pytest.mark.parametrize("space", ["\u00a0", "\u202f", "\u2009"])
def test_every_space_is_a_space(read, space):
    assert read(f"Go{space}.\tVa{space}!\n").pairs == [GO]


def test_a_credit_line_in_column_three_is_ignored(read):
    assert read("Go.\tVa !\tCC-BY 2.0 (France) Attribution: tatoeba.org #2877272 (CM) & #1158250\n").pairs == [GO]


def test_a_number_too_long_for_a_position_is_no_link(read):
    assert read("Go.\tVa !\t" + "9" * 5000 + "-0\n").pairs == [GO]  # Python's int refuses it


def test_links_are_read_and_possible_contains_sure(read):
    (pair,) = read("the king 's dog\tle chien du roi\t3-1 1-3\t0-2 2-2\n").pairs
    assert pair.target == ("le", "chien", "du", "roi")
    assert pair.sure == {(3, 1), (1, 3)}
    assert pair.possible == {(3, 1), (1, 3), (0, 2), (2, 2)}


def test_sure_links_alone_and_possible_links_alone(read):
    sure, possible = read("a b\tc d\t0-1\na b\tc d\t\t0-1\n").pairs
    assert (sure.sure, sure.possible) == ({(0, 1)}, {(0, 1)})
    assert (possible.sure, possible.possible) == (frozenset(), {(0, 1)})


def test_a_line_with_links_keeps_the_words_of_the_file(read):
    """A link counts the words as the file has them: splitting one more would move all later links."""
    (pair,) = read("Don't go\tn'y va pas\t0-0 1-1\n").pairs
    assert pair.source == ("don't", "go")
    assert pair.target == ("n'y", "va", "pas")


BROKEN = [  # a line, why it is skipped, what is kept of it
    (b"", "empty", ""),
    (b" \xc2\xa0 \t ", "empty", ""),
    (b"Only English.", "only one column", "Only English."),
    (b"\tVa !", "the first column is empty", "Va !"),
    (b"Go.\t\xe2\x80\xaf", "the second column is empty", "Go."),
    ("Go.\tDéjà !".encode("cp1252"), "not UTF-8", "Go.\tD\ufffdj\ufffd !"),
    (b"Go.\tVa\0 !", "a NUL character", "Go.\tVa␀ !"),
    (b"a b\tc d\t0-0 2-1", "link 2-1 is out of range for 2 and 2 words", "a b\tc d\t0-0 2-1"),
    (b"a b\tc d\t0-0\t1-2", "link 1-2 is out of range for 2 and 2 words", "a b\tc d\t0-0\t1-2"),
]


@pytest.mark.parametrize(("line", "reason", "text"), BROKEN)
def test_a_broken_line_is_skipped_and_named(read, line, reason, text):
    corpus = read(b"Go.\tVa !\n" + line + b"\nHi.\tSalut.\n")
    assert corpus.pairs == [GO, HI]
    assert corpus.skipped == [SkippedLine(2, reason, text)]
    assert corpus.report() == f"2 pairs read; 1 line skipped: line 2: {reason}."


def test_all_broken_lines_keep_their_numbers(read):
    corpus = read(b"\r\n".join([line for line, _, _ in BROKEN] + [b"Go.\tVa !"]))
    assert [(line.number, line.reason) for line in corpus.skipped] == [
        (number, reason) for number, (_, reason, _) in enumerate(BROKEN, start=1)
    ]
    assert corpus.pairs == [GO]


def test_a_long_line_is_kept_short(read):
    (line,) = read("x" * 500 + "\nGo.\tVa !\n").skipped
    assert line.text == "x" * 59 + "…"


def test_a_byte_order_mark_is_no_text(read):
    assert read("\ufeff\nGo.\tVa !\n").skipped == [SkippedLine(1, "empty", "")]


def test_the_report_names_ten_lines_and_counts_the_rest(read):
    corpus = read("Go.\tVa !\n" * 1000 + "one\n" * 12 + "\n" * 3)
    report = str(corpus)
    assert report.startswith("1,000 pairs read; 15 lines skipped: line 1,001: only one column; line 1,002")
    assert report.endswith("line 1,010: only one column; and 5 more (3 × empty, 2 × only one column).")
    assert report.count("line 1,0") == 10
    assert repr(corpus) == f"<Corpus: {report}>"


def test_limit_counts_pairs_and_stops_there(read):
    content = "one\nGo.\tVa !\nHi.\tSalut.\ntwo\n"
    assert read(content, limit=1) == Corpus([GO], [SkippedLine(1, "only one column", "one")])
    assert read(content, limit=2).pairs == [GO, HI]
    assert len(read(content, limit=2).skipped) == 1
    assert len(read(content, limit=3).skipped) == 2
    for limit in (0, -1):
        with pytest.raises(ValueError, match=f"limit must be at least 1.*{limit}"):
            read(content, limit=limit)


def _zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("fra.txt", "Go.\tVa !\n")
    return buffer.getvalue()


NOTEBOOK = json.dumps({"cells": [{"cell_type": "code", "source": ["a\tb"]}], "nbformat": 4}, indent="\t")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (_zip(), "zip archive"),
        (b"\x1f\x8b\x08\x00abc", "gzip"),
        (NOTEBOOK, "notebook"),
        ("Go.\tVa !\n".encode("utf-16"), "UTF-16"),
        ("Go.\tVa !\n".encode("utf-16-le"), "UTF-16"),
        ("Go.\tVa !\n".encode("utf-16-be"), "UTF-16"),
        ("<!DOCTYPE html><p>\ta\tb", "web page"),
        (" \n\n", "is empty"),
        ("", "is empty"),
        ("english,french\ngo,va\n", "no pair.*line 1: only one column; line 2: only one column"),
    ],
)
def test_a_file_that_is_no_table_is_refused(read, content, kind):
    with pytest.raises(ValueError, match=kind) as error:
        read(content)
    assert "pairs.tsv" in str(error.value)
    assert "a tab" in str(error.value)


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*nowhere\.tsv.*a tab"):
        read_pairs(tmp_path / "nowhere.tsv")
    with pytest.raises(IsADirectoryError, match=r"is a folder.*a tab"):
        read_pairs(tmp_path)


def test_a_path_may_be_a_string(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("Go.\tVa !\n", encoding="utf-8")
    assert read_pairs(str(path)).pairs == [GO]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"").replace(b"\r", b"")), max_size=8))
def test_every_line_is_a_pair_or_is_listed(tmp_path_factory, lines):
    path = tmp_path_factory.getbasetemp() / "fuzz.tsv"
    path.write_bytes(b"".join(line + b"\n" for line in [b"Go.\tVa !", *lines, b"x" * 3000]))
    corpus = read_pairs(path)
    assert len(corpus.pairs) + len(corpus.skipped) == len(lines) + 2
    assert corpus.skipped[-1].number == len(lines) + 2
