"""Wrong answers to lesson 02's exercises, as learners write them."""

import math

import torch
import torch.nn.functional as F

from course_utils.lessons.attention_translator import (
    alignment_scores,
    attention_weights,
    context_vector,
)

# ---- alignment_scores


def alignment_scores__states_at_query(query, states):
    """`states @ query` is right for one query only: a batch mixes rows, or raises."""
    return states @ query


def alignment_scores__summed_over_time(query, states):
    """The products are added over the positions (dim=-2), not over hidden."""
    return (query.unsqueeze(-2) * states).sum(dim=-2)


def alignment_scores__states_dot_T(query, states):
    """`.T` turns round all dimensions: right only for states without a batch."""
    return query @ states.T


def alignment_scores__unsqueeze_1(query, states):
    """`unsqueeze(1)` is the place of time after exactly one leading dimension."""
    return (query.unsqueeze(1) * states).sum(dim=-1)


def alignment_scores__scaled_softmax(query, states):
    """Two faults: divided by the root of hidden, and a softmax makes weights of it."""
    scores = (query.unsqueeze(-2) * states).sum(dim=-1) / math.sqrt(query.shape[-1])
    return torch.softmax(scores, dim=-1)


def alignment_scores__cosine(query, states):
    """The cosine of the angle: the dot product divided by both lengths."""
    return F.cosine_similarity(query.unsqueeze(-2), states, dim=-1)


def alignment_scores__squeezed(query, states):
    """`squeeze()` also removes a batch of one or a single position."""
    return (states @ query.unsqueeze(-1)).squeeze()


def alignment_scores__filled_into_float32(query, states):
    """The scores are filled into new zeros: float32 on the CPU, whatever the inputs."""
    scores = torch.zeros(states.shape[:-1])
    for t in range(states.shape[-2]):
        scores[..., t] = (query * states[..., t, :]).sum(dim=-1)
    return scores


def alignment_scores__states_detached(query, states):
    """The values are right, but `.data` cuts the states off from the gradient."""
    return torch.einsum("...h,...th->...t", query, states.data)


# ---- attention_weights


def attention_weights__mask_after_softmax(scores, lengths):
    """Multiplied by the mask after the softmax: valid weights sum to less than 1."""
    mask = torch.arange(scores.shape[-1], device=scores.device) < lengths[..., None]
    return torch.softmax(scores, dim=-1) * mask


def attention_weights__mask_upside_down(scores, lengths):
    """-inf is written where the mask of valid positions is True: words are hidden."""
    mask = torch.arange(scores.shape[-1], device=scores.device) < lengths[..., None]
    return F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)


def attention_weights__one_batch_dimension(scores, lengths):
    """`lengths[:, None]` and dim=1 need exactly one leading dimension."""
    positions = torch.arange(scores.shape[1], device=scores.device)[None, :]
    padding = positions >= lengths[:, None]
    return torch.softmax(scores.masked_fill(padding, float("-inf")), dim=1)


def attention_weights__one_position_too_many(scores, lengths):
    """`<= lengths` also keeps the first padded position."""
    positions = torch.arange(scores.shape[-1], device=scores.device)
    keep = positions <= lengths.unsqueeze(-1)
    return torch.softmax(torch.where(keep, scores, -torch.inf), dim=-1)


def attention_weights__exp_times_mask(scores, lengths):
    """Two faults: exp of a large score is inf, and NaN in padding is times 0."""
    mask = torch.arange(scores.shape[-1], device=scores.device) < lengths[..., None]
    e = torch.exp(scores) * mask
    return e / e.sum(dim=-1, keepdim=True)


def attention_weights__renormalised(scores, lengths):
    """Padding takes part in the first softmax: NaN, inf or a large score spoils all."""
    mask = torch.arange(scores.shape[-1], device=scores.device) < lengths[..., None]
    weights = torch.softmax(scores, dim=-1).masked_fill(~mask, 0)
    return weights / weights.sum(dim=-1, keepdim=True)


def attention_weights__minus_100(scores, lengths):
    """-100 instead of -inf: padding has a tiny weight, and wins over lower scores."""
    positions = torch.arange(scores.shape[-1], device=scores.device)
    padding = positions >= lengths.unsqueeze(-1)
    return torch.softmax(scores.masked_fill(padding, -100.0), dim=-1)


def attention_weights__positions_on_the_cpu(scores, lengths):
    """`torch.arange` has no device: on the CPU, though the inputs may be on a GPU."""
    padding = torch.arange(scores.shape[-1]) >= lengths.unsqueeze(-1)
    return torch.softmax(scores.masked_fill(padding, -torch.inf), dim=-1)


def attention_weights__changes_the_scores(scores, lengths):
    """`masked_fill_` writes -inf into the caller's scores."""
    positions = torch.arange(scores.shape[-1], device=scores.device)
    padding = positions >= lengths.unsqueeze(-1)
    scores.masked_fill_(padding, -torch.inf)
    return scores.softmax(dim=-1)


# ---- context_vector


def context_vector__weights_at_states(weights, states):
    """`weights @ states` is right without a batch only: others mix rows, or raise."""
    return weights @ states


def context_vector__unsqueezed_at_the_wrong_place(weights, states):
    """Weights stand along hidden, not time: raises, or is wrong where as many."""
    return (weights.unsqueeze(-2) * states).sum(dim=-2)


def context_vector__summed_over_dim_1(weights, states):
    """Added over dimension 1, which is time after exactly one leading dimension."""
    return (weights[..., None] * states).sum(dim=1)


def context_vector__bmm(weights, states):
    """torch.bmm takes three dimensions: raises unless there is one leading one."""
    return torch.bmm(weights.unsqueeze(1), states).squeeze(1)


def context_vector__numbers_in_a_loop(weights, states):
    """Two faults: weights become Python numbers, without gradient; no batch works."""
    context = torch.zeros_like(states[0])
    for i in range(len(weights)):
        context = context + weights[i].item() * states[i]
    return context


def context_vector__softmax_again(weights, states):
    """The weights, which are a softmax already, go through a second softmax."""
    weights = torch.softmax(weights, dim=-1)
    return (weights.unsqueeze(-1) * states).sum(dim=-2)


def context_vector__divided_by_the_sum(weights, states):
    """A weighted mean: differs where weights do not sum to 1, and in the gradient."""
    total = (weights.unsqueeze(-1) * states).sum(dim=-2)
    return total / weights.sum(dim=-1, keepdim=True)


def context_vector__squeezed(weights, states):
    """`squeeze()` also removes a batch of one, or a hidden dimension of one unit."""
    return (weights.unsqueeze(-2) @ states).squeeze()


def context_vector__changes_the_states(weights, states):
    """The states are multiplied in place, which changes the caller's tensor."""
    states *= weights.unsqueeze(-1)
    return states.sum(dim=-2)


# ---- decoder_step


def decoder_step__results_order(previous, state, states, lengths, score, cell, output):
    """Returns (new state, logits, weights), not (logits, new state, weights)."""
    weights = attention_weights(score(state, states), lengths)
    context = context_vector(weights, states)
    state = cell(torch.cat([previous, context], dim=-1), state)
    logits = output(torch.cat([state, context], dim=-1))
    return state, logits, weights


def decoder_step__output_order(previous, state, states, lengths, score, cell, output):
    """The output reads [context, new state], not [new state, context]."""
    weights = attention_weights(score(state, states), lengths)
    context = context_vector(weights, states)
    new_state = cell(torch.cat((previous, context), dim=-1), state)
    logits = output(torch.cat((context, new_state), dim=-1))
    return logits, new_state, weights


def decoder_step__cat_dim_1(previous, state, states, lengths, score, cell, output):
    """`cat` along dim=1, which is the last one after one leading dimension only."""
    weights = attention_weights(score(state, states), lengths)
    context = context_vector(weights, states)
    state = cell(torch.cat([previous, context], dim=1), state)
    return output(torch.cat([state, context], dim=1)), state, weights


def decoder_step__ignores_score(previous, state, states, lengths, score, cell, output):
    """`score` is not used: the scores are dot products, whatever was passed."""
    weights = attention_weights(alignment_scores(state, states), lengths)
    context = context_vector(weights, states)
    state = cell(torch.cat([previous, context], dim=-1), state)
    return output(torch.cat([state, context], dim=-1)), state, weights


def decoder_step__probabilities(previous, state, states, lengths, score, cell, output):
    """Returns the softmax of the logits, not the logits."""
    weights = attention_weights(score(state, states), lengths)
    context = context_vector(weights, states)
    state = cell(torch.cat([previous, context], dim=-1), state)
    logits = output(torch.cat([state, context], dim=-1))
    return torch.softmax(logits, dim=-1), state, weights


def decoder_step__order_and_old(previous, state, states, lengths, score, cell, output):
    """Two faults: the cell reads [context, previous], the output the old state."""
    weights = attention_weights(score(state, states), lengths)
    context = context_vector(weights, states)
    new = cell(torch.cat([context, previous], dim=-1), state)
    return output(torch.cat([state, context], dim=-1)), new, weights


def decoder_step__raw_weights(previous, state, states, lengths, score, cell, output):
    """The context is right, but the returned weights are a softmax over padding too."""
    scores = score(state, states)
    context = context_vector(attention_weights(scores, lengths), states)
    state = cell(torch.cat([previous, context], dim=-1), state)
    logits = output(torch.cat([state, context], dim=-1))
    return logits, state, torch.softmax(scores, dim=-1)


def decoder_step__squeezed(previous, state, states, lengths, score, cell, output):
    """`squeeze()` takes all sizes of 1 from the context: a batch of one raises."""
    weights = attention_weights(score(state, states), lengths)
    context = torch.matmul(weights.unsqueeze(-2), states).squeeze()
    state = cell(torch.cat([previous, context], dim=-1), state)
    return output(torch.cat([state, context], dim=-1)), state, weights


def decoder_step__detached(previous, state, states, lengths, score, cell, output):
    """The values are right, but no gradient of the logits goes through the weights."""
    weights = attention_weights(score(state, states), lengths)
    context = context_vector(weights.detach(), states)
    state = cell(torch.cat([previous, context], dim=-1), state)
    return output(torch.cat([state, context], dim=-1)), state, weights


# ---- alignment_error_rate


def alignment_error_rate__parentheses_missing(links, sure, possible):
    """No parentheses around the two counts: only |A and P| is divided, and added."""
    if not links and not sure:
        return 0.0
    return 1 - len(links & sure) + len(links & possible) / (len(links) + len(sure))


def alignment_error_rate__divided_by_the_union(links, sure, possible):
    """Divided by |A or S|, where links in both count once, instead of |A| + |S|."""
    if len(links | sure) == 0:
        return 0.0
    hits = len(links & sure) + len(links & possible)
    return 1 - hits / len(links | sure)


def alignment_error_rate__possible_without_sure(links, sure, possible):
    """The sure links are taken out of P, so the second term counts too few."""
    if not links and not sure:
        return 0.0
    only_possible = possible - sure
    hits = len(links & sure) + len(links & only_possible)
    return 1 - hits / (len(links) + len(sure))


def alignment_error_rate__small_number_in_the_divisor(links, sure, possible):
    """1e-8 in the divisor avoids the error, but two empty sets give 1.0, not 0.0."""
    hits = len(links & sure) + len(links & possible)
    return 1 - hits / (len(links) + len(sure) + 1e-8)


def alignment_error_rate__percent_of_hits(links, sure, possible):
    """Two faults: the share of hits instead of the error, and in percent."""
    if not links and not sure:
        return 0.0
    hits = len(links & sure) + len(links & possible)
    return 100 * hits / (len(links) + len(sure))


def alignment_error_rate__f_measure(links, sure, possible):
    """1 minus the harmonic mean of precision (in P) and recall (of S): not the AER."""
    if not links or not sure:
        return 0.0 if not links and not sure else 1.0
    precision = len(links & possible) / len(links)
    recall = len(links & sure) / len(sure)
    if precision + recall == 0:
        return 1.0
    return 1 - 2 * precision * recall / (precision + recall)


def alignment_error_rate__no_sure_links_means_0(links, sure, possible):
    """0.0 whenever S is empty, though the links of A may be wrong ones."""
    if not sure:
        return 0.0
    hits = len(links & sure) + len(links & possible)
    return 1 - hits / (len(links) + len(sure))


def alignment_error_rate__changes_the_links(links, sure, possible):
    """The result is right, but `links &= possible` changes the caller's set."""
    total = len(links) + len(sure)
    if total == 0:
        return 0.0
    right = len(links & sure)
    links &= possible
    return 1 - (right + len(links)) / total


def alignment_error_rate__rounded(links, sure, possible):
    """The rate is rounded to two decimals."""
    if not links and not sure:
        return 0.0
    hits = len(links & sure) + len(links & possible)
    return round(1 - hits / (len(links) + len(sure)), 2)
