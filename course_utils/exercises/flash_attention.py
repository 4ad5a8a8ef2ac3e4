"""Lesson 14's exercises: softmax block by block, tiles forward and backward, and the numbers that they move."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course_utils.exercises import Exercise, case, normal
from course_utils.exercises.compare import Mismatch, expect
from course_utils.lessons import flash_attention
from course_utils.lessons.masking import causal_mask, padding_mask
from course_utils.lessons.transformer_block import storage

HIDDEN = -torch.inf


class LargestTensor(TorchFunctionMode):
    """The most numbers that any new tensor has inside `with`; a view is nothing new."""

    numbers = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        results = func(*args, **(kwargs or {}))
        known = {storage(x) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        new = [x for x in tree_leaves(results) if isinstance(x, Tensor) and storage(x) not in known]
        self.numbers = max([self.numbers, *(x.numel() for x in new)])
        return results


def expect_no_larger(answer, call, most, what):
    function = getattr(answer, "answer", answer)  # the judge's own copies of inputs and results do not count
    with LargestTensor() as largest:
        function(*call.args, **call.kwargs)
    if largest.numbers > most:
        words = f"{call.words(function)}\na tensor of {largest.numbers:,} numbers was made. {what}"
        raise Mismatch(None, None, words)


class Reads(TorchDispatchMode):
    """The first and the last column of every piece of `rows` that is read inside `with`; a view reads nothing."""

    def __init__(self, rows):
        super().__init__()
        self.place, self.spans = storage(rows), []
        self.columns = torch.arange(rows.shape[-1]).expand(rows.shape).contiguous()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        results = func(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves(results) if isinstance(x, Tensor)]
        only_shape = any(word in func.overloadpacket.__name__ for word in ("_like", "new_", "empty"))
        if not only_shape and not any(storage(x) == self.place for x in tensors):
            for x in tree_leaves((args, kwargs)):
                if isinstance(x, Tensor) and x.numel() and storage(x) == self.place:
                    read = self.columns.as_strided(x.shape, x.stride(), x.storage_offset())
                    self.spans.append((int(read.min()), int(read.max())))
        return results


# ---- online_softmax --------------------------------------------------------------------------------------------

ex = Exercise(
    flash_attention.online_softmax,
    points=2,
    minutes=10,
    returns=("row_max", "row_sum"),
    hints=(
        "Two running numbers for each row: the largest score so far, and the sum so far. They start at -inf and 0. "
        "What must happen to the old sum when a block brings a larger score?",
        "The old sum was made with the old maximum. exp(s - new) = exp(s - old) · exp(old - new): so multiply the old "
        "sum by exp(old maximum - new maximum) before you add what the new block brings.",
        "For each block: `new_max = torch.maximum(row_max, block.amax(dim=-1))`, then "
        "`row_sum = row_sum * torch.exp(row_max - new_max) + torch.exp(block - new_max[..., None]).sum(dim=-1)`, then "
        "`row_max = new_max`. Where new_max is -inf, subtract 0 instead: -inf - (-inf) is NaN.",
    ),
)


def rows_of_scores(*leading, keys=7):
    return case(5 * normal(*leading, keys), 3)


two_blocks = torch.tensor([1.0, 3.0, 2.0, 5.0])
small = torch.tensor([0.0, 0.6931472, 1.0986123, 1.3862944])  # the logarithms of 1, 2, 3, 4
ex.cases(
    "four scores in two blocks, by hand",
    case(small, 2).gives((torch.tensor(1.3862944), torch.tensor(2.5))).noted("the example in the text"),
)
ex.cases(
    "the largest score in the first, a middle or the last block",
    *(case(two_blocks[torch.tensor(order)], 2) for order in ([3, 0, 1, 2], [0, 3, 1, 2], [0, 1, 2, 3])),
    case(rows_of_scores(4, keys=6).args[0], 2),
)
ex.cases("the last block is shorter", *(case(rows_of_scores(4).args[0], size) for size in (2, 3, 4, 5, 6)))
ex.cases("one block for all, and one for each score", *(case(rows_of_scores(4).args[0], size) for size in (7, 9, 1)))
large = torch.tensor([[4000.0, 3999.0, -4000.0, 4001.0, 3998.0], [-4000.0, -4001.0, -3999.0, -4002.0, -4000.0]])
ex.cases("scores of some thousands, of both signs", case(large, 2), case(large.flip(-1), 2), case(large, 5))
hidden = torch.tensor([[HIDDEN, HIDDEN, HIDDEN, 1.0, 2.0], [1.0, 2.0, HIDDEN, HIDDEN, HIDDEN], [HIDDEN] * 5])
ex.cases("scores of -inf: a whole block, and a whole row", *(case(hidden, size) for size in (2, 3, 1)))
ex.promises(rows_of_scores, "leading", "sizes", "dtypes", "gradients", "device")


@ex.check("never more than one block of each row")
def _(answer, rng):
    call = case(normal(4, 60), 5)
    expect_no_larger(answer, call, 4 * 5, "Each row has 4 times 5 scores in a block: compute with these, and no more.")


@ex.check("read once, from left to right")
def _(answer, rng):
    call = case(normal(4, 23), 5)
    with Reads(call.args[0]) as reads:
        getattr(answer, "answer", answer)(*call.args)
    newest = 0
    for first, last in reads.spans:
        if first // 5 < newest:
            words = f"scores {first} to {last} of the rows are read after score {5 * newest}"
            raise Mismatch(
                None,
                None,
                f"online_softmax of 4 rows of 23 scores, block_k=5: {words}. Each block is read once, from left to "
                "right: no loop over all scores for the maximum alone.",
            )
        newest = last // 5


ex.mistake(
    "the maximum starts at 0",
    {"scores.new_full(scores.shape[:-1], -torch.inf)": "scores.new_zeros(scores.shape[:-1])"},
    hint="Where all scores of a row are below 0, so is its maximum. Start at -inf, which is below every score.",
)
ex.mistake(
    "the old sum is not rescaled",
    {"row_sum * rescale": "row_sum"},
    hint="The old sum was made with the old maximum. When the maximum grows, multiply the old sum by "
    "exp(old maximum - new maximum).",
)
ex.mistake(
    "the running maximum is not updated",
    {"row_max = new_max": "row_max = torch.where(row_max == -torch.inf, new_max, row_max)"},
    hint="After each block the maximum so far becomes the new one. Yours keeps that of the first block.",
)
ex.mistake(
    "rescaled in the wrong direction",
    {"torch.exp(row_max - shift)": "torch.exp(shift - row_max).masked_fill(row_max == -torch.inf, 0)"},
    hint="exp(s - new) = exp(s - old) · exp(old - new): the factor is exp(old - new), which is 1 at most.",
)
ex.mistake(
    "the last block is left out when it is shorter",
    {"blocks(scores.shape[-1], block_k)": "blocks(scores.shape[-1] // block_k * block_k, block_k)"},
    hint="The number of keys need not be a multiple of `block_k`. The last block holds what is left.",
)
ex.mistake(
    "the tail of the last block is filled with zeros",
    {
        "block = scores[..., columns]": "block = torch.nn.functional.pad(scores[..., columns], (0, block_k - len(range("
        "scores.shape[-1])[columns])))"
    },
    hint="A padded place with score 0 takes part in maximum and sum. Fill with -inf, or let the last block be shorter.",
)
ex.mistake(
    "NaN where nothing is visible so far",
    {"new_max.masked_fill(new_max == -torch.inf, 0)": "new_max"},
    hint="As long as all scores are -inf, so is the maximum, and -inf - (-inf) is NaN. Subtract 0 there.",
)
ex.mistake(
    "no maximum subtracted",
    {"new_max.masked_fill(new_max == -torch.inf, 0)": "torch.zeros_like(new_max)", "torch.exp(row_max - shift)": "1"},
    hint="`row_sum` is the sum of exp(score - row_max). Without the maximum, exp of large scores is infinite.",
)
ex.mistake(
    "the sum of each block only",
    {"row_sum * rescale + ": ""},
    hint="The old sum is lost: rescale it, then *add* what the new block brings.",
)
ex.mistake(
    "the maximum of the new block alone",
    {"torch.maximum(row_max, block.amax(dim=-1))": "block.amax(dim=-1)"},
    hint="The running maximum is the larger one of the old maximum and that of the block.",
)
ex.mistake(
    "one maximum for all rows",
    {"block.amax(dim=-1)": "block.amax()"},
    hint="Every row has a maximum of its own: `amax(dim=-1)`.",
)

# ---- merge_blocks ----------------------------------------------------------------------------------------------

ex = Exercise(
    flash_attention.merge_blocks,
    points=2,
    minutes=10,
    returns=("outputs", "log_sum_exp"),
    hints=(
        "An output is a weighted mean of values. The mean over both blocks lies between the two outputs. How much "
        "weight does each block have in all?",
        "exp(log_sum_exp_a) is the whole weight of block A before it is divided, and exp(log_sum_exp_b) that of "
        "B. The share of A is its weight divided by the sum of both. Do it with logarithms: exp of a large number "
        "is infinite.",
        "`log_sum_exp = torch.logaddexp(log_sum_exp_a, log_sum_exp_b)`. The share of A is "
        "exp(log_sum_exp_a - log_sum_exp), of B the same with b. Where log_sum_exp is -inf, subtract 0 instead.",
    ),
)


def attended(scores, values):
    """What attention with these scores gives: outputs, and log-sum-exp; zeros where nothing is visible."""
    log_sum_exp = torch.logsumexp(scores, dim=-1)
    weights = torch.exp(scores - log_sum_exp.masked_fill(log_sum_exp == HIDDEN, 0).unsqueeze(-1))
    return weights @ values, log_sum_exp


def two_parts(scores, values, cut):
    """The call that merges keys before and after `cut`, and what both together give."""
    parts = *attended(scores[..., :cut], values[..., :cut, :]), *attended(scores[..., cut:], values[..., cut:, :])
    return case(*parts).gives(attended(scores, values))


ex.cases(
    "one query, weights in all 1 and 3, by hand",
    case(torch.tensor([[4.0, 0.0]]), torch.tensor([0.0]), torch.tensor([[8.0, 4.0]]), torch.tensor([1.0986123]))
    .gives((torch.tensor([[7.0, 3.0]]), torch.tensor([1.3862944])))
    .noted("the example in the text"),
)
scores, values = 3 * normal(2, 5, 7), normal(2, 7, 4, seed=1)
ex.cases("attention over all keys at once", *(two_parts(scores, values, cut) for cut in (1, 3, 6)))
ex.cases(
    "scores of some hundreds and thousands, of both signs",
    *(two_parts((scores + shift).double(), values.double(), 3) for shift in (4000, -4000)),
    two_parts(scores + 200 * (torch.arange(7) < 3), values, 3),
    two_parts(scores + 200 * (torch.arange(7) > 2), values, 3),
)
some_hidden = scores.masked_fill(normal(2, 5, 7, seed=2) < 0, HIDDEN)
some_hidden[0, 1, :3], some_hidden[0, 2, 3:], some_hidden[1, 3] = HIDDEN, HIDDEN, HIDDEN
ex.cases("queries that see nothing of A, of B, or of both", two_parts(some_hidden, values, 3))
ex.promises(ex.inputs(queries=5, d_v=4), "leading", "sizes", "dtypes", "gradients", "device")

ex.mistake(
    "the mean of the two outputs",
    {"share_a * outputs_a + share_b * outputs_b": "(outputs_a + outputs_b) / 2"},
    hint="A block with more weight counts more. The share of A is exp(log_sum_exp_a - log_sum_exp).",
)
ex.mistake(
    "the sum of the two outputs",
    {"share_a * outputs_a + share_b * outputs_b": "outputs_a + outputs_b"},
    hint="Both outputs are divided already by the sum of their own block. Multiply each by the share of its block.",
)
ex.mistake(
    "log-sum-exps added",
    {"torch.logaddexp(log_sum_exp_a, log_sum_exp_b)": "log_sum_exp_a + log_sum_exp_b"},
    hint="The *sums* are added, not their logarithms: log(exp(a) + exp(b)), which is `torch.logaddexp`.",
)
ex.mistake(
    "log-sum-exp in base 2",
    {"outputs_b, log_sum_exp": "outputs_b, torch.logaddexp2(log_sum_exp_a, log_sum_exp_b)"},
    hint="The logarithms are natural ones, as in exp: use `torch.logaddexp`, not `logaddexp2`.",
)
ex.mistake(
    "infinite for large scores",
    {"torch.logaddexp(log_sum_exp_a, log_sum_exp_b)": "torch.log(torch.exp(log_sum_exp_a) + torch.exp(log_sum_exp_b))"},
    hint="exp of some thousands is infinite, and of minus some thousands 0. `torch.logaddexp` subtracts the larger one "
    "first.",
)
ex.mistake(
    "NaN where a query sees nothing at all",
    {"log_sum_exp.masked_fill(log_sum_exp == -torch.inf, 0)": "log_sum_exp"},
    hint="Where both log-sum-exps are -inf, -inf - (-inf) is NaN. Subtract 0 there: exp(-inf) is 0.",
)
TOTAL = "(torch.exp(log_sum_exp_a) + torch.exp(log_sum_exp_b))"
ex.mistake(
    "shares of infinite sums",
    {f"torch.exp(log_sum_exp_{x} - shift)": f"(torch.exp(log_sum_exp_{x}) / {TOTAL})" for x in "ab"},
    hint="exp of some thousands is infinite, and infinite / infinite is NaN. Subtract the log-sum-exp of both first: "
    "exp(log_sum_exp_a - log_sum_exp) is the share.",
)
ex.mistake(
    "the logarithms are the weights",
    {
        "share_a * outputs_a + share_b * outputs_b": "(log_sum_exp_a.unsqueeze(-1) * outputs_a + "
        "log_sum_exp_b.unsqueeze(-1) * outputs_b) / (log_sum_exp_a + log_sum_exp_b).unsqueeze(-1)"
    },
    hint="The weight of a block is exp(log_sum_exp), not its logarithm.",
)
ex.mistake(
    "the shares exchanged",
    {"share_a * outputs_a + share_b * outputs_b": "share_b * outputs_a + share_a * outputs_b"},
    hint="The share of A belongs to the outputs of A.",
)
ex.mistake(
    "the larger of the two blocks only",
    {"share_a * outputs_a + share_b * outputs_b": "torch.where(share_a > share_b, outputs_a, outputs_b)"},
    hint="The block with less weight counts too, with its share.",
)
ex.mistake(
    "the larger log-sum-exp",
    {"torch.logaddexp(log_sum_exp_a, log_sum_exp_b)": "torch.maximum(log_sum_exp_a, log_sum_exp_b)"},
    hint="The sum over both blocks is larger than each of the two: log(exp(a) + exp(b)).",
)
ex.mistake(
    "the log-sum-exp first",
    {"return share_a": "return log_sum_exp, share_a", "outputs_b, log_sum_exp": "outputs_b"},
    hint="The outputs come first, then the log-sum-exp.",
)

# ---- tiled_attention -------------------------------------------------------------------------------------------

ex = Exercise(
    flash_attention.tiled_attention,
    points=4,
    minutes=25,
    returns=("outputs", "log_sum_exp"),
    hints=(
        "Two loops: over blocks of queries, and inside over blocks of keys. Inside, do what `online_softmax` does, and "
        "keep a third running thing: the sum of the values so far, each times exp(score - maximum so far). Call it "
        "`acc`.",
        "`acc` was made with the old maximum, like the sum: rescale both by exp(old maximum - new maximum). After the "
        "last block of keys: outputs = acc / row_sum, log_sum_exp = row_max + log(row_sum). `visible.hide(scores, "
        "rows, columns)` puts -inf where a query may not attend.",
        "For each block of keys: `scores = visible.hide(q @ k.mT, rows, columns)`, where q is scaled; `weights = "
        "torch.exp(scores - shift[..., None])`; `row_sum = row_sum * rescale + weights.sum(dim=-1)`; `acc = acc * "
        "rescale[..., None] + weights @ v`. A row that sees nothing has row_sum 0: divide by 1 there.",
    ),
)


def vectors(*leading, queries=5, keys=7, d_k=6, d_v=4, seed=0, **settings):
    sizes = (queries, d_k), (keys, d_k), (keys, d_v)
    inputs = (normal(*leading, *size, seed=seed + i) for i, size in enumerate(sizes))
    return case(*inputs, **{"block_q": 2, "block_k": 3, **settings})


def pytorchs(call, mask=None):
    """The case with what PyTorch's own function gives for it."""
    q, k, v = call.args
    shown = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool) if mask is None else mask
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~shown, HIDDEN)
    return call.gives((F.scaled_dot_product_attention(q, k, v, shown), torch.logsumexp(scores, dim=-1)))


def top_left(n_queries, n_keys):
    return torch.ones(n_queries, n_keys, dtype=torch.bool).tril()


q_hand, k_hand = torch.tensor([[1.0]]), torch.tensor([[0.0], [0.6931472], [1.0986123], [1.3862944]])
v_hand = torch.tensor([[10.0], [5.0], [0.0], [0.0]])
ex.cases(
    "one query and four keys in two blocks, by hand",
    case(q_hand, k_hand, v_hand, block_q=1, block_k=2)
    .gives((torch.tensor([[2.0]]), torch.tensor([2.3025851])))
    .noted("the example in the text"),
)
ex.cases(
    "as PyTorch's own function, whatever the size of the blocks",
    *(pytorchs(vectors(2, block_q=i, block_k=j)) for i, j in ((2, 3), (5, 7), (4, 2), (1, 1), (9, 9))),
)
square = {"queries": 7, "keys": 7}
ex.cases(
    "causal",
    *(
        pytorchs(vectors(2, **square, is_causal=True, block_q=i, block_k=j), causal_mask(7, 7))
        for i, j in ((2, 3), (3, 2))
    ),
)
ex.cases(
    "causal, with more keys than queries: the last query sees the last key",
    pytorchs(vectors(is_causal=True, queries=3, keys=8), causal_mask(3, 8)),
    pytorchs(vectors(is_causal=True, queries=1, keys=8), causal_mask(1, 8)),
)
ex.cases(
    'causal, with align="start": the first query sees the first key only',
    pytorchs(vectors(is_causal=True, align="start", queries=3, keys=8), top_left(3, 8)),
    pytorchs(vectors(is_causal=True, align="start", queries=8, keys=3), top_left(8, 3)),
)
ex.cases(
    "queries that see nothing get outputs 0 and log-sum-exp -inf",
    vectors(is_causal=True, queries=8, keys=3).noted("causal: rows 0 to 4 see no key"),
    vectors(is_causal=True, queries=8, keys=3, block_q=3, block_k=2),
)
shown = normal(2, 5, 7, seed=5) < 0.4
shown[0, 1] = False
padding = padding_mask(torch.tensor([3, 0]), 7)
ex.cases(
    "a mask, also one of padding, and together with the causal one",
    vectors(2, mask=shown).noted("one row is all False"),
    vectors(2, mask=padding),
    vectors(2, mask=padding, is_causal=True),
    vectors(2, mask=shown[0]),
)
far = case(20 * normal(5, 6), -20 * normal(5, 6), normal(5, 4, seed=2), block_q=2, block_k=2)
ex.cases(
    "scores of some hundreds, of both signs, where the last block is short",
    far,
    case(far.args[0], 20 * normal(5, 6), far.args[2], block_q=2, block_k=2),
    case(torch.full((2, 4), 10.0), torch.full((5, 4), -10.0), normal(5, 3), block_q=2, block_k=4).noted(
        "all scores -200"
    ),
)
ex.promises(vectors, "leading", "sizes", "dtypes", "device")
ex.device("with masks it would work on a GPU too", vectors(2, is_causal=True, mask=shown))
ex.raises(ValueError, "a ValueError where `align` is no known word", vectors(is_causal=True, align="top"))
ex.raises(ValueError, "a ValueError where the mask does not fit", vectors(2, mask=shown[:, :, 1:]))


@ex.check("never more than a tile of scores")
def _(answer, rng):
    call = vectors(queries=48, keys=96, d_k=2, d_v=3, block_q=16, block_k=8)
    expect_no_larger(
        answer, call, 96 * 3, "The inputs have 288 numbers at most, and a tile has 16 times 8 = 128 scores."
    )


ACC = "acc = acc * rescale.unsqueeze(-1) + weights @ v"
ex.mistake(
    "the accumulator is not rescaled",
    {ACC: "acc = acc + weights @ v"},
    hint="`acc` was made with the old maximum. When the maximum grows, multiply it by exp(old - new), as the sum.",
)
ex.mistake(
    "the sum is not rescaled",
    {"row_sum * rescale": "row_sum"},
    hint="The old sum was made with the old maximum: multiply it by exp(old - new), as the accumulator.",
)
ex.mistake(
    "the running maximum is not updated",
    {"row_max = new_max": "row_max = torch.where(row_max == -torch.inf, new_max, row_max)"},
    hint="After each block of keys, the maximum so far becomes the new one.",
)
ex.mistake(
    "the tail of the last block of keys is not masked",
    {
        "k, v = keys[..., columns, :].to(wide), values[..., columns, :].to(wide)": "more = block_k - (columns.stop - "
        "columns.start); k, v = (torch.nn.functional.pad(x[..., columns, :], (0, 0, 0, more)).to(wide) for x in "
        "(keys, values))",
        "visible.hide(q @ k.mT, rows, columns)": "visible.hide((q @ k.mT)[..., : block_k - more], rows, columns); "
        "scores = torch.nn.functional.pad(scores, (0, more))",
    },
    hint="A last block that is filled up with zeros has keys that do not exist. Their score is 0, and they take "
    "weight. Hide them with -inf, or let the block be shorter.",
)
ex.mistake(
    "the last keys are left out when they do not fill a block",
    {"blocks(n_keys, block_k)": "blocks(max(n_keys // block_k, 1) * block_k if n_keys > block_k else n_keys, block_k)"},
    hint="The number of keys need not be a multiple of `block_k`: the last block holds what is left.",
)
ex.mistake(
    "log-sum-exp in base 2",
    {"row_max + torch.log(row_sum)": "row_max * 1.4426950408889634 + torch.log2(row_sum)"},
    hint="The log-sum-exp is a natural logarithm: row_max + log(row_sum).",
)
ex.mistake(
    "the log-sum-exp has half precision",
    {"queries.new_empty(queries.shape[:-1], dtype=wide)": "queries.new_empty(queries.shape[:-1])"},
    hint="For inputs of half precision the log-sum-exp must stay float32: only the outputs get the dtype of the "
    "values.",
)
ex.mistake(
    "the maximum plus the sum",
    {"row_max + torch.log(row_sum)": "row_max + row_sum"},
    hint="The log-sum-exp is row_max + *log*(row_sum).",
)
ex.mistake(
    "aligned to the end in all cases",
    {"mask, is_causal, align)": 'mask, is_causal, causal_offset(1, 1, align) or "end")'},
    hint='With align="start" the first query sees the first key only: give `align` to `what_is_visible`.',
)
ex.mistake(
    "log-sum-exp without the maximum",
    {"row_max + torch.log(row_sum)": "torch.log(row_sum).masked_fill(row_sum == 0, -torch.inf)"},
    hint="`row_sum` is the sum of exp(score - row_max). The logarithm of the sum of exp(score) is "
    "row_max + log(row_sum).",
)
ex.mistake(
    "no scale",
    {".to(wide) * scale": ".to(wide)"},
    hint="The scores are divided by √d_k, as in lesson 03.",
)
ex.mistake(
    "divided after every block",
    {ACC: "acc = (acc * rescale.unsqueeze(-1) + weights @ v) / row_sum.masked_fill(row_sum == 0, 1).unsqueeze(-1)"},
    hint="`acc` is a sum that is not divided yet. Divide by `row_sum` once, after the last block of keys.",
)
ex.mistake(
    "causal is ignored",
    {"mask, is_causal, align)": "mask, False, align)"},
    hint="Where `is_causal` is true, later keys are hidden: `visible.hide(scores, rows, columns)` does it.",
)
ex.mistake(
    "aligned to the start in all cases",
    {"mask, is_causal, align)": 'mask, is_causal, causal_offset(1, 1, align) or "start")'},
    hint='With align="end" the last query sees the last key: query i sees keys 0 to i + n_keys - n_queries.',
)
ex.mistake(
    "the mask of the first block of queries for all",
    {"visible.hide(q @ k.mT, rows, columns)": "visible.hide(q @ k.mT, slice(0, rows.stop - rows.start), columns)"},
    hint="`hide` must know where the tile stands: give it this tile's rows and columns.",
)
ex.mistake(
    "NaN where a query sees nothing",
    {"new_max.masked_fill(new_max == -torch.inf, 0)": "new_max"},
    hint="-inf - (-inf) is NaN: as long as a row has seen nothing, subtract 0 instead of its maximum.",
)
ex.mistake(
    "0 / 0 where a query sees nothing",
    {"row_sum.masked_fill(row_sum == 0, 1).unsqueeze(-1)": "row_sum.unsqueeze(-1)"},
    hint="A query that sees nothing has the sum 0, and 0 / 0 is NaN. Divide by 1 there: its outputs are 0.",
)

# ---- tiled_attention_backward ----------------------------------------------------------------------------------

ex = Exercise(
    flash_attention.tiled_attention_backward,
    points=4,
    minutes=25,
    returns=("grad_queries", "grad_keys", "grad_values"),
    hints=(
        "First one tile. Its weights are exp(scores - log_sum_exp): no division, no maximum, nothing of other tiles. "
        "Then come the formulas of the table above, in their order.",
        "For each tile: weights, grad_weights = grad_outputs · valuesᵀ, grad_scores = weights · (grad_weights - "
        "delta). Each tile *adds* to the gradients of its rows and its columns: weightsᵀ · grad_outputs to "
        "grad_values, grad_scoresᵀ · queries · scale to grad_keys, grad_scores · keys · scale to grad_queries.",
        "Two passes: for each block of keys, loop over the blocks of queries and add up grad_keys and grad_values; "
        "then for each block of queries, loop over the blocks of keys and add up grad_queries. One pass that adds into "
        "three tensors of zeros is right too. Where log_sum_exp is -inf, put +inf: exp(-inf) is 0.",
    ),
)


def backwards(call, seed=7):
    """The call of the backward pass that belongs to a call of the forward pass, for random gradients of the outputs."""
    outputs, log_sum_exp = flash_attention.tiled_attention(*call.args, **call.kwargs)
    return case(normal(*outputs.shape, seed=seed).to(outputs.dtype), *call.args, outputs, log_sum_exp, **call.kwargs)


def back(*leading, **settings):
    return backwards(vectors(*leading, **settings))


# One signature for the names and sizes that the engine reads.
def sized(*leading, queries=5, keys=7, d_k=6, d_v=4):
    return back(*leading, queries=queries, keys=keys, d_k=d_k, d_v=d_v)


def autograds(call, shown=None):
    """The case with what autograd gives for PyTorch's own function."""
    inputs = [x.clone().requires_grad_() for x in call.args[1:4]]
    outputs = F.scaled_dot_product_attention(*inputs, attn_mask=shown)
    return call.gives(torch.autograd.grad(outputs, inputs, call.args[0]))


ln3 = torch.tensor([[1.0986123], [0.0]])
ex.cases(
    "one query and two keys, by hand",
    case(
        *(torch.tensor([[1.0]]), torch.tensor([[1.0]]), ln3, torch.tensor([[4.0], [8.0]])),
        *(torch.tensor([[5.0]]), torch.tensor([1.3862944])),
        block_q=1,
        block_k=1,
    )
    .gives((torch.tensor([[-0.8239592]]), torch.tensor([[-0.75], [0.75]]), torch.tensor([[0.75], [0.25]])))
    .noted("the example in the text"),
)
ex.cases(
    "as autograd through PyTorch's own function, whatever the size of the blocks",
    *(autograds(back(2, block_q=i, block_k=j)) for i, j in ((2, 3), (5, 7), (4, 2), (1, 1), (9, 9))),
)
ex.cases(
    "causal",
    *(
        autograds(back(2, **square, is_causal=True, block_q=i, block_k=j), causal_mask(7, 7))
        for i, j in ((2, 3), (3, 2))
    ),
)
ex.cases(
    "causal, with more keys than queries",
    autograds(back(is_causal=True, queries=3, keys=8), causal_mask(3, 8)),
)
ex.cases(
    'causal, with align="start"',
    autograds(back(is_causal=True, align="start", queries=3, keys=8), top_left(3, 8)),
    autograds(back(is_causal=True, align="start", queries=8, keys=3), top_left(8, 3)),
)
ex.cases("queries that see nothing have gradient 0 and give none", back(is_causal=True, queries=8, keys=3))
ex.cases(
    "a mask, also one of padding, and together with the causal one",
    *(back(2, mask=shown), back(2, mask=padding), back(2, mask=padding, is_causal=True), back(2, mask=shown[0])),
)
ex.cases(
    "scores of some hundreds, of both signs",
    *(
        backwards(case(factor * normal(5, 6), 20 * normal(5, 6), normal(5, 4, seed=2), block_k=2).to(torch.float64))
        for factor in (20, -20)
    ),
)
ex.promises(sized, "leading", "sizes", "dtypes", "device")
ex.device("with masks it would work on a GPU too", back(2, is_causal=True, mask=shown))


@ex.check("never more than a tile of weights")
def _(answer, rng):
    call = back(queries=48, keys=96, d_k=2, d_v=3, block_q=16, block_k=8)
    expect_no_larger(
        answer, call, 96 * 3, "The inputs have 288 numbers at most, and a tile has 16 times 8 = 128 weights."
    )


WEIGHTS = "torch.exp(scores - log_sums[..., rows, :])"
GRAD_SCORES = "weights * (grad_o @ v.mT - delta[..., rows, :])"
ex.mistake(
    "delta is forgotten",
    {GRAD_SCORES: "weights * (grad_o @ v.mT)"},
    hint="A softmax gives to each score its weight times (grad_weight - delta), where delta is the weighted mean of "
    "all grad_weights of the row: the sum of outputs · grad_outputs.",
)
ex.mistake(
    "delta of one tile only",
    {GRAD_SCORES: "weights * (grad_o @ v.mT - (weights * (grad_o @ v.mT)).sum(dim=-1, keepdim=True))"},
    hint="The sum of weights · grad_weights goes over the whole row, and a tile is only a part of it. delta, the sum "
    "of outputs · grad_outputs, is the same sum, and needs no tile.",
)
ex.mistake(
    "delta without the gradient of the outputs",
    {"(outputs.to(wide) * grad_outputs.to(wide))": "outputs.to(wide)"},
    hint="delta is the sum over d_v of outputs *times* grad_outputs, one number for each query.",
)
ex.mistake(
    "the scale is forgotten in the gradient of the keys",
    {"grad_scores.mT @ q * scale": "grad_scores.mT @ q"},
    hint="The scores are q · k · scale, so the gradient of the keys has this factor too.",
)
ex.mistake(
    "the scale is forgotten in the gradient of the queries",
    {"grad_scores @ k * scale": "grad_scores @ k"},
    hint="The scores are q · k · scale, so the gradient of the queries has this factor too.",
)
ex.mistake(
    "the scale is forgotten in both gradients",
    {"grad_scores.mT @ q * scale": "grad_scores.mT @ q", "grad_scores @ k * scale": "grad_scores @ k"},
    hint="The scores are q · k · scale, so the gradients of queries and keys have this factor too.",
)
ex.mistake(
    "the scale is forgotten where the weights are computed again",
    {"q @ k.mT * scale": "q @ k.mT"},
    hint="The weights of the backward pass must be those of the forward pass: the scores are q · k · scale.",
)
ex.mistake(
    "causal is ignored in the backward pass",
    {"mask, is_causal, align)": "mask, False, align)"},
    hint="What was hidden forward has weight 0, so no gradient goes there: hide the scores here, too.",
)
ex.mistake(
    "aligned to the start in all cases",
    {"mask, is_causal, align)": 'mask, is_causal, "start")'},
    hint='With align="end" the last query sees the last key: the backward pass must hide what the forward pass hid.',
)
ex.mistake(
    "the mask is ignored in the backward pass",
    {"queries, keys, mask, is_causal, align": "queries, keys, None, is_causal, align"},
    hint="What was hidden forward has weight 0, so no gradient goes there: hide the scores here, too.",
)
ex.mistake(
    "only the last tile counts",
    {"grad_v += ": "grad_v = ", "grad_k += ": "grad_k = ", "grad_q += ": "grad_q = "},
    hint="Every tile of a row or a column *adds* to the gradient: `+=`.",
)
ex.mistake(
    "log-sum-exp taken for base 2",
    {WEIGHTS: "torch.exp2(scores - log_sums[..., rows, :])"},
    hint="The log-sum-exp is a natural logarithm: the weights are exp(scores - log_sum_exp).",
)
ex.mistake(
    "NaN where a query sees nothing",
    {"log_sum_exp.masked_fill(log_sum_exp == -torch.inf, torch.inf)": "log_sum_exp"},
    hint="A query that sees nothing has log-sum-exp -inf, and -inf - (-inf) is NaN. Put +inf there: exp(-inf) is 0.",
)
ex.mistake(
    "the gradient of the weights is taken for that of the scores",
    {GRAD_SCORES: "grad_o @ v.mT"},
    hint="Between scores and weights stands the softmax: grad_scores = weights · (grad_weights - delta).",
)
ex.mistake(
    "the softmax of each tile on its own",
    {WEIGHTS: "torch.softmax(scores, dim=-1).nan_to_num(0)"},
    hint="The weights of a tile are a part of the row: exp(scores - log_sum_exp), not a softmax over the tile.",
)

# ---- memory_traffic --------------------------------------------------------------------------------------------

ex = Exercise(
    flash_attention.memory_traffic,
    points=1,
    minutes=5,
    hints=(
        "Count three things: the queries that are loaded, the keys and values that are loaded, what is stored. Which "
        "of them depends on the number of blocks?",
        "Queries: n_queries · d_k. Keys and values: n_keys · (d_k + d_v), once for each block of queries. Stored: "
        "n_queries · (d_v + 1).",
        "The number of blocks is n_queries / block_q rounded *up*: `-(-n_queries // block_q)` or `math.ceil`.",
    ),
)

ex.cases(
    "4 queries in 2 blocks, 6 keys, d_k 3, d_v 5: by hand",
    case(4, 6, 3, 5, 2).gives(132).noted("12 queries' numbers, 2 times 48 of keys and values, 24 stored"),
)
ex.cases("the last block is shorter", case(5, 6, 3, 5, 2).gives(15 + 3 * 48 + 30), case(7, 4, 2, 2, 3))
ex.cases("one block for all queries", case(5, 7, 3, 4, 5).gives(15 + 49 + 25), case(5, 7, 3, 4, 100).gives(89))
ex.cases("one query in each block, and one query in all", case(5, 7, 3, 4, 1), case(1, 7, 3, 4, 8))
ex.cases(
    "exact, also when the numbers are many",
    case(10**9 + 1, 10**9 + 7, 128, 64, 64).gives((10**9 + 1) * 193 + 15_625_001 * (10**9 + 7) * 192),
)


@ex.check("what the running code moves")
def _(answer, rng):
    for n_queries, n_keys, d_k, d_v, block_q in ((24, 30, 4, 6, 8), (25, 9, 5, 3, 8)):
        tensors = torch.zeros(n_queries, d_k), torch.zeros(n_keys, d_k), torch.zeros(n_keys, d_v)
        run = partial(flash_attention.tiled_attention, block_q=block_q, block_k=5)
        wanted = flash_attention.counted_traffic(run, *tensors, fast_numbers=100)
        call = n_queries, n_keys, d_k, d_v, block_q
        expect(answer(*call), wanted, f"memory_traffic{call}: what was counted while tiled_attention ran")


ROUNDED_UP = "-(-n_queries // block_q)"
ex.mistake(
    "the number of blocks is rounded down",
    {ROUNDED_UP: "n_queries // block_q"},
    hint="A shorter last block must meet all keys, too: round the number of blocks up.",
)
ex.mistake(
    "a fraction of a block",
    {
        ROUNDED_UP: "n_queries / block_q",
        "return loaded + n_queries * (d_v + 1)": "return int(loaded + n_queries * (d_v + 1))",
    },
    hint="A shorter last block still loads all keys: the number of blocks is a whole number, rounded up.",
)
ex.mistake(
    "a float where an int is asked for",
    {"return loaded + n_queries * (d_v + 1)": "return float(loaded + n_queries * (d_v + 1))"},
    hint="`/` makes a float, also where nothing is left over. Count with `//` or `math.ceil`, and return an int.",
)
ex.mistake(
    "one block more than there are",
    {ROUNDED_UP: "n_queries // block_q + 1"},
    hint="Where block_q divides n_queries, there is no block more. Round up: `-(-n_queries // block_q)`.",
)
ex.mistake(
    "keys and values are loaded only once",
    {"n_blocks * n_keys": "n_keys"},
    hint="Every block of queries must meet all keys and values, and they do not all fit into fast memory: they are "
    "loaded once *for each block of queries*.",
)
ex.mistake(
    "the log-sum-exp is forgotten",
    {"(d_v + 1)": "d_v"},
    hint="Beside its outputs, every query stores one number more: its log-sum-exp.",
)
ex.mistake(
    "the queries are loaded for each block",
    {"n_queries * d_k +": "n_blocks * n_queries * d_k +"},
    hint="Each query belongs to one block, and is loaded once.",
)
ex.mistake(
    "the values are forgotten",
    {"(d_k + d_v)": "d_k"},
    hint="With the keys come their values: n_keys · (d_k + d_v) for each block of queries.",
)
ex.mistake(
    "the outputs are stored after every block of keys",
    {"return loaded + n_queries * (d_v + 1)": "return loaded + n_blocks * n_queries * (d_v + 1)"},
    hint="The sum `acc` stays in fast memory while keys come and go. It is stored once, when it is complete.",
)
ex.mistake(
    "bytes instead of numbers",
    {"return loaded + n_queries * (d_v + 1)": "return 4 * (loaded + n_queries * (d_v + 1))"},
    hint="Count numbers, not bytes.",
)
ex.mistake(
    "the blocks hold keys, not queries",
    {ROUNDED_UP: "-(-n_keys // block_q)"},
    hint="There are n_queries / block_q blocks of queries. Each of them loads all keys.",
)
