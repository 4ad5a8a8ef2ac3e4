"""Lesson 02's exercises: scores, weights, context, one decoder step, and how far links are from gold ones."""

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.exercises import Exercise, case, expect, normal, note
from course_utils.lessons import attention_translator
from course_utils.lessons.attention_translator import additive_scores, alignment_scores, attention_weights

NAN, INF = float("nan"), float("inf")


def random_lengths(leading, time):
    """The last sentence is as long as possible, the first one has padding where there is room for it."""
    lengths = torch.randint(1, time + 1, leading, generator=torch.Generator().manual_seed(5))
    lengths.view(-1)[-1], lengths.view(-1)[0] = time, (time + 1) // 2
    return lengths


# ---- alignment_scores ----------------------------------------------------------------------------------------

ex = Exercise(
    attention_translator.alignment_scores,
    points=1,
    minutes=10,
    hints=(
        "A dot product multiplies number by number and adds. Which dimension of `query` and of `states` is added up? "
        "(`states @ query` works for one sentence, but not for a batch.)",
        "`query` needs a dimension for time before it can meet `states`: `query.unsqueeze(-2)` is (..., 1, hidden).",
        "`(query.unsqueeze(-2) * states).sum(dim=-1)`, or a matrix product: `states @ query.unsqueeze(-1)`, whose last "
        "dimension of 1 goes away with `.squeeze(-1)`.",
    ),
)

queries_and_states = ex.inputs(time=7, hidden=5)
three = queries_and_states(3)

ex.cases(
    "three states that you can follow",
    case(torch.tensor([1.0, 2.0]), torch.tensor([[3.0, 0.0], [0.0, 1.0], [-1.0, 1.0]])).gives(
        torch.tensor([3.0, 2.0, 1.0])
    ),
)
ex.cases(
    "a batch of 3, 7 positions, 5 hidden units",
    three.gives(torch.stack([torch.stack([q.dot(h) for h in row]) for q, row in zip(*three.args, strict=True)])),
)
ex.promises(queries_and_states, "leading", "sizes", "dtypes", "gradients", "device")

PRODUCT = "(query.unsqueeze(-2) * states).sum(dim=-1)"
ex.mistake(
    "scores from the decoder alone",
    {"* states": "* query.unsqueeze(-2).expand_as(states)"},
    hint="These scores do not depend on the encoder's states, so every position gets the same one. Compare the two.",
)
ex.mistake(
    "summed over time",
    {"dim=-1": "dim=-2"},
    hint="One score per position is asked for: add over `hidden`, the last dimension.",
)
ex.mistake(
    "products without their sum",
    {".sum(dim=-1)": ""},
    hint="A dot product also adds: sum the products over `hidden`.",
)
ex.mistake(
    "the sum of all products",
    {".sum(dim=-1)": ".sum()"},
    hint="`x.sum()` adds the whole tensor. Say which dimension to add: `hidden`, the last one.",
)
ex.mistake(
    "the mean of the products",
    {"sum": "mean"},
    hint="A dot product adds the products. `mean` also divides by their number.",
)
ex.mistake(
    "divided by the square root of the size",
    {".sum(dim=-1)": ".sum(dim=-1) / query.shape[-1] ** 0.5"},
    hint="That scale is the subject of lesson 03. Here the score is the plain dot product.",
)
ex.mistake(
    "the cosine of the angle",
    {PRODUCT: "torch.cosine_similarity(query.unsqueeze(-2), states, dim=-1)"},
    hint="The dot product is asked for; do not divide by the lengths of the vectors.",
)
ex.mistake(
    "a softmax of the scores",
    {PRODUCT: f"torch.softmax({PRODUCT}, dim=-1)"},
    hint="The softmax comes later, in `attention_weights`. Return the dot products themselves.",
)
ex.mistake(
    "divided by the square root of the size, then a softmax",
    {PRODUCT: f"torch.softmax({PRODUCT} / query.shape[-1] ** 0.5, dim=-1)"},
    hint="Two things too many: here the score is the plain dot product, without a scale, and without a softmax.",
)
ex.mistake(
    "a last dimension of size 1 is left",
    {"dim=-1": "dim=-1, keepdim=True"},
    hint="Yours is (..., time, 1). Take the last dimension away: `.squeeze(-1)`, or a sum without `keepdim`.",
)
ex.mistake(
    "`states @ query`",
    {PRODUCT: "states @ query"},
    hint="With a batch, `query` is read as one matrix, not as one vector for each sentence. Make it a column first: "
    "`query.unsqueeze(-1)`.",
)
ex.mistake(
    "every query meets every sentence",
    {PRODUCT: "query @ states.mT"},
    hint="With a batch, `query` is read as one matrix, and all its rows meet all sentences. Make each query a row of "
    "its own first: `query.unsqueeze(-2)`.",
)
ex.mistake(
    "`.T` with a batch",
    {PRODUCT: "query @ states.T"},
    hint="`.T` reverses the order of all dimensions, the batch's too. `.mT` or `transpose(-2, -1)` swaps the last two.",
)
ex.mistake(
    "the query without a dimension for time",
    {".unsqueeze(-2)": ""},
    hint="A query (batch, hidden) beside states (batch, time, hidden) is read as (time, hidden). It needs a 1 between "
    "them: `query.unsqueeze(-2)`.",
)
ex.mistake(
    "the dimension for time at the end of the query",
    {"unsqueeze(-2)": "unsqueeze(-1)"},
    hint="Yours is (..., hidden, 1), so the numbers of the query stand along time. `unsqueeze(-2)` makes "
    "(..., 1, hidden).",
)
ex.mistake(
    "`unsqueeze(1)`",
    {"unsqueeze(-2)": "unsqueeze(1)"},
    hint="Dimension 1 is time only if there is exactly one leading dimension. Count from the end: `unsqueeze(-2)`.",
)
ex.mistake(
    "written into zeros of float32",
    {PRODUCT: f"torch.zeros(states.shape[:-1]).copy_({PRODUCT})"},
    hint="`torch.zeros(…)` makes float32 numbers on the CPU, whatever the inputs are. `states.new_zeros(…)` takes "
    "dtype and device from the states.",
)
ex.mistake(
    "the states are cut off from the gradient",
    {"* states": "* states.detach()"},
    hint="`detach`, `.data` and numpy cut the scores off from the states, and the encoder could not learn from them.",
)

# ---- attention_weights ---------------------------------------------------------------------------------------

ex = Exercise(
    attention_translator.attention_weights,
    points=2,
    minutes=10,
    hints=(
        "Two steps: which positions are padding (position >= length)? Then a softmax in which they count nothing.",
        "`lengths.unsqueeze(-1)` is (..., 1), so it can be compared with the positions 0, 1, 2, ... of every sentence. "
        "Then `scores.masked_fill(padding, -torch.inf)`, before the softmax.",
        "`padding = torch.arange(scores.shape[-1], device=scores.device) >= lengths.unsqueeze(-1)`, then the softmax "
        "over the last dimension.",
    ),
)


def sentences(*leading, time=7):
    return case(normal(*leading, time), random_lengths(leading, time))


def sentence_by_sentence(scores, lengths):
    weights = torch.zeros_like(scores)
    for row, n in enumerate(lengths.tolist()):
        weights[row, :n] = torch.softmax(scores[row, :n], dim=-1)
    return weights


five = normal(5, 6), torch.tensor([6, 1, 3, 5, 2])
padded = torch.arange(6) >= five[1].unsqueeze(-1)
rubbish = {value: five[0].masked_fill(padded, value) for value in (1000.0, NAN, INF, -INF)}

ex.cases(
    "three scores, then two scores and padding",
    case(torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 9.0]]), torch.tensor([3, 2])).gives(
        torch.tensor([[0.090031, 0.244728, 0.665241], [0.5, 0.5, 0.0]])
    ),
)
ex.cases("a batch of 5 sentences of up to 6 tokens", case(*five).gives(sentence_by_sentence(*five)))
ex.promises(sentences, "leading", "sizes", "dtypes", "gradients", "device")


@ex.check("padded positions get exactly zero, whatever their score, and the others sum to one")
def _(answer, rng):
    for value, scores in rubbish.items():
        where = f"every padded score is {value}"
        weights = answer(scores.clone(), five[1].clone())
        expect(weights, attention_weights(*five), where)
        expect(bool((weights[padded] == 0).all()), True, f"{where}: all padded weights are exactly 0")
        expect(weights.sum(dim=-1), torch.ones(5), f"{where}: the sums of the rows")


ex.cases("positions too large for float16", case(normal(3, 3001), torch.tensor([2998, 2999, 3000])))
ex.cases("length 1", case(torch.tensor([-4.0, 8.0]), torch.tensor(1)).gives(torch.tensor([1.0, 0.0])))
ex.cases(
    "scores may be very large, and very small",
    case(torch.tensor([1000.0, 1001.0, 7.0]), torch.tensor(2)).gives(torch.tensor([0.268941, 0.731059, 0.0])),
    case(torch.tensor([[1000.0, 1001.0, NAN, INF], [-1000.0, -1001.0, -1002.0, NAN]]), torch.tensor([2, 3])),
    case(torch.tensor([-30000.0, -30000.0, 5.0]), torch.tensor(2)).gives(torch.tensor([0.5, 0.5, 0.0])),
    case(torch.tensor([-1e30, -1e30, 0.0]), torch.tensor(2)).gives(torch.tensor([0.5, 0.5, 0.0])),
    case(torch.tensor([-60000.0, -60032.0, 0.0]), torch.tensor(2)).to(torch.float16),
)
ex.gradients(
    "gradients: 0 for padded scores, whatever they are, and never NaN",
    *(case(scores, five[1]).noted(f"every padded score is {value}") for value, scores in rubbish.items()),
)


@ex.check("no gradient at all to the padding", kind="gradients")
def _(answer, rng):
    leaf = five[0].clone().requires_grad_()
    weights = answer(leaf, five[1].clone())
    expect(weights.detach(), attention_weights(*five), "the weights themselves")
    (gradient,) = torch.autograd.grad(weights.square().sum(), leaf)
    expect(bool((gradient[padded] == 0).all()), True, "the gradient of padded scores is exactly 0")


MASKED = "scores.masked_fill(padding, -torch.inf)"
ex.mistake(
    "softmax over the wrong axis",
    {"dim=-1": "dim=0"},
    hint="`dim=0` goes over the batch. The weights of *one* sentence sum to 1.",
)
ex.mistake(
    "weights not masked",
    {MASKED: "scores"},
    hint="Padding gets weight too. Its score must be -inf before the softmax.",
)
ex.mistake(
    "masked after the softmax",
    {f"{MASKED}, dim=-1)": "scores, dim=-1).masked_fill(padding, 0)"},
    hint="The padding has taken its share of the softmax already, so the rest no longer sums to 1. Mask before it.",
)
ex.mistake(
    "masked after the softmax, then divided by the sum",
    {
        f"return torch.softmax({MASKED}, dim=-1)": "weights = torch.softmax(scores, dim=-1).masked_fill(padding, 0)\n"
        "    return weights / weights.sum(dim=-1, keepdim=True)"
    },
    hint="On paper this is right. But a padded score of NaN or infinity makes every weight NaN, and a large one takes "
    "all the weight, so that 0 / 0 is left. Mask before the softmax.",
)
ex.mistake(
    "padding gets the score 0",
    {"padding, -torch.inf": "padding, 0"},
    hint="exp(0) is 1, so a score of 0 still has weight. exp(-inf) is 0.",
)
ex.mistake(
    "a large negative number instead of -inf",
    {"padding, -torch.inf": "padding, -1e9"},
    hint="-1e9 does not exist in float16 and raises there. -inf exists in every dtype.",
)
ex.mistake(
    "a negative number that scores can reach",
    {"padding, -torch.inf": "padding, -1e4"},
    hint="Where the scores of the words are smaller than your number, the padding wins. No score is smaller than -inf.",
)
ex.mistake(
    "the mask times -inf, added",
    {MASKED: "scores + padding * -torch.inf"},
    hint="0 times infinity is NaN, so the valid scores are lost too. `masked_fill` replaces only the padding.",
)
ex.mistake(
    "-inf added to the scores of the padding",
    {MASKED: "scores + torch.zeros_like(scores).masked_fill(padding, -torch.inf)"},
    hint="A padded score of NaN or infinity becomes NaN when -inf is added to it. `masked_fill` replaces it, whatever "
    "it was.",
)
ex.mistake(
    "the mask upside down",
    {">=": "<"},
    hint="The words are hidden and the padding is kept. Position >= length is padding.",
)
ex.mistake(
    "one position too many",
    {">=": ">"},
    hint="Position t is a word where t < length. With > the first padding counts too.",
)
ex.mistake(
    "one position too few",
    {"lengths.unsqueeze(-1)": "lengths.unsqueeze(-1) - 1"},
    hint="The words stand at the positions 0 to length - 1, so the last word is at length - 1. Yours hides it.",
)
ex.mistake(
    "the lengths without a dimension for time",
    {".unsqueeze(-1)": ""},
    hint="Position i is then compared with the length of sentence i. The lengths need a dimension for time: "
    "`lengths.unsqueeze(-1)`.",
)
ex.mistake(
    "one leading dimension only",
    {"lengths.unsqueeze(-1)": "lengths[:, None]", "dim=-1": "dim=1"},
    hint="`lengths[:, None]` and `dim=1` mean time only if there is exactly one leading dimension. Count from the end: "
    "`lengths[..., None]` and `dim=-1`.",
)
SOFTMAX = f"torch.softmax({MASKED}, dim=-1)"
ex.mistake(
    "exp without subtracting the largest score",
    {f"return {SOFTMAX}": f"powers = torch.exp({MASKED})\n    return powers / powers.sum(dim=-1, keepdim=True)"},
    hint="exp(1000) is inf, and inf / inf is NaN. `torch.softmax` subtracts the largest score first.",
)
ex.mistake(
    "exp times the mask",
    {f"return {SOFTMAX}": "powers = scores.exp() * ~padding\n    return powers / powers.sum(dim=-1, keepdim=True)"},
    hint="0 times NaN is NaN: a padded score must be replaced *before* exp, by -inf. And exp(1000) is inf: "
    "`torch.softmax` subtracts the largest score first.",
)
ex.mistake(
    "the sum over the whole batch",
    {f"return {SOFTMAX}": f"powers = torch.exp({MASKED})\n    return powers / powers.sum()"},
    hint="`x.sum()` adds the whole batch, but each sentence has its own sum: `x.sum(dim=-1, keepdim=True)`. And "
    "exp(1000) is inf: `torch.softmax` does both for you.",
)
ex.mistake(
    "a softmax over the whole batch",
    {SOFTMAX: f"torch.softmax({MASKED}.flatten(), dim=0).view(scores.shape)"},
    hint="The weights of *each* sentence sum to 1, not those of the whole batch: `dim=-1`.",
)
ex.mistake(
    "always float32",
    {"scores.masked_fill": "scores.float().masked_fill"},
    hint="The result has the dtype of the scores: half precision stays half precision.",
)

# ---- context_vector ------------------------------------------------------------------------------------------

ex = Exercise(
    attention_translator.context_vector,
    points=1,
    minutes=5,
    hints=(
        "Each state is multiplied by its weight, and the results are added over the positions.",
        "`weights.unsqueeze(-1)` is (..., time, 1), so it multiplies every number of a state.",
        "`(weights.unsqueeze(-1) * states).sum(dim=-2)`.",
    ),
)

weights_and_states = ex.inputs(time=7, hidden=5)
three = torch.softmax(normal(3, 7), dim=-1), normal(3, 7, 5, seed=1)
one_hot = F.one_hot(torch.tensor([3, 0]), 7).float()

ex.cases(
    "three states that you can follow",
    case(torch.tensor([0.5, 0.25, 0.25]), torch.tensor([[2.0, 0.0], [0.0, 4.0], [4.0, 4.0]])).gives(
        torch.tensor([2.0, 2.0])
    ),
)
ex.cases(
    "a batch of 3, 7 positions, 5 hidden units",
    case(*three).gives(torch.stack([w @ h for w, h in zip(*three, strict=True)])),
)
ex.promises(weights_and_states, "leading", "sizes", "dtypes", "gradients", "device")
ex.cases(
    "all weight on one position gives its state",
    case(one_hot, three[1][:2]).gives(three[1][[0, 1], [3, 0]]).noted("weight 1 at positions 3 and 0"),
)

WEIGHTED = "(weights.unsqueeze(-1) * states)"
ex.mistake(
    "the plain mean of the states",
    {f"{WEIGHTED}.sum": "states.mean"},
    hint="The weights are not used. Multiply each state by its weight first.",
)
ex.mistake(
    "weighted states without their sum",
    {".sum(dim=-2)": ""},
    hint="Add the weighted states over the positions, `dim=-2`.",
)
ex.mistake(
    "the sum over the hidden units",
    {"dim=-2": "dim=-1"},
    hint="The context is as wide as a state: add over time, not over `hidden`.",
)
ex.mistake(
    "the sum over everything",
    {".sum(dim=-2)": ".sum()"},
    hint="`x.sum()` adds the whole tensor. Say which dimension to add: time, `dim=-2`.",
)
ex.mistake(
    "the sum over dimension 1",
    {"dim=-2": "dim=1"},
    hint="Dimension 1 is time only if there is exactly one leading dimension. Count from the end: `dim=-2`.",
)
ex.mistake(
    "only the state with the largest weight",
    {f"{WEIGHTED}.sum(dim=-2)": "states.take_along_dim(weights.argmax(dim=-1)[..., None, None], dim=-2).squeeze(-2)"},
    hint="That throws the other states away, and no gradient reaches the scores. Take the weighted sum of all.",
)
ex.mistake(
    "divided by the number of positions",
    {"sum": "mean"},
    hint="The weights sum to 1 already: add, and divide by nothing.",
)
ex.mistake(
    "divided by the sum of the weights",
    {"dim=-2)": "dim=-2) / weights.sum(dim=-1, keepdim=True)"},
    hint="A weighted sum is asked for, not a weighted mean: do not divide. Attention weights sum to 1 already.",
)
ex.mistake(
    "a softmax of the weights",
    {"weights.": "torch.softmax(weights, dim=-1)."},
    hint="The weights went through a softmax in `attention_weights`. Use them as they are.",
)
ex.mistake(
    "a dimension of size 1 is left",
    {"dim=-2": "dim=-2, keepdim=True"},
    hint="Yours is (..., 1, hidden). Take the dimension of 1 away: `.squeeze(-2)`, or a sum without `keepdim`.",
)
ex.mistake(
    "`weights @ states`",
    {f"{WEIGHTED}.sum(dim=-2)": "weights @ states"},
    hint="With a batch, `weights` is read as one matrix, and all its rows meet all sentences. Make each one a row of "
    "its own first: `weights.unsqueeze(-2)`.",
)
ex.mistake(
    "the weights along the hidden units",
    {"unsqueeze(-1)": "unsqueeze(-2)"},
    hint="Yours is (..., 1, time), so the weights stand along `hidden`. `unsqueeze(-1)` makes (..., time, 1).",
)
ex.mistake(
    "the weights without a dimension for the hidden units",
    {".unsqueeze(-1)": ""},
    hint="Each weight must meet all numbers of its state. For that the weights need a last dimension: "
    "`weights.unsqueeze(-1)`.",
)
ex.mistake(
    "the weights are cut off from the gradient",
    {"weights.": "weights.detach()."},
    hint="`detach`, `.data` and `.item()` cut the context off from the weights, and attention could not learn.",
)

# ---- decoder_step --------------------------------------------------------------------------------------------

ex = Exercise(
    attention_translator.decoder_step,
    points=3,
    minutes=15,
    returns=("logits", "new state", "weights"),
    hints=(
        "Four things are made one after the other: weights, context, new state, logits. Each needs the one before it. "
        "Which of your own two functions make the first two, and which of the given functions the others?",
        "`attention_weights(score(state, states), lengths)` gives the weights: the query comes first. "
        "`torch.cat([a, b], dim=-1)` puts two vectors side by side.",
        "Keep the old state until the cell has used it: attention asks with the old one, the output uses the new one.",
    ),
)


class Score(nn.Module):
    """Dot products, or, with a `size`, additive scores."""

    def __init__(self, hidden, size=0):
        super().__init__()
        shapes = ((hidden, size), (hidden, size), (size,)) if size else ()
        self.weights = nn.ParameterList(normal(*shape, seed=9 + i) / shape[0] ** 0.5 for i, shape in enumerate(shapes))

    def forward(self, query, states):
        note("asked of score", [query, states])
        return additive_scores(query, states, *self.weights) if len(self.weights) else alignment_scores(query, states)


class Layer(nn.Module):
    """A cell or an output of PyTorch's, with the same random weights every time, for any leading dimensions."""

    def __init__(self, kind, *sizes):
        super().__init__()
        self.layer = kind(*sizes)
        for seed, weights in enumerate(self.layer.parameters()):
            weights.data = normal(*weights.shape, seed=seed) / weights.shape[-1] ** 0.5

    def forward(self, *inputs):
        note(f"asked of {type(self.layer).__name__}", list(inputs))
        result = self.layer(*(x.reshape(-1, x.shape[-1]) for x in inputs))
        return result.reshape(*inputs[0].shape[:-1], -1)


class AnyWidth(nn.Module):
    """A cell that takes inputs of any width: what an answer does wrong before it shows in values, not in errors."""

    def forward(self, x, state):
        note("asked of AnyWidth", [x, state])
        return torch.tanh(state + x.mean(dim=-1, keepdim=True))


class Beside(nn.Module):
    """An output that gives back what it is asked, as lesson 02's decoder uses one while it trains."""

    def forward(self, z):
        note("asked of output", [z])
        return z


def step(*leading, embedding=5, hidden=6, time=7, vocabulary=8, additive=False, cell=nn.RNNCell, output=True):
    return case(
        *(normal(*leading, embedding), normal(*leading, hidden, seed=1), normal(*leading, time, hidden, seed=2)),
        random_lengths(leading, time),
        Score(hidden, 9 if additive else 0),
        Layer(cell, embedding + hidden, hidden) if cell else AnyWidth(),
        Layer(nn.Linear, 2 * hidden, vocabulary) if output else Beside(),
    )


ex.cases("a batch of 2", step(2))
ex.promises(step, "leading", "sizes", "dtypes", "gradients", "device")
ex.cases("as wide an embedding as a state", step(2, embedding=6))
ex.cases(
    "additive scores, a GRU cell, and an output that changes nothing",
    step(2, additive=True).noted("additive scores"),
    step(2, cell=nn.GRUCell).noted("a GRU cell"),
    step(2, output=False).noted("the output gives back what it gets"),
    step(2, 3, additive=True, cell=nn.GRUCell).noted("additive scores and a GRU cell"),
)
ex.cases(
    "a cell that takes any width, and a batch of one",
    step(1, 1, embedding=6, cell=None, output=False).noted("the output gives back what it gets"),
)
ex.gradients(
    "gradients with additive scores and a GRU cell",
    step(2, additive=True, cell=nn.GRUCell).to(torch.float64),
)


@ex.check("attention asks with the old state")
def _(answer, rng):
    previous, state, states, lengths, score, *functions = step(2).args
    asked = []

    def remember(query, states):
        asked.append(query)
        return score(query, states)

    answer(previous, state, states, lengths, remember, *functions)
    expect(len(asked), 1, "the number of calls of `score`")
    expect(asked[0], state, "what `score` was asked with")


@ex.check("three steps in a row, each from the state of the last")
def _(answer, rng):
    previous, state, states, lengths, *functions = step(2).args
    mine = theirs = state
    for number in range(3):
        mine = answer(previous, mine, states, lengths, *functions)[1]
        theirs = attention_translator.decoder_step(previous, theirs, states, lengths, *functions)[1]
        expect(mine, theirs, f"the state after step {number + 1}")


LOGITS = "output(torch.cat([state, context], dim=-1))"
ex.mistake(
    "attention asks with a new state",
    {"score(state,": "score(cell(torch.cat([previous, torch.zeros_like(state)], dim=-1), state),"},
    hint="In this order attention comes first: it asks with the state from before, and the context makes the new one.",
)
ex.mistake(
    "the state is never passed on",
    {"state = cell": "new = cell", "[state, context]": "[new, context]"},
    hint="Return the new state: the next step must start from it.",
)
ex.mistake(
    "the context is not used",
    {"context_vector(weights, states)": "torch.zeros_like(state)"},
    hint="The decoder never looks at the source. Give the context to cell and output.",
)
ex.mistake(
    "the inputs of the cell exchanged",
    {"cell(torch.cat([previous, context], dim=-1), state)": "cell(state, torch.cat([previous, context], dim=-1))"},
    hint="`cell(x, state)` wants the input first, then the old state.",
)
ex.mistake(
    "the cell reads the context only",
    {"torch.cat([previous, context], dim=-1)": "context"},
    hint="The cell reads two things side by side: the word before, and the context.",
)
ex.mistake(
    "context and word in the wrong order",
    {"[previous, context]": "[context, previous]"},
    hint="The cell was made for [previous, context], in this order.",
)
ex.mistake(
    "context and new state in the wrong order",
    {"[state, context]": "[context, state]"},
    hint="The output was made for [new state, context], in this order.",
)
ex.mistake(
    "padding is not masked",
    {"attention_weights(score(state, states), lengths)": "torch.softmax(score(state, states), dim=-1)"},
    hint="`attention_weights` needs the lengths of the sentences.",
)
ex.mistake(
    "the word is written from the old state",
    {"state = cell": "new = cell", "state, weights": "new, weights"},
    hint="The output reads the *new* state and the context.",
)
ex.mistake(
    "the context of the wrong step",
    {
        "    return": "    weights = attention_weights(score(state, states), lengths)\n"
        "    context = context_vector(weights, states)\n    return"
    },
    hint="The output got a context made with the new state, one step too late. Make it once, with the old state.",
)
ex.mistake(
    "the output reads the new state only",
    {"torch.cat([state, context], dim=-1)": "state"},
    hint="The output reads two things side by side: the new state, and the context.",
)
ex.mistake(
    "the cell reads the word only",
    {"torch.cat([previous, context], dim=-1)": "previous"},
    hint="The cell reads two things side by side: the word before, and the context.",
)
ex.mistake(
    "the score is always a dot product",
    {"score(": "alignment_scores("},
    hint="Call the `score` that is passed in: it need not be the dot product.",
)
ex.mistake(
    "`torch.cat` without `dim=-1`",
    {"[previous, context], dim=-1": "[previous, context]", "[state, context], dim=-1": "[state, context]"},
    hint="Without `dim=-1`, `torch.cat` joins along the first dimension: the sentences of the batch under each other.",
)
ex.mistake(
    "`torch.cat` along dimension 1",
    {
        "[previous, context], dim=-1": "[previous, context], dim=1",
        "[state, context], dim=-1": "[state, context], dim=1",
    },
    hint="Dimension 1 is the last one only if there is exactly one leading dimension. Count from the end: `dim=-1`.",
)
ex.mistake(
    "new state and logits exchanged",
    {f"{LOGITS}, state": f"state, {LOGITS}"},
    hint="The order of the results is: logits, new state, weights.",
)
ex.mistake(
    "new state and weights exchanged",
    {"state, weights": "weights, state"},
    hint="The order of the results is: logits, new state, weights.",
)
ex.mistake(
    "the context instead of the weights",
    {"state, weights": "state, context"},
    hint="The third result is the attention weights, one for each position of the source, not the context.",
)
ex.mistake(
    "the scores instead of the weights",
    {"score(state, states)": "(scores := score(state, states))", "state, weights": "state, scores"},
    hint="The third result is the weights, after the softmax and without padding, not the scores.",
)
ex.mistake(
    "the returned weights count the padding",
    {
        "score(state, states)": "(scores := score(state, states))",
        "state, weights": "state, torch.softmax(scores, dim=-1)",
    },
    hint="Return the weights that have made the context: those of `attention_weights`, which are 0 at padding.",
)
ex.mistake(
    "probabilities instead of the logits",
    {LOGITS: f"torch.softmax({LOGITS}, dim=-1)"},
    hint="The logits are what `output` gives. The softmax over the words comes later, in the loss.",
)
ex.mistake(
    "the context is cut off from the gradient",
    {"context_vector(weights,": "context_vector(weights.detach(),"},
    hint="`detach` on the weights means that attention never learns from the words that are written.",
)
ex.mistake(
    "the old state is cut off from the gradient",
    {"dim=-1), state)": "dim=-1), state.detach())"},
    hint="`detach` on the state means that a step cannot learn from the words after it.",
)
ex.mistake(
    "the returned weights are cut off from the gradient",
    {"state, weights": "state, weights.detach()"},
    hint="Return the weights as they are. Whoever draws them can detach them.",
)

# ---- alignment_error_rate ------------------------------------------------------------------------------------

ex = Exercise(
    attention_translator.alignment_error_rate,
    points=1,
    minutes=5,
    hints=(
        "`a & b` is what two sets have in common, `len(a)` counts a set.",
        "Four counts: |A and S|, |A and P|, |A|, |S|. Where |A| + |S| is 0, there is nothing to divide by.",
        "Where A and S are both empty nothing is wrong: return 0.0.",
    ),
)

SURE = {(0, 0), (1, 2), (2, 1)}
POSSIBLE = SURE | {(3, 1), (1, 1)}
DIAGONAL = {(i, i) for i in range(9)}


def rate(links, sure=SURE, possible=POSSIBLE):
    return case(links, sure, possible)


ex.cases("the gold links have no error", rate(SURE).gives(0.0).noted("A = S"))
ex.cases(
    "a possible link is no error, a missing sure one is",
    rate(SURE | {(3, 1)}).gives(0.0).noted("A = S and one possible link"),
    rate({(0, 0), (1, 2)}).gives(1 - 4 / 5).noted("A lacks one sure link"),
)
ex.cases(
    "wrong links, and links the wrong way round",
    rate({(0, 0), (3, 3)}).gives(1 - 2 / 5).noted("A has one right and one wrong link"),
    rate({(0, 3), (1, 3)}, {(3, 0), (3, 1)}, {(3, 0), (3, 1)}).gives(1.0).noted("source and target exchanged"),
    rate({(3, 1)}).gives(1 - 1 / 4).noted("A has one possible link only"),
)
ex.cases(
    "many links",
    rate(DIAGONAL, DIAGONAL - {(4, 4)}, DIAGONAL | SURE).gives(1 - 17 / 17),
    rate(DIAGONAL, SURE | {(4, 4)}, POSSIBLE | {(4, 4), (5, 5), (8, 8)}).gives(1 - 7 / 13),
    rate(POSSIBLE | {(7, 0)}, DIAGONAL, DIAGONAL | POSSIBLE).gives(1 - 7 / 15),
)
ex.cases(
    "nothing asked and nothing found; frozen sets",
    rate(set(), set(), set()).gives(0.0).noted("three empty sets"),
    rate(set(), set(), {(1, 1)}).gives(0.0).noted("A and S are empty"),
    rate(set()).gives(1.0).noted("A is empty"),
    rate(frozenset({(0, 0)}), frozenset(SURE), frozenset(POSSIBLE)).gives(1 - 2 / 4).noted("frozen sets"),
)
ex.cases(
    "no sure links, but links",
    rate({(0, 0)}, set(), {(1, 1)}).gives(1.0),
    rate({(0, 0), (1, 1), (2, 2)}, set(), {(1, 1)}).gives(1 - 1 / 3),
)

HITS = "(len(links & sure) + len(links & possible))"
RATE = f"1 - {HITS} / (len(links) + len(sure))"
ex.mistake(
    "the share that is right, not the error",
    {"1 - ": ""},
    hint="The error rate is 1 minus this fraction.",
)
ex.mistake(
    "possible links do not count",
    {"len(links & possible)": "len(links & sure)"},
    hint="A link in P is no error: the second term is |A and P|.",
)
ex.mistake(
    "sure links count once only",
    {"len(links & possible)": "len(links & (possible - sure))"},
    hint="A link in S is also in P, so it counts in both terms: add |A and S| and |A and P|.",
)
ex.mistake(
    "divided by |A| + |P|",
    {"/ (len(links) + len(sure))": "/ (len(links) + len(possible))"},
    hint="The second part of the divisor is |S|: only sure links must be found.",
)
ex.mistake(
    "divided by the union",
    {"/ (len(links) + len(sure))": "/ len(links | sure)"},
    hint="In a union, links of both sets count once. The divisor is |A| + |S|.",
)
ex.mistake(
    "missing links do not count",
    lambda links, sure, possible: 1 - len(links & possible) / len(links) if links else 0.0,
    hint="This looks only at the links of A. A sure link that A lacks is an error too.",
)
ex.mistake(
    "wrong links do not count",
    lambda links, sure, possible: 1 - len(links & sure) / len(sure) if sure else 0.0,
    hint="This looks only at the links of S. A link of A that is not in P is an error too.",
)
ex.mistake(
    "1 minus the F-measure",
    lambda links, sure, possible: (
        1 - 2 / (len(links) / len(links & possible) + len(sure) / len(links & sure))
        if links & sure
        else 1.0
        if links or sure
        else 0.0
    ),
    hint="The two shares are not averaged. Add the two counts first, then divide once, by |A| + |S|.",
)
ex.mistake(
    "parentheses are missing around the two counts",
    {HITS: HITS[1:-1]},
    hint="`/` is computed before `+`, and `1 - a + b` adds b. Put parentheses around the two counts.",
)
ex.mistake(
    "parentheses are missing around the divisor",
    {"/ (len(links) + len(sure))": "/ len(links) + len(sure)"},
    hint="`/` is computed before `+`: put parentheses around |A| + |S|.",
)
ex.mistake(
    "1 where nothing is asked and nothing is found",
    {"return 0.0": "return 1.0"},
    hint="Where A and S are both empty nothing is wrong: the rate is 0.0. (A small number in the divisor makes it 1.)",
)
ex.mistake(
    "0 where S is empty",
    {"len(links) + len(sure) == 0": "not sure"},
    hint="Without sure links, a link of A that is not in P is still wrong. Only where A is empty too the rate is 0.0.",
)
ex.mistake(
    "0 where A is empty",
    {"len(links) + len(sure) == 0": "not links"},
    hint="Where A is empty, all sure links are missing. Only where S is empty too the rate is 0.0.",
)
ex.mistake(
    "0 where one of the two is empty",
    {"len(links) + len(sure) == 0": "not links or not sure"},
    hint="The rate is 0.0 where A *and* S are empty. Where only one of them is, there can be errors.",
)
ex.mistake(
    "rounded",
    {RATE: f"round({RATE}, 2)"},
    hint="Return all digits. Rounding is for the text that shows the number.",
)
ex.mistake(
    "percent",
    {RATE: f"100 * ({RATE})"},
    hint="The rate is a number from 0 to 1, not a percentage.",
)
