"""Lesson 07's exercises: a convolution that looks back only, how far and in how many steps things travel, and what it
costs."""

import torch
import torch.nn.functional as F

from course_utils.exercises import Exercise, case, normal
from course_utils.exercises.compare import expect
from course_utils.lessons import sequence_models
from course_utils.lessons.sequence_models import causal_conv1d


def column(*numbers):
    """A sequence of vectors of one number each."""
    return torch.tensor(numbers).float()[:, None]


# ---- causal_conv1d -------------------------------------------------------------------------------------------

ex = Exercise(
    sequence_models.causal_conv1d,
    points=3,
    minutes=15,
    hints=(
        "Take k = 2 and dilation 1 first. What do you add to x[t] @ kernel[1]? What is there at t = 0? Make `x` longer "
        "at its beginning, so that there is something to read.",
        "kernel[i] meets the vector that is (k - 1 - i) · dilation steps old. Put (k - 1) · dilation rows of zeros in "
        "front (`F.pad(x, (0, 0, n, 0))` puts n rows there). Then kernel[i] meets the rows from i · dilation on, as "
        "many as `x` has.",
        "The sum over i of `padded[..., i * dilation : i * dilation + n_times, :] @ kernel[i]`, where n_times is "
        "`x.shape[-2]`. `F.conv1d` can do it too: it wants the features before the time, the kernel as (d_out, d_in, "
        "k), at most one leading dimension, and it pads on both sides unless you pad yourself.",
    ),
)

TENS = column(10, 1)[:, None]  # the newest number, and ten times the one before


def convolution(*leading, time=11, d_in=5, d_out=4, k=7, dilation=1):
    kernel = normal(k, d_in, d_out, seed=1) / (k * d_in) ** 0.5
    return case(normal(*leading, time, d_in), kernel, dilation)


def fixed_dilation(dilation):
    def inputs(*leading, time=11, d_in=5, d_out=4, k=7):
        return convolution(*leading, time=time, d_in=d_in, d_out=d_out, k=k, dilation=dilation)

    return inputs


def pytorchs(x, kernel, dilation=1):
    padded = F.pad(x.mT, ((len(kernel) - 1) * dilation, 0))
    return F.conv1d(padded, kernel.permute(2, 1, 0), dilation=dilation).mT


ex.cases(
    "ten times the number before, plus the number itself",
    case(column(1, 2, 3, 4), TENS).gives(column(1, 12, 23, 34)),
)
ex.cases(
    "with dilation 2, the one before is two steps back",
    case(column(1, 2, 3, 4), TENS, 2).gives(column(1, 2, 13, 24)),
)
ex.cases(
    "two numbers in, one out",
    case(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[[1000.0], [100.0]], [[10.0], [1.0]]])).gives(
        column(12, 1234)
    ),
)
ex.cases(
    "as PyTorch's `F.conv1d` with the same kernel",
    *(
        case(*call.args).gives(pytorchs(*call.args))
        for call in (convolution(2), convolution(2, dilation=3), convolution(2, k=4, dilation=2))
    ),
)
ex.cases("a kernel that is longer than the sequence", convolution(2, time=4), convolution(2, time=5, dilation=4))
ex.promises(fixed_dilation(1), "leading", "sizes", "dtypes", "gradients", "device")
ex.cases("dilations, and no leading dimensions", convolution(dilation=2), convolution(k=4, dilation=5))


@ex.check("no output before time 6 moves when the inputs from 6 on do")
def _(answer, rng):
    for dilation in (1, 2):
        x, kernel, _ = convolution(2, dilation=dilation).args
        changed = torch.cat([x[:, :6], 100 * normal(2, 5, 5, seed=9)], dim=1)
        before = answer(x.clone(), kernel.clone(), dilation)
        after = answer(changed, kernel.clone(), dilation)
        expect(after[:, :6], before[:, :6].clone(), f"dilation {dilation}: the outputs 0 to 5")


PAD, PIECES = "(0, 0, (k - 1) * dilation, 0)", "[..., i * dilation :, :]"
ex.mistake(
    "padded on both sides: it looks ahead",
    {PAD: "(0, 0, (k - 1) * dilation - (k - 1) * dilation // 2, (k - 1) * dilation // 2)"},
    hint="Half of the zeros stand at the end, so an output reads inputs that come after it. All zeros belong in front.",
)
ex.mistake(
    "padded at the end: it looks ahead only",
    {PAD: "(0, 0, 0, (k - 1) * dilation)"},
    hint="Your output t reads x[t] and what comes *after* it. The zeros belong in front of the sequence: in `F.pad` "
    "the third number, not the fourth.",
)
ex.mistake(
    "the kernel reversed",
    {"kernel.flatten": "kernel.flip(0).flatten"},
    hint="kernel[-1] meets the newest vector x[t], and kernel[0] the oldest one. Yours has it the other way round.",
)
ex.mistake(
    "the dilation is ignored",
    {PAD: "(0, 0, k - 1, 0)", PIECES: "[..., i:, :]"},
    hint="With dilation 2 the kernel meets x[t], x[t - 2], x[t - 4], …: the steps *between* what it reads grow.",
)
ex.mistake(
    "one step too far back: x[t] itself is not read",
    {PAD: "(0, 0, k * dilation, 0)"},
    hint="Your output t reads nothing newer than x[t - dilation]. With k matrices there are k - 1 gaps: put "
    "(k - 1) · dilation zeros in front.",
)


def valid_only(x, kernel, dilation=1):
    far = (len(kernel) - 1) * dilation
    return causal_conv1d(x, kernel, dilation)[..., far:, :]


ex.mistake(
    "no zeros in front: there are too few outputs",
    valid_only,
    hint="The first outputs are missing, because the kernel does not fit there. Put (k - 1) · dilation rows of zeros "
    "in front, so that there is one output for each input.",
)


def not_cut(x, kernel, dilation=1):
    far = (len(kernel) - 1) * dilation
    return causal_conv1d(F.pad(x, (0, 0, 0, far)), kernel, dilation)


ex.mistake(
    "too many outputs: zeros on both sides, and nothing cut off",
    not_cut,
    hint="`padding=` of `F.conv1d` puts zeros on *both* sides. Keep the first n_times outputs only.",
)


def padded_by_k(x, kernel, dilation=1):
    lost = (len(kernel) - 1) * (dilation - 1)
    return causal_conv1d(x, kernel, dilation)[..., lost:, :]


ex.mistake(
    "padded without the dilation",
    padded_by_k,
    hint="With dilation 1 it is right. But k matrices with a dilation reach (k - 1) · dilation steps back, so that "
    "many zeros are needed, not k - 1.",
)


def strided(x, kernel, dilation=1):
    return causal_conv1d(x, kernel)[..., ::dilation, :]


ex.mistake(
    "a stride instead of a dilation",
    strided,
    hint="A stride leaves out *outputs*. A dilation leaves out inputs between those that the kernel meets; there is "
    "still one output for each time.",
)


def rolled(x, kernel, dilation=1):
    k = len(kernel)
    pieces = [x.roll((k - 1 - i) * dilation, dims=-2) for i in range(k)]
    return torch.cat(pieces, dim=-1) @ kernel.flatten(0, 1)


ex.mistake(
    "the end of the sequence stands before its beginning",
    rolled,
    hint="`torch.roll` brings what leaves at the end back in at the beginning: the first outputs read the last inputs. "
    "Before time 0 there are zeros.",
)
ex.mistake(
    "the first vector repeated instead of zeros",
    {
        f"F.pad(x, {PAD})": "torch.cat([x[..., :1, :].expand(*x.shape[:-2], (k - 1) * dilation, x.shape[-1]), x], "
        "dim=-2)"
    },
    hint="Before time 0 all vectors are zero. Yours repeats the first one.",
)
ex.mistake(
    "the mean instead of the sum",
    {"kernel.flatten(0, 1)": "kernel.flatten(0, 1) / k"},
    hint="The products are added, and not divided by their number.",
)

# ---- receptive_field -----------------------------------------------------------------------------------------

ex = Exercise(
    sequence_models.receptive_field,
    points=1,
    minutes=10,
    hints=(
        "Begin with one layer. k = 3, dilation 1: an output reads the inputs t, t - 1 and t - 2. How many steps back "
        "is the oldest? How far does a second layer of this kind bring you *beyond* that?",
        "Each layer adds (k - 1) · dilation steps back: there are k - 1 gaps between k inputs. In the end, count the "
        "newest input as well.",
        "`1 + sum((k - 1) * dilation for k, dilation in zip(kernel_sizes, dilations))`.",
    ),
)

DOUBLED = [2] * 8, [2**i for i in range(8)]
ex.cases("one layer of three matrices: 3", case([3], [1]).gives(3))
ex.cases("two of them: 5", case([3, 3], [1, 1]).gives(5))
ex.cases("dilations 1, 2, 4 with two matrices each: 8", case([2, 2, 2], [1, 2, 4]).gives(8))
ex.cases("no layer, and layers that look at one input only", case([], []).gives(1), case([1, 1], [3, 9]).gives(1))
ex.cases(
    "kernels and dilations of all kinds",
    *(case([5, 2, 3], [3, 4, 1]).gives(19), case([4], [7]).gives(22), case([3, 7], [6, 5]).gives(43)),
    *(case(*DOUBLED).gives(256), case([7, 1, 2], [1, 5, 1]).gives(8), case([3] * 10, [1] * 10).gives(21)),
)


@ex.check("it is how far a change of an input is felt")
def _(answer, rng):
    for kernel_sizes, dilations in (([3, 3, 3], [1, 1, 1]), ([2, 2, 2], [1, 2, 4]), ([4, 2], [2, 3])):
        felt = normal(31, 1, dtype=torch.float64)
        felt[:15], felt[16:] = 0, 0
        for k, dilation in zip(kernel_sizes, dilations, strict=True):
            felt = causal_conv1d(felt, torch.ones(k, 1, 1, dtype=torch.float64), dilation)
        farthest = int(felt.flatten().nonzero().max()) - 15
        got = answer(list(kernel_sizes), list(dilations))
        where = f"kernel_sizes {kernel_sizes}, dilations {dilations}: a change at time 15 is felt until {15 + farthest}"
        expect(got, farthest + 1, where)


TERM = "(k - 1) * dilation"
ex.mistake(
    "off by one: the newest input is not counted",
    {"1 + sum": "sum"},
    hint="That is how many steps back the oldest input is. Between them lie one input more than steps: with one layer "
    "of k = 3 an output reads t - 2, t - 1 *and* t.",
)
ex.mistake(
    "k instead of k - 1",
    {TERM: "k * dilation"},
    hint="Between k inputs there are k - 1 gaps, so a layer adds (k - 1) · dilation steps. Try one layer with k = 3.",
)
ex.mistake(
    "the kernel sizes added up",
    {f"1 + sum({TERM}": f"sum({TERM} + 1"},
    hint="The windows of two layers overlap: the newest vector of one is where the next one begins. Count it once, at "
    "the end.",
)
ex.mistake(
    "the dilation is ignored",
    {TERM: "(k - 1)"},
    hint="With dilation 4 the gaps are four steps wide.",
)
ex.mistake(
    "a window of k · dilation inputs for each layer",
    {TERM: "(k * dilation - 1)"},
    hint="With k = 2 and dilation 4 an output reads t and t - 4. That is a window of 5 inputs, not of 8: there is no "
    "gap after the last one.",
)
ex.mistake(
    "reach to both sides",
    {TERM: "2 * (k - 1) * dilation"},
    hint="A causal convolution looks back only: each layer adds its reach once.",
)
ex.mistake(
    "half of each kernel",
    {TERM: "(k // 2) * dilation"},
    hint="A centred kernel would look k // 2 steps to each side. A causal one looks k - 1 steps back.",
)
ex.mistake(
    "the kernel sizes multiplied",
    lambda kernel_sizes, dilations: int(torch.tensor([1, *kernel_sizes]).prod()),
    hint="Draw two layers with k = 3: five inputs lie below one output, not nine, since neighbours share most of what "
    "they read. Each layer *adds* to the reach.",
)
ex.mistake(
    "the fields of the layers multiplied",
    lambda kernel_sizes, dilations: int(
        torch.tensor([1, *(1 + (k - 1) * d for k, d in zip(kernel_sizes, dilations, strict=True))]).prod()
    ),
    hint="Draw two layers with k = 3: five inputs lie below one output, not nine, since neighbours share most of what "
    "they read. Each layer *adds* (k - 1) · dilation steps.",
)


def without_gaps(kernel_sizes, dilations):
    read = {0}
    for k, dilation in zip(kernel_sizes, dilations, strict=True):
        read = {back + i * dilation for back in read for i in range(k)}
    return len(read)


ex.mistake(
    "the inputs in the gaps are not counted",
    without_gaps,
    hint="You count the inputs that the output reads. All from the oldest of them to the newest lie in its reach, "
    "those in the gaps as well: one layer with k = 4 and dilation 7 reads t, t - 7, t - 14 and t - 21, and the answer "
    "is 22.",
)
ex.mistake(
    "the first dilation for all layers",
    {TERM: "(k - 1) * dilations[0]"},
    hint="Each layer has a dilation of its own: dilations[i] belongs to kernel_sizes[i].",
)
ex.mistake(
    "the reach of one layer alone",
    {"sum((k - 1) * dilation for k, dilation in layers)": "max((0, *((k - 1) * dilation for k, dilation in layers)))"},
    hint="The layers work one after the other, so their reaches add up.",
)
ex.mistake(
    "each dilation multiplied with all those below",
    lambda kernel_sizes, dilations: (
        1 + sum((k - 1) * int(torch.tensor(dilations[: i + 1]).prod()) for i, k in enumerate(kernel_sizes))
    ),
    hint="A dilation counts steps of the sequence, whatever the layers below have. That would be a *stride*, which "
    "leaves outputs out.",
)
ex.mistake(
    "a float",
    {"1 + sum": "1.0 + sum"},
    hint="Inputs are counted: return an int.",
)

# ---- path_length ---------------------------------------------------------------------------------------------

ex = Exercise(
    sequence_models.path_length,
    points=3,
    minutes=20,
    hints=(
        "Keep a set of the positions that know something of `start`. Before the first layer it holds `start` only. "
        "Which positions does it hold after one layer?",
        "After a layer, position i knows of `start` if it reads at least one position that knew of it: if there is a j "
        "with reads[l, i, j] and j in the old set. The *new* set holds these i, and no others. Count layers until "
        "`end` is in it.",
        "As a row of True and False: `reached = (layer & reached).any(dim=-1)` for each `layer` of `reads`. Look "
        "before the first layer whether `end` is reached already, and after the last one whether it is at all.",
    ),
)


def connections(n, *pairs):
    """A layer in which i reads j for each pair (i, j), and nothing else."""
    layer = torch.zeros(n, n, dtype=torch.bool)
    for i, j in pairs:
        layer[i, j] = True
    return layer


def looks_back(n, *steps):
    """A layer in which every position reads those that are so many steps before it."""
    return sum((torch.eye(n).tril().roll(-s, 1).tril(-s) for s in steps), torch.zeros(n, n)).bool()


def random_layers(n_layers, n, share, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n_layers, n, n, generator=generator) < share


CHAIN = looks_back(7, 0, 1).expand(9, 7, 7)
ALL = torch.ones(1, 7, 7, dtype=torch.bool)
DILATED = torch.stack([looks_back(8, 0, step) for step in (1, 2, 4)])
THROUGH_TWO = torch.stack([connections(5, (2, 0)), connections(5, (4, 2)), connections(5, (1, 4), (0, 0))])

ex.cases(
    "position 2 reads 0, then 4 reads 2, then 1 reads 4",
    *(case(THROUGH_TWO, 0, 2).gives(1), case(THROUGH_TWO, 0, 4).gives(2), case(THROUGH_TWO, 0, 1).gives(3)),
)
ex.cases(
    "everyone reads itself and the one before: one layer for each step",
    *(case(CHAIN, 0, 6).gives(6).noted("a chain"), case(CHAIN, 2, 3).gives(1), case(CHAIN, 1, 5).gives(4)),
)
ex.cases(
    "everyone reads everyone: one layer",
    *(case(ALL, i, j).gives(1).noted("all True") for i, j in ((0, 6), (6, 0), (2, 3))),
)
ex.cases(
    "it is there already: 0", case(ALL, 3, 3).gives(0), case(CHAIN, 0, 0).gives(0), case(THROUGH_TWO, 4, 4).gives(0)
)
ex.cases(
    "two steps back, three steps back: a kernel of 3 or 4",
    case(looks_back(8, 0, 1, 2).expand(8, 8, 8), 0, 7).gives(4),
    case(looks_back(8, 0, 1, 2, 3).expand(8, 8, 8), 0, 7).gives(3),
    case(looks_back(8, 0, 2).expand(8, 8, 8), 1, 7).gives(3),
)
ex.cases(
    "dilations 1, 2, 4: the layers differ, and their order counts",
    *(case(DILATED, 0, 7).gives(3), case(DILATED, 0, 4).gives(3), case(DILATED, 0, 2).gives(2)),
    *(case(DILATED, 1, 2).gives(1), case(DILATED.flip(0), 0, 4).gives(1), case(DILATED.flip(0), 0, 1).gives(3)),
)
ex.cases(
    "who does not read itself loses what it had",
    case(torch.stack([connections(4, (1, 0)), connections(4, (2, 0), (3, 1)), connections(4, (2, 3))]), 0, 2).gives(3),
    case(torch.stack([looks_back(5, 1), looks_back(5, 2), looks_back(5, 1)]), 0, 3).gives(2),
    case(torch.stack([looks_back(5, 2), looks_back(5, 1), looks_back(5, 1)]), 0, 4).gives(3),
)
ex.cases("no layers, and one position", case(ALL[:0], 2, 2).gives(0), case(ALL[:, :1, :1], 0, 0).gives(0))
ex.cases(
    "random connections",
    *(
        case(random_layers(9, 11, 0.12, seed), seed % 11, (5 * seed + 3) % 11)
        for seed in (3, 1, 6, 28, 7, 25, 9, 10, 26)
    ),
)
ex.raises(
    ValueError,
    "a ValueError where the layers do not carry it there",
    *(case(CHAIN[:3], 0, 5), case(CHAIN, 4, 2), case(ALL[:0], 0, 1), case(DILATED.flip(0), 7, 0)),
    case(torch.stack([connections(5, (2, 0)), connections(5, (3, 1)), connections(5, (4, 2))]), 0, 4),
)
ex.device("the connections may be on a GPU too", case(CHAIN, 0, 6))

REACHED = "(layer & reached).any(dim=-1)"
ex.mistake(
    "who reads whom, the other way round",
    {"layer & reached": "layer.T & reached"},
    hint="reads[l, i, j] says that i reads j: what j knows comes to i. The rows are the positions that read.",
)
ex.mistake(
    "from `end` to `start`",
    lambda reads, start, end: sequence_models.path_length(reads, end, start),
    hint="Something stands at `start`, and you count the layers until `end` knows of it.",
)
ex.mistake(
    "one too many",
    {"return n_layers": "return n_layers + 1", "return len(reads)": "return len(reads) + 1"},
    hint="Where one position reads the other directly, the answer is 1, and 0 where `start` is `end`.",
)
ex.mistake(
    "a position keeps what it had without reading itself",
    {REACHED: f"reached | {REACHED}"},
    hint="After a layer a position knows what it has read in that layer, and nothing else. The new set must not hold "
    "the old one; a position that reads itself is in it anyway.",
)
ex.mistake(
    "layer 0 again and again",
    {"(layer &": "(reads[0] &"},
    hint="The layers differ, as in a stack with dilations: the first step uses reads[0], the second reads[1].",
)
ex.mistake(
    "the last layer first",
    {"enumerate(reads)": "enumerate(reads.flip(0))"},
    hint="Layer 0 works first: something leaves `start` through reads[0].",
)
ex.mistake(
    "the distance of the positions",
    lambda reads, start, end: abs(end - start),
    hint="That is right for a chain of neighbours only. Where a position reads others that are far away, fewer layers "
    "are enough: follow `reads`.",
)


def after_all_layers(reads, start, end):
    if start == end:
        return 0
    sequence_models.path_length(reads, start, end)
    return len(reads)


ex.mistake(
    "all layers are counted",
    after_all_layers,
    hint="Stop as soon as `end` is reached: the *fewest* layers are asked for.",
)
ex.mistake(
    "not 0 where `end` is `start`",
    {"if reached[end]:\n            return n_layers": "if reached[end] and n_layers:\n            return n_layers"},
    hint="What stands at `start` is there already: look before the first layer.",
)


def direct_only(reads, start, end):
    if start == end:
        return 0
    for n_layers, layer in enumerate(reads, start=1):
        if layer[end, start]:
            return n_layers
    raise ValueError(f"{end} never reads {start}")


ex.mistake(
    "direct connections only",
    direct_only,
    hint="It may go through other positions: 4 reads 2, which has read 0 a layer below. Keep a *set* of positions.",
)
ex.mistake(
    "-1 instead of an error",
    {'raise ValueError(f"{len(reads)} layers do not carry {start} to {end}")': "return -1"},
    hint="Where all layers together do not get there, raise a ValueError: a caller could take -1 for a length.",
)


def around_again(reads, start, end):
    rounds = torch.cat([reads] * reads.shape[-1]) if len(reads) else reads
    return sequence_models.path_length(rounds, start, end)


ex.mistake(
    "the layers are used more than once",
    around_again,
    hint="After the last layer there is no further one. If `end` is not reached then, raise a ValueError.",
)


def breadth_first(reads, start, end):
    merged = reads.any(dim=0) if len(reads) else torch.zeros(reads.shape[1:], dtype=torch.bool)
    known, newest, n_layers = {start}, {start}, 0
    while end not in known and newest:
        newest = {i for i in range(len(merged)) if any(merged[i, j] for j in newest)} - known
        known, n_layers = known | newest, n_layers + 1
    if end not in known:
        raise ValueError(f"{start} does not reach {end}")
    return n_layers


ex.mistake(
    "all layers merged into one table",
    breadth_first,
    hint="That is the shortest way in a graph where each connection may be used at any time. Here a connection exists "
    "in *its* layer only: the first step must use reads[0], the second reads[1].",
)

# ---- layer_flops ---------------------------------------------------------------------------------------------

ex = Exercise(
    sequence_models.layer_flops,
    points=2,
    minutes=10,
    returns=("GRU", "convolution", "attention"),
    hints=(
        "List the matrix products of each layer, with the shapes of both factors. A product of (a, b) and (b, c) makes "
        "a · c numbers, each from b multiplications and b additions: 2 · a · b · c.",
        "`gru_step` has `x @ w_x` and `h @ w_h`, and both matrices are 3 · d_model wide. The convolution has k "
        "products with (d_model, d_model) for every token. Attention has four projections of that size, and two "
        "products for all pairs: scores and weighted sums.",
        "With `square = 2 * n_tokens * d_model**2` and `pairs = 2 * n_tokens**2 * d_model`: 6 squares, k squares, and "
        "4 squares plus 2 pairs.",
    ),
)

ex.cases("one token, one number, k = 1: 12, 2 and 12", case(1, 1, 1).gives((12, 2, 12)))
ex.cases("three tokens of two numbers, k = 2", case(3, 2, 2).gives((144, 48, 168)))
ex.cases(
    "many sizes",
    *(case(7, 5, 3), case(5, 7, 3), case(1, 64, 5), case(64, 1, 4), case(10, 6, 11)),
)
ex.cases("as many tokens as numbers: a GRU costs as much as attention", case(64, 64, 3), case(9, 9, 9))
ex.cases("exact, also when they are many", case(100_003, 4_099, 7), case(1_000_003, 129, 3))

ex.mistake(
    "a multiplication and an addition count as one",
    {"square = 2 * ": "square = ", "pairs = 2 * ": "pairs = "},
    hint="Everything is half as much as it must be. Some texts count a multiplication and its addition as *one* "
    "operation (a MAC); FLOPs count both.",
)
ex.mistake(
    "the attention's projections are forgotten",
    {"4 * square + 2 * pairs": "2 * pairs"},
    hint="Before the scores come three projections, and after the sums one more: four in all.",
)
ex.mistake(
    "three projections",
    {"4 * square +": "3 * square +"},
    hint="Queries, keys, values *and* the output projection: four.",
)
ex.mistake(
    "the pairs of tokens are forgotten",
    {"4 * square + 2 * pairs": "4 * square"},
    hint="Every query meets every key. That product is the only one that grows with N²: count the scores and the sums.",
)
ex.mistake(
    "the scores without the weighted sums",
    {"+ 2 * pairs": "+ pairs"},
    hint="Two products work on all pairs: queries times keys, and weights times values.",
)
ex.mistake(
    "only the pairs that a causal mask leaves",
    {"2 * n_tokens**2 * d_model": "n_tokens * (n_tokens + 1) * d_model"},
    hint="The layer computes all scores and hides some of them afterwards. What is masked has been computed too.",
)
ex.mistake(
    "one number for each pair",
    {"n_tokens**2 * d_model": "n_tokens**2"},
    hint="A score is a dot product of d_model numbers, not one multiplication.",
)
ex.mistake(
    "N instead of N squared",
    {"n_tokens**2 * d_model": "n_tokens * d_model"},
    hint="There are N² pairs of a query and a key.",
)
ex.mistake(
    "the squares of both for each pair",
    {"n_tokens**2 * d_model": "n_tokens**2 * d_model**2"},
    hint="A pair costs a dot product, d_model multiplications. No matrix is multiplied for each pair.",
)
ex.mistake(
    "the GRU without its gates",
    {"6 * square": "2 * square"},
    hint="That is the plain RNN. A GRU makes three vectors from x and three from h: two gates and the candidate.",
)
ex.mistake(
    "the GRU's state is not multiplied",
    {"6 * square": "3 * square"},
    hint="x is multiplied, and h too: `x @ w_x` and `h @ w_h`, each three times d_model wide.",
)
ex.mistake(
    "k is forgotten",
    {"k * square": "square"},
    hint="Each output of the convolution is a sum of k products.",
)
ex.mistake(
    "the convolution with one width instead of two",
    {"k * square": "k * square // d_model"},
    hint="Each of the k products meets a matrix (d_model, d_model): d_model² multiplications for a token, not d_model.",
)
ex.mistake(
    "k squared",
    {"k * square": "k * k * square"},
    hint="A kernel of an *image* has k · k matrices. Along a sequence there are k.",
)
ex.mistake(
    "the zeros before time 0 are left out",
    {"k * square": "k * square - k * (k - 1) * d_model**2"},
    hint="The running layer multiplies the zeros like everything else: k products for every token.",
)
ex.mistake(
    "the width instead of its square",
    {"d_model**2  #": "d_model  #"},
    hint="A vector of d numbers times a matrix (d, d) has d · d multiplications.",
)
