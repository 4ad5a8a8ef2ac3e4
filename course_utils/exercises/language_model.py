"""Lesson 09's exercises: text cut into tokens, their vectors, the loss of the next token, and the draw of one."""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F

from course_utils.exercises import Exercise, case, expect, normal, note
from course_utils.lessons import language_model
from course_utils.lessons.language_model import learn_merges, merge_pair, sample_next

# ---- encode_bpe ----------------------------------------------------------------------------------------------

ex = Exercise(
    language_model.encode_bpe,
    points=2,
    minutes=15,
    hints=(
        'Two parts. `list(text.encode("utf-8"))` gives the bytes as numbers. Then a loop, which merges one pair in '
        "each turn.",
        "In each turn, look at all pairs that stand side by side: `pairwise(ids)`. Which of them are in `merges`, and "
        "which one of those was learned first? If none is in `merges`, you are done.",
        "`known = [pair for pair in pairwise(ids) if pair in merges]`, `first = min(known, key=merges.get)`, and "
        "`ids = merge_pair(ids, first, merges[first])`. `min` of an empty list raises: return before.",
    ),
)

BANANA = {(97, 110): 256, (256, 97): 257}  # an, ana
LATER_FIRST = {(98, 99): 256, (97, 98): 257, (97, 256): 258}  # bc, ab, a|bc
CHAIN = {(98, 99): 256, (97, 98): 257, (99, 100): 258, (100, 101): 259}  # bc, ab, cd, de
MANY_A = {(97, 97): 256, (256, 256): 257}
TEXTS = [
    "the cat and the hat, then the other cats",
    "she sells sea shells; are these shells hers?",
    "ünïcödé, 你好你好",
]
LEARNED = learn_merges(TEXTS, 40)
UNKNOWN = "there, the shell and the cöat 你 \U0001f642\n\n  x"

ex.cases("banana, where you can follow every step", case("banana", BANANA).gives([98, 256, 257]))
ex.cases(
    "the merge that was learned first goes first",
    case("abc", LATER_FIRST).gives([258]),
    case("ababc", LATER_FIRST).gives([257, 258]),
    case("xabx", LATER_FIRST).gives([120, 257, 120]),
    case("zazba", {(97, 122): 256, (122, 97): 257, (98, 97): 258}).gives([122, 256, 258]),
    case("abcde", CHAIN).gives([97, 256, 259]),
    case("abcdexde", CHAIN).gives([97, 256, 259, 120, 259]),
    case("abcdecd", CHAIN).gives([97, 256, 259, 258]),
)
ex.cases(
    "all places, from left to right",
    case("aaa", MANY_A).gives([256, 97]),
    case("aaaaaaa", MANY_A).gives([257, 256, 97]),
    case("abaabaaab", {(97, 97): 256}).gives([97, 98, 256, 98, 256, 97, 98]),
)
ex.cases(
    "any text: first the bytes in UTF-8",
    case("é€", {}).gives([195, 169, 226, 130, 172]),
    case("你你", {(189, 160): 256, (228, 256): 257}).gives([257, 257]),
    case("\U0001f642 \x00ÿ", {}).gives([240, 159, 153, 130, 32, 0, 195, 191]),
)
ex.cases("no text, one byte, and nothing to merge", case("", BANANA).gives([]), *(case(x, BANANA) for x in "an\nz"))
ex.cases("40 learned merges", *(case(text, LEARNED) for text in (*TEXTS, UNKNOWN, UNKNOWN[::-1])))


@ex.check("the tokens of the ids, joined again, are the text")
def _(answer, rng):
    tokens = [bytes([i]) for i in range(256)]
    for first, second in LEARNED:
        tokens.append(tokens[first] + tokens[second])
    for text in (UNKNOWN, *TEXTS):
        data = b"".join(tokens[i] for i in answer(text, dict(LEARNED)))
        expect(data.decode("utf-8", errors="replace"), text, f"text {text!r}")


def one_place_for_each_merge(text, merges):
    ids = list(text.encode())
    for pair, new in merges.items():
        pairs = list(pairwise(ids))
        if pair in pairs:
            i = pairs.index(pair)
            ids[i : i + 2] = [new]
    return ids


def from_right_to_left(text, merges):
    ids = list(text.encode())
    for (first, second), new in merges.items():
        ids = merge_pair(ids[::-1], (second, first), new)[::-1]
    return ids


def longest_tokens(text, merges):
    tokens = {bytes([i]): i for i in range(256)}
    for pair, new in merges.items():
        names = {i: name for name, i in tokens.items()}
        tokens[names[pair[0]] + names[pair[1]]] = new
    data, ids, start = text.encode(), [], 0
    while start < len(data):
        length = max(n for n in range(1, len(data) - start + 1) if data[start : start + n] in tokens)
        ids.append(tokens[data[start : start + length]])
        start += length
    return ids


def overlapping(text, merges):
    ids = list(text.encode())
    for pair, new in merges.items():
        merged, last = [], False
        for first, second in pairwise([*ids, -1]):
            if (first, second) == pair:
                merged.append(new)
            elif not last:
                merged.append(first)
            last = (first, second) == pair
        ids = merged
    return ids


FIRST = "min(known, key=merges.__getitem__)"
ex.mistake(
    "the merge that was learned last goes first",
    {"min(": "max("},
    hint="Small ids were learned first: take the pair with the *smallest* new id. Later merges are built on earlier "
    "ones.",
)
ex.mistake(
    "the pair that comes first in the text goes first",
    {FIRST: "known[0]"},
    hint="The place in the text does not count. Of all pairs that can be merged, the one that was *learned* first is "
    "taken: the one with the smallest new id.",
)
ex.mistake(
    "the pair with the smallest ids goes first",
    {", key=merges.__getitem__": ""},
    hint="`min` of pairs compares the two old ids. What counts is when the pair was learned: `key=merges.get`.",
)
ex.mistake(
    "the pair that is most frequent in this text goes first",
    {FIRST: "max(known, key=known.count)"},
    hint="Counting was the job of learning. Here the order is fixed: the merge that was learned first goes first, "
    "however often its pair is there.",
)
ex.mistake(
    "always the longest token that fits",
    longest_tokens,
    hint="Greedy matching from the left gives other tokens than merging. Merge pairs, in the order in which they were "
    "learned.",
)
ex.mistake(
    "only one merge",
    {"ids = merge_pair": "return merge_pair"},
    hint="After a merge there are new pairs: look again, until none can be merged.",
)
ex.mistake(
    "each merge at one place only",
    one_place_for_each_merge,
    hint="A pair is merged wherever it stands, not only at the first place. `merge_pair` does that.",
)
ex.mistake(
    "from right to left",
    from_right_to_left,
    hint="In `aaa` the *first* two become one. `merge_pair` goes from left to right.",
)
ex.mistake(
    "an id is used in two merges",
    overlapping,
    hint="In `aaa` the middle `a` can be part of one pair only. After a merge, go on behind *both* ids.",
)
ex.mistake(
    "characters instead of bytes",
    {'list(text.encode("utf-8"))': "[ord(character) for character in text]"},
    hint="`ord` gives the number of a character, which may be far above 255, where it would be mixed up with a merge. "
    '`text.encode("utf-8")` gives bytes.',
)
ex.mistake(
    "spaces are lost",
    {"text.encode": '"".join(text.split()).encode'},
    hint="`split()` throws spaces and ends of lines away, and then nobody can get the text back. They are bytes like "
    "all others.",
)
ex.mistake(
    "numbers of merges instead of ids",
    {"merges[first])": "merges[first] - 256)"},
    hint="The values of `merges` are the new ids already: 256, 257, … Smaller numbers are bytes.",
)

# ---- embed_tokens --------------------------------------------------------------------------------------------

ex = Exercise(
    language_model.embed_tokens,
    points=1,
    minutes=5,
    hints=(
        "For the id 2 the result is row 2 of the table. What does Python do with a list of row numbers?",
        "PyTorch takes a whole tensor of ids as an index. The result has the shape of the ids, and behind it the "
        "width of the rows.",
        "`table[tokens]`, or `F.embedding(tokens, table)`.",
    ),
)

TABLE = torch.tensor([[0.5, 1.0], [2.0, 0.0], [-1.0, 3.0]])


def looked_up(*leading, ids=5, d_model=7):
    tokens = torch.randint(ids, leading, generator=torch.Generator().manual_seed(1))
    return case(tokens, normal(ids, d_model))


ex.cases(
    "four tokens that you can follow",
    case(torch.tensor([2, 0, 2, 1]), TABLE).gives(torch.tensor([[-1.0, 3.0], [0.5, 1.0], [-1.0, 3.0], [2.0, 0.0]])),
)
tokens = torch.tensor([[4, 0, 3], [1, 1, 2]])
ex.cases(
    "as the product of one-hot vectors and the table",
    case(tokens, normal(5, 7)).gives(F.one_hot(tokens, 5).float() @ normal(5, 7)),
)
ex.cases("the first and the last id", case(torch.tensor([0, 4]), normal(5, 7)), case(torch.tensor([4]), normal(5, 7)))
ex.promises(looked_up, "leading", "sizes", "dtypes", "gradients", "device")
ex.gradients(
    "a row that is used twice gets both gradients, and the row of id 0 too",
    case(torch.tensor([[0, 2, 0], [0, 2, 1]]), normal(4, 5, dtype=torch.float64)),
)

ex.mistake(
    "ids counted from 1",
    {"table[tokens]": "table[tokens - 1]"},
    hint="The id 0 is the first row. Yours is one row too early, and the id 0 gets the last row.",
)
ex.mistake(
    "columns instead of rows",
    {"table[tokens]": "table[:, tokens].movedim(0, -1)"},
    hint="A token's vector is a *row* of the table. Its columns are the numbers of one feature, for all ids.",
)
ex.mistake(
    "multiplied by √d_model",
    {"table[tokens]": "table[tokens] * table.shape[1] ** 0.5"},
    hint="The Transformer of 2017 does that. GPT-2 and this lesson take the rows as they are.",
)
ex.mistake(
    "the id 0 does not learn",
    {"table[tokens]": "F.embedding(tokens, table, padding_idx=0)"},
    hint="All values are right, but no gradient reaches row 0: `padding_idx` says that an id is padding. Here 0 is a "
    "byte like the others.",
)
ex.mistake(
    "numbers instead of rows",
    {"table[tokens]": "table.take(tokens)"},
    hint="`take` counts the numbers of the table one by one. You want row after row: `table[tokens]`.",
)
ex.mistake(
    "one vector for the whole text",
    {"table[tokens]": "table[tokens].mean(dim=-2)"},
    hint="Every token keeps a vector of its own: (..., d_model), one for each id.",
)
ex.mistake(
    "vectors of length 1",
    {"table[tokens]": "F.normalize(table[tokens], dim=-1)"},
    hint="The rows are taken as they are: a product with a one-hot vector changes no number.",
)
ex.mistake(
    "the table upside down",
    {"table[tokens]": "table.flip(0)[tokens]"},
    hint="Row 0 belongs to id 0, the last row to the largest id.",
)
ex.mistake(
    "the tokens in order of their ids",
    {"tokens]": "tokens.sort(dim=-1).values]"},
    hint="The vectors come in the order of the text, and a token that is there twice gets its vector twice.",
)

# ---- next_token_loss -----------------------------------------------------------------------------------------

ex = Exercise(
    language_model.next_token_loss,
    points=2,
    minutes=10,
    hints=(
        "Which logits belong to which token? Write both rows under each other, moved by one.",
        "The logits at position 0 predict the token at position 1. So all logits but the last are compared with all "
        "tokens but the first.",
        "`logits[..., :-1, :]` and `tokens[..., 1:]`. `F.cross_entropy` wants (anything, ids) and (anything,): "
        "`.flatten(0, -2)` and `.flatten()`. It takes logits, not probabilities.",
    ),
)


def predictions(*leading, following=4, ids=7):
    tokens = torch.randint(ids, (*leading, following + 1), generator=torch.Generator().manual_seed(2))
    return case(normal(*leading, following + 1, ids), tokens)


def one_by_one(logits, tokens):
    pairs = [(row[t], int(ids[t + 1])) for row, ids in zip(logits, tokens, strict=True) for t in range(len(ids) - 1)]
    return torch.stack([scores.logsumexp(-1) - scores[following] for scores, following in pairs]).mean()


HALVES = torch.tensor([[0.0, 0.0], [math.log(3), 0.0], [5.0, 0.0]])
some = predictions(3)
ex.cases(
    "three tokens that you can follow",
    case(HALVES, torch.tensor([1, 0, 1])).gives(torch.tensor((math.log(2) + math.log(4)) / 2)),
)
ex.cases("a batch of 3, as one token after the other", case(*some.args).gives(one_by_one(*some.args)))
ex.cases("two tokens, of which one is predicted", predictions(2, following=1), predictions(following=1))
first, *_ = some.args
other_start, other_end = some.args[1].clone(), some.args[0].clone()
other_start[:, 0], other_end[:, -1] = (other_start[:, 0] + 1) % 7, 9.0
ex.cases(
    "the first token and the last logits do not matter",
    case(first, other_start).gives(one_by_one(*some.args)).noted("other first tokens"),
    case(other_end, some.args[1]).gives(one_by_one(*some.args)).noted("other last logits"),
)
ex.cases(
    "a model that is sure, and wrong",
    case(torch.tensor([[200.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 1])).gives(torch.tensor(200.0)),
    case(torch.tensor([[1e4, 0.0, -1e4], [0.0, 0.0, 1.0]]), torch.tensor([0, 2])).gives(torch.tensor(2e4)),
)
ex.promises(predictions, "leading", "sizes", "dtypes", "gradients", "device")

SHIFT = "logits[..., :-1, :], tokens[..., 1:]"
RETURN = "return F.cross_entropy(predicted.flatten(0, -2), following.flatten())"
LOG_P = "predicted.log_softmax(-1).gather(-1, following.unsqueeze(-1))"
ex.mistake(
    "targets not shifted",
    {SHIFT: "logits, tokens"},
    hint="Here the logits at a position are compared with the token at the *same* position, which the model has read: "
    "it only learns to repeat it. Logits at t belong to the token at t + 1.",
)
ex.mistake(
    "targets shifted twice",
    {SHIFT: "logits[..., :-2, :], tokens[..., 2:]"},
    hint="One step too far: the logits at t predict the token at t + 1, not t + 2.",
)
ex.mistake(
    "shifted the wrong way",
    {SHIFT: "logits[..., 1:, :], tokens[..., :-1]"},
    hint="These logits are asked for the token *before* theirs. Leave out the first token and the last logits.",
)
ex.mistake(
    "the last logits predict the first token",
    {SHIFT: "logits, tokens.roll(-1, -1)"},
    hint="`roll` brings the first token to the end. What comes after the last token is not known: leave out the last "
    "logits.",
)
ex.mistake(
    "the sum instead of the mean",
    {"following.flatten())": 'following.flatten(), reduction="sum")'},
    hint="The loss is the mean over all predicted tokens, so that it does not depend on how many there are.",
)
ex.mistake(
    "divided by all tokens",
    {RETURN: RETURN + " * following.shape[-1] / tokens.shape[-1]"},
    hint="The first token of each text is not predicted, so it must not be counted either.",
)
ex.mistake(
    "summed over the text, mean over the batch",
    {RETURN: RETURN + " * following.shape[-1]"},
    hint="It is the mean over *all* predicted tokens, of all texts.",
)
ex.mistake(
    "bits instead of nats",
    {RETURN: RETURN + " / math.log(2)"},
    hint="The loss is in nats: the natural logarithm, without a division by ln 2.",
)
ex.mistake(
    "softmax taken twice",
    {"predicted.flatten(": "predicted.softmax(dim=-1).flatten("},
    hint="`F.cross_entropy` does the softmax itself: give it the logits.",
)
ex.mistake(
    "the logarithm of the mean probability",
    {RETURN: f"return -{LOG_P}.exp().mean().log()"},
    hint="First the logarithm of each probability, then the mean.",
)
ex.mistake(
    "probabilities without a logarithm",
    {RETURN: f"return 1 - {LOG_P}.exp().mean()"},
    hint="The loss of a token is -ln p, not 1 - p.",
)
ex.mistake(
    "the logarithm of a rounded probability",
    {RETURN: "return -predicted.softmax(-1).gather(-1, following.unsqueeze(-1)).log().mean()"},
    hint="A probability can be rounded to 0, and -ln 0 is infinite. `F.cross_entropy` and `log_softmax` never compute "
    "the probability itself.",
)
ex.mistake(
    "the minus is missing",
    {"return ": "return -"},
    hint="A loss is positive, and falls as the model gets better: the mean of *minus* ln p.",
)
ex.mistake(
    "only the last token counts",
    {SHIFT: "logits[..., -2:-1, :], tokens[..., -1:]"},
    hint="Every token but the first is predicted, and each of them counts.",
)
ex.mistake(
    "the id 0 is left out",
    {"following.flatten())": "following.flatten(), ignore_index=0)"},
    hint="Here 0 is a byte like the others, no padding: it counts.",
)

# ---- sample_next ---------------------------------------------------------------------------------------------

ex = Exercise(
    language_model.sample_next,
    points=3,
    minutes=25,
    hints=(
        "Sort the logits, the largest first, and keep the ids: `scores, ids = logits.sort(dim=-1, descending=True)`. "
        "Then top-k is the first k columns. At temperature 0 you cannot divide: answer with `argmax` before.",
        "For top-p look at the sum of the probabilities *before* each token, without its own: `cumsum` minus the "
        "probabilities. A token stays if this sum is below p: then more was needed. The first one always stays.",
        "`torch.multinomial(rows, 1, generator=generator)` draws one column per row. It wants two dimensions, and it "
        "need not be told sums of 1. The drawn column is a place in the sorted row: `ids.gather(-1, …)` gives the id.",
    ),
)

DRAWS = 4000
P = torch.tensor([0.1, 0.4, 0.05, 0.3, 0.15])  # sorted: the ids 1, 3, 4, 0, 2


def shares(answer, probabilities, words, seed=0, **how):
    """How often each id is drawn. Which numbers are drawn is the answer's own business, so only this is kept."""
    function = getattr(answer, "answer", answer)
    logits = probabilities.log().expand(DRAWS, -1).clone()
    drawn = function(logits, generator=torch.Generator().manual_seed(seed), **how)
    expect((tuple(drawn.shape), drawn.dtype), ((DRAWS,), torch.int64), f"{words}: shape and dtype")
    found = torch.bincount(drawn, minlength=len(probabilities)) / DRAWS
    note(words, [" ".join(f"{round(10 * share)}" for share in found.tolist())])
    return found


def expect_shares(answer, wanted, words, probabilities=P, **how):
    """As often as `wanted` says, give or take six standard deviations, and never where it says 0."""
    words = f"probabilities {[round(p, 2) for p in probabilities.tolist()]}, {words}"
    found = shares(answer, probabilities, words, **how)
    wanted = torch.tensor(wanted) / sum(wanted)
    expect(found > 0, wanted > 0, f"{words}: which ids are drawn in {DRAWS:,} tries")
    rounded = [[round(x, 2) for x in share.tolist()] for share in (wanted, found)]
    close = bool(((found - wanted).abs() < 0.05).all())
    expect(rounded[0] if close else rounded[1], rounded[0], f"{words}: how often each id is drawn in {DRAWS:,} tries")


def sharpest(*leading, ids=7):
    """With top_k=1 there is nothing to choose."""
    return case(normal(*leading, ids), 1.0, 1)


logits = normal(3, 7)
ex.cases(
    "the most probable token, where nothing is left to chance",
    case(torch.tensor([1.0, 3.0, 2.0]), temperature=0.0).gives(torch.tensor(1)),
    case(torch.tensor([1.0, 3.0, 2.0]), top_k=1).gives(torch.tensor(1)),
    case(torch.tensor([1.0, 3.0, 2.0]), top_p=0.01).gives(torch.tensor(1)),
    *(
        case(logits, **how).gives(logits.argmax(dim=-1))
        for how in ({"temperature": 0.0}, {"top_k": 1}, {"top_p": 0.01})
    ),
)


@ex.check("with the probabilities of the softmax")
def _(answer, rng):
    answer(P.log(), top_k=1)
    expect_shares(answer, P.tolist(), "temperature 1")


@ex.check("the temperature divides the logits")
def _(answer, rng):
    answer(P.log(), top_k=1)
    expect_shares(answer, (P**2).tolist(), "temperature 0.5", temperature=0.5)
    expect_shares(answer, (P**0.25).tolist(), "temperature 4", temperature=4.0)


@ex.check("top_k: only the k most probable tokens, in proportion")
def _(answer, rng):
    answer(P.log(), top_k=1)
    expect_shares(answer, [0, 0.4, 0, 0.3, 0], "top_k 2", top_k=2)
    expect_shares(answer, [0.1, 0.4, 0, 0.3, 0.15], "top_k 4", top_k=4)
    expect_shares(answer, P.tolist(), "top_k 5", top_k=5)
    answer(torch.zeros(1), top_k=2)  # an error is shown with what it was given
    expect_shares(answer, P.tolist(), "top_k 9, more than there are", top_k=9)


@ex.check("top_p: as few of the most probable tokens as sum to p")
def _(answer, rng):
    answer(P.log(), top_k=1)
    expect_shares(answer, [0, 0.4, 0, 0.3, 0], "top_p 0.5", top_p=0.5)
    expect_shares(answer, [0, 0.4, 0, 0.3, 0.15], "top_p 0.8", top_p=0.8)
    expect_shares(answer, [0, 1, 0, 0, 0], "top_p 0.35", top_p=0.35)
    expect_shares(answer, [0.1, 0.4, 0, 0.3, 0.15], "top_p 0.9", top_p=0.9)
    expect_shares(answer, P.tolist(), "top_p 1", top_p=1.0)


@ex.check("first the temperature, then top_k, then top_p")
def _(answer, rng):
    answer(P.log(), top_k=1)
    # A square makes .03 .54 .01 .30 .08 of it, a root .16 .31 .11 .27 .19
    expect_shares(answer, [0, 1, 0, 0, 0], "temperature 0.5, top_p 0.45", temperature=0.5, top_p=0.45)
    expect_shares(
        answer, [0, 0.4**0.5, 0, 0.3**0.5, 0.15**0.5], "temperature 2, top_p 0.65", temperature=2.0, top_p=0.65
    )
    # The first three have .47 .35 .18 among each other
    expect_shares(answer, [0, 0.4, 0, 0.3, 0], "top_k 3, top_p 0.75", top_k=3, top_p=0.75)


@ex.check("every row on its own")
def _(answer, rng):
    answer(P.log(), top_k=1)
    both = torch.stack([P, P.flip(0)]).log().expand(DRAWS, 2, 5).clone()
    for words, how in (("top_k 2", {"top_k": 2}), ("top_p 0.5", {"top_p": 0.5}), ("temperature 1", {})):
        drawn = getattr(answer, "answer", answer)(both, generator=torch.Generator().manual_seed(1), **how)
        expect(tuple(drawn.shape), (DRAWS, 2), f"logits {(DRAWS, 2, 5)}, {words}: the shape")
        for row, ids in enumerate(([1, 3], [3, 1])):
            found = [round((drawn[:, row] == i).float().mean().item(), 1) for i in ids]
            wanted = [0.6, 0.4] if how else [0.4, 0.3]
            expect(found, wanted, f"two rows, {words}: how often row {row} draws the ids {ids}")
        expect(bool((drawn[:, 0] != drawn[:, 1]).any()), True, f"two rows, {words}: they do not draw the same")


ex.promises(sharpest, "leading", "sizes", "device")
ex.cases(
    "all numbers of leading dimensions, with each setting",
    *(
        case(normal(*lead, 6), **how)
        for lead in ((), (1,), (2, 3), (2, 1, 3))
        for how in ({"temperature": 0.0}, {"top_p": 0.01}, {"temperature": 0.5, "top_k": 1, "top_p": 0.9})
    ),
)
CERTAIN = torch.full((4, 6), -torch.inf).scatter(1, torch.tensor([[2], [5], [0], [3]]), 1.0)
ex.cases(
    "large logits, and tokens that are forbidden by -inf",
    case(CERTAIN).gives(torch.tensor([2, 5, 0, 3])),
    case(CERTAIN, 0.5, None, 0.9).gives(torch.tensor([2, 5, 0, 3])),
    case(torch.tensor([[1000.0, 2000.0, -1000.0]]), 0.1).gives(torch.tensor([1])),
    case(torch.tensor([1e4, 2e4, -1e4]), 1.0, 2, 0.9).gives(torch.tensor(1)),
)


@ex.check("the generator decides, and nothing else")
def _(answer, rng):
    answer(P.log(), top_k=1)
    function = getattr(answer, "answer", answer)
    rows = P.log().expand(200, -1)

    def drawn(seed, **how):
        return function(rows.clone(), generator=torch.Generator().manual_seed(seed), **how)

    before = torch.random.get_rng_state()
    for words, how in (("no limits", {}), ("top_k 3", {"top_k": 3}), ("top_p 0.9", {"top_p": 0.9})):
        one = drawn(1, **how)
        torch.rand(3)
        equal = torch.equal(one, drawn(1, **how)), torch.equal(one, drawn(2, **how))
        note(words, [str(equal)])
        expect(equal[0], True, f"{words}: generators with the same seed give the same ids")
        expect(equal[1], False, f"{words}: another seed gives the same ids")
    torch.random.set_rng_state(before)
    drawn(1)
    untouched = torch.equal(before, torch.random.get_rng_state())
    expect(untouched, True, "with a generator, PyTorch's own random state stays as it was")
    torch.manual_seed(3)
    one, other = function(rows.clone()), function(rows.clone())
    torch.manual_seed(3)
    expect(torch.equal(one, function(rows.clone())), True, "no generator: `torch.manual_seed` decides")
    expect(torch.equal(one, other), False, "no generator: the second call draws the same ids as the first")


def threshold(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if top_p is not None:
        probabilities = (logits / max(temperature, 1e-6)).softmax(-1)
        least = torch.minimum(probabilities.max(-1, keepdim=True).values, torch.tensor(1 - top_p))
        logits = logits.masked_fill(probabilities < least, -torch.inf)
    return sample_next(logits, temperature, top_k, None, generator)


def top_p_first(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if top_p is not None:
        scores, ids = logits.sort(dim=-1, descending=True)
        before = scores.softmax(-1).cumsum(-1) - scores.softmax(-1)
        logits = torch.empty_like(logits).scatter(-1, ids, scores.masked_fill(before >= top_p, -torch.inf))
    return sample_next(logits, temperature, top_k, None, generator)


def of_all_tokens(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if top_p is not None and temperature:
        scores, ids = logits.sort(dim=-1, descending=True)
        probabilities = (scores / temperature).softmax(-1)
        scores = scores.masked_fill(probabilities.cumsum(-1) - probabilities >= top_p, -torch.inf)
        logits = torch.empty_like(logits).scatter(-1, ids, scores)
    return sample_next(logits, temperature, top_k, None, generator)


BEFORE = "(before < top_p)"
ex.mistake(
    "the probabilities divided by the temperature",
    {"(logits / temperature)": "logits"},
    hint="Your temperature changes nothing. If all *probabilities* are divided by the same number, their proportions "
    "stay. Divide the logits, before the softmax.",
)
ex.mistake(
    "a softmax of probabilities",
    {"(logits / temperature)": "(logits.softmax(dim=-1) / temperature)"},
    hint="The temperature divides the logits, not the probabilities: one softmax, after the division.",
)
ex.mistake(
    "multiplied by the temperature",
    {"logits / temperature": "logits * temperature"},
    hint="A high temperature makes the tokens more alike: the logits are *divided* by it.",
)
ex.mistake(
    "top_p keeps one token too few",
    {BEFORE: "((probabilities.cumsum(dim=-1) < top_p) | (before == 0))"},
    hint="The token that crosses p stays too: without it the sum is below p. Look at the sum *before* each token.",
)
ex.mistake(
    "top_p keeps one token too few, and none where the first has more than p",
    {BEFORE: "(probabilities.cumsum(dim=-1) < top_p)"},
    hint="The token that crosses p stays too. Where the most probable one has more than p, nothing is left of yours. "
    "Look at the sum *before* each token, without its own probability.",
)
ex.mistake(
    "top_p drops the most probable token",
    {BEFORE: "(before < top_p) * ((before > 0) | (probabilities > top_p))"},
    hint="The most probable token always stays. The sum before it is 0, which is below every p.",
)
ex.mistake(
    "top_p keeps one token too many",
    {BEFORE: "(before.roll(1, -1).masked_fill(before == 0, 0) < top_p)"},
    hint="As soon as the sum has reached p, no further token stays: it is the sum before the token itself that must "
    "be below p.",
)
ex.mistake(
    "top_p as a limit for each token",
    threshold,
    hint="`top_p` is no limit for the probability of one token: add up the probabilities, the largest first.",
)
ex.mistake(
    "the least probable tokens stay",
    {"descending=True": "descending=False"},
    hint="`sort` begins with the smallest number. Here the most probable tokens come first: `descending=True`.",
)
ex.mistake(
    "the place in the sorted row instead of the id",
    {"ids.gather(-1, drawn.reshape(*logits.shape[:-1], 1))": "drawn.reshape(*logits.shape[:-1], 1)"},
    hint="`multinomial` has drawn a place in the *sorted* row: 0 is the most probable token. `ids` knows which id "
    "stands there.",
)
ex.mistake(
    "one token more than top_k",
    {":top_k]": ": None if top_k is None else top_k + 1]"},
    hint="With `top_k=2` two tokens stay: columns 0 and 1.",
)
ex.mistake(
    "top_p before the temperature",
    top_p_first,
    hint="Which tokens top_p keeps depends on the probabilities after the temperature: divide first.",
)
ex.mistake(
    "top_p looks at all tokens",
    of_all_tokens,
    hint="top_k comes first, and top_p looks at the probabilities that the tokens that are left have among each other: "
    "do the softmax after top_k.",
)
ex.mistake(
    "always the most probable token",
    {"drawn = torch.multinomial(rows, 1, generator=generator)": "drawn = rows.argmax(-1)"},
    hint="The next token is drawn, not chosen: `torch.multinomial(probabilities, 1, generator=generator)`.",
)
ex.mistake(
    "all tokens equally likely",
    {"rows = probabilities.": "rows = (probabilities > 0).float()."},
    hint="The tokens that stay keep their proportions: draw with their probabilities.",
)
ex.mistake(
    "the generator is not used",
    {", generator=generator": ""},
    hint="Your draws come from PyTorch's own random numbers. Hand the generator on: "
    "`torch.multinomial(…, generator=generator)`.",
)
