"""The tokenizer keeps every sign and leaves split text alone; the loader names every line that it skips."""

import gzip
import io
import json
import tarfile
import time
import unicodedata
import zipfile
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from course_utils.corpora import tokenizer
from course_utils.corpora.pairs import Corpus, Pair, SkippedLine, parse_pairs, read_pairs
from course_utils.corpora.tokenizer import tokenize

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
    ("don'tn't-n't, don'tn'tx-n'ty", "do n't n't - n't , don'tn'tx-n'ty"),
    ("couldn't'vex", "could n't ' vex"),
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
    ("va-le-les-leur, va-le-les-leurs, va-le-les-m'en", "va -le -les -leur , va-le-les-leurs , va -le -les -m' en"),
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


@settings(deadline=None)
@given(st.lists(st.sampled_from("e\u0301\u0316\u0344\u034f\u0345\u0327"), min_size=20).map("".join))
def test_accents_of_any_number_are_in_unicodes_order(text):
    assert "".join(tokenize(text, "fra")) == unicodedata.normalize("NFC", text)


def test_invisible_characters_vanish():
    assert tokenize("\ufeffthe c\u00adat\u200b.", "eng") == ("the", "cat", ".")


def test_nothing_but_spaces_has_no_token():
    assert tokenize(" \u00a0\u202f\u2009\u2028", "fra") == ()


def test_another_language_is_refused():
    german: Any = "deu"
    with pytest.raises(ValueError, match=r"'eng', 'fra'.*'deu'"):
        tokenize("der Baum", german)


LONG = {  # each must be read in one pass; with a second look at the rest from each place, it takes minutes
    "digits": ("eng", "1" * 200_000, 1),
    "digits and points": ("fra", "1." * 100_000 + "x", 3),
    "n't": ("eng", "do" + "n't" * 60_000, 60_001),
    "n't and letters": ("eng", "do" + "n't" * 60_000 + "x", 1),
    "n't and hyphens": ("eng", "do" + "n't-" * 60_000 + "n't", 120_002),
    "'s": ("eng", "x" + "'s" * 60_000 + "n'tx", 60_002),
    "pronouns": ("fra", "va" + "-le" * 60_000, 60_001),
    "pronouns and letters": ("fra", "va" + "-le" * 60_000 + "-x", 1),
    "pronouns alone": ("fra", "-le" * 60_000 + "-x", 2),
    "elided pronouns": ("fra", "va" + "-t'en" * 60_000, 120_001),
}


@pytest.mark.parametrize(("language", "text", "tokens"), LONG.values(), ids=LONG)
def test_the_time_grows_with_the_length_only(language, text, tokens):
    began = time.process_time()
    found = tokenize(text, language)
    assert time.process_time() - began < 2  # a tenth of a second as a rule
    assert len(found) == tokens and "".join(found) == text


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


def _plain_scanner(language: tokenizer.Language):
    """The tokenizer's pattern without what makes it fast."""
    with pytest.MonkeyPatch.context() as patch:
        never = "(?!)"
        patch.setitem(tokenizer._ENDINGS, language, tokenizer._ENDINGS[language]._replace(next=never, row=never))
        return tokenizer._scanner(language)


PLAIN = {language: _plain_scanner(language) for language in tokenizer._ENDINGS}


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.sampled_from(["n't", "-n't", "'s", "-le", "-t-il", "-t'", "-m'en", "x", "-", "'", " ", "en", "é", "1"]))
)
@example(["x", "n't", "'s", "n't", "-n't", "-", "x"])
@example(["-le", "-t-il", "'", "x"])
def test_what_makes_it_fast_changes_nothing(pieces):
    text = "".join(pieces)
    for language, plain in PLAIN.items():
        assert tokenize(text, language) == tuple(plain.findall(text))


@settings(deadline=None)
@given(st.lists(PIECES).map(" ".join), LANGUAGES)
def test_only_spaces_are_put_in(text, language):
    expected = unicodedata.normalize("NFC", text.lower()).replace("…", "...")
    assert "".join(tokenize(text, language)) == "".join(expected.split())


# ------------------------------------------------------------------------------------------------ files

GO = Pair(("go", "."), ("va", "!"))
HI = Pair(("hi", "."), ("salut", "."))
MANY = "Go.\tVa !\n" * 200  # so many that a bad line or two are no reason to refuse the file


@pytest.fixture
def read(tmp_path):
    """Write bytes or texts into files and read them as pairs."""

    def write_and_read(*contents, **options) -> Corpus:
        paths = [tmp_path / name for name in ("pairs.tsv", "french.txt", "links.txt")][: len(contents)]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_pairs(*paths, **options)

    return write_and_read


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


def test_a_path_may_be_a_string(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("Go.\tVa !\n", encoding="utf-8")
    assert read_pairs(str(path)).pairs == [GO]


def test_bytes_are_read_under_a_name():
    assert parse_pairs(b"Go.\tVa !\n", "this text").pairs == [GO]
    with pytest.raises(ValueError, match="this text is empty"):
        parse_pairs(b"", "this text")


# ---- what people have ----

ENGLISH_TEXT, FRENCH_TEXT = "Go.\nHi.\n", "Va !\nSalut.\n"
FORMS = {  # situation: the contents of the files
    "further columns": ["Go.\tVa !\t0.98\t2013-05-04 12:30:00\tx\nHi.\tSalut.\t1\n"],
    "gzip": [gzip.compress(b"Go.\tVa !\nHi.\tSalut.\n")],
    "two files": [ENGLISH_TEXT, FRENCH_TEXT],
    "two files, one packed": [gzip.compress(ENGLISH_TEXT.encode()), FRENCH_TEXT],
    "two files, one with an empty last line": [ENGLISH_TEXT + "\r\n\n", FRENCH_TEXT],
    "two files, a tab in a sentence": ["Go\t.\nHi.", FRENCH_TEXT],
    "Tatoeba's export": ["\ufeff12\tGo.\t77\tVa !\r\n13\tHi.\t78\tSalut.\r\n"],
    "Tatoeba's export, all in quotation marks": ['"12"\t"Go."\t"77"\t"Va !"\n"13"\t"Hi."\t"78"\t"Salut."\n'],
    "Tatoeba's export, text in quotation marks": ['12\t"Go."\t77\t"Va !"\n13\t"Hi."\t78\t"Salut."\n'],
    "quotation marks around all columns": ['"Go."\t"Va !"\n"Hi."\t"Salut."\n'],
}


@pytest.mark.parametrize("contents", FORMS.values(), ids=FORMS)
def test_what_people_have_is_read(read, contents):
    corpus = read(*contents)
    assert corpus.pairs == [GO, HI]
    assert corpus.skipped == []


@pytest.mark.parametrize(
    "names",
    ["English\tFrench", "en\tfr", "source_text\ttarget_text", "Anglais\tFrançais\tx", "id\ten\tid\tfr"],
)
def test_names_of_columns_are_no_pair_and_no_loss(read, names):
    corpus = read(f"\n{names}\nGo.\tVa !\n")
    assert corpus.pairs == [GO]
    assert corpus.report() == "1 pair read; 2 lines skipped: line 1: empty; line 2: names of columns."


def test_a_sentence_is_no_name_of_a_column(read):
    assert len(read("Text.\tTexte.\n0\t0\nGo.\tVa !\nText\tTexte\n").pairs) == 4


def test_quotation_marks_of_the_text_stay(read):
    said, shouted, *_ = read('"He said ""go""."\t"Il dit ""va""."\n"Go!"\t« Va ! »\n').pairs
    assert said == Pair.from_text('he said " go " .', 'il dit " va " .')
    assert shouted == Pair.from_text('" go ! "', "« va ! »")


def test_a_number_is_the_translation_of_itself(read):
    assert len(read("5\t5\n3.14\t3,14\nIn 2013\t2013\n10 000\t10\u202f000\n").pairs) == 4
    assert read("in\ten\n").pairs == [Pair(("in",), ("en",))]  # not a language code


# ---- links ----


def test_links_are_read_and_possible_contains_sure(read):
    (pair,) = read("the king 's dog\tle chien du roi\t3-1 1-3\t0-2 2-2\n").pairs
    assert pair.target == ("le", "chien", "du", "roi")
    assert pair.sure == {(3, 1), (1, 3)}
    assert pair.possible == {(3, 1), (1, 3), (0, 2), (2, 2)}


def test_sure_links_alone_and_possible_links_alone(read):
    sure, possible = read("a b\tc d\t0-1\na b\tc d\t\t0-1\n").pairs
    assert (sure.sure, sure.possible) == ({(0, 1)}, {(0, 1)})
    assert (possible.sure, possible.possible) == (frozenset(), {(0, 1)})


@pytest.mark.parametrize(
    "links", ["0-0 1p2 2?1", "0-0,1P2,2?1", "0-0, 1p2, 2?1,", "\u00a00-0\u00a01p2\u202f2?1 ", "2?1  1p2  0-0"]
)
def test_links_of_every_spelling(read, links):
    expected = Pair.from_text("a b c", "x y z", "0-0", "1-2 2-1")
    assert read(f"a b c\tx y z\t{links}\n").pairs == [expected]
    assert read("a b c\n", "x y z\n", links + "\n").pairs == [expected]
    assert Pair.from_text("a b c", "x y z", links) == expected


def test_links_from_one_are_asked_for(read):
    expected = Pair.from_text("a b c", "x y z", "0-0 2-2", "1-2")
    assert read("a b c\tx y z\t1-1 3-3\t2-3\n", links_from=1).pairs == [expected]
    assert read("a b c", "x y z", "1-1 2p3 3-3", links_from=1).pairs == [expected]


def test_a_line_with_links_keeps_the_words_of_the_file(read):
    """A link counts the words as the file has them: splitting one more would move all later links."""
    (pair,) = read("Don't go\tn'y va pas\t0-0 1-1\n").pairs
    assert pair.source == ("don't", "go")
    assert pair.target == ("n'y", "va", "pas")
    with_links, without = read("Don't go\nDon't\n", "n'y va\nn'y\n", "0-0\n\n").pairs
    assert (with_links.source, without.source, without.target) == (("don't", "go"), ("don't",), ("n'y",))


@pytest.mark.parametrize(
    "column",
    [
        "CC-BY 2.0 (France) Attribution: tatoeba.org #2877272 (CM) & #1158250",
        "9" * 5000 + "-0",  # Python's int refuses it
        *("2013-05-04", "05/04/2013 12:30", "12:30", "3/5", "0.98", "1,5", "-1.5", "12", "1 2 3"),
    ],
)
def test_another_third_column_is_ignored(read, column):
    assert read(f"Go.\tVa !\t{column}\n").pairs == [GO]


def test_words_and_links_as_text_must_be_written_right():
    with pytest.raises(ValueError, match="like '0-0 1-2'; got '0:0'"):
        Pair.from_text("a", "b", "0-0", "0:0")


# ---- lines that are skipped ----

BROKEN = [  # a line, why it is skipped, what is kept of it
    (b"", "empty", ""),
    (b" \xc2\xa0 \t ", "empty", ""),
    (b"Only English.", "only one column", "Only English."),
    (b"Go. ||| Va !", "only one column", "Go. ||| Va !"),
    (b"\tVa !", "no English text", "Va !"),
    (b"Go.\t\xe2\x80\xaf", "no French text", "Go."),
    ("Go.\tDéjà !".encode("cp1252"), "not UTF-8", "Go.\tD\ufffdj\ufffd !"),
    (b"Go.\tVa\0 !", "a NUL character", "Go.\tVa␀ !"),
    (b"1276\tGo.", "a number instead of English", "1276\tGo."),
    (b"1276\teng\tGo.", "a number instead of English", "1276\teng\tGo."),
    (b"0.98\tGo.\tVa !", "a number instead of English", "0.98\tGo.\tVa !"),
    (b"Go.\t12", "a number instead of French", "Go.\t12"),
    (b"Go.\t0-0 1-1", "a number instead of French", "Go.\t0-0 1-1"),
    (b"eng\tGo.", "a language code instead of a text", "eng\tGo."),
    (b"Go.\ten\tVa !\tfr", "a language code instead of a text", "Go.\ten\tVa !\tfr"),
    (b"Le chat\tThe cat", "French comes first", "Le chat\tThe cat"),
    (b"1\tJ'ai faim.\t2\tI'm hungry.", "French comes first", "1\tJ'ai faim.\t2\tI'm hungry."),
    (b"#12\tThe cat\tLe chat", "English instead of French", "#12\tThe cat\tLe chat"),
    (b"english\tThe cat", "English instead of French", "english\tThe cat"),
    *(
        (line.encode(), "column 3 has no links as in 0-0 1p2", line)
        for line in (f"a b\tc d\t{links}" for links in ("0:0 1:1", "0–0 1–1", "(0, 0), (1, 1)", "0-0 1-", "0S0 1P1"))
    ),
    (b"a b\tc d\t0-0\t0-0;1-1", "column 4 has no links as in 0-0 1p2", "a b\tc d\t0-0\t0-0;1-1"),
    (b"a b\tc d\t0-0 2-1", "link 2-1 is out of range for 2 and 2 words, counted from 0", "a b\tc d\t0-0 2-1"),
    (b"a b\tc d\t0-0\t1-2", "link 1-2 is out of range for 2 and 2 words, counted from 0", "a b\tc d\t0-0\t1-2"),
]


@pytest.mark.parametrize(("line", "reason", "text"), BROKEN)
def test_a_broken_line_is_skipped_and_named(read, line, reason, text):
    corpus = read(b"Go.\tVa !\n" + line + b"\n" + MANY.encode())
    assert corpus.pairs == [GO] * 201
    assert corpus.skipped == [SkippedLine(2, reason, text)]
    assert corpus.report() == f"201 pairs read; 1 line skipped: line 2: {reason}."


def test_all_broken_lines_keep_their_numbers(read):
    corpus = read(b"\r\n".join([line for line, _, _ in BROKEN] + [MANY.encode() * 20]))
    assert [(line.number, line.reason) for line in corpus.skipped] == [
        (number, reason) for number, (_, reason, _) in enumerate(BROKEN, start=1)
    ]
    assert corpus.pairs == [GO] * 4000


def test_where_others_have_links_another_third_column_is_a_loss(read):
    corpus = read("go\tva\t0-0\n" * 200 + "yes\toui\t0:0\n" + "no\tnon\t\n")
    assert corpus.skipped == [SkippedLine(201, "column 3 has no links as in 0-0 1p2", "yes\toui\t0:0")]


def test_lines_of_two_files_are_skipped_together(read):
    corpus = read("Go.\n\nGo.\n" + "Go.\n" * 200, "Va !\n\n\n" + "Va !\n" * 200)
    assert [(line.number, line.reason) for line in corpus.skipped] == [(2, "empty"), (3, "no French text")]


def test_a_long_line_is_kept_short(read):
    (line,) = read("x" * 500 + "\n" + MANY).skipped
    assert line.text == "x" * 59 + "…"


def test_a_byte_order_mark_is_no_text(read):
    assert read("\ufeff\nGo.\tVa !\n").skipped == [SkippedLine(1, "empty", "")]


def test_the_report_names_ten_lines_and_counts_the_rest(read):
    corpus = read("Go.\tVa !\n" * 2000 + "one\n" * 12 + "\n" * 3)
    report = str(corpus)
    assert report.startswith("2,000 pairs read; 15 lines skipped: line 2,001: only one column; line 2,002")
    assert report.endswith("line 2,010: only one column; and 5 more (3 × empty, 2 × only one column).")
    assert report.count("line 2,0") == 10
    assert repr(corpus) == f"<Corpus: {report}>"


# ---- files that are refused ----


def _zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("fra.txt", "Go.\tVa !\n")
    return buffer.getvalue()


def _tar_gz() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("fra.txt"))
    return buffer.getvalue()


def lines(line: str, number: int = 100) -> str:
    return (line + "\n") * number


NOTEBOOK = json.dumps({"cells": [{"cell_type": "code", "source": ["a\tb"]}], "nbformat": 4}, indent="\t")
LATIN = (lines("Go.\tVa !") + lines("Now.\tDéjà.", 2)).encode("cp1252")
REFUSED = {  # situation: the contents of the files, what is said, options
    "a zip archive": ([_zip()], "looks like a zip archive (unpack it first)"),
    "a tar archive": ([_tar_gz()], "looks like a tar archive (unpack it first)"),
    "a bzip2 archive": ([b"BZh91AY&SY"], "looks like a bzip2 archive (unpack it first)"),
    "half a gzip file": ([gzip.compress(MANY.encode())[:-9]], "is a damaged gzip file (Compressed file ended"),
    "no gzip file": ([b"\x1f\x8b\x08\x00abc"], "is a damaged gzip file"),
    "a notebook": ([NOTEBOOK], "looks like a notebook"),
    "UTF-16": (["Go.\tVa !\n".encode("utf-16")], "looks like text in UTF-16 (save it again as UTF-8)"),
    "UTF-16, little end": (["Go.\tVa !\n".encode("utf-16-le")], "or text in UTF-16 (save it again as UTF-8)"),
    "UTF-16, big end": (["Go.\tVa !\n".encode("utf-16-be")], "or text in UTF-16 (save it again as UTF-8)"),
    "a web page": (["<!DOCTYPE html><p>\ta\tb"], "looks like a web page"),
    "only empty lines": ([" \n\n"], "is empty"),
    "nothing": ([""], "is empty"),
    "commas": (["english,french\ngo,va\n"], "line 1: only one column; line 2: only one column"),
    "only names of columns": (["english\tfrench\n"], "holds no pair of sentences"),
    "latin letters, few pairs lost": ([LATIN], "line 101: not UTF-8; line 102: not UTF-8. Save it as UTF-8."),
    "latin letters in one of two files": (["Now.\n", "Déjà.\n".encode("cp1252")], "line 1: not UTF-8. Save it as"),
    "two columns missing": ([lines("Go.\tVa !") + "x\ny\n"], "too many lines that are no pair of sentences"),
    "sentences with number and language": (
        [lines("1276\teng\tGo.")],
        "line 1: a number instead of English; line 2: a number",
    ),
    "names, then numbers": ([lines("\tenglish\tfrench", 1) + lines("0\tGo.\tVa !")], "line 2: a number instead of En"),
    "pairs of numbers": ([lines("1276\t2481")], "a number instead of English). Keep only the columns of text."),
    "names of sentences": ([lines("s1\tThe cat.\tLe chat.")], "English instead of French). Keep only the columns of"),
    "language codes first": ([lines("eng\tGo.\tfra\tVa !")], "line 1: a language code instead of a text"),
    "language codes between": ([lines("Go.\teng\tVa !\tfra")], "line 1: a language code instead of a text"),
    "French first": ([lines("Le chat.\tThe cat.")], "French comes first). Swap the columns or the files."),
    "French first, by name": (["fr\ten\n" + lines("Va !\tGo.")], "line 1 says that French comes first. Swap the col"),
    "French first, Tatoeba": ([lines("1\tLe chat.\t2\tThe cat.")], "line 1: French comes first; line 2"),
    "French first, two files": ([lines("Le chat."), lines("The cat.")], "french.txt holds no pair of sentences"),
    "one line more": ([lines("Go.", 3), lines("Va !", 2)], "pairs.tsv has 3 lines, {}french.txt has 2 lines"),
    "an empty second file": ([lines("Go."), "\n"], "french.txt is empty"),
    "pairs with a file of links": ([lines("Go.\tVa !"), lines("0-0")], "a number instead of French"),
    "links with colons": ([lines("a b\tc d\t0:0 1:1")], "line 1: column 3 has no links as in 0-0 1p2"),
    "links of another kind": ([lines("a"), lines("b"), lines("0001 1 1 S")], "line 1: column 3 has no links as in"),
    "links from one": (
        [lines("a b\tc d\t1-1") + "a\tc\t1-1\n"],
        "(line 101 with link 1-1). Read it with links_from=1.",
    ),
    "links from one, file of links": ([lines("a b"), lines("c d"), lines("2-1")], "Read it with links_from=1."),
    "links from one, before the limit": (
        [lines("a b\tc d\t1-1") + "a\tc\t1-1\n"],
        "Read it with links_from=1.",
        {"limit": 1},
    ),
    "links from nought, but called from one": (
        [lines("a b\tc d\t0-1")],
        "line 1: link 0-1 is out of range for 2 and 2 words, counted from 1",
        {"links_from": 1},
    ),
    "links to words that are not there": ([lines("a\tc\t0-0 3-3")], "link 3-3 is out of range for 1 and 1 words"),
    "limit 0": ([MANY], "limit must be at least 1, or None for the whole file; got 0", {"limit": 0}),
    "limit -1": ([MANY], "limit must be at least 1, or None for the whole file; got -1", {"limit": -1}),
    "links from 2": ([MANY], "links_from must be 0 or 1, the number of the first word; got 2", {"links_from": 2}),
}


@pytest.mark.parametrize("row", REFUSED.values(), ids=REFUSED)
def test_a_file_that_is_no_table_is_refused(read, tmp_path, row):
    contents, said, options = (*row, {})[:3]
    with pytest.raises(ValueError) as error:
        read(*contents, **options)
    message = str(error.value)
    assert said.format(f"{tmp_path}/") in message
    if "must be" not in said:
        assert "pairs.tsv" in message or "french.txt" in message
    if "must be" not in said and "links_from" not in said:
        assert "a tab" in message


def test_a_missing_file_and_a_folder(read, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*nowhere\.tsv.*a tab"):
        read_pairs(tmp_path / "nowhere.tsv")
    with pytest.raises(IsADirectoryError, match=r"is a folder.*a tab"):
        read_pairs(tmp_path)
    read(MANY)
    with pytest.raises(FileNotFoundError, match=r"no file .*nowhere\.txt"):
        read_pairs(tmp_path / "pairs.tsv", tmp_path / "nowhere.txt")
    with pytest.raises(ValueError, match="needs two files of sentences"):
        read_pairs(tmp_path / "pairs.tsv", links=tmp_path / "links.txt")


# ---- limit ----


def test_limit_counts_pairs_and_stops_there(read):
    content = "one\nGo.\tVa !\nHi.\tSalut.\ntwo\n" + MANY
    assert read(content, limit=1) == Corpus([GO], [SkippedLine(1, "only one column", "one")])
    assert read(content, limit=2).pairs == [GO, HI]
    assert len(read(content, limit=2).skipped) == 1
    assert len(read(content, limit=3).skipped) == 2
    assert read(content, limit=9999) == read(content)


def test_limit_does_not_hide_that_the_file_is_wrong(read):
    content = "one\nGo.\tVa !\n" + lines("one", 9)
    with pytest.raises(ValueError, match="1 pair read; 10 lines skipped"):
        read(content, limit=1)


# ---- anything ----


@settings(deadline=None)
@given(st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"").replace(b"\r", b"")), max_size=8))
def test_every_line_is_a_pair_or_is_listed(tmp_path_factory, some):
    path = tmp_path_factory.getbasetemp() / "fuzz.tsv"
    path.write_bytes(b"".join(line + b"\n" for line in [b"Go.\tVa !", *some, b"x" * 3000]) + MANY.encode() * 5)
    corpus = read_pairs(path)
    assert len(corpus.pairs) + len(corpus.skipped) == len(some) + 1002
    assert SkippedLine(len(some) + 2, "only one column", "x" * 59 + "…") in corpus.skipped


@pytest.mark.parametrize(
    "line",
    [
        "1" * 200_000,
        "do" + "n't" * 60_000,
        "va" + "-le" * 60_000,
        "a" + "\u0301\u0316" * 60_000,
        "0-0 " * 60_000,
        "5-5 " * 60_000,
        "\t" * 200_000,
    ],
)
def test_a_long_line_takes_no_time(read, line):
    began = time.process_time()
    read(f"{line}\tVa !\nGo.\t{line}\nGo.\tVa !\t{line}\n" + MANY * 2)
    assert time.process_time() - began < 3
