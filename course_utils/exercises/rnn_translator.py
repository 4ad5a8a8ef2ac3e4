"""Lesson 01's exercises: one recurrent step, the state and the loss that ignore padding, and greedy decoding."""

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.exercises import Exercise, case, expect, normal, note
from course_utils.lessons import rnn_translator


def integers(low, high, *shape, seed=0):
    """Random numbers from `low` to `high` - 1."""
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


# ---- rnn_step ------------------------------------------------------------------------------------------------

ex = Exercise(
    rnn_translator.rnn_step,
    points=1,
    minutes=5,
    hints=(
        "There are two products: what is read now with `w_x`, and the old state with `w_h`. In PyTorch `@` multiplies "
        "matrices, and it takes extra dimensions in front.",
        "torch.tanh goes around the whole sum of the two products and the bias.",
    ),
)


def pytorchs_step(x, h, w_x, w_h, b):
    """What nn.RNNCell calls: it has transposed weights, and a second bias."""
    return torch.rnn_tanh_cell(x, h, w_x.T, w_h.T, b, torch.zeros_like(b))


step_inputs = ex.inputs(inputs=5, hidden=7)
batch = step_inputs(3)

ex.cases(
    "two numbers that you can follow",
    case(*(torch.tensor(v) for v in ([1.0], [0.5], [[2.0]], [[-1.0]], [0.25])))
    .gives(torch.tensor([0.941376]))
    .noted("tanh(1 · 2 + 0.5 · (-1) + 0.25)"),
)
ex.cases("a batch of 3, as nn.RNNCell computes it", batch.gives(pytorchs_step(*batch.args)))
ex.promises(step_inputs, "leading", "sizes", "dtypes", "gradients", "device")
ex.cases("as many inputs as hidden units", *(step_inputs(*lead, inputs=4, hidden=4) for lead in ((), (3,))))

SUM = "x @ w_x + h @ w_h + b"
ex.mistake(
    "the products the wrong way round",
    {SUM: "w_x @ x + w_h @ h + b"},
    hint="`x` stands on the left: `x @ w_x`. Shapes (…, inputs) times (inputs, hidden) give (…, hidden).",
)
ex.mistake(
    "no tanh",
    {"torch.tanh": ""},
    hint="Without tanh the state can grow without limit, step after step. Put tanh around the sum.",
)
ex.mistake(
    "the bias outside the tanh",
    {SUM + ")": "x @ w_x + h @ w_h) + b"},
    hint="The bias belongs inside: tanh(… + b). Then the state stays within -1 and 1.",
)
ex.mistake("the bias is forgotten", {" + b": ""}, hint="Add the bias `b` to the two products, inside the tanh.")
ex.mistake(
    "the bias is added twice",
    {" + b": " + 2 * b"},
    hint="There is one bias: it is added once to the sum of the two products, not to each of them.",
)
ex.mistake(
    "no tanh and no bias",
    {"torch.tanh": "", " + b": ""},
    hint="Two parts are missing: the bias `b`, and the tanh around the whole sum.",
)
ex.mistake(
    "the old state is not used",
    {" + h @ w_h": ""},
    hint="Without `h @ w_h` the network forgets everything it read before.",
)
ex.mistake(
    "the old state is added without `w_h`",
    {"h @ w_h": "h"},
    hint="The old state goes through its own weight first: `h @ w_h`.",
)
ex.mistake(
    "a tanh around each product",
    {SUM: "x @ w_x) + torch.tanh(h @ w_h + b"},
    hint="Add first, then take one tanh of the whole sum. A sum of two tanh can be larger than 1.",
)
ex.mistake(
    "sigmoid instead of tanh",
    {"tanh": "sigmoid"},
    hint="The sigmoid gives 0 to 1. Elman's step uses tanh, which gives -1 to 1.",
)
ex.mistake(
    "sigmoid instead of tanh, and no bias",
    {"tanh": "sigmoid", " + b": ""},
    hint="Two things: the bias `b` is missing, and Elman's step uses tanh (-1 to 1) where you have a sigmoid (0 to 1).",
)
ex.mistake(
    "relu instead of tanh",
    {"tanh": "relu"},
    hint="relu turns negative numbers into 0, and sets no limit to large ones. Elman's step uses tanh.",
)
ex.mistake(
    "`w_h` transposed",
    {"w_h": "w_h.T"},
    hint="`w_h` is (hidden, hidden), so its transpose fits too, but the formula has h W_h.",
)
ex.mistake(
    "both weights transposed",
    {SUM: "F.linear(x, w_x) + F.linear(h, w_h) + b"},
    hint="The weights are (inputs, hidden) and (hidden, hidden): `x @ w_x`, without a transpose. `F.linear(x, w)` "
    "means x @ w.T.",
)
ex.mistake(
    "`x` and `h` meet each other's weights",
    {SUM: "torch.cat([x, h], dim=-1) @ torch.cat([w_h, w_x]) + b"},
    hint="`x` is multiplied with `w_x`, and `h` with `w_h`. If you put them side by side, use the same order for both.",
)
ex.mistake(
    "no gradient reaches the old state",
    {"h @ w_h": "h.detach() @ w_h"},
    hint="The network learns through `h`, from step to step. Do not cut it off: no `detach`, no `.data`.",
)
ex.mistake(
    "always float32",
    {SUM + ")": SUM + ").float()"},
    hint="The new state has the dtype of the inputs. Do not convert it.",
)

# ---- last_valid_state ----------------------------------------------------------------------------------------

ex = Exercise(
    rnn_translator.last_valid_state,
    points=2,
    minutes=15,
    hints=(
        "Positions count from 0. A sentence of length 3 has its last valid token at position 2.",
        "For a batch, `states[torch.arange(batch), lengths - 1]` picks one state per sentence. To allow any leading "
        "dimensions, make a mask: compare `torch.arange(time, device=lengths.device)` with `(lengths - 1)[..., None]`.",
        "`states[mask]` has one row per sentence, in order. Reshape it to `(*lengths.shape, hidden)`.",
        "Another way: `index = (lengths - 1)[..., None, None].expand(*lengths.shape, 1, states.shape[-1])`, then "
        "`states.gather(-2, index).squeeze(-2)`.",
    ),
)


def sentences(*leading, time=5, hidden=7):
    return case(normal(*leading, time, hidden), integers(1, time + 1, *leading, seed=1))


states, lengths = normal(5, 7, 4), torch.tensor([4, 7, 1, 2, 6])
two = normal(2, 5, 3)
behind = torch.arange(5) >= torch.tensor([[2], [4]])


def padded_with(value):
    return case(two.masked_fill(behind[..., None], value), torch.tensor([2, 4])).noted(f"{value} in the padding")


ex.cases(
    "three sentences that you can follow",
    case(torch.arange(24.0).reshape(3, 4, 2), torch.tensor([1, 3, 4]))
    .gives(torch.tensor([[0.0, 1.0], [12.0, 13.0], [22.0, 23.0]]))
    .noted("states [[[0, 1], [2, 3], [4, 5], [6, 7]], [[8, 9], …"),
)
ex.cases(
    "a batch of 5 sentences of up to 7 tokens",
    case(states, lengths).gives(torch.stack([row[n - 1] for row, n in zip(states, lengths.tolist(), strict=True)])),
)
ex.promises(sentences, "leading", "sizes", "dtypes", "gradients", "device")
ex.cases(
    "what stands in the padding does not matter",
    *(padded_with(value).gives(torch.stack([two[0, 1], two[1, 3]])) for value in (100.0, torch.nan, torch.inf)),
)
ex.gradients(
    "the gradient reaches the last valid state only",
    *(padded_with(value) for value in (0.0, torch.nan, torch.inf)),
)


def one_hot(states, lengths):
    """1 at the last valid position of each sentence, 0 elsewhere."""
    return F.one_hot(lengths - 1, states.shape[-2]).to(states.dtype)[..., None]


def sum_of_valid(states, lengths):
    padding = torch.arange(states.shape[-2], device=states.device) >= lengths[..., None]
    return states.masked_fill(padding[..., None], 0).sum(dim=-2)


LAST = "(lengths - 1)"
ex.mistake(
    "multiplied by a mask",
    lambda states, lengths: (states * one_hot(states, lengths)).sum(dim=-2),
    hint="0 times NaN is NaN. Choose the state with an index or a mask in square brackets; do not multiply.",
)
ex.mistake(
    "the last position, padding included",
    lambda states, lengths: states[..., -1, :],
    hint="`states[:, -1]` is the state after padding. Use the lengths.",
)
ex.mistake(
    "`states[:, -1]`",
    lambda states, lengths: states[:, -1],
    hint="That is the last position of the table, where short sentences have padding. Use the lengths.",
)
ex.mistake(
    "one position too far",
    {LAST: "lengths"},
    hint="Positions count from 0: the last valid position is `lengths - 1`.",
)
ex.mistake(
    "one position too far, but not beyond the table",
    {LAST: "lengths.clamp(max=states.shape[-2] - 1)"},
    hint="Positions count from 0: the last valid position is `lengths - 1`. Then no `clamp` is needed.",
)
ex.mistake(
    "one position too early",
    {LAST: "(lengths - 2).clamp(min=0)"},
    hint="A sentence of length 3 has the positions 0, 1 and 2, so its last one is `lengths - 1`.",
)
ex.mistake(
    "counted from the end",
    {LAST: "(states.shape[-2] - lengths)"},
    hint="`lengths` counts from the left, and so does a position: the last valid one is `lengths - 1`, not -lengths.",
)
ex.mistake(
    "the mean over the valid states",
    lambda states, lengths: sum_of_valid(states, lengths) / lengths[..., None],
    hint="Only one state is asked for: the last valid one, not a mean.",
)
ex.mistake(
    "the sum of the valid states",
    sum_of_valid,
    hint="Only one state is asked for: compare the positions with `lengths - 1` by `==`, not by `<`.",
)
ex.mistake(
    "the length of the longest sentence for all",
    lambda states, lengths: states[..., int(lengths.max()) - 1, :],
    hint="Each sentence has its own length: index each row on its own.",
)
ex.mistake(
    "the first state",
    lambda states, lengths: states[..., 0, :],
    hint="Position 0 has read only one word. The last valid position has read them all.",
)
ex.mistake(
    "every length for every sentence",
    lambda states, lengths: states[..., lengths - 1, :],
    hint="`states[:, lengths - 1]` takes all positions from *each* sentence. "
    "`states[torch.arange(batch), lengths - 1]` pairs each sentence with its own length.",
)
ex.mistake(
    "only for lengths of shape (batch,)",
    lambda states, lengths: states[torch.arange(len(states), device=states.device), lengths - 1],
    hint="For one sentence, without a batch, the first dimension of `states` is the time. `gather` along dimension -2, "
    "or a mask, works for any number of leading dimensions.",
)
ex.mistake(
    "the first hidden unit only",
    {".expand(*lengths.shape, 1, states.shape[-1])": ""},
    hint="`gather` gives as many numbers as its index has: expand the index to all hidden units.",
)
ex.mistake(
    "the dimension of the time is still there",
    {".squeeze(-2)": ""},
    hint="Your result is (…, 1, hidden). Drop that dimension: `.squeeze(-2)`.",
)
ex.mistake(
    "always float32",
    {".squeeze(-2)": ".squeeze(-2).float()"},
    hint="The result has the dtype of the states. `torch.zeros(…)` is float32 on the CPU, `states.new_zeros(…)` takes "
    "after the states.",
)

# ---- masked_cross_entropy ------------------------------------------------------------------------------------

ex = Exercise(
    rnn_translator.masked_cross_entropy,
    points=2,
    minutes=10,
    hints=(
        "Two steps: which positions are words (position < length of this sentence)? Then take the mean loss of those.",
        "The mask: `torch.arange(time, device=lengths.device) < lengths.unsqueeze(-1)` is True at words.",
        "Choose, do not multiply: `logits[valid]` keeps the valid rows only. Multiplying a loss of NaN by 0 gives NaN.",
        "`F.cross_entropy(logits[valid], targets[valid])` is the mean over the rows that are left.",
    ),
)


def predictions(*leading, time=6, vocabulary=9):
    return case(
        normal(*leading, time, vocabulary),
        integers(0, vocabulary, *leading, time, seed=1),
        integers(1, time + 1, *leading, seed=2),
    )


def token_by_token(logits, targets, lengths):
    rows = [(logits[i, t], targets[i, t]) for i, n in enumerate(lengths.tolist()) for t in range(n)]
    return sum(F.cross_entropy(row, target) for row, target in rows) / len(rows)


logits, targets, _ = predictions(3).args
three = logits, targets, torch.tensor([6, 1, 3])
clean = logits[:2], targets[:2], torch.tensor([2, 5])
padding = torch.arange(6) >= clean[2][:, None]


def rubbish(logit, word=0):
    dirty = clean[0].masked_fill(padding[..., None], logit), clean[1].masked_fill(padding, word), clean[2]
    return case(*dirty).noted(f"in the padding every logit is {logit}, every target {word}")


ex.cases(
    "uniform logits cost log(vocabulary)",
    case(torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.long), torch.tensor([3, 1]))
    .gives(torch.tensor(4.0).log())
    .noted("4 words, all equally likely: log 4 nats"),
)
ex.cases(
    "sentences of different lengths: every token counts the same",
    case(*three).gives(token_by_token(*three)).noted("a mean over 10 tokens"),
)
ex.promises(predictions, "leading", "sizes", "dtypes", "gradients", "device")
ex.cases(
    "what stands in the padding does not matter",
    *(
        rubbish(logit, word).gives(token_by_token(*clean))
        for logit, word in ((100.0, 0), (torch.nan, 8), (-torch.inf, 0), (torch.inf, -1), (0.0, -100), (torch.nan, 9))
    ),
)
ex.gradients("no gradient reaches the padding", *(rubbish(logit) for logit in (0.0, torch.nan, torch.inf)))


@ex.check("the gradient of the padding is exactly 0", kind="gradients")
def _(answer, rng):
    dirty, words, lengths = rubbish(torch.nan, -1).args
    leaf = dirty.clone().requires_grad_()
    loss = answer(leaf, words.clone(), lengths.clone())
    expect(loss.detach(), token_by_token(*clean), "logits of NaN and targets of -1 in the padding: the loss")
    (gradient,) = torch.autograd.grad(loss, leaf)
    expect(bool((gradient[padding] == 0).all()), True, "the gradient of padded logits is exactly 0")


ex.cases(
    "a sentence of length 0 adds nothing",
    case(*clean[:2], torch.tensor([0, 3])).gives(F.cross_entropy(logits[1, :3], targets[1, :3])),
    case(logits[:2, None], targets[:2, None], torch.tensor([[4], [0]])).gives(
        F.cross_entropy(logits[0, :4], targets[0, :4])
    ),
)
ex.cases(
    "positions too large for float16",
    case(normal(3, 3001, 2), torch.arange(3001) % 2 * torch.ones(3, 1).long(), torch.tensor([2998, 2999, 3000])),
)
ex.cases(
    "a very unlikely word costs much, but never infinity",
    case(torch.tensor([[[0.0, -200.0]]]), torch.tensor([[1]]), torch.tensor([1])).gives(torch.tensor(200.0)),
    case(torch.tensor([[[200.0, 0.0]]]), torch.tensor([[1]]), torch.tensor([1])).gives(torch.tensor(200.0)),
    case(torch.tensor([[[-2000.0, 0.0, 2000.0]] * 2]), torch.tensor([[0, 2]]), torch.tensor([2])).gives(
        torch.tensor(2000.0)
    ),
)


def losses(logits, targets):
    """The loss of every position, padding too."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none").reshape(targets.shape)


def valid(targets, lengths):
    return torch.arange(targets.shape[-1], device=targets.device) < lengths.unsqueeze(-1)


def mean_of_means(logits, targets, lengths):
    rows, words = logits.reshape(-1, *logits.shape[-2:]), targets.reshape(-1, targets.shape[-1])
    numbers = enumerate(lengths.reshape(-1).tolist())
    return torch.stack([F.cross_entropy(rows[i, :n], words[i, :n]) for i, n in numbers if n > 0]).mean()


MEAN = "F.cross_entropy(logits[valid], targets[valid])"
SUMMED = 'F.cross_entropy(logits[valid], targets[valid], reduction="sum")'
PROBABILITY = "torch.softmax(logits[valid], dim=-1).gather(-1, targets[valid].unsqueeze(-1))"
ex.mistake(
    "softmax before F.cross_entropy",
    {"logits[valid]": "torch.softmax(logits[valid], dim=-1)"},
    hint="`F.cross_entropy` takes logits: it does the softmax itself. Here it is done twice.",
)
ex.mistake(
    "padding counts",
    lambda logits, targets, lengths: F.cross_entropy(logits.flatten(0, -2), targets.flatten()),
    hint="The mean runs over all positions, padding too. Leave the padding out.",
)
ex.mistake(
    "divided by all positions",
    {MEAN: f"{SUMMED} / valid.numel()"},
    hint="The padding's loss is left out of the sum, but its positions still count in the division.",
)
ex.mistake(
    "a mean of the sentences' means",
    mean_of_means,
    hint="A token of a short sentence counts more than one of a long sentence. Take one mean over all valid tokens.",
)
ex.mistake(
    "a sum instead of a mean",
    {MEAN: SUMMED},
    hint="Divide by the number of valid tokens, or a longer batch has a larger loss.",
)
ex.mistake(
    "divided by the number of sentences",
    {MEAN: f"{SUMMED} / lengths.numel()"},
    hint="The loss is a mean over tokens: divide by the number of valid tokens, `lengths.sum()`.",
)
ex.mistake(
    "multiplied by the mask",
    lambda logits, targets, lengths: (losses(logits, targets) * valid(targets, lengths)).sum() / lengths.sum(),
    hint="0 times NaN is NaN, and a target of -1 has no logit at all. Choose the valid positions instead.",
)
ex.mistake(
    "multiplied by the mask, and the mean over all positions",
    lambda logits, targets, lengths: (losses(logits, targets) * valid(targets, lengths)).mean(),
    hint="Two things: `mean` divides by all positions, padding too. And 0 times NaN is NaN: choose the valid positions "
    "instead of multiplying.",
)
ex.mistake(
    "padded logits and targets set to 0",
    {MEAN: "F.cross_entropy((logits * valid[..., None]).flatten(0, -2), (targets * valid).flatten())"},
    hint="Logits of 0 still cost log(vocabulary) each, and the mean still counts those positions. And 0 times NaN is "
    "NaN. Choose the valid rows: `logits[valid]`.",
)
ex.mistake(
    "one position too many",
    {"positions <": "positions <="},
    hint="Position t is valid where t < length. With <= the first padding counts too.",
)
ex.mistake(
    "one position too few",
    {"positions <": "positions + 1 <"},
    hint="Position t is valid where t < length: a sentence of length 3 has the positions 0, 1 and 2.",
)
ex.mistake(
    "the mask upside down",
    {"positions <": "positions >="},
    hint="Your mask is True at the padding. Words stand where the position is less than the length.",
)
ex.mistake(
    "targets of 0 taken for padding",
    {"positions < lengths.unsqueeze(-1)": "targets != 0"},
    hint="The lengths say what is padding, not the ids: 0 may be a word, and padding may hold any id.",
)
ex.mistake(
    "padding is left out too late",
    {MEAN: "F.cross_entropy(logits.flatten(0, -2), targets.masked_fill(~valid, -100).flatten())"},
    hint="The loss is right, but logits of NaN in the padding get a gradient of NaN: 0 times NaN. Choose the valid "
    "rows first, `logits[valid]`, and take the softmax or the loss of these only.",
)
ex.mistake(
    "the logarithm of the softmax, in two steps",
    {MEAN: f"-{PROBABILITY}.log().mean()"},
    hint="A very small probability becomes 0, and log 0 is minus infinity. `F.cross_entropy` and `log_softmax` do both "
    "steps in one, without that.",
)
ex.mistake(
    "exp without subtracting the largest logit",
    {MEAN: "(logits[valid].exp().sum(dim=-1).log() - logits[valid].gather(-1, targets[valid][:, None])[:, 0]).mean()"},
    hint="exp(200) is inf in float32. `F.cross_entropy`, `log_softmax` and `logsumexp` subtract the largest logit "
    "first.",
)
ex.mistake(
    "the sign is missing",
    {"return ": "return -"},
    hint="A loss is *minus* the logarithm of a probability, so it is never negative.",
)
ex.mistake(
    "bits instead of nats",
    {MEAN: f"{MEAN} / 0.6931471805599453"},
    hint="Nats are asked for: the natural logarithm, `torch.log`, not `log2`.",
)
ex.mistake(
    "the mean probability",
    {MEAN: f"{PROBABILITY}.mean()"},
    hint="That is how likely the words are. The loss is minus the *logarithm* of that, and then the mean "
    "over the words.",
)
ex.mistake(
    "one loss for every token",
    {"targets[valid])": 'targets[valid], reduction="none")'},
    hint="One number is asked for: the mean of these losses.",
)
ex.mistake(
    "always float32",
    {MEAN: f"{MEAN}.float()"},
    hint="The loss has the dtype of the logits. Do not convert it; `torch.tensor(0.0)` is float32.",
)

# ---- greedy_decode -------------------------------------------------------------------------------------------

ex = Exercise(
    rnn_translator.greedy_decode,
    points=3,
    minutes=20,
    hints=(
        "Keep three things between steps: the tokens to read next, the state, and which sentences have ended.",
        "`logits.argmax(dim=-1)` gives one token per sentence. That is what the next call of `step` must read.",
        "After a sentence has ended, go on calling `step` for the batch as long as any other sentence has not ended, "
        "but add no more tokens to the ended one.",
    ),
)

START, STOP, WORDS = 1, 2, 10


class Step(nn.Module):
    """A `step` made of a function of (tokens, state). It counts its calls, and notes what it is asked.

    Not at the first call: that is the same for all answers, and all that one which then raises has asked.
    """

    def __init__(self, function, batch):
        super().__init__()
        self.function, self.batch, self.calls = function, batch, 0

    def forward(self, tokens, state):
        self.calls += 1
        if self.calls > 1:
            note("asked", (tuple(tokens.shape), tuple(tokens.flatten().tolist())))
        if tuple(tokens.shape) != (self.batch,):
            raise ValueError(f"step reads tokens of shape ({self.batch},), but was given {tuple(tokens.shape)}")
        return self.function(tokens, state)


def decoding(function, state, start=(START,), stop=STOP, max_length=20):
    return case(Step(function, len(start)), state, torch.tensor(start), stop, max_length)


def says(*sentences, **others):
    """`step` says these sentences, then 9 without end. The state counts the calls."""

    def function(tokens, state):
        words = [sentence[state] if state < len(sentence) else 9 for sentence in sentences]
        return F.one_hot(torch.tensor(words, device=tokens.device), WORDS).float(), state + 1

    spoken = ", and ".join(" ".join("stop" if word == STOP else str(word) for word in words) for words in sentences)
    return decoding(function, 0, (START,) * len(sentences), **others).noted(f"`step` says {spoken}")


def logits_of(words):
    return F.one_hot(words % WORDS, WORDS).float()


def token_plus_state(tokens, state):
    return logits_of(tokens + state), state


def token_plus_growing_state(tokens, state):
    return logits_of(tokens + state), state + 1


def token_plus_both(tokens, state):
    """The state is a tuple, of which one part never changes, as in this lesson's translator."""
    context, hidden = state
    return logits_of(tokens + context + hidden), (context, hidden + 1)


def token_plus_entry(tokens, state):
    return logits_of(tokens + state["of"]), {"of": state["of"] + 2}


def recurrent(tokens, state):
    """A small RNN with random weights, whose logits are no round numbers."""
    table, w_h, w_out = (normal(*shape, seed=i).to(state) for i, shape in enumerate(((WORDS, 6), (6, 6), (6, WORDS))))
    state = torch.tanh(table[tokens] + state @ w_h)
    return state @ w_out, state


ex.cases("one sentence, until the stop token", says([5, 7, 4, STOP]).gives([[5, 7, 4]]))
ex.cases(
    "at most max_length tokens",
    says([5, 6, 7, 8, 5, 6], max_length=4).gives([[5, 6, 7, 8]]),
    says([5, STOP], max_length=1).gives([[5]]),
    says([5, 6, STOP], [STOP], max_length=0).gives([[], []]),
)
ex.cases(
    "max_length holds for every sentence of a batch",
    says([STOP], [5, 6, 7, 8, 5], max_length=4).gives([[], [5, 6, 7, 8]]),
    says([5, 6, 7, STOP], [5, 6, 7, 8, STOP], max_length=4).gives([[5, 6, 7], [5, 6, 7, 8]]),
)
ex.cases(
    "each sentence of a batch ends on its own",
    says([STOP, 5, 5], [6, STOP, 7], [8, 8, 8, STOP]).gives([[], [6], [8, 8, 8]]),
    says([5, 6, 7, STOP], [8, STOP, STOP, 4], [STOP, 3, 3, 3]).gives([[5, 6, 7], [8], []]),
)
ex.cases(
    "each token is fed back, with the new state",
    decoding(token_plus_state, torch.tensor([2, 4]), (1, 1), max_length=4)
    .gives([[3, 5, 7, 9], [5, 9, 3, 7]])
    .noted("next = token + state"),
    decoding(token_plus_growing_state, torch.tensor([2]), max_length=4)
    .gives([[3, 6, 0, 5]])
    .noted("next = token + state, which grows by 1 each step"),
)
ex.cases(
    "the state may be anything",
    decoding(token_plus_both, (torch.tensor([1, 2]), torch.tensor([1, 0])), (1, 1), max_length=4)
    .gives([[3, 6, 0, 5], [3, 6, 0, 5]])
    .noted("the state is a tuple"),
    decoding(token_plus_entry, {"of": 1}, (5, 4), max_length=3).gives([[6, 9, 4], [5, 8, 3]]).noted("a dict"),
    decoding(lambda tokens, state: (logits_of(tokens + 3), None), None, max_length=3)
    .gives([[4, 7, 0]])
    .noted("next = token + 3, and the state is always None"),
)
ex.cases(
    "each sentence has its own start token, and the stop token is the one that was given",
    decoding(token_plus_state, torch.tensor([2, 3]), (3, 1), stop=7, max_length=5)
    .gives([[5], [4]])
    .noted("next = token + state"),
    decoding(token_plus_state, torch.tensor([3, 4]), (1, 2), stop=0)
    .gives([[4, 7], [6]])
    .noted("next = token + state, where 10 is 0"),
)
ex.cases(
    "the start token may be the stop token",
    decoding(token_plus_state, torch.arange(1, 9), (*(STOP,) * 7, START), max_length=1)
    .gives([[3], [4], [5], [6], [7], [8], [9], [9]])
    .noted("next = token + state"),
)
LOGITS = torch.tensor([[-5.0, -4.0, -3.0, -2.0, -0.5], [-1e4, 0.25, -7.0, 0.5, -30.0]])
ex.cases(
    "the likeliest token, also when all logits are negative",
    decoding(lambda tokens, state: (LOGITS[:1], state), None, max_length=2)
    .gives([[4, 4]])
    .noted("logits [-5, -4, -3, -2, -0.5]"),
    decoding(lambda tokens, state: (LOGITS.half(), state), None, (1, 1), max_length=2)
    .gives([[4, 4], [3, 3]])
    .noted("logits of dtype float16"),
    decoding(lambda tokens, state: (torch.tensor([[30.0, 40.0, 0.0]]), state), None, max_length=2)
    .gives([[1, 1]])
    .noted("logits [30, 40, 0]"),
    decoding(lambda tokens, state: (LOGITS[:1, :1], state), None, max_length=2)
    .gives([[0, 0]])
    .noted("a vocabulary of one word"),
)
ex.cases(
    "a small RNN with random weights",
    decoding(recurrent, normal(4, 6, seed=5), (1, 1, 4, 7), max_length=12),
    decoding(recurrent, normal(1, 6, seed=6), (0,), stop=1, max_length=12),
)


@ex.check("no more steps than needed")
def _(answer, rng):
    for decoded, wanted, calls in (
        (says([STOP, 5, 5], [6, STOP, 5]), [[], [6]], 2),
        (says([5, 6, 7, 8, 5, 6], max_length=4), [[5, 6, 7, 8]], 4),
        (says([5], max_length=0), [[]], 0),
    ):
        step, *others = decoded.args
        expect(answer(step, *others), wanted, decoded.remark)
        expect(step.calls, calls, f"{decoded.remark}: the number of calls of `step`")


ex.device(
    "it would work on a GPU too: new tensors are made where the inputs are",
    decoding(token_plus_growing_state, torch.tensor([2, 4]), (1, 1), max_length=4).noted("next = token + state"),
    says([STOP, 5, 5], [6, STOP, 7]),
)

ex.mistake(
    "the start token is read at every step",
    {"step(tokens, state)": "step(start_tokens, state)"},
    hint="Feed back what was chosen: the next step reads the last token.",
)
ex.mistake(
    "the state is never passed on",
    {"logits, state": "logits, _"},
    hint="`step` gives a new state. Give that one to the next step.",
)
ex.mistake(
    "all sentences end with the first one",
    {"ended.all()": "ended.any()"},
    hint="A batch goes on until *all* sentences have ended; the others must not be cut.",
)
ex.mistake(
    "all sentences end with the first one, and their last words are lost",
    {"for row in (~ended)": "if ended.any():\n            break\n        for row in (~ended)"},
    hint="A batch goes on until *all* sentences have ended: `all`, not `any`. The others must not be cut.",
)
ex.mistake(
    "all sentences end with that of the first row",
    {"ended.all()": "ended[0]"},
    hint="A batch goes on until *all* sentences have ended, not only the one in row 0.",
)
ex.mistake(
    "`step` is called again although all sentences have ended",
    {"ended.all()": "False"},
    hint="Sentences end at different steps. Remember which have ended (`ended = ended | (tokens == stop_id)`), and "
    "leave the loop as soon as `ended.all()`.",
)
NOW_ENDED = "        ended = ended | (tokens == stop_id)\n"
ADD = "append(int(tokens[row]))"
ex.mistake(
    "the stop token is in the answer",
    {NOW_ENDED: "", ADD: f"{ADD}\n{NOW_ENDED}"},
    hint="The stop token ends the sentence. It is not a word of it.",
)
ex.mistake(
    "a sentence goes on after its stop token",
    {"(~ended).nonzero().flatten().tolist()": "range(len(tokens))"},
    hint="Remember which sentences have ended, and add nothing to those, although the batch still runs.",
)
ex.mistake(
    "stop tokens are left out, but the sentence goes on",
    {"(~ended)": "(tokens != stop_id)"},
    hint="What a sentence says after its stop token is no part of it. Remember which sentences have ended.",
)
ex.mistake(
    "only the newest tokens say which sentences have ended",
    {"ended | (tokens == stop_id)": "tokens == stop_id"},
    hint="A sentence that has ended once has ended for good: `ended = ended | (tokens == stop_id)`.",
)
ex.mistake(
    "the stop token is not looked for",
    {"ended | (tokens == stop_id)": "ended"},
    hint="A sentence ends before `stop_id`: compare the new tokens with it, and remember which sentences have ended.",
)
ex.mistake(
    "one list for all sentences",
    {"[[] for _ in tokens]": "[[]] * len(tokens)"},
    hint="`[[]] * n` is n times the *same* list. `[[] for _ in range(n)]` makes n lists.",
)
ex.mistake(
    "the start token is in the answer",
    {"[[] for _ in tokens]": "[[token] for token in tokens.tolist()]"},
    hint="The start token is only read. A sentence begins with the first word that `step` chooses.",
)
ex.mistake(
    "tensors instead of ints",
    {"int(tokens[row])": "tokens[row]"},
    hint="A number of a tensor is still a tensor: `int(…)`, `.item()` or `.tolist()` makes a Python int.",
)
ex.mistake(
    "a start token can end a sentence",
    {"torch.zeros_like(tokens, dtype=torch.bool)": "tokens == stop_id"},
    hint="Only a token that was *chosen* ends a sentence. At first none has ended, whatever the start tokens are.",
)
ex.mistake(
    "one token too many",
    {"range(max_length)": "range(max_length + 1)"},
    hint="A sentence has at most `max_length` tokens, and the start token is none of them.",
)
ex.mistake(
    "one token too few",
    {"range(max_length)": "range(max_length - 1)"},
    hint="A sentence may have `max_length` tokens. The start token does not count.",
)
