"""Lesson 02's exercises: scores, weights, context, one decoder step, and how far links are from gold ones."""

import torch

from course_utils.exercises import Exercise, expect, gradients
from course_utils.lessons import attention_translator
from course_utils.lessons.attention_translator import alignment_scores, attention_weights, context_vector

NAN, INF = float("nan"), float("inf")

# ---- alignment_scores ----------------------------------------------------------------------------------------

ex = Exercise(
    "alignment_scores",
    reference=attention_translator.alignment_scores,
    points=1,
    seconds=5,
    minutes=10,
    hints=(
        "A dot product multiplies number by number and adds. Which dimension of `query` and of `states` is added up? "
        "(`states @ query` works for one sentence, but not for a batch.)",
        "`query` needs a dimension for time before it can meet `states`: `query.unsqueeze(-2)` is (..., 1, hidden).",
        "`(query.unsqueeze(-2) * states).sum(dim=-1)`, or a matrix product: `states @ query.unsqueeze(-1)`.",
    ),
)


def _query_and_states(rng, *leading, time=7, hidden=4, dtype=torch.float32):
    query = torch.randn(*leading, hidden, generator=rng, dtype=dtype)
    return query, torch.randn(*leading, time, hidden, generator=rng, dtype=dtype)


@ex.check("three states that you can follow")
def _(answer, rng):
    query, states = torch.tensor([1.0, 2.0]), torch.tensor([[3.0, 0.0], [0.0, 1.0], [-1.0, 1.0]])
    expect(answer(query, states), torch.tensor([3.0, 2.0, 1.0]), "query [1, 2], states [3, 0], [0, 1], [-1, 1]")


@ex.check("a batch of 3, 7 positions, 4 hidden units")
def _(answer, rng):
    query, states = _query_and_states(rng, 3)
    wanted = torch.stack([torch.stack([q.dot(h) for h in row]) for q, row in zip(query, states, strict=True)])
    expect(answer(query, states), wanted, "query (3, 4), states (3, 7, 4)")


@ex.check("no batch, two leading dimensions, as many positions as hidden units, float64")
def _(answer, rng):
    for leading, time, dtype in [((), 7, torch.float32), ((2, 3), 7, torch.float32), ((3,), 4, torch.float64)]:
        values = _query_and_states(rng, *leading, time=time, dtype=dtype)
        expect(answer(*values), alignment_scores(*values), f"leading {leading}, {time} positions, {dtype}")


@ex.check("gradients reach the query and the states")
def _(answer, rng):
    values = _query_and_states(rng, 2)
    expect(answer(*values), alignment_scores(*values), "the scores themselves")
    got = gradients(lambda *v: answer(*v).square().sum(), values)
    wanted = gradients(lambda *v: alignment_scores(*v).square().sum(), values)
    expect(got, wanted, "gradients of query and states")


@ex.mistake(
    "scores from the decoder alone",
    hint="These scores do not depend on the encoder's states, so every position gets the same one. Compare the two.",
)
def _(query, states):
    return (query * query).sum(dim=-1, keepdim=True).expand(states.shape[:-1]).clone()


@ex.mistake("summed over time", hint="One score per position is asked for: add over `hidden`, the last dimension.")
def _(query, states):
    return (query.unsqueeze(-2) * states).sum(dim=-2)


@ex.mistake("products without their sum", hint="A dot product also adds: sum the products over `hidden`.")
def _(query, states):
    return query.unsqueeze(-2) * states


@ex.mistake(
    "divided by the square root of the size",
    hint="That scale is the subject of lesson 03. Here the score is the plain dot product.",
)
def _(query, states):
    return alignment_scores(query, states) / query.shape[-1] ** 0.5


@ex.mistake(
    "the cosine of the angle",
    hint="The dot product is asked for; do not divide by the lengths of the vectors.",
)
def _(query, states):
    return torch.cosine_similarity(query.unsqueeze(-2), states, dim=-1)


# ---- attention_weights ---------------------------------------------------------------------------------------

ex = Exercise(
    "attention_weights",
    reference=attention_translator.attention_weights,
    points=2,
    seconds=5,
    minutes=10,
    hints=(
        "Two steps: which positions are padding (position >= length)? Then a softmax in which they count nothing.",
        "`lengths.unsqueeze(-1)` is (..., 1), so it can be compared with the positions 0, 1, 2, ... of every sentence. "
        "Then `scores.masked_fill(padding, -torch.inf)`, before the softmax.",
        "`padding = torch.arange(scores.shape[-1], device=scores.device) >= lengths.unsqueeze(-1)`, then the softmax "
        "over the last dimension.",
    ),
)


def _scores(rng, *leading, time=6, dtype=torch.float32):
    scores = torch.randn(*leading, time, generator=rng, dtype=torch.float64).to(dtype)
    return scores, torch.randint(1, time + 1, leading, generator=rng)


@ex.check("three scores, then two scores and padding")
def _(answer, rng):
    scores = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 9.0]])
    wanted = torch.tensor([[0.090031, 0.244728, 0.665241], [0.5, 0.5, 0.0]])
    expect(answer(scores, torch.tensor([3, 2])), wanted, "scores [1, 2, 3] and [0, 0, 9], lengths [3, 2]")


@ex.check("a batch of 4 sentences of up to 6 tokens")
def _(answer, rng):
    scores, lengths = _scores(rng, 4)
    wanted = torch.zeros(4, 6)
    for row, n in enumerate(lengths.tolist()):
        wanted[row, :n] = torch.softmax(scores[row, :n], dim=-1)
    expect(answer(scores, lengths), wanted, f"scores (4, 6), lengths {lengths.tolist()}")


@ex.check("padded positions get exactly zero, and the others sum to one")
def _(answer, rng):
    scores, lengths = _scores(rng, 5)
    weights = answer(scores, lengths)
    expect(weights, attention_weights(scores, lengths), "the weights")
    padded = torch.arange(6) >= lengths.unsqueeze(-1)
    expect(bool((weights[padded] == 0).all()), True, "all padded weights are exactly 0")
    expect(weights.sum(dim=-1), torch.ones(5), "the sums of the rows")


@ex.check("no batch, two leading dimensions, length 1")
def _(answer, rng):
    for leading in ((), (2, 3)):
        scores, lengths = _scores(rng, *leading)
        expect(answer(scores, lengths), attention_weights(scores, lengths), f"leading dimensions {leading}")
    expect(answer(torch.tensor([-4.0, 8.0]), torch.tensor(1)), torch.tensor([1.0, 0.0]), "length 1 of 2")


@ex.check("large scores, NaN in the padding, float16")
def _(answer, rng):
    scores = torch.tensor([[1000.0, 1001.0, NAN, INF], [-1000.0, -1001.0, -1002.0, NAN]])
    lengths = torch.tensor([2, 3])
    expect(answer(scores, lengths), attention_weights(scores, lengths), "scores near 1000, NaN and inf in the padding")
    scores, lengths = _scores(rng, 3, dtype=torch.float16)
    expect(answer(scores, lengths), attention_weights(scores, lengths), "scores in float16")


@ex.check("exactly no gradient to the padding")
def _(answer, rng):
    scores, lengths = _scores(rng, 5)
    expect(answer(scores, lengths), attention_weights(scores, lengths), "the weights themselves")
    got = gradients(lambda leaf: answer(leaf, lengths).square().sum(), [scores])
    wanted = gradients(lambda leaf: attention_weights(leaf, lengths).square().sum(), [scores])
    expect(got, wanted, "gradient of the scores")


@ex.mistake("softmax over the wrong axis", hint="`dim=0` goes over the batch. The weights of *one* sentence sum to 1.")
def _(scores, lengths):
    padding = torch.arange(scores.shape[-1]) >= lengths.unsqueeze(-1)
    return torch.softmax(scores.masked_fill(padding, -torch.inf), dim=0)


@ex.mistake("weights not masked", hint="Padding gets weight too. Its score must be -inf before the softmax.")
def _(scores, lengths):
    return torch.softmax(scores, dim=-1)


@ex.mistake(
    "masked after the softmax",
    hint="The padding has taken its share of the softmax already, so the rest no longer sums to 1. Mask before it.",
)
def _(scores, lengths):
    padding = torch.arange(scores.shape[-1]) >= lengths.unsqueeze(-1)
    return torch.softmax(scores, dim=-1).masked_fill(padding, 0)


@ex.mistake("padding gets the score 0", hint="exp(0) is 1, so a score of 0 still has weight. exp(-inf) is 0.")
def _(scores, lengths):
    padding = torch.arange(scores.shape[-1]) >= lengths.unsqueeze(-1)
    return torch.softmax(scores.masked_fill(padding, 0), dim=-1)


@ex.mistake(
    "a large negative number instead of -inf",
    hint="-1e9 does not exist in float16 and raises there. -inf exists in every dtype.",
)
def _(scores, lengths):
    padding = torch.arange(scores.shape[-1]) >= lengths.unsqueeze(-1)
    return torch.softmax(scores.masked_fill(padding, -1e9), dim=-1)


@ex.mistake(
    "the mask times -inf, added",
    hint="0 times infinity is NaN, so the valid scores are lost too. `masked_fill` replaces only the padding.",
)
def _(scores, lengths):
    padding = torch.arange(scores.shape[-1]) >= lengths.unsqueeze(-1)
    return torch.softmax(scores + padding * -torch.inf, dim=-1)


@ex.mistake("the mask upside down", hint="The words are hidden and the padding is kept. Position >= length is padding.")
def _(scores, lengths):
    words = torch.arange(scores.shape[-1]) < lengths.unsqueeze(-1)
    return torch.softmax(scores.masked_fill(words, -torch.inf), dim=-1)


@ex.mistake("one position too many", hint="Position t is a word where t < length. With > the first padding counts too.")
def _(scores, lengths):
    padding = torch.arange(scores.shape[-1]) > lengths.unsqueeze(-1)
    return torch.softmax(scores.masked_fill(padding, -torch.inf), dim=-1)


# ---- context_vector ------------------------------------------------------------------------------------------

ex = Exercise(
    "context_vector",
    reference=attention_translator.context_vector,
    points=1,
    seconds=5,
    minutes=5,
    hints=(
        "Each state is multiplied by its weight, and the results are added over the positions.",
        "`weights.unsqueeze(-1)` is (..., time, 1), so it multiplies every number of a state.",
        "`(weights.unsqueeze(-1) * states).sum(dim=-2)`.",
    ),
)


def _weights_and_states(rng, *leading, time=7, hidden=4, dtype=torch.float32):
    weights = torch.softmax(torch.randn(*leading, time, generator=rng, dtype=dtype), dim=-1)
    return weights, torch.randn(*leading, time, hidden, generator=rng, dtype=dtype)


@ex.check("three states that you can follow")
def _(answer, rng):
    weights, states = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([[2.0, 0.0], [0.0, 4.0], [4.0, 4.0]])
    expect(answer(weights, states), torch.tensor([2.0, 2.0]), "weights [0.5, 0.25, 0.25]")


@ex.check("a batch of 3, 7 positions, 4 hidden units")
def _(answer, rng):
    weights, states = _weights_and_states(rng, 3)
    wanted = torch.stack([sum(w * h for w, h in zip(a, b, strict=True)) for a, b in zip(weights, states, strict=True)])
    expect(answer(weights, states), wanted, "weights (3, 7), states (3, 7, 4)")


@ex.check("no batch, two leading dimensions, as many positions as hidden units, float64")
def _(answer, rng):
    for leading, time, dtype in [((), 7, torch.float32), ((2, 3), 7, torch.float32), ((3,), 4, torch.float64)]:
        values = _weights_and_states(rng, *leading, time=time, dtype=dtype)
        expect(answer(*values), context_vector(*values), f"leading {leading}, {time} positions, {dtype}")


@ex.check("all weight on one position gives its state")
def _(answer, rng):
    states = torch.randn(2, 5, 3, generator=rng)
    weights = torch.zeros(2, 5)
    weights[0, 3], weights[1, 0] = 1.0, 1.0
    expect(answer(weights, states), torch.stack([states[0, 3], states[1, 0]]), "weight 1 at positions 3 and 0")


@ex.mistake("the plain mean of the states", hint="The weights are not used. Multiply each state by its weight first.")
def _(weights, states):
    return states.mean(dim=-2)


@ex.mistake("weighted states without their sum", hint="Add the weighted states over the positions, `dim=-2`.")
def _(weights, states):
    return weights.unsqueeze(-1) * states


@ex.mistake(
    "the sum over the hidden units", hint="The context is as wide as a state: add over time, not over `hidden`."
)
def _(weights, states):
    return (weights.unsqueeze(-1) * states).sum(dim=-1)


@ex.mistake(
    "only the state with the largest weight",
    hint="That throws the other states away, and no gradient reaches the scores. Take the weighted sum of all.",
)
def _(weights, states):
    best = weights.argmax(dim=-1)[..., None, None].expand(*weights.shape[:-1], 1, states.shape[-1])
    return states.gather(-2, best).squeeze(-2)


@ex.mistake("divided by the number of positions", hint="The weights sum to 1 already: add, and divide by nothing.")
def _(weights, states):
    return (weights.unsqueeze(-1) * states).mean(dim=-2)


# ---- decoder_step --------------------------------------------------------------------------------------------

ex = Exercise(
    "decoder_step",
    reference=attention_translator.decoder_step,
    points=3,
    seconds=5,
    minutes=15,
    hints=(
        "The docstring lists four lines. Each is one call: weights, context, new state, logits.",
        "`attention_weights(score(state, states), lengths)` gives the weights. `torch.cat([a, b], dim=-1)` puts two "
        "vectors side by side.",
        "Keep the old state until the cell has used it: attention asks with the old one, the output uses the new one.",
    ),
)


def _parts(rng, *leading, embedding=3, hidden=4, time=6, vocabulary=5):
    """The arguments of one step; cell and output are small fixed functions."""

    def random(*shape):
        return torch.randn(*shape, generator=rng)

    w_x, w_h, w_out = random(embedding + hidden, hidden), random(hidden, hidden), random(2 * hidden, vocabulary)
    lengths = torch.randint(1, time + 1, leading, generator=rng)
    values = random(*leading, embedding), random(*leading, hidden), random(*leading, time, hidden), lengths
    return *values, alignment_scores, lambda x, h: torch.tanh(x @ w_x + h @ w_h), lambda z: z @ w_out


def _same_step(answer, parts, where):
    got = answer(*parts)
    expect(type(got).__name__, "tuple", f"{where}: the kind of the result (logits, new state, weights)")
    expect(len(got), 3, f"{where}: the number of results (logits, new state, weights)")
    names = ("the weights", "the new state", "the logits")
    for name, mine, wanted in zip(names, got[::-1], attention_translator.decoder_step(*parts)[::-1], strict=True):
        expect(mine, wanted, f"{where}: {name}")


@ex.check("a batch of 2")
def _(answer, rng):
    _same_step(answer, _parts(rng, 2), "batch 2, embedding 3, hidden 4, 6 positions, 5 words")


@ex.check("no batch, and two leading dimensions")
def _(answer, rng):
    for leading in ((), (2, 3)):
        _same_step(answer, _parts(rng, *leading), f"leading dimensions {leading}")


@ex.check("as wide an embedding as a state")
def _(answer, rng):
    _same_step(answer, _parts(rng, 2, embedding=4), "embedding 4, hidden 4")


@ex.check("attention asks with the old state")
def _(answer, rng):
    asked = []

    def score(query, states):
        asked.append(query)
        return alignment_scores(query, states)

    previous, state, states, lengths, _, cell, output = _parts(rng, 2)
    answer(previous, state, states, lengths, score, cell, output)
    expect(len(asked), 1, "the number of calls of `score`")
    expect(asked[0], state, "what `score` was asked with")


@ex.check("three steps in a row, each from the state of the last")
def _(answer, rng):
    previous, state, states, lengths, *functions = _parts(rng, 2)
    mine = theirs = state
    for number in range(3):
        mine = answer(previous, mine, states, lengths, *functions)[1]
        theirs = attention_translator.decoder_step(previous, theirs, states, lengths, *functions)[1]
        expect(mine, theirs, f"the state after step {number + 1}")


def _stepper(*, ask_new=False, return_old=False, use_context=True, swap=False, mask=True, old_output=False):
    """The step with one part changed."""

    def step(previous, state, states, lengths, score, cell, output):
        everything = lengths if mask else torch.full_like(lengths, states.shape[-2])
        query = cell(torch.cat([previous, torch.zeros_like(state)], dim=-1), state) if ask_new else state
        weights = attention_weights(score(query, states), everything)
        context = context_vector(weights, states) if use_context else torch.zeros_like(state)
        pair = [context, previous] if swap else [previous, context]
        new = cell(torch.cat(pair, dim=-1), state)
        logits = output(torch.cat([state if old_output else new, context], dim=-1))
        return logits, state if return_old else new, weights

    return step


ex.mistake(
    "attention asks with a new state",
    hint="In this order attention comes first: it asks with the state from before, and the context makes the new one.",
)(_stepper(ask_new=True))
ex.mistake("the state is never passed on", hint="Return the new state: the next step must start from it.")(
    _stepper(return_old=True)
)
ex.mistake(
    "the context is not used", hint="The decoder never looks at the source. Give the context to cell and output."
)(_stepper(use_context=False))
ex.mistake("context and word in the wrong order", hint="The cell was made for [previous, context], in this order.")(
    _stepper(swap=True)
)
ex.mistake("padding is not masked", hint="`attention_weights` needs the lengths of the sentences.")(
    _stepper(mask=False)
)
ex.mistake("the word is written from the old state", hint="The output reads the *new* state and the context.")(
    _stepper(old_output=True)
)


@ex.mistake(
    "the context of the wrong step",
    hint="The output got a context made with the new state, one step too late. Make it once, with the old state.",
)
def _(previous, state, states, lengths, score, cell, output):
    weights = attention_weights(score(state, states), lengths)
    new = cell(torch.cat([previous, context_vector(weights, states)], dim=-1), state)
    late = attention_weights(score(new, states), lengths)
    return output(torch.cat([new, context_vector(late, states)], dim=-1)), new, late


# ---- alignment_error_rate ------------------------------------------------------------------------------------

ex = Exercise(
    "alignment_error_rate",
    reference=attention_translator.alignment_error_rate,
    points=1,
    seconds=5,
    minutes=5,
    hints=(
        "`a & b` is what two sets have in common, `len(a)` counts a set.",
        "Four counts: |A and S|, |A and P|, |A|, |S|. Where |A| + |S| is 0, there is nothing to divide by.",
    ),
)

_SURE = {(0, 0), (1, 2), (2, 1)}
_POSSIBLE = _SURE | {(3, 1), (1, 1)}


@ex.check("the gold links have no error")
def _(answer, rng):
    expect(answer(set(_SURE), set(_SURE), set(_POSSIBLE)), 0.0, "A = S")


@ex.check("a possible link is no error, a missing sure one is")
def _(answer, rng):
    expect(answer(_SURE | {(3, 1)}, set(_SURE), set(_POSSIBLE)), 0.0, "A = S and one possible link")
    expect(answer({(0, 0), (1, 2)}, set(_SURE), set(_POSSIBLE)), 1 - 4 / 5, "A lacks one sure link")


@ex.check("wrong links, and links the wrong way round")
def _(answer, rng):
    expect(answer({(0, 0), (3, 3)}, set(_SURE), set(_POSSIBLE)), 1 - 2 / 5, "A has one right and one wrong link")
    expect(answer({(0, 3), (1, 3)}, {(3, 0), (3, 1)}, {(3, 0), (3, 1)}), 1.0, "source and target exchanged")
    expect(answer({(3, 1)}, set(_SURE), set(_POSSIBLE)), 1 - 1 / 4, "A has one possible link only")


@ex.check("nothing asked and nothing found; frozen sets")
def _(answer, rng):
    expect(answer(set(), set(), set()), 0.0, "three empty sets")
    expect(answer(set(), set(_SURE), set(_POSSIBLE)), 1.0, "A is empty")
    expect(answer(frozenset({(0, 0)}), frozenset(_SURE), frozenset(_POSSIBLE)), 1 - 2 / 4, "frozen sets")


@ex.mistake("the share that is right, not the error", hint="The error rate is 1 minus this fraction.")
def _(links, sure, possible):
    return (len(links & sure) + len(links & possible)) / (len(links) + len(sure)) if links or sure else 0.0


@ex.mistake("possible links do not count", hint="A link in P is no error: the second term is |A and P|.")
def _(links, sure, possible):
    return 1 - 2 * len(links & sure) / (len(links) + len(sure)) if links or sure else 0.0


@ex.mistake("divided by |A| + |P|", hint="The second part of the divisor is |S|: only sure links must be found.")
def _(links, sure, possible):
    return 1 - (len(links & sure) + len(links & possible)) / (len(links) + len(possible)) if links or possible else 0.0


@ex.mistake(
    "missing links do not count", hint="This looks only at the links of A. A sure link that A lacks is an error too."
)
def _(links, sure, possible):
    return 1 - len(links & possible) / len(links) if links else 0.0


@ex.mistake("division by zero", hint="Where A and S are both empty nothing is wrong: return 0.0.")
def _(links, sure, possible):
    return 1 - (len(links & sure) + len(links & possible)) / (len(links) + len(sure))
