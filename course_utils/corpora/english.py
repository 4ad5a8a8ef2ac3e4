"""English prose that every Python ships: the chapters of its manual, as `help("if")` shows them.

    from course_utils.corpora import english
    train, held_out = english.splits()

It is there offline. It differs from one version of Python to the next, so nothing that is printed may depend on it.
"""

from typing import NamedTuple

from course_utils.corpora.downloads import pinned_file

SHAKESPEARE_PIN = "sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
SHAKESPEARE_URLS = ("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",)
SHAKESPEARE_BYTES = 1_115_394

HELD_OUT = 0.1  # the share of the text that no model learns from


class Splits(NamedTuple):
    """Texts, one for each chapter. A paragraph stands once in all of them together."""

    train: list[str]
    held_out: list[str]


def splits() -> Splits:
    """The chapters in alphabetical order; the last tenth of their characters is held out."""
    from pydoc_data.topics import topics

    texts = without_repetitions([topics[name] for name in sorted(topics)])
    return split(texts, HELD_OUT)


def shakespeare() -> Splits:
    """The scenes that are known as "tiny Shakespeare", from the cache or the internet; its last tenth is held out.

    Without a connection this says why, and gives the manual instead.
    """
    data = pinned_file("tiny-shakespeare.txt", SHAKESPEARE_PIN, SHAKESPEARE_URLS, SHAKESPEARE_BYTES)
    return splits() if data is None else split([data.decode()], HELD_OUT)


def without_repetitions(texts: list[str]) -> list[str]:
    """The texts without the paragraphs that stood before, in the same text or in an earlier one.

    The chapters of the manual repeat each other. Left as they are, much of what is held out would also be in the part
    that is learned. A paragraph ends at an empty line; spaces around it do not count. Texts that lose all their
    paragraphs are left out.
    """
    seen: set[str] = set()
    kept = []
    for text in texts:
        paragraphs = []
        for paragraph in text.split("\n\n"):
            key = paragraph.strip()
            if key and key not in seen:
                seen.add(key)
                paragraphs.append(paragraph.rstrip())
        if paragraphs:
            kept.append("\n\n".join(paragraphs) + "\n")
    return kept


def split(texts: list[str], share: float) -> Splits:
    """The last texts are held out: at least `share` of all characters, from the beginning of a paragraph on.

    Raises ValueError when this leaves nothing to learn, or nothing is held out.
    """
    wanted = share * sum(map(len, texts))
    held_out: list[str] = []
    train = list(texts)
    while train and sum(map(len, held_out)) + len(train[-1]) <= wanted:
        held_out.insert(0, train.pop())
    missing = wanted - sum(map(len, held_out))
    if train and missing > 0:
        cut = train[-1].rfind("\n\n", 0, len(train[-1]) - int(missing)) + 2
        if cut > 1:
            held_out.insert(0, train[-1][cut:])
            train[-1] = train[-1][:cut]
    if not train or not held_out:
        raise ValueError(f"{len(texts)} texts cannot be split: nothing is left to learn, or nothing is held out")
    return Splits(train, held_out)
