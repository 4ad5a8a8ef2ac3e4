"""Right answers to lesson 02's exercises, in many forms."""

from collections import namedtuple
from fractions import Fraction
from typing import Any, NamedTuple

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.lessons.attention_translator import (
    alignment_scores,
    attention_weights,
    context_vector,
)

# ---- alignment_scores


def alignment_scores__multiply_and_sum(query, states):
    return (query.unsqueeze(-2) * states).sum(dim=-1)


def alignment_scores__matrix_product(query, states):
    return (states @ query.unsqueeze(-1)).squeeze(-1)


def alignment_scores__row_times_matrix(query, states):
    return (query[..., None, :] @ states.mT)[..., 0, :]


def alignment_scores__einsum(query, states):
    return torch.einsum("...h,...th->...t", query, states)


def alignment_scores__vecdot(query, states):
    return torch.linalg.vecdot(states, query.unsqueeze(-2))


def alignment_scores__position_by_position(query, states):
    steps = range(states.shape[-2])
    return torch.stack([(query * states[..., t, :]).sum(-1) for t in steps], dim=-1)


def alignment_scores__double_loop(query, states):
    queries = query.reshape(-1, query.shape[-1])
    tables = states.reshape(-1, *states.shape[-2:])
    rows = []
    for q, table in zip(queries, tables, strict=True):
        rows.append(torch.stack([torch.dot(h, q) for h in table]))
    return torch.stack(rows).reshape(states.shape[:-1])


def alignment_scores__number_by_number(query, states):
    total = torch.zeros_like(states[..., 0])
    for i in range(query.shape[-1]):
        total = total + query[..., i : i + 1] * states[..., i]
    return total


def alignment_scores__bmm(query, states):
    flat = states.reshape(-1, *states.shape[-2:])
    scores = torch.bmm(flat, query.reshape(len(flat), -1, 1))
    return scores.reshape(states.shape[:-1])


def alignment_scores__recursion(query, states):
    def one(q, h):
        if q.dim() == 1:
            return h @ q
        return torch.stack([one(*pair) for pair in zip(q, h, strict=True)])

    return one(query, states)


def alignment_scores__vmap(query, states):
    function = torch.mv
    for _ in range(query.dim() - 1):
        function = torch.vmap(function)
    return function(states, query)


def alignment_scores__float64_and_back(query, states):
    wide = query.double().unsqueeze(-2).mul(states.double())
    return wide.sum(-1).to(states.dtype)


# ---- attention_weights


def attention_weights__masked_fill(scores, lengths):
    positions = torch.arange(scores.shape[-1], device=scores.device)
    padding = positions >= lengths.unsqueeze(-1)
    return torch.softmax(scores.masked_fill(padding, -torch.inf), dim=-1)


def attention_weights__where(scores, lengths):
    valid = torch.arange(scores.shape[-1]).to(scores.device) < lengths[..., None]
    return F.softmax(torch.where(valid, scores, float("-inf")), dim=-1)


def attention_weights__formula(scores, lengths):
    steps = torch.arange(scores.shape[-1], device=scores.device)
    padding = steps >= lengths.unsqueeze(-1)
    scores = scores.masked_fill(padding, -torch.inf)
    powers = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    return powers / powers.sum(dim=-1, keepdim=True)


def attention_weights__zero_times_finite(scores, lengths):
    steps = torch.arange(scores.shape[-1], device=scores.device)
    valid = steps < lengths.unsqueeze(-1)
    lowest = torch.finfo(scores.dtype).min
    safe = torch.where(valid, scores, torch.full_like(scores, lowest))
    powers = torch.exp(safe - safe.max(dim=-1, keepdim=True).values) * valid
    return powers / powers.sum(dim=-1, keepdim=True)


def attention_weights__lowest_number(scores, lengths):
    steps = torch.arange(scores.shape[-1], device=scores.device)
    hidden = steps >= lengths.unsqueeze(-1)
    return scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1)


def attention_weights__sentence_by_sentence(scores, lengths):
    time = scores.shape[-1]
    rows = []
    for row, n in zip(scores.reshape(-1, time), lengths.reshape(-1), strict=True):
        weights = torch.softmax(row[:n], dim=0)
        rows.append(F.pad(weights, (0, time - int(n))))
    return torch.stack(rows).reshape(scores.shape)


def attention_weights__cat_zeros(scores, lengths):
    def one(row, n):
        if n.dim() > 0:
            return torch.stack([one(*pair) for pair in zip(row, n, strict=True)])
        zeros = torch.zeros_like(row[n.item() :])
        return torch.cat([row[: n.item()].softmax(dim=0), zeros])

    return one(scores, lengths)


def attention_weights__index_put(scores, lengths):
    steps = torch.arange(scores.shape[-1], device=scores.device)
    padding = (steps >= lengths.unsqueeze(-1)).expand_as(scores)
    scores = scores.clone()
    scores[padding] = -torch.inf
    return scores.softmax(dim=-1)


def attention_weights__logsumexp(scores, lengths):
    steps = torch.arange(1, scores.shape[-1] + 1, device=scores.device)
    masked = torch.where(steps > lengths.unsqueeze(-1), -torch.inf, scores)
    masked = masked - masked.amax(dim=-1, keepdim=True)
    return (masked - masked.logsumexp(dim=-1, keepdim=True)).exp()


def attention_weights__float64_and_back(scores, lengths):
    steps = torch.arange(scores.shape[-1], device=scores.device)
    padding = ~(steps < lengths.unsqueeze(-1))
    wide = scores.double().masked_fill(padding, -torch.inf)
    return torch.softmax(wide, dim=-1).to(scores.dtype)


def attention_weights__replaced_then_added(scores, lengths):
    valid = torch.ones_like(scores).cumsum(-1) <= lengths.unsqueeze(-1)
    hide = torch.zeros_like(scores).masked_fill(~valid, -torch.inf)
    return torch.softmax(scores.masked_fill(~valid, 0) + hide, dim=-1)


def attention_weights__masked_scatter(scores, lengths):
    steps = torch.arange(scores.shape[-1], device=scores.device)
    valid = steps < lengths.unsqueeze(-1)
    empty = torch.full_like(scores, -torch.inf)
    return nn.Softmax(-1)(empty.masked_scatter(valid, scores[valid]))


# ---- context_vector


def context_vector__multiply_and_sum(weights, states):
    return (weights.unsqueeze(-1) * states).sum(dim=-2)


def context_vector__matrix_product(weights, states):
    return (weights.unsqueeze(-2) @ states).squeeze(-2)


def context_vector__transposed_product(weights, states):
    return torch.matmul(states.transpose(-2, -1), weights[..., None])[..., 0]


def context_vector__einsum(weights, states):
    return torch.einsum("...t,...th->...h", weights, states)


def context_vector__position_by_position(weights, states):
    context = 0
    for t in range(weights.shape[-1]):
        context = context + weights[..., t, None] * states[..., t, :]
    return context


def context_vector__unit_by_unit(weights, states):
    units = [(weights * unit).sum(dim=-1) for unit in states.unbind(dim=-1)]
    return torch.stack(units, dim=-1)


def context_vector__bmm(weights, states):
    flat = states.reshape(-1, *states.shape[-2:])
    context = torch.bmm(weights.reshape(len(flat), 1, -1), flat)
    return context.reshape(*states.shape[:-2], states.shape[-1])


def context_vector__recursion(weights, states):
    def one(a, h) -> Any:
        if a.dim() > 1:
            return torch.stack([one(x, y) for x, y in zip(a, h, strict=True)])
        return sum(weight * state for weight, state in zip(a, h, strict=True))

    return one(weights, states)


def context_vector__running_sum(weights, states):
    return torch.cumsum(weights[..., None] * states, dim=-2)[..., -1, :]


def context_vector__linear(weights, states):
    tables = states.reshape(-1, *states.shape[-2:])
    rows = weights.reshape(-1, weights.shape[-1])
    out = [F.linear(a, h.T) for a, h in zip(rows, tables, strict=True)]
    return torch.stack(out).reshape(states.shape[:-2] + states.shape[-1:])


def context_vector__float64_and_back(weights, states):
    return (weights.double()[..., None, :] @ states.double())[..., 0, :].to(states)


# ---- decoder_step


def decoder_step__four_lines(previous, state, states, lengths, score, cell, output):
    weights = attention_weights(score(state, states), lengths)
    context = context_vector(weights, states)
    state = cell(torch.cat([previous, context], dim=-1), state)
    return output(torch.cat([state, context], dim=-1)), state, weights


def decoder_step__inner_functions(
    previous,
    state,
    states,
    lengths,
    score,
    cell,
    output,
):
    def attend():
        steps = torch.arange(states.shape[-2], device=states.device)
        padding = steps >= lengths[..., None]
        scores = score(state, states).masked_fill(padding, -torch.inf)
        return torch.softmax(scores, dim=-1)

    def beside(a, b):
        return torch.cat((a, b), -1)

    weights = attend()
    context = torch.einsum("...t,...th->...h", weights, states)
    new_state = cell(beside(previous, context), state)
    return output(beside(new_state, context)), new_state, weights


def decoder_step__named_tuple(previous, state, states, lengths, score, cell, output):
    Step = namedtuple("Step", ["logits", "state", "weights"])
    weights = attention_weights(scores=score(state, states), lengths=lengths)
    context = (weights[..., None, :] @ states)[..., 0, :]
    new = cell(torch.cat([previous, context], -1), state)
    logits = output(torch.cat([new, context], -1))
    return Step(logits=logits, state=new, weights=weights)


def decoder_step__typed_tuple(previous, state, states, lengths, score, cell, output):
    class Step(NamedTuple):
        logits: Tensor
        state: Tensor
        weights: Tensor

    e = score(state, states)
    a = attention_weights(e, lengths)
    c: Any = sum(a[..., i, None] * states[..., i, :] for i in range(a.shape[-1]))
    s = cell(torch.concat([previous, c], dim=-1), state)
    z = torch.concat([s, c], dim=-1)
    return Step(output(z), s, a)


def decoder_step__padded_sums(previous, state, states, lengths, score, cell, output):
    def beside(a, b):
        return F.pad(a, (0, b.shape[-1])) + F.pad(b, (a.shape[-1], 0))

    weights = attention_weights(score(state, states), lengths)
    context = context_vector(weights, states)
    new_state = cell(beside(previous, context), state)
    return (output(beside(new_state, context)), new_state, weights)


def decoder_step__where(previous, state, states, lengths, score, cell, output):
    scores = score(state, states)
    valid = torch.arange(scores.shape[-1]).to(scores.device) < lengths.unsqueeze(-1)
    weights = torch.where(valid, scores, -torch.inf).softmax(dim=-1)
    context = states.mul(weights.unsqueeze(-1)).sum(-2)
    inputs = torch.cat([previous, context], dim=previous.dim() - 1)
    new_state = cell(inputs, state)
    features = torch.cat([new_state, context], dim=new_state.dim() - 1)
    logits = output(features)
    return logits, new_state, weights


def decoder_step__a_loop(previous, state, states, lengths, score, cell, output):
    results = [attention_weights(score(state, states), lengths)]
    context = context_vector(results[0], states)
    for function, left, rest in ((cell, previous, [state]), (output, None, [])):
        left = results[-1] if left is None else left
        results.append(function(torch.cat([left, context], dim=-1), *rest))
    return tuple(reversed(results))


class DecoderStep(nn.Module):
    """The four lines as a module."""

    def forward(self, previous, state, states, lengths, score, cell, output):
        self_weights = attention_weights(score(state, states), lengths)
        context = context_vector(self_weights, states)
        new_state = cell(torch.cat([previous, context], dim=-1), state)
        logits = output(torch.cat([new_state, context], dim=-1))
        return logits, new_state, self_weights


decoder_step__module = DecoderStep()


def decoder_step__rows(previous, state, states, lengths, score, cell, output):
    scores = score(state, states)
    flat, rows = scores.reshape(-1, scores.shape[-1]), []
    for row, n in zip(flat, lengths.flatten().tolist(), strict=True):
        rows.append(torch.cat([row[:n].softmax(0), torch.zeros_like(row[n:])]))
    weights = torch.stack(rows).view_as(scores)
    context = alignment_scores(weights, states.mT)
    h = cell(torch.cat([previous, context], dim=-1), state)
    return output(torch.cat([h, context], dim=-1)), h, weights


# ---- alignment_error_rate


def alignment_error_rate__formula(links, sure, possible):
    if not links and not sure:
        return 0.0
    right = len(links & sure) + len(links & possible)
    return 1 - right / (len(links) + len(sure))


def alignment_error_rate__methods(links, sure, possible):
    total = len(links) + len(sure)
    found = len(links.intersection(sure)) + len(links.intersection(possible))
    return 1.0 - found / total if total else 0.0


def alignment_error_rate__counting(links, sure, possible):
    found = total = 0
    for link in links:
        found += (link in sure) + (link in possible)
        total += 1
    for _ in sure:
        total += 1
    return 0.0 if total == 0 else (total - found) / total


def alignment_error_rate__division_error(links, sure, possible):
    try:
        share = (len(links & sure) + len(links & possible)) / (len(links) + len(sure))
    except ZeroDivisionError:
        return 0.0
    return 1 - share


def alignment_error_rate__fraction(links, sure, possible):
    if len(links) + len(sure) == 0:
        return float(0)
    right = len(set(links) & set(sure)) + len(set(links) & set(possible))
    return float(1 - Fraction(right, len(links) + len(sure)))


def alignment_error_rate__numpy_float(links, sure, possible):
    total = len(links) + len(sure)
    right = numpy.float64(len(links & sure) + len(links & possible))
    return numpy.float64(1) - right / total if total > 0 else numpy.float64(0)


def alignment_error_rate__set_differences(links, sure, possible):
    errors = len(links - possible) + len(sure - links)
    return errors / max(len(links) + len(sure), 1)


def alignment_error_rate__sum_of_members(links, sure, possible):
    links, sure = list(links), list(sure)
    right = sum(link in sure for link in links) + sum(x in possible for x in links)
    return 1 - right / len(links + sure) if links + sure else 0.0


def alignment_error_rate__tensor_item(links, sure, possible):
    if not (links or sure):
        return 0.0
    counts = torch.tensor([len(links & sure), len(links & possible)])
    total = torch.tensor(len(links) + len(sure), dtype=torch.float64)
    return (1 - counts.sum() / total).item()


alignment_error_rate__lambda = lambda links, sure, possible: (  # noqa: E731
    (len(links - possible) + len(sure - links)) / max(1, len([*links, *sure]))
)
