"""Lesson 05's exercises: the two masks, a softmax that obeys them, and a probe that finds leaks of the future."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from course_utils.exercises import Exercise, Mismatch, case, expect, normal, note
from course_utils.exercises.pretend_device import PretendDevice
from course_utils.lessons import masking
from course_utils.lessons.masking import masked_softmax, padding_mask

T, F = True, False


def mask(*rows):
    return torch.tensor([[cell == "1" for cell in row] for row in rows])


# ---- causal_mask ---------------------------------------------------------------------------------------------

ex = Exercise(
    masking.causal_mask,
    points=2,
    minutes=10,
    hints=(
        "Give every key its position, 0, 1, 2, … Which positions do the queries have, if they are the last ones?",
        "The last query has position n_keys - 1, the first one n_keys - n_queries. A query may look at a key if the "
        "key's position is not larger than its own.",
        "`torch.arange(n_keys) <= torch.arange(n_keys - n_queries, n_keys).unsqueeze(1)` compares every query with "
        "every key. Give both calls of `torch.arange` the argument `device=device`.",
    ),
)

ex.cases("three tokens that you can follow", case(3, 3).gives(mask("100", "110", "111")))
ex.cases("one token, and six tokens", *(case(n, n).gives(torch.ones(n, n).tril().bool()) for n in (1, 6)))
ex.cases(
    "the queries are the last ones when there are more keys",
    case(2, 5).gives(mask("11110", "11111")),
    case(1, 4).gives(mask("1111")),
    case(4, 7).gives(torch.ones(7, 7).tril().bool()[3:]).noted("the last 4 rows of causal_mask(7, 7)"),
    case(2, 3001).gives(torch.ones(2, 3001).tril(2999).bool()).noted("positions too large for float16"),
)
ex.cases(
    "the first queries see nothing when there are more queries than keys",
    case(4, 2).gives(mask("00", "00", "10", "11")),
)
ex.cases("on a device that is named", *(case(2, 3, device=named) for named in (None, "cpu", torch.device("cpu"))))


@ex.check("it would work on a GPU too: the mask is made on `device`")
def _(answer, rng):
    for named in ("cuda", torch.device("cuda", 0)):
        with PretendDevice() as gpu:
            made = answer(2, 3, device=named)
            left_behind = bool(gpu.strangers(made))
        where = f"n_queries 2, n_keys 3, device {named!r}"
        note("where the mask is", "on the CPU" if left_behind else "on the GPU")
        if left_behind:
            raise Mismatch(None, None, f"{where}\nyour mask is on the CPU: make it with `device=device`")
        expect(made, mask("110", "111"), where)


ex.mistake(
    "the mask upside down",
    {"<=": ">"},
    hint="True means *may attend*. Yours is True where a query may not look.",
)
ex.mistake(
    "aligned to the top left",
    {"n_keys - n_queries, n_keys": "n_queries"},
    hint="With 2 queries and 5 keys the queries are tokens 3 and 4, not 0 and 1: the *last* query sees all keys. "
    "`tril` has an argument `diagonal` that shifts the edge.",
)
ex.mistake("no token sees itself", {"<=": "<"}, hint="A token may look at itself: <= where you have <.")
ex.mistake(
    "one token of the future",
    {"<=": "- 1 <="},
    hint="Each query sees one key too many: its own position is the last one.",
)
ex.mistake(
    "queries see only what comes after them",
    {"<=": ">="},
    hint="Row = query, column = key. A query looks back, so True stands on the diagonal and to the *left* of it.",
)
ex.mistake(
    "queries and keys exchanged",
    lambda n_queries, n_keys, device=None: masking.causal_mask(n_keys, n_queries, device),
    hint="The shape is (queries, keys): one row for each query.",
)
ex.mistake(
    "the mask lies on its side",
    lambda n_queries, n_keys, device=None: masking.causal_mask(n_queries, n_keys, device).T,
    hint="One row for each query, one column for each key: yours has a row for each key. Transpose it.",
)
ex.mistake(
    "shifted the wrong way",
    lambda n_queries, n_keys, device=None: torch.ones(n_queries, n_keys, device=device).tril(n_queries - n_keys).bool(),
    hint="With more keys than queries the queries are the last tokens, so they see *more* than the lower triangle: the "
    "edge moves by n_keys - n_queries.",
)
ex.mistake(
    "aligned to the top left where there are more queries than keys",
    {"n_keys - n_queries, n_keys": "max(0, n_keys - n_queries), max(0, n_keys - n_queries) + n_queries"},
    hint="n_keys - n_queries may be negative, and should stay so: then the first queries see nothing.",
)
ex.mistake(
    "ones and zeros",
    {"keys <= queries.unsqueeze(1)": "(keys <= queries.unsqueeze(1)).float()"},
    hint="The values are right, but a mask is boolean: compare, or add `.bool()`.",
)
ex.mistake(
    "numbers to add to the scores",
    {"keys <= queries.unsqueeze(1)": "torch.where(keys <= queries.unsqueeze(1), 0.0, -torch.inf)"},
    hint="0 and -inf are what such a mask adds to the scores. This course keeps masks boolean: True = may attend.",
)

ex.mistake(
    "`device` is not used",
    {"n_keys - n_queries, n_keys, device=device": "n_keys - n_queries, n_keys", "(n_keys, device=device)": "(n_keys)"},
    hint="All values are right, but your mask is always on the CPU. Functions that make a tensor, such as "
    "`torch.arange`, take `device=device`.",
)

# ---- padding_mask --------------------------------------------------------------------------------------------

ex = Exercise(
    masking.padding_mask,
    points=1,
    minutes=5,
    hints=(
        "A key is a real token if its position is smaller than the length of its sequence.",
        "`torch.arange(n_keys)` are the positions of the keys. `lengths` needs two more dimensions at its end: one for "
        "the queries, one for the keys.",
        "`torch.arange(n_keys, device=lengths.device) < lengths[..., None, None]`.",
    ),
)


def sequences(*leading, n_keys=5):
    lengths = torch.randint(n_keys, leading, generator=torch.Generator().manual_seed(1))
    return case(lengths, n_keys)


ex.cases("two sequences that you can follow", case(torch.tensor([3, 1]), 4).gives(mask("1110", "1000")[:, None]))
ex.cases(
    "nothing but padding, and no padding at all",
    case(torch.tensor([0, 5, 2]), 5).gives(mask("00000", "11111", "11000")[:, None]),
    case(torch.tensor([0, 1]), 1).gives(mask("0", "1")[:, None]),
)
ex.cases("one sequence without a batch", case(torch.tensor(2), 3).gives(mask("110")))
ex.cases("positions too large for float16", case(torch.tensor([2999, 3000, 3001]), 3001))
ex.promises(sequences, "leading", "sizes", "device")


@ex.check("fits scores of shape (batch, queries, keys)")
def _(answer, rng):
    hidden = answer(torch.tensor([2, 4, 1]), 4)
    expect(hidden, padding_mask(torch.tensor([2, 4, 1]), 4), "lengths [2, 4, 1], n_keys 4")
    visible = torch.zeros(3, 5, 4).masked_fill(hidden, 1.0).sum(dim=(1, 2))
    expect(visible, torch.tensor([10.0, 20.0, 5.0]), "what 5 queries see together")


ex.mistake(
    "the mask upside down",
    {"keys <": "keys >="},
    hint="True means *may attend*: True at real tokens, False at padding.",
)
ex.mistake(
    "one position too many",
    {"keys <": "keys <="},
    hint="A sequence of length 3 has the positions 0, 1 and 2: < instead of <=.",
)
ex.mistake(
    "no dimension for the queries",
    {"None, None": "None"},
    hint="(batch, keys) would be read as (queries, keys). The mask needs a 1 between them: (batch, 1, keys).",
)
ex.mistake(
    "on the axis of the queries",
    {"return keys < lengths[..., None, None]": "return keys[:, None] < lengths[..., None, None]"},
    hint="(batch, n_keys, 1) hides rows: it takes queries away. Padding must be hidden from all queries, as keys: "
    "the last dimension.",
)
ex.mistake(
    "padding at the front",
    {"keys <": "keys.flip(0) <"},
    hint="The real tokens stand first in each row, and the padding after them.",
)
ex.mistake(
    "a full row for each query",
    {"return keys <": "return keys.repeat(n_keys, 1) <"},
    hint="The values are right, but all rows are the same: keep one, of shape (batch, 1, n_keys). There may be another "
    "number of queries than of keys.",
)
ex.mistake(
    "only for shape (batch,)",
    {"lengths[..., None, None]": "lengths.reshape(-1, 1, 1)"},
    hint="`lengths` may have any number of dimensions: `lengths[..., None, None]`.",
)

# ---- masked_softmax ------------------------------------------------------------------------------------------

ex = Exercise(
    masking.masked_softmax,
    points=3,
    minutes=15,
    hints=(
        "Three steps: give the hidden scores a value that softmax turns into 0; take the softmax; then think of rows "
        "in which everything is hidden.",
        "`scores.masked_fill(~mask, -torch.inf)`. A row in which nothing is visible, "
        "`~mask.any(dim=-1, keepdim=True)`, must not reach the softmax as it is: fill it with some number.",
        "Fill with -inf where the mask is False, fill rows without any True with 0, take the softmax over the last "
        "dimension, and set what the mask hides to 0 in the result.",
    ),
)


def row_by_row(scores, visible):
    weights = torch.zeros_like(scores)
    for index in range(scores[..., 0].numel()):
        row, seen = weights.flatten(0, -2)[index], visible.flatten(0, -2)[index]
        row[seen] = torch.softmax(scores.flatten(0, -2)[index][seen], dim=-1)
    return weights


def scores_and_mask(*leading, queries=5, keys=7):
    """Every query sees at least one key."""
    visible = normal(*leading, queries, keys, seed=1) < 0.3
    visible[..., keys // 2] |= ~visible.any(dim=-1)
    return case(normal(*leading, queries, keys), visible)


scores, visible = scores_and_mask(3).args
gaps = visible.clone()
gaps[0, 1], gaps[1, 4] = F, F
rubbish = {value: scores.masked_fill(~visible, value) for value in (5000.0, torch.nan, torch.inf)}
nothing = mask("0000000").expand(5, 7)

ex.cases(
    "three scores that you can follow",
    case(torch.tensor([[0.0, 0.693147, 5.0]]), mask("110")).gives(torch.tensor([[1 / 3, 2 / 3, 0]])),
)
ex.cases(
    "a batch of 3, 5 queries, 7 keys: each row is a softmax over what the mask shows",
    case(scores, visible).gives(row_by_row(scores, visible)),
)
ex.promises(scores_and_mask, "leading", "sizes", "dtypes", "gradients", "device")
ex.cases(
    "masks of shape (queries, keys) and (batch, 1, keys)",
    case(scores, visible[0]),
    case(scores, visible[:, :1]),
    case(scores, visible[:1, :, :1] | T),
)


@ex.check("hidden scores of 5000, NaN and infinity do not matter; hidden weights are exactly 0")
def _(answer, rng):
    for value, dirty in rubbish.items():
        where = f"every hidden score is {value}"
        weights = answer(dirty.clone(), visible.clone())
        expect(weights, masked_softmax(scores, visible), where)
        expect(bool((weights[~visible] == 0).all()), True, f"{where}: hidden weights are exactly 0")


ex.cases(
    "visible scores may be very small, and very large",
    case(torch.tensor([[-20000.0, -20001.0, 0.0]]), mask("110")).gives(torch.tensor([[0.731059, 0.268941, 0.0]])),
    case(torch.tensor([[1e30, -1e30, 1e35], [-1e38, -1e38, 0.0]]), mask("110", "110")),
    case(torch.tensor([[-60000.0, -60032.0, 0.0]]), mask("110")).to(torch.float16),
)
ex.cases(
    "a query that may attend to nothing gets zeros",
    case(scores, gaps).noted("rows [0, 1] and [1, 4] of the mask are all False"),
    case(scores, nothing).gives(torch.zeros(3, 5, 7)).noted("the mask is False everywhere"),
)
ex.gradients(
    "gradients: 0 for hidden scores, whatever they are, and never NaN",
    *(case(scores, gaps).to(torch.float64).noted("with rows that are all False") for _ in "1"),
    *(case(dirty, visible).noted(f"every hidden score is {value}") for value, dirty in rubbish.items()),
    case(rubbish[torch.nan].masked_fill(~gaps, torch.nan), gaps).noted("hidden scores are NaN, with empty rows"),
)


@ex.check("no gradient at all reaches a hidden score", kind="gradients")
def _(answer, rng):
    leaf = scores.clone().requires_grad_()
    weights = answer(leaf, gaps.clone())
    expect(weights.detach(), masked_softmax(scores, gaps), "the weights")
    (gradient,) = torch.autograd.grad(weights.square().sum(), leaf)
    expect(bool((gradient[~gaps] == 0).all()), True, "the gradient of hidden scores is exactly 0")


ex.mistake(
    "the mask upside down",
    lambda scores, mask: masked_softmax(scores, ~mask),
    hint="True means *may attend*. `masked_fill` fills where its mask is True: use ~mask.",
)
ex.mistake(
    "masked after the softmax",
    lambda scores, mask: torch.softmax(scores, dim=-1).masked_fill(~mask, 0),
    hint="The hidden scores have taken their share already, so the visible weights do not sum to 1. Mask before it.",
)
ex.mistake(
    "masked after the softmax, then divided by the sum",
    lambda scores, mask: torch.nn.functional.normalize(torch.softmax(scores, -1).masked_fill(~mask, 0), 1, -1, 0),
    hint="On paper this is right. But one large hidden score takes all the weight, and what is left is 0 / 0. "
    "Hide the scores before the softmax.",
)
ex.mistake(
    "hidden scores set to 0",
    lambda scores, mask: torch.softmax(scores.masked_fill(~mask, 0), dim=-1),
    hint="exp(0) is 1, so a score of 0 still gets weight. exp(-inf) is 0.",
)
ex.mistake(
    "-1e9 instead of -inf",
    lambda scores, mask: torch.softmax(scores.masked_fill(~mask, -1e9), dim=-1),
    hint="-1e9 does not exist in float16 and raises there. And where everything is hidden, all scores are equal: the "
    "query then looks at everything that it must not see.",
)
ex.mistake(
    "equal weights where everything is hidden",
    lambda scores, mask: torch.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), dim=-1),
    hint="The most negative number exists in every dtype, but where everything is hidden all scores are equal, with it "
    "or with any other number, and the query looks at everything that it must not see. Such rows need zeros.",
)
ex.mistake(
    "a number instead of -inf",
    lambda scores, mask: torch.softmax(scores.masked_fill(~mask, -100), dim=-1) * mask,
    hint="A hidden score must be smaller than *every* visible one, and visible scores may be very small too: only -inf "
    "is smaller than all.",
)
ex.mistake(
    "the mask times -inf, added",
    lambda scores, mask: torch.softmax(scores + ~mask * -torch.inf, dim=-1),
    hint="0 times infinity is NaN, so the visible scores are lost too. `masked_fill` replaces only what is hidden.",
)
ex.mistake(
    "-inf added to the scores",
    lambda scores, mask: torch.where(
        mask.any(dim=-1, keepdim=True), torch.softmax(scores + torch.where(mask, 0, -torch.inf).to(scores), dim=-1), 0
    ),
    hint="A hidden score of inf or NaN becomes NaN when -inf is added to it. `masked_fill` replaces a score, whatever "
    "it was.",
)
ex.mistake(
    "`any` without `keepdim`",
    {"mask.any(dim=-1, keepdim=True)": "mask.any(dim=-1)", ".masked_fill(~mask, 0)": ""},
    hint="`mask.any(dim=-1)` has shape (…, queries), and is then read as if it were a row of keys. `keepdim=True` "
    "makes it (…, queries, 1).",
)
ex.mistake(
    "a large hidden score takes all the weight",
    lambda scores, mask: (
        lambda powers: powers / powers.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny)
    )((scores - scores.amax(dim=-1, keepdim=True)).exp() * mask),
    hint="On paper this is right. But a hidden score may be so large that nothing is left for the visible ones. Hide "
    "the scores *before* the softmax, and before you look for the largest.",
)
ex.mistake(
    "`exp` becomes infinite",
    lambda scores, mask: (lambda powers: powers / powers.sum(-1, keepdim=True).clamp(min=1e-30))(scores.exp() * mask),
    hint="`exp` of a large score is infinity, and of a very small one 0. `torch.softmax` subtracts the largest score "
    "first. Hide with -inf, then call it.",
)
ex.mistake(
    "`exp` of the visible scores becomes infinite",
    lambda scores, mask: (lambda powers: powers / powers.sum(-1, keepdim=True).clamp(min=1e-30))(
        scores.masked_fill(~mask, -torch.inf).exp()
    ),
    hint="`exp` of a large score is infinity, and of a very small one 0. `torch.softmax` subtracts the largest score "
    "first: call it on the scores that you have filled with -inf.",
)
ex.mistake(
    "a large negative number added",
    lambda scores, mask: torch.softmax(scores + ~mask * -1e4, dim=-1),
    hint="A hidden score of 5000, infinity or NaN stays too large, or NaN, when a number is added to it. `masked_fill` "
    "replaces a score, whatever it was; fill with -inf, and care for rows in which everything is hidden.",
)
ex.mistake(
    "the softmax over dimension 1",
    {"torch.softmax(scores, dim=-1)": "torch.softmax(scores, dim=1)"},
    hint="With leading dimensions, dimension 1 is not that of the keys. The keys are the last one: dim=-1.",
)
ex.mistake(
    "NaN where everything is hidden",
    lambda scores, mask: torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=-1),
    hint="A row of nothing but -inf gives 0 / 0. Find such rows with `~mask.any(dim=-1, keepdim=True)`.",
)
ex.mistake(
    "-inf added to the scores, NaN replaced after the softmax",
    lambda scores, mask: torch.softmax(scores + torch.where(mask, 0, -torch.inf).to(scores), dim=-1).nan_to_num(0),
    hint="A hidden score of inf or NaN becomes NaN when -inf is added to it, and so does the gradient of a row of "
    "nothing but -inf. `masked_fill` replaces a score, whatever it was; and such a row needs a number *before* "
    "the softmax.",
)
ex.mistake(
    "softmax over the queries",
    lambda scores, mask: masked_softmax(scores.mT, mask.expand(scores.shape).mT).mT,
    hint="Each *query* shares out a weight of 1 over the keys: the last dimension.",
)
ex.mistake(
    "always float32",
    lambda scores, mask: masked_softmax(scores.float(), mask),
    hint="The result has the dtype of the scores: half precision stays half precision.",
)

# ---- leaks_future --------------------------------------------------------------------------------------------

ex = Exercise(
    masking.leaks_future,
    points=3,
    seconds=20,
    minutes=20,
    hints=(
        "Three loops in one another: for both modes, for every time t, compare the outputs before t with and without "
        "a change of the inputs from t on. Adding one to every future input is no such change: token ids then become "
        "larger than the model knows. `other_inputs` gives inputs that are allowed.",
        "Write an inner function that runs a copy of the model (`copy.deepcopy(model).train(training)`) with the same "
        "seed each time. `with torch.no_grad(), torch.random.fork_rng():` puts the random state back afterwards.",
        "`torch.cat([inputs[:, :t], others[:, t:]], dim=1)` keeps the past. Compare `[:, :t]` of both outputs with "
        "`torch.equal`, for t from 1 to the last position.",
    ),
)


class Model(nn.Module):
    """A model made of a function of (its own module, inputs). It notes what it is asked."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor], inputs: Tensor, **parts: nn.Module) -> None:
        super().__init__()
        self.function, self.inputs = function, inputs
        for name, part in parts.items():
            self.add_module(name, part)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        changed = (
            (x != self.inputs).reshape(*x.shape[:2], -1).any(dim=-1).any(dim=0)
            if x.shape == self.inputs.shape
            else x[0]
        )
        note("asked", (self.training, str(changed.tolist())))
        note("random state", int(torch.random.get_rng_state().sum()))
        self.calls += 1
        return self.function(self, x)


NUMBERS = normal(2, 5, 3)
DOUBLE = nn.Linear(3, 4).double()


def honest(words, function, inputs=NUMBERS, **parts):
    return case(Model(function, inputs, **parts), inputs).gives(F).noted(words)


def leaky(words, function, inputs=NUMBERS, **parts):
    return case(Model(function, inputs, **parts), inputs).gives(T).noted(words)


def jumps(later, earlier):
    """Of input `later` to output `earlier`, on top of a running sum."""
    return lambda m, x: x.cumsum(1).index_add(1, torch.tensor([earlier]), x[:, [later]])


def plus_next(share):
    """Each output is between 2 and 4, and gets this share of the next input."""
    return lambda m, x: 3 + x.tanh() + share * torch.cat([x[:, 1:], x[:, :1] * 0], dim=1)


def nan_when(training):
    return lambda m, x: x * torch.nan if m.training is training else x


def leaks_when(training):
    return lambda m, x: x.flip(1).cumsum(1) if m.training is training else x.cumsum(1)


def together(m, x):
    """Output 0 notices when all later inputs are others, not when some are."""
    return x.cumsum(dim=1) + (x[:, 1:] != m.inputs[:, 1:]).all().float() * torch.eye(x.shape[1])[0][:, None]


def undisturbed(m, x):
    """Output 0 notices the last input, but only where input 1 is what it was."""
    seen = (x[:, 1] == m.inputs[:, 1]).all() & (x[:, -1] != m.inputs[:, -1]).any()
    return x.cumsum(dim=1) + seen.float() * torch.eye(x.shape[1])[0][:, None]


def second_only(m, x):
    return torch.stack([x[0].cumsum(dim=0), x[1].flip(0).cumsum(dim=0)])


ex.cases(
    "a running sum does not look ahead; the mean of all positions does",
    honest("each output is the sum of the inputs so far", lambda m, x: x.cumsum(dim=1)),
    leaky("minus the mean of all positions", lambda m, x: x - x.mean(dim=1, keepdim=True)),
    leaky("the sum of all inputs still to come", lambda m, x: x.flip(1).cumsum(dim=1).sum(-1)),
    honest("each output is the input before", lambda m, x: x.roll(1, dims=1) * (torch.arange(5)[:, None] > 0)),
    honest("one position, so there is no future", lambda m, x: x.cumsum(1).sum(-1), normal(2, 1, 3)),
)
ex.cases(
    "a leak from one place to one place is enough",
    *(leaky(f"output {i} also uses input {j}", jumps(j, i)) for j, i in ((4, 3), (4, 0), (1, 0), (3, 2))),
    honest("output 2 uses input 2 twice", jumps(2, 2)),
    leaky("the last wraps round", lambda m, x: x + x.roll(1, 1).cumsum(1) * (x[:, :1] * 0 + 1)),
)
ex.cases(
    "a leak in one sequence of the batch is enough, and one that needs all later inputs",
    leaky("only the second sequence looks ahead", second_only),
    leaky("output 0 notices when all later inputs change", together),
    leaky("output 0 notices when only the last input changes", undisturbed),
    leaky("all inputs are 0, the sum of all still to come", lambda m, x: x.flip(1).cumsum(dim=1), NUMBERS * 0),
    leaky("one number a position, the sum of all", lambda m, x: x + x.sum(1, keepdim=True), normal(1, 2, 1)),
)
ex.cases(
    "layers that do the same at every position do not look ahead",
    honest("a linear layer", lambda m, x: m.layer(x), normal(2, 7, 33), layer=nn.Linear(33, 65)),
    honest("a linear layer of one number", lambda m, x: m.layer(x), normal(2, 4, 1), layer=nn.Linear(1, 6)),
    honest("a GRU", lambda m, x: m.layer(x)[0], layer=nn.GRU(3, 4, batch_first=True)),
    leaky("a GRU in both directions", lambda m, x: m.layer(x)[0], layer=nn.GRU(3, 4, batch_first=T, bidirectional=T)),
)


@ex.check("a leak in one of the two modes is enough, whichever mode the model is in")
def _(answer, rng):
    for leaks, mode in ((T, T), (T, F), (F, T), (F, F)):
        where = f"leaks in {_mode(leaks)} mode only; the model is in {_mode(mode)} mode"
        expect(answer(Model(leaks_when(leaks), NUMBERS).train(mode), NUMBERS.clone()), T, where)


def _mode(training):
    return "training" if training else "evaluation"


ex.cases(
    "a very small leak is a leak",
    leaky("a millionth of the next input", plus_next(1e-6)),
    leaky("a tenth of a millionth of the next input", plus_next(1e-7)),
    leaky("a millionth, where all numbers are small", lambda m, x: 1e-8 * plus_next(1e-6)(m, x)),
    leaky("a millionth of a millionth, in float64", plus_next(1e-12), NUMBERS.double()),
    honest("nothing of the next input", plus_next(0.0)),
    honest("nothing of the next input, in float64", lambda m, x: m.layer(x), NUMBERS.double(), layer=DOUBLE),
)
ex.cases(
    "dropout is no leak",
    honest("a running sum with dropout", lambda m, x: m.drop(x.cumsum(dim=1)), drop=nn.Dropout(0.5)),
    leaky("all that comes, with dropout", lambda m, x: m.drop(x).flip(1).cumsum(dim=1), drop=nn.Dropout(0.5)),
)

ids = torch.randint(6, (3, 7), generator=torch.Generator().manual_seed(0))
table = nn.Embedding(int(ids.max()) + 1, 4)
ex.cases(
    "token ids",
    honest("a running sum of embeddings", lambda m, x: m.table(x).cumsum(1), ids, table=table),
    leaky("the sum of the embeddings still to come", lambda m, x: m.table(x).flip(1).cumsum(1), ids, table=table),
)
ex.cases(
    "every run starts from the same model",
    honest("a running sum, plus how often the model was called", lambda m, x: x.cumsum(dim=1) + m.calls),
)


@ex.check("the model and the random state stay as they were")
def _(answer, rng):
    norm = nn.BatchNorm1d(3)
    model = Model(lambda m, x: m.drop(x).cumsum(dim=1), NUMBERS, drop=nn.Dropout(0.5), norm=norm)
    model.train()
    norm.eval()
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    words = "a running sum with dropout, one part of the model in evaluation mode"
    expect(answer(model, NUMBERS.clone()), F, words)
    kept = bool((torch.random.get_rng_state() == before).all())
    note("random state afterwards", "as before" if kept else "another one")
    if not kept:
        raise Mismatch(None, None, "after your function has run, PyTorch's random state is another one")


@ex.check("another seed, another change of the inputs")
def _(answer, rng):
    for seed in (0, 1, 12345):
        expect(answer(Model(lambda m, x: x.cumsum(dim=1), NUMBERS), NUMBERS.clone(), seed), F, f"seed {seed}, no leak")
        expect(answer(Model(plus_next(1.0), NUMBERS), NUMBERS.clone(), seed=seed), T, f"seed {seed}, a leak")


ex.raises(
    ValueError,
    "a model that gives NaN cannot be judged: ValueError",
    *(
        case(Model(lambda m, x: x.cumsum(dim=1) * torch.nan, NUMBERS), NUMBERS).noted("all outputs are NaN"),
        case(Model(nan_when(T), NUMBERS), NUMBERS).noted("NaN in training mode only"),
        case(Model(nan_when(F), NUMBERS), NUMBERS).noted("NaN in evaluation mode only"),
        case(Model(lambda m, x: x.cumsum(1) / (torch.arange(5) != 3)[:, None] * 0, NUMBERS), NUMBERS).noted("0 / 0"),
    ),
)

TIMES = "range(1, inputs.shape[1])"
ex.mistake(
    "looks at evaluation mode only",
    {"(True, False)": "(False,)"},
    hint="A leak that exists in training only is missed. Try both modes.",
)
ex.mistake(
    "looks only at the mode that the model is in",
    {"(True, False)": "(model.training,)"},
    hint="Try both modes, on a copy of the model: `copy.deepcopy(model).train(training)`, training True and False.",
)
ex.mistake(
    "changes only the last position",
    {TIMES: "range(max(1, inputs.shape[1] - 1), inputs.shape[1])"},
    hint="Only a leak from the last input is seen. Try every time t: change what comes from t on, look before t.",
)
ex.mistake(
    "looks only at the first output",
    {TIMES: "range(1, min(2, inputs.shape[1]))"},
    hint="One change of everything after position 0 shows leaks into output 0 only. Try every time t.",
)
ex.mistake(
    "the last time is missing",
    {TIMES: "range(1, inputs.shape[1] - 1)"},
    hint="`range` ends before its last number: the last time is inputs.shape[1] - 1, so the range ends at "
    "inputs.shape[1].",
)
ex.mistake(
    "times from 2 on",
    {TIMES: "range(2, inputs.shape[1])"},
    hint="The first time is t = 1: then output 0 must stay the same.",
)
ex.mistake(
    "looks at training mode only",
    {"(True, False)": "(True,)"},
    hint="A leak that exists in evaluation only is missed. Try both modes.",
)
ex.mistake(
    "compares the outputs from t on",
    {"[:, :t], outputs[:, :t]": "[:, t:], outputs[:, t:]"},
    hint="The outputs from t on may change, since their inputs did. Compare those *before* t: `[:, :t]`.",
)
ex.mistake(
    "compares output t too",
    {"[:, :t], outputs[:, :t]": "[:, : t + 1], outputs[:, : t + 1]"},
    hint="Output t may use input t, which has changed. Compare the outputs before t only: `[:, :t]`.",
)
ex.mistake(
    "changes one position only",
    {"others[:, t:]]": "others[:, t : t + 1], inputs[:, t + 1 :]]"},
    hint="Replace *all* inputs from t on. A model may notice only when several of them change.",
)
ex.mistake(
    "looks at the first sequence only",
    {"[:, :t], outputs[:, :t]": "[0, :t], outputs[0, :t]"},
    hint="Another sequence of the batch may leak. Compare all of them.",
)
ex.mistake(
    "the future becomes zeros",
    {"others = other_inputs(inputs, torch.Generator().manual_seed(seed))": "others = torch.zeros_like(inputs)"},
    hint="Inputs that are 0 already do not change then. `other_inputs` differs at every position.",
)
ex.mistake(
    "no change at all",
    {"others[:, t:]": "inputs[:, t:]"},
    hint="The inputs from t on stay as they were, so nothing can be seen. Take them from `other_inputs`.",
)
ex.mistake(
    "dropout draws anew in every run",
    {
        "with torch.no_grad(), torch.random.fork_rng(range(torch.cuda.device_count())):": "with torch.no_grad():",
        "torch.manual_seed(seed)\n": "pass\n",
    },
    hint="With dropout, two runs differ even for equal inputs. Seed before each run, so that both draw the same.",
)
ex.mistake(
    "changes a position that may count",
    {"inputs[:, :t], others[:, t:]": "inputs[:, : t - 1], others[:, t - 1 :]"},
    hint="Output t - 1 may use input t - 1. Change the inputs from t on, and compare the outputs before t.",
)
ex.mistake(
    "compares shapes only",
    {"torch.equal(": "(lambda a, b: a.shape == b.shape)("},
    hint="The outputs keep their shape whatever happens. Compare their values.",
)
ex.mistake(
    "overlooks small changes",
    {"torch.equal(run(changed, training)[:, :t], ": "torch.allclose(run(changed, training)[:, :t], atol=1e-4, other="},
    hint="`allclose` forgives small differences. Both runs do the same operations on the same past: `torch.equal`.",
)
ex.mistake(
    "works on the model itself",
    {"copy.deepcopy(model)": "model"},
    hint="Its mode, and buffers such as running means, are changed by your runs. Run a copy: `copy.deepcopy(model)`.",
)
ex.mistake(
    "leaves another random state behind",
    {", torch.random.fork_rng(range(torch.cuda.device_count()))": ""},
    hint="`torch.manual_seed` changes what everybody draws afterwards. Put your runs into "
    "`with torch.random.fork_rng():`, which restores the state.",
)
ex.mistake(
    "takes NaN for an answer",
    {"outputs.isnan().any()": "False"},
    hint="NaN equals nothing, not even itself, so this tells nothing about the future. Raise a ValueError.",
)
ex.mistake(
    "cuts the future off",
    {"torch.cat([inputs[:, :t], others[:, t:]], dim=1)": "inputs[:, :t]"},
    hint="Keep the length: replace the inputs from t on, do not cut them off. A model without any leak may round "
    "otherwise, or give another output, when the length is another one.",
)
ex.mistake(
    "overlooks very small changes",
    {"torch.equal(": "torch.allclose("},
    hint="`allclose` forgives small differences. Both runs do the same operations on the same past: compare exactly, "
    "with `torch.equal`.",
)
ex.mistake(
    "compares output t - 1 only",
    {"[:, :t], outputs[:, :t]": "[:, t - 1], outputs[:, t - 1]"},
    hint="Input t may leak into *any* earlier output. Compare all outputs before t: `[:, :t]`.",
)
ex.mistake(
    "tries one time only, in the middle",
    {TIMES: "range(inputs.shape[1] // 2, inputs.shape[1] // 2 + 1)"},
    hint="A leak between two positions on the same side of the middle is missed. Try every time t from 1 on.",
)
