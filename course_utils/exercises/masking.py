"""Lesson 05's exercises: the two masks, a softmax that obeys them, and a probe that finds leaks of the future."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from course_utils.exercises import Exercise, expect, gradients
from course_utils.lessons import masking
from course_utils.lessons.masking import causal_mask, masked_softmax, other_inputs, padding_mask

NAN, INF = float("nan"), float("inf")
T, F = True, False

# ---- causal_mask ---------------------------------------------------------------------------------------------

ex = Exercise(
    "causal_mask",
    reference=masking.causal_mask,
    points=2,
    seconds=5,
    minutes=10,
    hints=(
        "Give every key its position, 0, 1, 2, … Which positions do the queries have, if they are the last ones?",
        "The last query has position n_keys - 1, the first one n_keys - n_queries. A query may look at a key if the "
        "key's position is not larger than its own.",
        "`torch.arange(n_keys) <= torch.arange(n_keys - n_queries, n_keys).unsqueeze(1)` compares every query with "
        "every key.",
    ),
)


@ex.check("three tokens that you can follow")
def _(answer, rng):
    expect(answer(3, 3), torch.tensor([[T, F, F], [T, T, F], [T, T, T]]), "causal_mask(3, 3)")


@ex.check("one token, and six tokens")
def _(answer, rng):
    for n in (1, 6):
        expect(answer(n, n), torch.ones(n, n).tril().bool(), f"causal_mask({n}, {n})")


@ex.check("the queries are the last ones when there are more keys")
def _(answer, rng):
    expect(answer(2, 5), torch.tensor([[T, T, T, T, F], [T, T, T, T, T]]), "causal_mask(2, 5)")
    expect(answer(1, 4), torch.tensor([[T, T, T, T]]), "causal_mask(1, 4)")
    expect(answer(4, 7), causal_mask(7, 7)[3:], "causal_mask(4, 7): the last 4 rows of causal_mask(7, 7)")


@ex.check("the first queries see nothing when there are more queries than keys")
def _(answer, rng):
    expect(answer(4, 2), torch.tensor([[F, F], [F, F], [T, F], [T, T]]), "causal_mask(4, 2)")


@ex.mistake("the mask upside down", hint="True means *may attend*. Yours is True where a query may not look.")
def _(n_queries, n_keys):
    return ~causal_mask(n_queries, n_keys)


@ex.mistake(
    "aligned to the top left",
    hint="With 2 queries and 5 keys the queries are tokens 3 and 4, not 0 and 1: the *last* query sees all keys. "
    "`tril` has an argument `diagonal` that shifts the edge.",
)
def _(n_queries, n_keys):
    return torch.ones(n_queries, n_keys, dtype=torch.bool).tril()


@ex.mistake("no token sees itself", hint="A token may look at itself: <= where you have <.")
def _(n_queries, n_keys):
    return torch.ones(n_queries, n_keys, dtype=torch.bool).tril(n_keys - n_queries - 1)


@ex.mistake("one token of the future", hint="Each query sees one key too many: its own position is the last one.")
def _(n_queries, n_keys):
    return torch.ones(n_queries, n_keys, dtype=torch.bool).tril(n_keys - n_queries + 1)


@ex.mistake(
    "queries see only what comes after them",
    hint="Row = query, column = key. A query looks back, so True stands on the diagonal and to the *left* of it.",
)
def _(n_queries, n_keys):
    return torch.ones(n_queries, n_keys, dtype=torch.bool).triu(n_keys - n_queries)


@ex.mistake("queries and keys exchanged", hint="The shape is (queries, keys): one row for each query.")
def _(n_queries, n_keys):
    return causal_mask(n_keys, n_queries)


@ex.mistake("ones and zeros", hint="The values are right, but a mask is boolean: compare, or add `.bool()`.")
def _(n_queries, n_keys):
    return causal_mask(n_queries, n_keys).float()


@ex.mistake(
    "numbers to add to the scores",
    hint="0 and -inf are what such a mask adds to the scores. This course keeps masks boolean: True = may attend.",
)
def _(n_queries, n_keys):
    return torch.zeros(n_queries, n_keys).masked_fill(~causal_mask(n_queries, n_keys), -torch.inf)


# ---- padding_mask --------------------------------------------------------------------------------------------

ex = Exercise(
    "padding_mask",
    reference=masking.padding_mask,
    points=1,
    seconds=5,
    minutes=5,
    hints=(
        "A key is a real token if its position is smaller than the length of its sequence.",
        "`torch.arange(n_keys)` are the positions of the keys. `lengths` needs two more dimensions at its end: one for "
        "the queries, one for the keys.",
        "`torch.arange(n_keys, device=lengths.device) < lengths[..., None, None]`.",
    ),
)


@ex.check("two sequences that you can follow")
def _(answer, rng):
    wanted = torch.tensor([[[T, T, T, F]], [[T, F, F, F]]])
    expect(answer(torch.tensor([3, 1]), 4), wanted, "lengths [3, 1], 4 keys")


@ex.check("nothing but padding, and no padding at all")
def _(answer, rng):
    wanted = torch.tensor([[[F, F, F, F, F]], [[T, T, T, T, T]], [[T, T, F, F, F]]])
    expect(answer(torch.tensor([0, 5, 2]), 5), wanted, "lengths [0, 5, 2], 5 keys")


@ex.check("one sequence without a batch, and leading dimensions (2, 3) and (3, 1)")
def _(answer, rng):
    expect(answer(torch.tensor(2), 3), torch.tensor([[T, T, F]]), "lengths 2, 3 keys")
    for shape in ((2, 3), (3, 1)):
        lengths = torch.randint(0, 6, shape, generator=rng)
        expect(answer(lengths, 5), padding_mask(lengths, 5), f"lengths of shape {shape}, 5 keys")


@ex.check("fits scores of shape (batch, queries, keys)")
def _(answer, rng):
    mask = answer(torch.tensor([2, 4, 1]), 4)
    expect(mask, padding_mask(torch.tensor([2, 4, 1]), 4), "lengths [2, 4, 1], 4 keys")
    visible = torch.zeros(3, 5, 4).masked_fill(mask, 1.0).sum(dim=(1, 2))
    expect(visible, torch.tensor([10.0, 20.0, 5.0]), "what 5 queries see together")


@ex.mistake("the mask upside down", hint="True means *may attend*: True at real tokens, False at padding.")
def _(lengths, n_keys):
    return ~padding_mask(lengths, n_keys)


@ex.mistake("one position too many", hint="A sequence of length 3 has the positions 0, 1 and 2: < in place of <=.")
def _(lengths, n_keys):
    return padding_mask(lengths + 1, n_keys)


@ex.mistake(
    "no dimension for the queries",
    hint="(batch, keys) would be read as (queries, keys). The mask needs a 1 between them: (batch, 1, keys).",
)
def _(lengths, n_keys):
    return padding_mask(lengths, n_keys).squeeze(-2)


@ex.mistake(
    "on the axis of the queries",
    hint="(batch, n_keys, 1) hides rows: it takes queries away. Padding must be hidden from all queries, as keys: "
    "the last dimension.",
)
def _(lengths, n_keys):
    return padding_mask(lengths, n_keys).transpose(-1, -2)


@ex.mistake("padding at the front", hint="The real tokens stand first in each row, and the padding after them.")
def _(lengths, n_keys):
    return padding_mask(lengths, n_keys).flip(-1)


@ex.mistake("only for shape (batch,)", hint="`lengths` may have any number of dimensions: `lengths[..., None, None]`.")
def _(lengths, n_keys):
    return torch.stack([padding_mask(length, n_keys) for length in lengths.reshape(-1)])


# ---- masked_softmax ------------------------------------------------------------------------------------------

ex = Exercise(
    "masked_softmax",
    reference=masking.masked_softmax,
    points=3,
    seconds=5,
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


def _scores_and_mask(rng, *leading, queries=5, keys=7, dtype=torch.float32):
    """Random scores and a random mask in which every query sees at least one key."""
    scores = torch.randn(*leading, queries, keys, generator=rng, dtype=torch.float64).to(dtype)
    mask = torch.rand(*leading, queries, keys, generator=rng) < 0.6
    mask[..., 2] |= ~mask.any(dim=-1)
    return scores, mask


@ex.check("three scores that you can follow")
def _(answer, rng):
    scores, mask = torch.tensor([[0.0, 0.693147, 5.0]]), torch.tensor([[T, T, F]])
    expect(answer(scores, mask), torch.tensor([[1 / 3, 2 / 3, 0]]), "scores [0, ln 2, 5], mask [True, True, False]")


@ex.check("a batch of 3, 5 queries, 7 keys: each row is a softmax over what the mask shows")
def _(answer, rng):
    scores, mask = _scores_and_mask(rng, 3)
    wanted = torch.zeros(3, 5, 7)
    for row, values, visible in zip(wanted.view(-1, 7), scores.view(-1, 7), mask.view(-1, 7), strict=True):
        row[visible] = torch.softmax(values[visible], dim=-1)
    expect(answer(scores, mask), wanted, "scores (3, 5, 7), mask (3, 5, 7)")


@ex.check("masks of shape (queries, keys) and (batch, 1, keys), no batch, two leading dimensions")
def _(answer, rng):
    scores, mask = _scores_and_mask(rng, 3)
    expect(answer(scores, mask[0]), masked_softmax(scores, mask[0]), "scores (3, 5, 7), mask (5, 7)")
    expect(answer(scores, mask[:, :1]), masked_softmax(scores, mask[:, :1]), "scores (3, 5, 7), mask (3, 1, 7)")
    expect(answer(scores[0], mask[0]), masked_softmax(scores[0], mask[0]), "scores (5, 7), mask (5, 7)")
    scores, mask = _scores_and_mask(rng, 2, 3)
    expect(answer(scores, mask), masked_softmax(scores, mask), "scores (2, 3, 5, 7), mask (2, 3, 5, 7)")


@ex.check("hidden scores of 5000, NaN and infinity do not matter; hidden weights are exactly 0")
def _(answer, rng):
    scores, mask = _scores_and_mask(rng, 3)
    wanted = masked_softmax(scores, mask)
    for value in (5000.0, NAN, INF):
        weights = answer(scores.masked_fill(~mask, value), mask)
        expect(weights, wanted, f"every hidden score is {value}")
        expect(bool((weights[~mask] == 0).all()), True, f"every hidden score is {value}: hidden weights are exactly 0")


@ex.check("a query that may attend to nothing gets zeros")
def _(answer, rng):
    scores, mask = _scores_and_mask(rng, 2)
    mask[0, 1], mask[1, 4] = F, F
    expect(answer(scores, mask), masked_softmax(scores, mask), "rows [0, 1] and [1, 4] of the mask are all False")
    nothing = torch.zeros(5, 7, dtype=torch.bool)
    expect(answer(scores, nothing), torch.zeros(2, 5, 7), "a mask that is False everywhere")


@ex.check("float16, bfloat16 and float64 stay what they are")
def _(answer, rng):
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        scores, mask = _scores_and_mask(rng, 3, dtype=dtype)
        expect(answer(scores, mask), masked_softmax(scores, mask), f"scores in {dtype}")


@ex.check("gradients: exactly 0 for hidden scores, and never NaN")
def _(answer, rng):
    scores, mask = _scores_and_mask(rng, 2)
    mask[0, 1] = F
    factors = torch.randn(2, 5, 7, generator=rng)
    expect(answer(scores, mask), masked_softmax(scores, mask), "the weights, with row [0, 1] of the mask all False")
    (got,) = gradients(lambda leaf: (answer(leaf, mask) * factors).sum(), [scores])
    (wanted,) = gradients(lambda leaf: (masked_softmax(leaf, mask) * factors).sum(), [scores])
    expect(got, wanted, "the gradient of a weighted sum of the weights")
    expect(bool((got[~mask] == 0).all()), True, "the gradient of hidden scores is exactly 0")


@ex.mistake(
    "the mask upside down", hint="True means *may attend*. `masked_fill` fills where its mask is True: use ~mask."
)
def _(scores, mask):
    return masked_softmax(scores, ~mask)


@ex.mistake(
    "masked after the softmax",
    hint="The hidden scores have taken their share already, so the visible weights do not sum to 1. Mask before it.",
)
def _(scores, mask):
    return torch.softmax(scores, dim=-1).masked_fill(~mask, 0)


@ex.mistake(
    "masked after the softmax, then divided by the sum",
    hint="On paper this is right. But one large hidden score takes all the weight, and what is left is 0 / 0. "
    "Hide the scores before the softmax.",
)
def _(scores, mask):
    weights = torch.softmax(scores, dim=-1).masked_fill(~mask, 0)
    return weights / weights.sum(dim=-1, keepdim=True)


@ex.mistake("hidden scores set to 0", hint="exp(0) is 1, so a score of 0 still gets weight. exp(-inf) is 0.")
def _(scores, mask):
    return torch.softmax(scores.masked_fill(~mask, 0), dim=-1)


@ex.mistake(
    "-1e9 in place of -inf",
    hint="-1e9 does not exist in float16 and raises there. And where everything is hidden, all scores are equal: the "
    "query then looks at everything that it must not see.",
)
def _(scores, mask):
    return torch.softmax(scores.masked_fill(~mask, -1e9), dim=-1)


@ex.mistake(
    "the most negative number in place of -inf",
    hint="It exists in every dtype, but where everything is hidden all scores are equal, and the query looks at "
    "everything that it must not see. Such rows need zeros.",
)
def _(scores, mask):
    return torch.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), dim=-1)


@ex.mistake(
    "NaN where everything is hidden",
    hint="A row of nothing but -inf gives 0 / 0. Find such rows with `~mask.any(dim=-1, keepdim=True)`.",
)
def _(scores, mask):
    return torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=-1)


@ex.mistake(
    "-inf added to the scores, NaN replaced after the softmax",
    hint="A hidden score of inf or NaN becomes NaN when -inf is added to it, and so does the gradient of a row of "
    "nothing but -inf. `masked_fill` replaces a score, whatever it was; and such a row needs a number *before* "
    "the softmax.",
)
def _(scores, mask):
    hide = torch.zeros(mask.shape, dtype=scores.dtype).masked_fill(~mask, -torch.inf)
    return torch.softmax(scores + hide, dim=-1).nan_to_num(0)


@ex.mistake("softmax over the queries", hint="Each *query* shares out a weight of 1 over the keys: the last dimension.")
def _(scores, mask):
    return masked_softmax(scores.transpose(-1, -2), mask.expand(scores.shape).transpose(-1, -2)).transpose(-1, -2)


@ex.mistake("always float32", hint="The result has the dtype of the scores: half precision stays half precision.")
def _(scores, mask):
    return masked_softmax(scores.float(), mask)


# ---- leaks_future --------------------------------------------------------------------------------------------

ex = Exercise(
    "leaks_future",
    reference=masking.leaks_future,
    points=3,
    seconds=20,
    minutes=20,
    hints=(
        "Three loops in one another: for both modes, for every time t, compare the outputs before t with and without "
        "a change of the inputs from t on.",
        "Write an inner function that runs a copy of the model (`copy.deepcopy(model).train(training)`) with the same "
        "seed each time. `with torch.no_grad(), torch.random.fork_rng():` puts the random state back afterwards.",
        "`torch.cat([inputs[:, :t], others[:, t:]], dim=1)` keeps the past. Compare `[:, :t]` of both outputs with "
        "`torch.equal`, for t from 1 to the last position.",
    ),
)


class _Model(nn.Module):
    """A model made of a function of (its own module, inputs)."""

    def __init__(self, function: Callable[[nn.Module, Tensor], Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            self.add_module(name, part)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.function(self, x)


def _numbers(rng, batch=2, time=5, features=3):
    return torch.randn(batch, time, features, generator=rng)


@ex.check("a running sum does not look ahead; the mean of all positions does")
def _(answer, rng):
    x = _numbers(rng)
    expect(answer(_Model(lambda m, x: x.cumsum(dim=1)), x), False, "each output is the sum of the inputs so far")
    expect(answer(_Model(lambda m, x: x - x.mean(dim=1, keepdim=True)), x), True, "minus the mean of all positions")
    expect(answer(_Model(lambda m, x: x.flip(1).cumsum(dim=1).sum(-1)), x), True, "the sum of all inputs still to come")
    expect(answer(_Model(lambda m, x: x.cumsum(1).sum(-1)), x[:, :1]), False, "one position, so there is no future")


@ex.check("a leak from one place to one place is enough")
def _(answer, rng):
    def from_to(later, earlier):
        def function(model, x):
            out = x.cumsum(dim=1)
            out[:, earlier] += x[:, later]
            return out

        return _Model(function)

    x = _numbers(rng)
    for later, earlier in ((4, 3), (4, 0), (1, 0), (3, 2)):
        expect(answer(from_to(later, earlier), x), True, f"output {earlier} also uses input {later}")
    expect(answer(from_to(2, 2), x), False, "output 2 uses input 2 twice")
    expect(
        answer(_Model(lambda m, x: x + x.roll(1, 1).cumsum(1) * (x[:, :1] * 0 + 1)), x), True, "the last wraps round"
    )


@ex.check("a leak in one of the two modes is enough, whichever mode the model is in")
def _(answer, rng):
    x = _numbers(rng)
    for mode in (True, False):
        leaky = _Model(lambda m, x, mode=mode: x.flip(1).cumsum(1) if m.training is mode else x.cumsum(1))
        where = f"leaks in {'training' if mode else 'evaluation'} mode only"
        expect(answer(leaky.train(), x), True, f"{where}; the model is in training mode")
        expect(answer(leaky.eval(), x), True, f"{where}; the model is in evaluation mode")


@ex.check("a very small leak is a leak")
def _(answer, rng):
    def plus_next(share):
        """Each output is between 2 and 4, and gets this share of the next input."""
        return _Model(lambda m, x: 3 + x.tanh() + share * torch.cat([x[:, 1:], x[:, :1] * 0], dim=1))

    x = _numbers(rng)
    expect(answer(plus_next(1e-6), x), True, "a millionth of the next input")
    expect(answer(plus_next(0.0), x), False, "nothing of the next input")


@ex.check("dropout is no leak")
def _(answer, rng):
    x = _numbers(rng)
    honest = _Model(lambda m, x: m.drop(x.cumsum(dim=1)), drop=nn.Dropout(0.5))
    leaky = _Model(lambda m, x: m.drop(x).flip(1).cumsum(dim=1), drop=nn.Dropout(0.5))
    expect(answer(honest, x), False, "a running sum with dropout")
    expect(answer(leaky, x), True, "the sum of all that comes, with dropout")


@ex.check("token ids")
def _(answer, rng):
    ids = torch.randint(6, (3, 7), generator=rng)
    honest = _Model(lambda m, x: m.table(x).cumsum(dim=1), table=nn.Embedding(int(ids.max()) + 1, 4))
    leaky = _Model(lambda m, x: m.table(x).flip(1).cumsum(dim=1), table=nn.Embedding(int(ids.max()) + 1, 4))
    expect(answer(honest, ids), False, "a running sum of embeddings")
    expect(answer(leaky, ids), True, "the sum of the embeddings still to come")


@ex.check("every run starts from the same model")
def _(answer, rng):
    counts = _Model(lambda m, x: x.cumsum(dim=1) + m.calls)
    expect(answer(counts, _numbers(rng)), False, "a running sum, plus how often the model was called")


@ex.check("the model and the random state stay as they were")
def _(answer, rng):
    model = _Model(lambda m, x: m.drop(x).cumsum(dim=1), drop=nn.Dropout(0.5), norm=nn.BatchNorm1d(3))
    model.train()
    model.norm.eval()
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    expect(answer(model, _numbers(rng)), False, "a running sum with dropout, one part of the model in evaluation mode")
    expect([model.training, model.norm.training, model.drop.training], [True, False, True], "the mode of each part")
    expect(float(model.calls), 0.0, "a buffer of the model")
    expect(bool((torch.random.get_rng_state() == before).all()), True, "the random state is the same as before")


@ex.check("a model that gives NaN cannot be judged: ValueError")
def _(answer, rng):
    try:
        got = answer(_Model(lambda m, x: x.cumsum(dim=1) * NAN), _numbers(rng))
    except ValueError:
        return
    expect(got, "a ValueError", "a model whose outputs are all NaN")


def _probe(
    model,
    inputs,
    seed=0,
    modes=(True, False),
    cuts=None,
    change=None,
    same=torch.equal,
    margin=0,
    reseed=True,
    own=True,
    nan=True,
):
    """The probe, with one thing or another changed: what the known mistakes are made of."""
    times = range(1, inputs.shape[1]) if cuts is None else cuts(inputs.shape[1])
    others = (change or other_inputs)(inputs, torch.Generator().manual_seed(seed))

    def run(x, training):
        trial = copy.deepcopy(model) if own else model
        trial.train(training)
        with torch.no_grad(), torch.random.fork_rng():
            if reseed:
                torch.manual_seed(seed)
                return trial(x.clone())
        with torch.no_grad():
            return trial(x.clone())

    for training in modes:
        outputs = run(inputs, training)
        if nan and outputs.isnan().any():
            raise ValueError("the model's outputs are NaN")
        for t in times:
            changed = torch.cat([inputs[:, : t - margin], others[:, t - margin :]], dim=1)
            if not same(run(changed, training)[:, :t], outputs[:, :t]):
                return True
    return False


@ex.mistake("looks at evaluation mode only", hint="A leak that exists in training only is missed. Try both modes.")
def _(model, inputs, seed=0):
    return _probe(model, inputs, seed, modes=(False,))


@ex.mistake(
    "looks only at the mode that the model is in",
    hint="Try both modes, on a copy of the model: `copy.deepcopy(model).train(training)`, training True and False.",
)
def _(model, inputs, seed=0):
    return _probe(model, inputs, seed, modes=(model.training,))


@ex.mistake(
    "changes only the last position",
    hint="Only a leak from the last input is seen. Try every time t: change what comes from t on, look before t.",
)
def _(model, inputs, seed=0):
    return _probe(model, inputs, seed, cuts=lambda n: range(max(1, n - 1), n))


@ex.mistake(
    "looks only at the first output",
    hint="One change of everything after position 0 shows leaks into output 0 only. Try every time t.",
)
def _(model, inputs, seed=0):
    return _probe(model, inputs, seed, cuts=lambda n: range(1, min(2, n)))


@ex.mistake(
    "dropout draws anew in every run",
    hint="With dropout, two runs differ even for equal inputs. Seed before each run, so that both draw the same.",
)
def _(model, inputs, seed=0):
    return _probe(model, inputs, seed, reseed=False)


@ex.mistake(
    "changes a position that may count",
    hint="Output t - 1 may use input t - 1. Change the inputs from t on, and compare the outputs before t.",
)
def _(model, inputs, seed=0):
    return _probe(model, inputs, seed, margin=1)


@ex.mistake("compares shapes only", hint="The outputs keep their shape whatever happens. Compare their values.")
def _(model, inputs, seed=0):
    return _probe(model, inputs, seed, same=lambda a, b: a.shape == b.shape)


@ex.mistake(
    "overlooks small changes",
    hint="`allclose` forgives small differences. Both runs do the same operations on the same past: `torch.equal`.",
)
def _(model, inputs, seed=0):
    return _probe(model, inputs, seed, same=lambda a, b: torch.allclose(a, b, atol=1e-4))


@ex.mistake(
    "adds one to every future input",
    hint="Token ids then become larger than the model knows. `other_inputs` gives inputs that are allowed.",
)
def _(model, inputs, seed=0):
    return _probe(model, inputs, seed, change=lambda x, generator: x + 1)


@ex.mistake(
    "works on the model itself",
    hint="Its mode, and buffers such as running means, are changed by your runs. Run a copy: `copy.deepcopy(model)`.",
)
def _(model, inputs, seed=0):
    return _probe(model, inputs, seed, own=False)


@ex.mistake(
    "leaves another random state behind",
    hint="`torch.manual_seed` changes what everybody draws afterwards. Put your runs into "
    "`with torch.random.fork_rng():`, which restores the state.",
)
def _(model, inputs, seed=0):
    found = _probe(model, inputs, seed)
    torch.manual_seed(seed)
    return found


@ex.mistake(
    "takes NaN for an answer",
    hint="NaN equals nothing, not even itself, so this tells nothing about the future. Raise a ValueError.",
)
def _(model, inputs, seed=0):
    return _probe(model, inputs, seed, nan=False)
