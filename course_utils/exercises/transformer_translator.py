"""Lesson 10's exercises: what a decoder reads, one block of it, and a search that holds several sentences at once."""

import itertools
import math

import torch
from torch import nn

from course_utils.exercises import Exercise, case, expect, normal, note
from course_utils.lessons import transformer_translator
from course_utils.lessons.masking import padding_mask
from course_utils.lessons.multi_head import MultiHeadAttention, attend_in_steps
from course_utils.lessons.transformer_block import MLP

# ---- decoder_block -------------------------------------------------------------------------------------------

ex = Exercise(
    transformer_translator.decoder_block,
    points=3,
    minutes=15,
    hints=(
        "Three lines that look alike: x = norm(x + part(x)). Which part is called with what?",
        "Only the self-attention writes and reads the same sentence, so only there the future must be hidden. Only the "
        "cross-attention gets `states`, and the mask of the source belongs to them. There the written words ask.",
        "`self_attention(x, is_causal=True)`, then `cross_attention(x, states, mask=mask)`, then `mlp(x)`. Each of "
        "them gets the `x` of the line above, and so does the addition.",
    ),
)


class Attention(nn.Module):
    """Lesson 06's layer with fixed weights. One head, so that any width will do."""

    def __init__(self, d_model, seed):
        super().__init__()
        self.layer = MultiHeadAttention(d_model, 1, attend_in_steps)
        set_weights(self.layer, seed)

    def forward(self, x, data=None, mask=None, is_causal=False):
        note(f"asked of {type(self).__name__}", [x, x if data is None else data, bool(is_causal)])
        return self.layer(x, data, mask, is_causal)


class SelfAttention(Attention):
    pass


class CrossAttention(Attention):
    pass


class Norm(nn.Module):
    """Divides by √(1 + the mean square): that shows something also when there is one number only."""

    def __init__(self, d_model, seed):
        super().__init__()
        self.gain, self.bias = (nn.Parameter(normal(d_model, seed=seed + i)) for i in (0, 1))

    def forward(self, x):
        return x / (1 + x.square().mean(dim=-1, keepdim=True)).sqrt() * self.gain + self.bias


def set_weights(module, seed):
    for i, weights in enumerate(module.parameters()):
        weights.data = normal(*weights.shape, seed=seed + i) / weights.shape[-1] ** 0.5


def block(*leading, target=5, source=7, d_model=8, masked=True):
    lengths = torch.randint(1, source + 1, leading, generator=torch.Generator().manual_seed(5))
    lengths.view(-1)[0] = (source + 1) // 2
    mlp = MLP(d_model, 6)
    set_weights(mlp, 30)
    return case(
        *(normal(*leading, target, d_model), normal(*leading, source, d_model, seed=1)),
        padding_mask(lengths.unsqueeze(-1), source) if masked else None,
        *(SelfAttention(d_model, 10), CrossAttention(d_model, 20), mlp),
        *(Norm(d_model, seed) for seed in (40, 50, 60)),
    )


def mean_of_rows(x, data=None, mask=None, is_causal=False):
    """An attention with equal weights: easy to follow."""
    data = x if data is None else data
    visible = torch.ones(len(x), len(data))
    visible = visible if mask is None else visible * mask
    visible = visible.tril() if is_causal else visible
    return visible / visible.sum(dim=-1, keepdim=True) @ data


def half(x):
    return x / 2


def minus_1(x):
    return x - 1


def a_sixth(x):
    return x / 6


BY_HAND = case(
    *(torch.tensor([[2.0], [6.0]]), torch.tensor([[1.0], [3.0], [99.0]]), torch.tensor([[True, True, False]])),
    *(mean_of_rows, mean_of_rows, torch.square, half, minus_1, a_sixth),
)
ex.cases(
    "two words that you can follow",
    BY_HAND.gives(torch.tensor([[2.0], [7.0]])).noted("the example in the text"),
)
ex.cases("a batch of 2, 5 words to write, 7 that were read", block(2))
ex.cases("without a mask", block(2, masked=False).noted("mask None"))
ex.promises(block, "leading", "sizes", "dtypes", "gradients", "device")


@ex.check("no output depends on a later input")
def _(answer, rng):
    x, *others = block(2).args
    later = torch.cat([x[:, :3], 10 * normal(2, 2, 8, seed=7)], dim=1)
    expect(answer(later, *others)[:, :3], answer(x, *others)[:, :3], "outputs 0 to 2 after inputs 3 and 4 changed")


SELF = "self_attention(x, is_causal=True)"
CROSS = "cross_attention(x, states, mask=mask)"
ex.mistake(
    "the self-attention sees the future",
    {SELF: "self_attention(x)"},
    hint="While it is trained, the decoder is given all words at once, so it could read the answer. `is_causal=True` "
    "hides what comes later.",
)
ex.mistake(
    "the cross-attention is causal too",
    {"mask=mask)": "mask=mask, is_causal=True)"},
    hint="The source has been read to its end: each word may look at all of it. Only the self-attention is causal.",
)
ex.mistake(
    "the cross-attention has the target's mask",
    {"mask=mask)": "is_causal=True)"},
    hint="`mask` belongs to the source, and so it belongs into the cross-attention. The causal mask is for the "
    "self-attention only.",
)
ex.mistake(
    "the cross-attention looks at padding",
    {", mask=mask": ""},
    hint="`states` has padding behind short sentences. Give `mask` to the cross-attention.",
)
ex.mistake(
    "the cross-attention's keys and values are the decoder's",
    {CROSS: "cross_attention(x)"},
    hint="Without `states` this is a second self-attention: the decoder never learns what it has to translate.",
)
ex.mistake(
    "the self-attention has the source's mask too",
    {SELF: "self_attention(x, mask=mask if mask is None or x.shape[-2] == states.shape[-2] else None, is_causal=True)"},
    hint="`mask` says where the *source* is padding. The self-attention looks at the target.",
)
ex.mistake(
    "no third norm",
    {"norm_3(x + mlp(x))": "x + mlp(x)"},
    hint="Three parts, three norms: the sum after the MLP goes through `norm_3`.",
)
ex.mistake(
    "no second norm",
    {f"norm_2(x + {CROSS})": f"x + {CROSS}"},
    hint="Three parts, three norms: the sum after the cross-attention goes through `norm_2`.",
)
ex.mistake(
    "no first norm",
    {f"norm_1(x + {SELF})": f"x + {SELF}"},
    hint="Three parts, three norms: the sum after the self-attention goes through `norm_1`.",
)
ex.mistake(
    "one norm for both attentions",
    {"norm_2": "norm_1"},
    hint="Each part has a norm of its own, with its own learned numbers.",
)
ex.mistake(
    "the norms of cross-attention and MLP exchanged",
    {"norm_2(": "norm_3(", "return norm_3(": "return norm_2("},
    hint="`norm_2` belongs to the cross-attention, `norm_3` to the MLP.",
)
ex.mistake(
    "nothing is added after the self-attention",
    {f"x + {SELF}": SELF},
    hint="The input of each part is added to its result. One such addition is missing.",
)
ex.mistake(
    "nothing is added after the cross-attention",
    {f"x + {CROSS}": CROSS},
    hint="The input of each part is added to its result. Without it, a word forgets what it has read of the target.",
)
ex.mistake(
    "nothing is added after the MLP",
    {"x + mlp(x)": "mlp(x)"},
    hint="The input of each part is added to its result. One such addition is missing.",
)
ex.mistake(
    "the block's input is added each time",
    {
        f"x = norm_1(x + {SELF})": f"first = x\n    x = norm_1(x + {SELF})",
        f"norm_2(x + {CROSS})": f"norm_2(first + {CROSS})",
        "norm_3(x + mlp(x))": "norm_3(first + mlp(x))",
    },
    hint="What is added is the input of the *same* part: what the norm before has given.",
)
ex.mistake(
    "the block's input is added after the cross-attention",
    {
        f"x = norm_1(x + {SELF})": f"first = x\n    x = norm_1(x + {SELF})",
        f"norm_2(x + {CROSS})": f"norm_2(first + {CROSS})",
    },
    hint="To the cross-attention's result its own input is added: what `norm_1` has given, not the block's input.",
)
ex.mistake(
    "the norms stand before the parts",
    lambda x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3: (
        (x := x + self_attention(norm_1(x), is_causal=True)),
        (x := x + cross_attention(norm_2(x), states, mask=mask)),
        x + mlp(norm_3(x)),
    )[-1],
    hint="This is the order of most models today (lesson 12). Here the norm comes *after* the addition, as in "
    "`post_norm_block`.",
)
ex.mistake(
    "the norm comes before the addition",
    {
        f"norm_1(x + {SELF})": f"x + norm_1({SELF})",
        f"norm_2(x + {CROSS})": f"x + norm_2({CROSS})",
        "norm_3(x + mlp(x))": "x + norm_3(mlp(x))",
    },
    hint="First add, then norm: `norm(x + part(x))`.",
)
ex.mistake(
    "the cross-attention comes first",
    lambda x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3: (
        (x := norm_2(x + cross_attention(x, states, mask=mask))),
        (x := norm_1(x + self_attention(x, is_causal=True))),
        norm_3(x + mlp(x)),
    )[-1],
    hint="The order is self-attention, cross-attention, MLP.",
)
ex.mistake(
    "both attentions read the block's input",
    lambda x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3: (
        (y := norm_1(x + self_attention(x, is_causal=True))),
        (y := norm_2(y + cross_attention(x, states, mask=mask))),
        norm_3(y + mlp(y)),
    )[-1],
    hint="One after the other: the cross-attention asks with what `norm_1` has given.",
)
ex.mistake(
    "no MLP",
    {"norm_3(x + mlp(x))": "norm_3(x)"},
    hint="Three parts: the MLP is the last one.",
)
ex.mistake(
    "the encoder is cut off from the gradient",
    {"x, states,": "x, states.detach(),"},
    hint="`detach` on the states means that the encoder never learns what the decoder needs.",
)

# ---- shift_right ---------------------------------------------------------------------------------------------

ex = Exercise(
    transformer_translator.shift_right,
    points=1,
    minutes=5,
    hints=(
        "Write down the answers of one sentence, and below each of them the word that stands before it. What stands "
        "below the first one, and which word is left over?",
        "Two pieces side by side: a first column that holds `start_id`, and all of `targets` but the last column.",
        "`torch.cat([first, targets[..., :-1]], dim=-1)`. `torch.full_like(targets[..., :1], start_id)` makes the "
        "first column for any number of leading dimensions, with the right dtype, on the right device.",
    ),
)


def answers(*leading, time=7):
    """Ids from 4 on, each different."""
    count = torch.Size(leading).numel() * time
    return case((4 + torch.arange(count)).view(*leading, time), 1)


WORDS = torch.tensor([[7, 8, 9, 3], [5, 3, 0, 0]])
ex.cases(
    "two sentences that you can follow",
    case(WORDS, 2).gives(torch.tensor([[2, 7, 8, 9], [2, 5, 3, 0]])).noted("3 ends a sentence, 0 is padding"),
)
ex.cases(
    "one sentence, no leading dimension; the start token is the one that is given",
    case(torch.tensor([4, 4, 4]), 0).gives(torch.tensor([0, 4, 4])),
    case(torch.tensor([4, 5, 6]), 300).gives(torch.tensor([300, 4, 5])),
)
ex.promises(answers, "leading", "sizes", "device")
ex.cases(
    "the dtype stays what it is",
    case(WORDS.int(), 2).noted("targets of dtype int32"),
    case(WORDS.short(), 2).noted("targets of dtype int16"),
)

SHIFTED = "torch.cat([first, targets[..., :-1]], dim=-1)"
ex.mistake(
    "not shifted",
    {SHIFTED: "targets.clone()"},
    hint="The decoder would read the very word that it must answer. Each position reads the target *before* it.",
)
ex.mistake(
    "shifted twice",
    {SHIFTED: "torch.cat([first, first, targets], dim=-1)[..., : targets.shape[-1]]"},
    hint="Position 1 reads target 0, position 2 reads target 1. Yours are one place further, so one word is missing. "
    "Is something shifted already before you shift it?",
)
ex.mistake(
    "shifted to the left",
    {SHIFTED: "torch.cat([targets[..., 1:], first], dim=-1)"},
    hint="Yours reads the word *after* the one that it must answer. The start token comes first, not last.",
)
ex.mistake(
    "one position too many",
    {"targets[..., :-1]": "targets"},
    hint="The last target is never read: nothing has to be answered after it. Leave it out.",
)
ex.mistake(
    "the start token is written over the first target",
    {SHIFTED: "torch.cat([first, targets[..., 1:]], dim=-1)"},
    hint="Nothing has moved: the first target is gone, and every other position reads the word that it must answer.",
)
ex.mistake(
    "the last target comes round to the front",
    {SHIFTED: "targets.roll(1, dims=-1)"},
    hint="`roll` brings the last target to position 0. There must be `start_id`.",
)
ex.mistake(
    "shifted along the first dimension",
    {SHIFTED: "torch.cat([torch.full_like(targets[:1], start_id), targets[:-1]], dim=0)"},
    hint="That moves whole sentences. Time is the last dimension: `dim=-1`.",
)
ex.mistake(
    "shifted along dimension 1",
    {SHIFTED: "torch.cat([torch.full_like(targets[:, :1], start_id), targets[:, :-1]], dim=1)"},
    hint="Dimension 1 is time only if there is exactly one leading dimension. Count from the end: `...` and `dim=-1`.",
)
ex.mistake(
    "zeros instead of the start token",
    {"start_id)": "0)"},
    hint="The first position holds `start_id`, whatever number that is. 0 is padding in this course.",
)
ex.mistake(
    "always 1 as the start token",
    {"start_id)": "1)"},
    hint="The first position holds `start_id`, whatever number that is.",
)
ex.mistake(
    "the targets are changed",
    {SHIFTED: f"targets.copy_({SHIFTED})"},
    hint="The targets are still needed: the answers are compared with them. Make a new tensor.",
)
ex.mistake(
    "numbers instead of ids",
    {SHIFTED: f"{SHIFTED}.float()"},
    hint="Ids are whole numbers. `torch.zeros` and `torch.full(…, 1.0)` make floats; `full_like` keeps the dtype.",
)
ex.mistake(
    "always int64",
    {SHIFTED: f"{SHIFTED}.long()"},
    hint="The dtype is that of `targets`, not always int64.",
)

# ---- beam_search ---------------------------------------------------------------------------------------------

ex = Exercise(
    transformer_translator.beam_search,
    points=4,
    minutes=30,
    hints=(
        "Keep three things between steps: the sentences that have not ended (as rows of one tensor, with `start` in "
        "front), the sum of each, and a list of those that have ended.",
        "All continuations stand in one table (sentences, vocabulary): the sums as a column, plus the log-"
        "probabilities. Flatten it and take the best. `position // n_words` says which sentence is continued, "
        "`position % n_words` by which token. `torch.topk` may take any of equal numbers; "
        "`sort(descending=True, stable=True)` takes the first.",
        "At each step `beam_size - len(ended)` places are free. Rows whose new token is `stop_id`, and at the last "
        "step all rows, go to the list with their score; the others stay. At the end sort the list by score: "
        "Python's `sorted` is stable.",
    ),
)

STOP, N_WORDS = 0, 5


class Model(nn.Module):
    """`next_logits` made of a function of the rows. It notes what it is asked from the second call on."""

    def __init__(self, function):
        super().__init__()
        self.function, self.asked = function, []

    def forward(self, rows):
        self.asked.append(rows.tolist())
        if len(self.asked) > 1:
            note("asked", tuple(map(tuple, self.asked[-1])))
        return self.function(rows)


def search(function, beam_size, max_length=10, start=(1,), stop=STOP, **alpha):
    return case(Model(function), torch.tensor(start), stop, beam_size, max_length, **alpha)


def tree(chances, otherwise=(1, 0, 0), start=1):
    """Probabilities of the next token by the tokens so far; `otherwise` where nothing is written."""

    def function(rows):
        words = [tuple(row[start:]) for row in rows.tolist()]
        table = torch.tensor([chances.get(row, otherwise) for row in words], device=rows.device).float()
        return table.clamp(min=1e-9).log()

    return function


# The best first word is not the first word of the best sentence.
GARDEN = {(): (0.1, 0.5, 0.4), (1,): (0.4, 0.3, 0.3), (2,): (0.9, 0.05, 0.05)}
# A short sentence has the larger product, a long one the larger mean.
SHORT = {(): (0.4, 0.6, 0.0), (1,): (0.5, 0.0, 0.5), (1, 2): (0.9, 0.05, 0.05)}


def random_model(rows):
    """A bag of the words and their places with random weights, whose logits are no round numbers."""
    table, places = normal(50, N_WORDS, seed=3), normal(20, N_WORDS, seed=4)
    table, places = 2 * table.to(rows.device), places.to(rows.device)
    return table[rows].cumsum(dim=1)[:, -1] * places[rows.shape[1]] + table[rows[:, -1]]


def everything_equal(rows):
    return torch.zeros(len(rows), N_WORDS, device=rows.device)


def every_sentence(function, start, stop, max_length, alpha=1.0):
    """Every sentence there is, one after the other, best first."""
    found = []
    for length in range(1, max_length + 1):
        for words in itertools.product(range(N_WORDS), repeat=length):
            if stop in words[:-1] or (words[-1] != stop and length < max_length):
                continue
            total = 0.0
            for n, word in enumerate(words):
                row = torch.tensor([[*start, *words[:n]]])
                total += torch.log_softmax(function(row)[0].double(), dim=-1)[word].item()
            found.append((list(words), total / length**alpha))
    return sorted(found, key=lambda result: -result[1])


def log_of(*chances, alpha=1.0):
    return math.log(math.prod(chances)) / len(chances) ** alpha


ex.cases(
    "one sentence only: always the likeliest token",
    search(tree(GARDEN), 1).gives([([1, 0], log_of(0.5, 0.4))]).noted("the example in the text"),
)
ex.cases(
    "two sentences find a better one",
    search(tree(GARDEN), 2)
    .gives([([2, 0], log_of(0.4, 0.9)), ([1, 0], log_of(0.5, 0.4))])
    .noted("the example in the text"),
)
ex.cases(
    "a sentence that has ended keeps its place",
    search(tree(GARDEN), 3, alpha=0.0)
    .gives([([2, 0], log_of(0.4, 0.9, alpha=0)), ([1, 0], log_of(0.5, 0.4, alpha=0)), ([0], math.log(0.1))])
    .noted("the example in the text, alpha 0"),
)
ex.cases(
    "the score is divided by a power of the length",
    *(search(tree(SHORT), 3, alpha=alpha).noted(f"alpha {alpha}") for alpha in (0.0, 1.0, 0.6, 2.0)),
    search(tree(SHORT), 3).noted("alpha is 1 if it is not given"),
)
ex.cases(
    "cut off at max_length, without a stop token",
    search(tree({}, (0.1, 0.2, 0.7)), 2, 3),
    search(tree({}, (0.1, 0.2, 0.7)), 2, 1),
    search(tree(GARDEN), 4, 1),
    search(tree({}, (0.5, 0.2, 0.3)), 4, 3),
)
ex.cases(
    "as long as the beam holds everything, it finds the best sentence of all",
    *(
        search(random_model, 500, length, alpha=alpha)
        .gives(every_sentence(random_model, (1,), STOP, length, alpha))
        .noted(f"beams for all sentences, alpha {alpha}")
        for length, alpha in ((3, 1.0), (2, 0.0))
    ),
)
ex.cases(
    "a model with random weights",
    *(search(random_model, beam_size, 6, alpha=0.7) for beam_size in (1, 2, 3, 7, 20)),
    search(random_model, 4, 6, stop=3),
)
ex.cases(
    "of equal sums the first wins",
    search(everything_equal, 3, 2).gives([([0], -math.log(5)), ([1, 0], -math.log(5)), ([1, 1], -math.log(5))]),
    search(everything_equal, 7, 2, stop=4, alpha=0.0),
    search(everything_equal, 2, 3, stop=4, alpha=0.5),
    search(tree({(): (0.2, 0.4, 0.4)}, (0.2, 0.4, 0.4)), 3, 2, alpha=0.0),
)
ex.cases(
    "`start` may be longer, and may hold the stop token",
    search(random_model, 3, 4, (1, 4, 2)),
    search(random_model, 3, 4, (STOP,)),
    search(random_model, 3, 4, (2, STOP, 2)),
)
ex.cases(
    "logits need not be log-probabilities, and may be float16",
    search(lambda rows: random_model(rows) + 30 * rows[:, -1:], 3, 5),
    search(lambda rows: random_model(rows).half(), 3, 12, stop=4, alpha=0.0),
    search(lambda rows: random_model(rows).double(), 3, 5),
    search(lambda rows: 100 * random_model(rows), 3, 5),
)
ex.cases("a vocabulary of one token", search(lambda rows: torch.zeros(len(rows), 1), 3, 4, stop=7))
ex.device("it would work on a GPU too: new tensors are made where `start` is", search(random_model, 3, 4))


@ex.check("it asks for no more than it needs")
def _(answer, rng):
    for function, beam_size, max_length, rows in (
        (tree(GARDEN), 2, 10, [[[1]], [[1, 1], [1, 2]]]),
        (tree(GARDEN), 3, 10, [[[1]], [[1, 1], [1, 2]]]),
        (tree({(): (1, 0, 0)}), 1, 10, [[[1]]]),
        (tree({}, (0.1, 0.2, 0.7)), 1, 3, [[[1]], [[1, 2]], [[1, 2, 2]]]),
    ):
        asked = search(function, beam_size, max_length)
        model, *others = asked.args
        answer(model, *others)
        expect(len(model.asked), len(rows), f"beam_size {beam_size}, max_length {max_length}: calls of `next_logits`")
        expect([sorted(r) for r in model.asked], rows, f"beam_size {beam_size}: the rows that `next_logits` was given")


LOG_PROBS = "torch.log_softmax(next_logits(beams).float(), dim=-1)"
FREE = "[: beam_size - len(ended)]"
ORDER = f"totals.argsort(descending=True, stable=True){FREE}"
BEST_FIRST = "sorted(ended, key=lambda result: result[1], reverse=True)"
ex.mistake(
    "no length normalisation",
    {" / length**alpha": ""},
    hint="The scores are plain sums. Each word makes a sum smaller, so short sentences win. Divide by the number of "
    "tokens to the power of `alpha`.",
)
ex.mistake(
    "the start token counts in the length",
    {"length**alpha": "(length + len(start)) ** alpha"},
    hint="The length counts the tokens of the sentence, with the stop token, and without `start`.",
)
ex.mistake(
    "the stop token does not count in the length",
    {"length**alpha": "max(1, length - (tokens[-1] == stop_id)) ** alpha"},
    hint="The log-probability of the stop token is in the sum, so the stop token counts in the length too.",
)
ex.mistake(
    "multiplied by the length",
    {" / length**alpha": " * length**alpha"},
    hint="Multiplying makes long sentences worse still. Divide: then it is a mean (for alpha 1).",
)
ex.mistake(
    "divided by alpha times the length",
    {"length**alpha": "(length * alpha or 1)"},
    hint="`alpha` is an exponent: length to the power of alpha. 0 means no division, 1 the mean.",
)
ex.mistake(
    "always the mean",
    {"length**alpha": "length"},
    hint="`alpha` is not used. The sum is divided by the length to the power of alpha.",
)
ex.mistake(
    "a sentence that has ended gives its place away",
    {FREE: "[:beam_size]"},
    hint="`beam_size` sentences in all, those that have ended among them. Otherwise the search goes on and on, and "
    "returns more than `beam_size` sentences.",
)
ex.mistake(
    "sentences that have ended compete for the places",
    {
        FREE: "[:beam_size]",
        "        beams, sums = beams[~done], sums[~done]\n": "        beams, sums = beams[~done], sums[~done]\n"
        "        totals = torch.tensor([score * len(tokens) ** alpha for tokens, score in ended] + sums.tolist())\n"
        "        best = totals.argsort(descending=True, stable=True)[:beam_size].sort().values\n"
        "        stay = [i - len(ended) for i in best.tolist() if i >= len(ended)]\n"
        "        ended = [ended[i] for i in best.tolist() if i < len(ended)]\n"
        "        beams, sums = beams[stay], sums[stay]\n",
    },
    hint="Many programs do this. Here a sentence that has ended keeps its place, even when a continuation of another "
    "has a larger sum: only `beam_size - len(ended)` places are free.",
)
ex.mistake(
    "as many sentences go on as if none had ended, and the best `beam_size` are returned",
    {FREE: "[:beam_size]", BEST_FIRST: f"{BEST_FIRST}[:beam_size]"},
    hint="A sentence that has ended keeps its place. So fewer go on: `beam_size - len(ended)`. Then nothing is left "
    "to cut at the end.",
)
ex.mistake(
    "sentences that have ended are continued",
    {
        "beams, sums = beams[~done], sums[~done]": "pass",
        FREE: "[:beam_size]",
        "        if len(beams) == 0:\n            break\n": "        if len(ended) >= beam_size:\n            break\n",
    },
    hint="What stands after a stop token is no part of a sentence. Take the rows that have ended out of the beams.",
)
ex.mistake(
    "each sentence keeps its own best continuation only",
    {
        f"order = {ORDER}": "order = log_probs.argmax(dim=1) + log_probs.shape[1] * torch.arange(len(beams))\n"
        "        if len(beams) == 1:\n"
        f"            order = {ORDER}",
    },
    hint="All continuations of all sentences compete for the places: several may come from one sentence, and none from "
    "another.",
)
ex.mistake(
    "probabilities are added",
    {"torch.log_softmax": "torch.softmax"},
    hint="The probability of a sentence is a product. Its logarithm is a sum of logarithms: use `log_softmax`.",
)
ex.mistake(
    "log-probabilities are multiplied",
    {"torch.zeros(1": "torch.ones(1", "+ log_probs)": "* log_probs)"},
    hint="Probabilities are multiplied; their logarithms are *added*.",
)
ex.mistake(
    "logits are added",
    {LOG_PROBS: "next_logits(beams).float()"},
    hint="Logits of two different rows cannot be compared: any number may be added to all of a row. Use `log_softmax`.",
)
ex.mistake(
    "the sum so far is forgotten",
    {"(sums.unsqueeze(1) + log_probs)": "log_probs"},
    hint="A continuation's sum is that of its beginning plus the new log-probability.",
)
ex.mistake(
    "the sum of the wrong sentence",
    {"sums = totals[order]": "sums = sums.repeat(len(order))[: len(order)] + log_probs.flatten()[order]"},
    hint="The new sentences are sorted: each needs the sum of *its* beginning, `sums[parents]`, not of the one that "
    "stood in its row.",
)
ex.mistake(
    "the new token goes to the wrong sentence",
    {"beams[parents]": "beams.repeat(len(order), 1)[: len(order)]"},
    hint="The new sentences are sorted: each continues its own beginning, `beams[parents]`, not the one that stood in "
    "its row.",
)
ex.mistake(
    "it starts with beam_size equal sentences",
    {"start.unsqueeze(0)": "start.repeat(beam_size, 1)", "torch.zeros(1": "torch.zeros(beam_size"},
    hint="All these rows are equal, so they stay equal, and the beam holds the same sentence many times. There is one "
    "beginning at first: `start`.",
)
ex.mistake(
    "of sentences with the same last token, only the best stays",
    {
        f"order = {ORDER}": "order = totals.argsort(descending=True, stable=True)\n"
        "        last = (order % log_probs.shape[1]).tolist()\n"
        f"        order = order[[last.index(w) for w in dict.fromkeys(last)]]{FREE}",
    },
    hint="Two sentences that end in the same token are two sentences. Nothing needs to be thrown out.",
)
ex.mistake(
    "of sentences with the same score, only one is returned",
    {BEST_FIRST: "[(v, k) for k, v in sorted({s: t for t, s in ended}.items(), reverse=True)]"},
    hint="Scores can be equal. A dict with scores as keys loses sentences: use a list of (tokens, score).",
)
ex.mistake(
    "it ends with the first sentence that ends",
    {"if len(beams) == 0": "if ended"},
    hint="The others may become better. Go on until all sentences that are held have ended.",
)
ex.mistake(
    "no sentence ever ends",
    {"(words == stop_id) | (length == max_length)": "words == words if length == max_length else words != words"},
    hint="The stop token is not looked for. A sentence whose new token is `stop_id` has ended.",
)
ex.mistake(
    "what is cut off is lost",
    {" | (length == max_length)": ""},
    hint="At max_length the sentences that have not ended are results too, without a stop token. Without them, "
    "nothing may be left.",
)
ex.mistake(
    "the stop token is not in the result",
    {"len(start) :].tolist()": "len(start) :].tolist()[: -1 if words[row] == stop_id else None]"},
    hint="Here the stop token stays in the result: it shows that the sentence was not cut off.",
)
ex.mistake(
    "`start` is in the result",
    {"beams[row, len(start) :]": "beams[row]"},
    hint="`start` is only read. The sentence begins after it: `[len(start):]`.",
)
ex.mistake(
    "the first token of the row is left out, not `start`",
    {"len(start) :": "1 :"},
    hint="`start` may have more than one token. Leave out `len(start)` of them.",
)
ex.mistake(
    "the worst first",
    {", reverse=True": ""},
    hint="The best score comes first. Scores are negative: the best is nearest to 0.",
)
ex.mistake(
    "in the order in which they ended",
    {BEST_FIRST: "ended"},
    hint="Sort the results by score at the end. The sentence that ended first need not be the best.",
)
ex.mistake(
    "sorted by the sum",
    {"key=lambda result: result[1]": "key=lambda result: result[1] * len(result[0]) ** alpha"},
    hint="Sort by the score, after the division by the length.",
)
ex.mistake(
    "the best sentence only",
    {BEST_FIRST: f"{BEST_FIRST}[:1]"},
    hint="All sentences that the search holds at the end are returned, best first.",
)
ex.mistake(
    "one token too many",
    {"range(1, max_length + 1)": "range(1, max_length + 2)", "length == max_length": "length == max_length + 1"},
    hint="A sentence has at most `max_length` tokens, the stop token among them.",
)
ex.mistake(
    "one token too few",
    {"range(1, max_length + 1)": "range(1, max(2, max_length))", "length == max_length": "length >= max_length - 1"},
    hint="A sentence may have `max_length` tokens. `start` does not count.",
)
ex.mistake(
    "tensors instead of floats",
    {"float(sums[row])": "sums[row]"},
    hint="A score is a Python float: `float(…)` or `.item()`.",
)
ex.mistake(
    "of equal sums the last wins",
    {ORDER: f"(len(totals) - 1 - totals.flip(0).argsort(descending=True, stable=True)){FREE}"},
    hint="Of equal sums the continuation of the sentence that ranked higher wins, then the smaller token: the first in "
    "the flattened table.",
)
ex.mistake(
    "the beams are as many as there are words",
    {FREE: "[: log_probs.shape[1] - len(ended)]"},
    hint="How many sentences are held is `beam_size`.",
)
