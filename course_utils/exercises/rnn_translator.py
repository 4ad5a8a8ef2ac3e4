"""Lesson 01's exercises: one recurrent step, the state and the loss that ignore padding, and greedy decoding."""

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.exercises import Exercise, expect, gradients
from course_utils.lessons import rnn_translator

# ---- rnn_step ------------------------------------------------------------------------------------------------

ex = Exercise(
    "rnn_step",
    reference=rnn_translator.rnn_step,
    points=1,
    seconds=5,
    minutes=5,
    hints=(
        "There are two products: what is read now with `w_x`, and the old state with `w_h`. In PyTorch `@` multiplies "
        "matrices, and it takes extra dimensions in front.",
        "torch.tanh goes around the whole sum of the two products and the bias.",
    ),
)


def _step_inputs(rng, *leading, inputs=5, hidden=4):
    shapes = [(*leading, inputs), (*leading, hidden), (inputs, hidden), (hidden, hidden), (hidden,)]
    return [torch.randn(*shape, generator=rng) for shape in shapes]


@ex.check("two numbers that you can follow")
def _(answer, rng):
    x, h, w_x, w_h, b = (torch.tensor(v) for v in ([1.0], [0.5], [[2.0]], [[-1.0]], [0.25]))
    expect(answer(x, h, w_x, w_h, b), torch.tensor([0.941376]), "tanh(1 · 2 + 0.5 · (-1) + 0.25)")


@ex.check("a batch of 3, as nn.RNNCell computes it")
def _(answer, rng):
    x, h, w_x, w_h, b = _step_inputs(rng, 3)
    cell = nn.RNNCell(5, 4)
    cell.load_state_dict({"weight_ih": w_x.T, "weight_hh": w_h.T, "bias_ih": b, "bias_hh": torch.zeros(4)})
    expect(answer(x, h, w_x, w_h, b), cell(x, h).detach(), "3 inputs of size 5, 4 hidden units")


@ex.check("no batch, and two leading dimensions")
def _(answer, rng):
    for leading in ((), (2, 3)):
        values = _step_inputs(rng, *leading)
        expect(answer(*values), rnn_translator.rnn_step(*values), f"leading dimensions {leading}")


@ex.check("as many inputs as hidden units")
def _(answer, rng):
    values = _step_inputs(rng, 3, inputs=4)
    expect(answer(*values), rnn_translator.rnn_step(*values), "4 inputs, 4 hidden units")


@ex.check("gradients reach both weights")
def _(answer, rng):
    values = _step_inputs(rng, 3)
    expect(answer(*values), rnn_translator.rnn_step(*values), "the step itself")
    got = gradients(lambda *v: answer(*v).square().sum(), values)
    wanted = gradients(lambda *v: rnn_translator.rnn_step(*v).square().sum(), values)
    expect(got, wanted, "gradients of x, h, w_x, w_h, b")


@ex.mistake(
    "the products the wrong way round",
    hint="`x` stands on the left: `x @ w_x`. Shapes (…, inputs) times (inputs, hidden) give (…, hidden).",
)
def _(x, h, w_x, w_h, b):
    return torch.tanh(w_x @ x + w_h @ h + b)


@ex.mistake("no tanh", hint="Without tanh the state can grow without limit, step after step. Put tanh around the sum.")
def _(x, h, w_x, w_h, b):
    return x @ w_x + h @ w_h + b


@ex.mistake(
    "the bias outside the tanh", hint="The bias belongs inside: tanh(… + b). Then the state stays within -1 and 1."
)
def _(x, h, w_x, w_h, b):
    return torch.tanh(x @ w_x + h @ w_h) + b


@ex.mistake("the old state is not used", hint="Without `h @ w_h` the network forgets everything it read before.")
def _(x, h, w_x, w_h, b):
    return torch.tanh(x @ w_x + b)


@ex.mistake("sigmoid instead of tanh", hint="The sigmoid gives 0 to 1. Elman's step uses tanh, which gives -1 to 1.")
def _(x, h, w_x, w_h, b):
    return torch.sigmoid(x @ w_x + h @ w_h + b)


@ex.mistake("`w_h` transposed", hint="`w_h` is (hidden, hidden), so its transpose fits too, but the formula has h W_h.")
def _(x, h, w_x, w_h, b):
    return torch.tanh(x @ w_x + h @ w_h.T + b)


# ---- last_valid_state ----------------------------------------------------------------------------------------

ex = Exercise(
    "last_valid_state",
    reference=rnn_translator.last_valid_state,
    points=2,
    seconds=5,
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


def _states(rng, *leading, time=7, hidden=4):
    states = torch.randn(*leading, time, hidden, generator=rng)
    return states, torch.randint(1, time + 1, leading, generator=rng)


@ex.check("three sentences that you can follow")
def _(answer, rng):
    states = torch.arange(24.0).reshape(3, 4, 2)
    wanted = torch.tensor([[0.0, 1.0], [12.0, 13.0], [22.0, 23.0]])
    expect(answer(states, torch.tensor([1, 3, 4])), wanted, "lengths [1, 3, 4], 4 positions, 2 hidden units")


@ex.check("a batch of 5 sentences of up to 7 tokens")
def _(answer, rng):
    states, lengths = _states(rng, 5)
    wanted = torch.stack([row[n - 1] for row, n in zip(states, lengths.tolist(), strict=True)])
    expect(answer(states, lengths), wanted, f"lengths {lengths.tolist()}")


@ex.check("one sentence without a batch, a batch of one, and two leading dimensions")
def _(answer, rng):
    for leading in ((), (1,), (2, 3)):
        states, lengths = _states(rng, *leading)
        expect(answer(states, lengths), rnn_translator.last_valid_state(states, lengths), f"leading {leading}")


@ex.check("one position, one hidden unit, float64")
def _(answer, rng):
    states, lengths = torch.randn(3, 1, 1, generator=rng, dtype=torch.float64), torch.tensor([1, 1, 1])
    expect(answer(states, lengths), states[:, 0], "states of shape (3, 1, 1)")


@ex.check("what stands in the padding does not matter")
def _(answer, rng):
    states = torch.full((2, 5, 3), float("nan"))
    states[0, :2], states[1, :4] = torch.randn(2, 3, generator=rng), torch.randn(4, 3, generator=rng)
    wanted = torch.stack([states[0, 1], states[1, 3]])
    expect(answer(states, torch.tensor([2, 4])), wanted, "NaN in the padding of sentences of lengths [2, 4]")


@ex.check("the gradient reaches the last valid state only")
def _(answer, rng):
    states, lengths = torch.randn(2, 4, 3, generator=rng), torch.tensor([2, 4])
    leaf = states.clone().requires_grad_()
    got = answer(leaf, lengths)
    expect(got.detach(), rnn_translator.last_valid_state(states, lengths), "the states themselves")
    wanted = torch.zeros(2, 4, 3)
    wanted[0, 1], wanted[1, 3] = 1.0, 1.0
    expect(torch.autograd.grad(got.sum(), leaf)[0], wanted, "the gradient of the sum, lengths [2, 4]")


@ex.mistake(
    "multiplied by a mask",
    hint="0 times NaN is NaN. Choose the state with an index or a mask in square brackets; do not multiply.",
)
def _(states, lengths):
    mask = torch.arange(states.shape[-2]) == (lengths - 1)[..., None]
    return (states * mask[..., None]).sum(dim=-2)


@ex.mistake("the last position, padding included", hint="`states[:, -1]` is the state after padding. Use the lengths.")
def _(states, lengths):
    return states[..., -1, :]


@ex.mistake(
    "`states[:, -1]`",
    hint="That is the last position of the table, where short sentences have padding. Use the lengths.",
)
def _(states, lengths):
    return states[:, -1]


@ex.mistake("one position too far", hint="Positions count from 0: the last valid position is `lengths - 1`.")
def _(states, lengths):
    index = lengths.clamp(max=states.shape[-2] - 1)[..., None, None].expand(*lengths.shape, 1, states.shape[-1])
    return states.gather(-2, index).squeeze(-2)


@ex.mistake("the mean over the valid states", hint="Only one state is asked for: the last valid one, not a mean.")
def _(states, lengths):
    valid = torch.arange(states.shape[-2]) < lengths[..., None]
    return states.masked_fill(~valid[..., None], 0).sum(dim=-2) / lengths[..., None]


@ex.mistake(
    "the length of the longest sentence for all", hint="Each sentence has its own length: index each row on its own."
)
def _(states, lengths):
    return states[..., int(lengths.max()) - 1, :]


@ex.mistake("the first state", hint="Position 0 has read only one word. The last valid position has read them all.")
def _(states, lengths):
    return states[..., 0, :]


# ---- masked_cross_entropy ------------------------------------------------------------------------------------

ex = Exercise(
    "masked_cross_entropy",
    reference=rnn_translator.masked_cross_entropy,
    points=2,
    seconds=5,
    minutes=10,
    hints=(
        "Two steps: which positions are words (position < length of this sentence)? Then take the mean loss of those.",
        "The mask: `torch.arange(time, device=lengths.device) < lengths.unsqueeze(-1)` is True at words.",
        "Choose, do not multiply: `logits[valid]` keeps the valid rows only. Multiplying a loss of NaN by 0 gives NaN.",
        "`F.cross_entropy(logits[valid], targets[valid])` is the mean over the rows that are left.",
    ),
)


def _loss_inputs(rng, *leading, time=6, vocabulary=9):
    logits = torch.randn(*leading, time, vocabulary, generator=rng)
    targets = torch.randint(0, vocabulary, (*leading, time), generator=rng)
    return logits, targets, torch.randint(1, time + 1, leading, generator=rng)


@ex.check("uniform logits cost log(vocabulary)")
def _(answer, rng):
    got = answer(torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.long), torch.tensor([3, 1]))
    expect(got, torch.tensor(4.0).log(), "4 words, all equally likely: log 4 nats")


@ex.check("sentences of different lengths: every token counts the same")
def _(answer, rng):
    logits, targets, _ = _loss_inputs(rng, 3)
    lengths = torch.tensor([6, 1, 3])
    rows = [(logits[i, t], targets[i, t]) for i, n in enumerate(lengths.tolist()) for t in range(n)]
    wanted = sum(F.cross_entropy(row, target) for row, target in rows) / len(rows)
    expect(answer(logits, targets, lengths), wanted, "lengths [6, 1, 3]: a mean over 10 tokens")


@ex.check("one sentence without a batch, and two leading dimensions")
def _(answer, rng):
    for leading in ((), (2, 3)):
        values = _loss_inputs(rng, *leading)
        expect(answer(*values), rnn_translator.masked_cross_entropy(*values), f"leading dimensions {leading}")


@ex.check("what stands in the padding does not matter")
def _(answer, rng):
    logits, targets, _ = _loss_inputs(rng, 2)
    lengths = torch.tensor([2, 5])
    wanted = rnn_translator.masked_cross_entropy(logits, targets, lengths)
    for row, length in enumerate(lengths.tolist()):
        logits[row, length:], targets[row, length:] = float("nan"), -1
    expect(answer(logits, targets, lengths), wanted, "logits of NaN and targets of -1 in the padding")


@ex.check("no gradient reaches the padding")
def _(answer, rng):
    for rubbish in (0.0, float("nan"), float("inf")):
        logits, targets, _ = _loss_inputs(rng, 2)
        lengths = torch.tensor([2, 5])
        for row, length in enumerate(lengths.tolist()):
            logits[row, length:] = rubbish
        gradients = []
        for function in (answer, rnn_translator.masked_cross_entropy):
            leaf = logits.clone().requires_grad_()
            loss = function(leaf, targets, lengths)
            expect(loss.detach(), rnn_translator.masked_cross_entropy(logits, targets, lengths), "the loss itself")
            gradients.append(torch.autograd.grad(loss, leaf)[0])
        expect(gradients[0], gradients[1], f"the gradient of the logits, which are {rubbish} in the padding")


@ex.check("a sentence of length 0 adds nothing")
def _(answer, rng):
    logits, targets, _ = _loss_inputs(rng, 2)
    wanted = F.cross_entropy(logits[1, :3], targets[1, :3])
    expect(answer(logits, targets, torch.tensor([0, 3])), wanted, "lengths [0, 3]: a mean over 3 tokens")


def _token_losses(logits, targets):
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none").reshape(targets.shape)


def _valid(targets, lengths):
    return torch.arange(targets.shape[-1]) < lengths.unsqueeze(-1)


@ex.mistake(
    "softmax before F.cross_entropy",
    hint="`F.cross_entropy` takes logits: it does the softmax itself. Here it is done twice.",
)
def _(logits, targets, lengths):
    valid = _valid(targets, lengths)
    return F.cross_entropy(torch.softmax(logits[valid], dim=-1), targets[valid])


@ex.mistake("padding counts", hint="The mean runs over all positions, padding too. Leave the padding out.")
def _(logits, targets, lengths):
    return _token_losses(logits, targets).mean()


@ex.mistake(
    "divided by all positions",
    hint="The padding's loss is left out of the sum, but its positions still count in the division.",
)
def _(logits, targets, lengths):
    valid = _valid(targets, lengths)
    return F.cross_entropy(logits[valid], targets[valid], reduction="sum") / valid.numel()


@ex.mistake(
    "a mean of the sentences' means",
    hint="A token of a short sentence counts more than one of a long sentence. Take one mean over all valid tokens.",
)
def _(logits, targets, lengths):
    valid = _valid(targets, lengths)
    losses = torch.zeros(targets.shape).masked_scatter(
        valid, F.cross_entropy(logits[valid], targets[valid], reduction="none")
    )
    return (losses.sum(dim=-1) / lengths).mean()


@ex.mistake(
    "a sum instead of a mean", hint="Divide by the number of valid tokens, or a longer batch has a larger loss."
)
def _(logits, targets, lengths):
    valid = _valid(targets, lengths)
    return F.cross_entropy(logits[valid], targets[valid], reduction="sum")


@ex.mistake(
    "multiplied by the mask",
    hint="0 times NaN is NaN, and a target of -1 has no logit at all. Choose the valid positions instead.",
)
def _(logits, targets, lengths):
    valid = _valid(targets, lengths)
    return (_token_losses(logits, targets) * valid).sum() / valid.sum()


@ex.mistake("one position too many", hint="Position t is valid where t < length. With <= the first padding counts too.")
def _(logits, targets, lengths):
    valid = torch.arange(targets.shape[-1]) <= lengths.unsqueeze(-1)
    return F.cross_entropy(logits[valid], targets[valid])


# ---- greedy_decode -------------------------------------------------------------------------------------------

ex = Exercise(
    "greedy_decode",
    reference=rnn_translator.greedy_decode,
    points=3,
    seconds=5,
    minutes=20,
    hints=(
        "Keep three things between steps: the tokens to read next, the state, and which sentences have ended.",
        "`logits.argmax(dim=-1)` gives one token a sentence. That is what the next call of `step` must read.",
        "After a sentence has ended, go on calling `step` for the batch as long as any other sentence has not ended, "
        "but add no more tokens to the ended one.",
    ),
)

START, STOP = 1, 2


def _scripted(sentences, vocabulary=10):
    """A `step` that says these sentences, one token a call; the state counts the calls."""

    def step(tokens, state):
        wanted = [words[state] if state < len(words) else 9 for words in sentences]
        return F.one_hot(torch.tensor(wanted), vocabulary).float(), state + 1

    return step


def _counted(step):
    """The same `step`, and a list that gets the shape of the tokens of each call."""
    shapes = []

    def counted(tokens, state):
        shapes.append(list(tokens.shape))
        return step(tokens, state)

    return counted, shapes


def _chain(tokens, state):
    """The next token is the last one plus what the state holds: it shows what was fed back."""
    return F.one_hot((tokens + state) % 10, 10).float(), state


def _decode(function, step, state, batch, max_length):
    return function(step, state, torch.full((batch,), START), STOP, max_length)


@ex.check("one sentence, until the stop token")
def _(answer, rng):
    expect(_decode(answer, _scripted([[5, 7, 4, STOP]]), 0, 1, 20), [[5, 7, 4]], "a step that says 5 7 4 stop")


@ex.check("at most max_length tokens, and as many calls of `step`")
def _(answer, rng):
    step, shapes = _counted(_scripted([[5, 6, 7, 8, 5, 6]]))
    expect(_decode(answer, step, 0, 1, 4), [[5, 6, 7, 8]], "no stop token, max_length 4")
    expect(len(shapes), 4, "the number of calls of `step`, max_length 4")
    expect(_decode(answer, _scripted([[5, 6]]), 0, 1, 0), [[]], "max_length 0")


@ex.check("max_length holds for every sentence of a batch")
def _(answer, rng):
    got = _decode(answer, _scripted([[STOP], [5, 6, 7, 8, 5]]), 0, 2, 4)
    expect(got, [[], [5, 6, 7, 8]], "one sentence stops at once, the other never, max_length 4")


@ex.check("each sentence of a batch ends on its own")
def _(answer, rng):
    script = [[STOP, 5, 5], [6, STOP, 7], [8, 8, 8, STOP]]
    expect(_decode(answer, _scripted(script), 0, 3, 20), [[], [6], [8, 8, 8]], "three sentences of 0, 1 and 3 tokens")


@ex.check("each token is fed back, with the new state")
def _(answer, rng):
    expect(_decode(answer, _chain, torch.tensor([2, 4]), 2, 4), [[3, 5, 7, 9], [5, 9, 3, 7]], "next = token + state")

    def grow(tokens, state):
        return F.one_hot((tokens + state) % 10, 10).float(), state + 1

    expect(_decode(answer, grow, torch.tensor([2]), 1, 4), [[3, 6, 0, 5]], "a state that grows by 1 each step")


@ex.check("each sentence has its own start token, and the stop token is the one that was given")
def _(answer, rng):
    start_tokens, state = torch.tensor([3, 1]), torch.tensor([2, 3])
    expect(answer(_chain, state, start_tokens, 7, 5), [[5], [4]], "next = token + state, start [3, 1], stop token 7")


@ex.check("the likeliest token, also when all logits are negative")
def _(answer, rng):
    logits = torch.tensor([[-5.0, -4.0, -3.0, -2.0, -0.5]])
    got = answer(lambda tokens, state: (logits, state), None, torch.tensor([START]), STOP, 2)
    expect(got, [[4, 4]], "logits [-5, -4, -3, -2, -0.5]")


@ex.check("no more steps than needed")
def _(answer, rng):
    step, shapes = _counted(_scripted([[STOP, 5, 5], [6, STOP, 5]]))
    expect(_decode(answer, step, 0, 2, 20), [[], [6]], "two sentences of 0 and 1 tokens")
    expect(len(shapes), 2, "the number of calls of `step`; the last sentence stops at the second")
    expect(shapes, [[2], [2]], "the shapes of the tokens that `step` was given")


def _together(ended, tokens):
    return bool((tokens == STOP).all())


def _decoder(*, feed_back=True, pass_state=True, cut=True, keep_stop=False, end=lambda ended, tokens: ended.all()):
    """Greedy decoding with one part left out."""

    def decode(step, state, start_tokens, stop_id, max_length):
        tokens, sentences = start_tokens, [[] for _ in start_tokens]
        ended = torch.zeros_like(start_tokens, dtype=torch.bool)
        for _ in range(max_length):
            logits, new_state = step(tokens if feed_back else start_tokens, state)
            state = new_state if pass_state else state
            tokens = logits.argmax(dim=-1)
            now_ended = ended | (tokens == stop_id)
            hidden = (ended if keep_stop else now_ended) if cut else torch.zeros_like(ended)
            for row in (~hidden).nonzero().flatten().tolist():
                sentences[row].append(int(tokens[row]))
            ended = now_ended
            if end(ended, tokens):
                break
        return sentences

    return decode


ex.mistake(
    "the start token is read at every step", hint="Feed back what was chosen: the next step reads the last token."
)(_decoder(feed_back=False))
ex.mistake("the state is never passed on", hint="`step` gives a new state. Give that one to the next step.")(
    _decoder(pass_state=False)
)
ex.mistake(
    "all sentences end with the first one",
    hint="A batch goes on until *all* sentences have ended; the others must not be cut.",
)(_decoder(end=lambda ended, tokens: ended.any()))
ex.mistake(
    "`step` is called again although all sentences have ended",
    hint="Sentences end at different steps. Remember which have ended (`ended = ended | (tokens == stop_id)`), and "
    "leave the loop as soon as `ended.all()`.",
)(_decoder(end=_together))
ex.mistake("the stop token is in the answer", hint="The stop token ends the sentence. It is not a word of it.")(
    _decoder(keep_stop=True)
)
ex.mistake(
    "a sentence goes on after its stop token",
    hint="Remember which sentences have ended, and add nothing to those, although the batch still runs.",
)(_decoder(cut=False))


@ex.mistake(
    "stop tokens are left out, but the sentence goes on",
    hint="What a sentence says after its stop token is no part of it. Remember which sentences have ended.",
)
def _(step, state, start_tokens, stop_id, max_length):
    tokens, sentences = start_tokens, [[] for _ in start_tokens]
    ended = torch.zeros_like(start_tokens, dtype=torch.bool)
    for _ in range(max_length):
        if ended.all():
            break
        logits, state = step(tokens, state)
        tokens = logits.argmax(dim=-1)
        ended = ended | (tokens == stop_id)
        for sentence, token in zip(sentences, tokens.tolist(), strict=True):
            if token != stop_id:
                sentence.append(token)
    return sentences
