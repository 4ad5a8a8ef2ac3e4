"""Wrong answers to lesson 05's exercises; each docstring says what is wrong."""

import copy

import torch
import torch.nn.functional as F

from course_utils.lessons.masking import other_inputs

# ---- causal_mask


def causal_mask__top_left(n_queries, n_keys, device=None):
    """Aligned to the top left: query i sees keys 0 to i, also with more keys."""
    queries = torch.arange(n_queries, device=device).unsqueeze(1)
    return torch.arange(n_keys, device=device) <= queries


def causal_mask__shifted_the_wrong_way(n_queries, n_keys, device=None):
    """The diagonal is n_queries - n_keys: shifted down where it should go up."""
    ones = torch.ones(n_queries, n_keys, dtype=torch.bool, device=device)
    return torch.tril(ones, diagonal=n_queries - n_keys)


def causal_mask__smaller_than(n_queries, n_keys, device=None):
    """`<` instead of `<=`: no query sees itself."""
    queries = torch.arange(n_keys - n_queries, n_keys, device=device)
    return torch.arange(n_keys, device=device)[None, :] < queries[:, None]


def causal_mask__true_means_hidden(n_queries, n_keys, device=None):
    """Upside down: True where a query may *not* look."""
    ones = torch.ones(n_queries, n_keys, dtype=torch.bool, device=device)
    return ones.triu(diagonal=n_keys - n_queries + 1)


def causal_mask__hidden_from_the_top_left(n_queries, n_keys, device=None):
    """Two faults: True means hidden, and the mask is aligned to the top left."""
    return torch.ones(n_queries, n_keys, device=device).triu(diagonal=1).bool()


def causal_mask__numbers(n_queries, n_keys, device=None):
    """Ones and zeros of float32: the mask is not boolean."""
    ones = torch.ones(n_queries, n_keys, device=device)
    return torch.tril(ones, diagonal=n_keys - n_queries)


def causal_mask__cut_from_a_square_of_keys(n_queries, n_keys, device=None):
    """The last rows of a square of n_keys: too few where there are more queries."""
    square = torch.ones(n_keys, n_keys, dtype=torch.bool, device=device).tril()
    return square[-n_queries:]


def causal_mask__never_shifted_down(n_queries, n_keys, device=None):
    """`max(0, ...)`: with more queries than keys it is aligned to the top left."""
    ones = torch.ones(n_queries, n_keys, dtype=torch.bool, device=device)
    return ones.tril(max(0, n_keys - n_queries))


def causal_mask__first_key_for_all(n_queries, n_keys, device=None):
    """Every query sees the first key, also those that should see nothing."""
    mask = torch.ones(n_queries, n_keys, dtype=torch.bool, device=device)
    mask = mask.tril(n_keys - n_queries)
    mask[:, :1] = True
    return mask


def causal_mask__one_row_squeezed(n_queries, n_keys, device=None):
    """`squeeze` removes the dimension of the queries where there is one only."""
    ones = torch.ones(n_queries, n_keys, device=device)
    return ones.tril(n_keys - n_queries).bool().squeeze()


def causal_mask__always_on_the_cpu(n_queries, n_keys, device=None):
    """`device` is a parameter, but nothing is made there."""
    return torch.ones(n_queries, n_keys).tril(n_keys - n_queries) == 1


def causal_mask__queries_on_the_device_only(n_queries, n_keys, device=None):
    """The positions of the queries are on `device`, those of the keys on the CPU."""
    queries = torch.arange(n_keys - n_queries, n_keys, device=device)
    return torch.arange(n_keys) <= queries[:, None]


# ---- padding_mask


def padding_mask__none_none(lengths, n_keys):
    """`lengths[:, None, None]`: right for one leading dimension only."""
    positions = torch.arange(n_keys, device=lengths.device)
    return positions < lengths[:, None, None]


def padding_mask__no_dimension_for_queries(lengths, n_keys):
    """(..., n_keys): the dimension 1 for the queries is missing."""
    return torch.arange(n_keys, device=lengths.device) < lengths.unsqueeze(-1)


def padding_mask__first_padding_counts(lengths, n_keys):
    """`<=`: the first padding key of each sequence counts as a token."""
    keys = torch.arange(n_keys, device=lengths.device)
    return keys <= lengths[..., None, None]


def padding_mask__true_is_padding(lengths, n_keys):
    """Upside down: True at the padding."""
    positions = torch.arange(n_keys).to(lengths.device)
    return positions >= lengths[..., None, None]


def padding_mask__square(lengths, n_keys):
    """(..., n_keys, n_keys), in which queries at the padding see nothing."""
    real = torch.arange(n_keys, device=lengths.device) < lengths[..., None]
    return real[..., :, None] & real[..., None, :]


def padding_mask__one_row_for_each_query(lengths, n_keys):
    """The row of keys is repeated for n_keys queries, not kept once."""
    row = torch.arange(n_keys, device=lengths.device) < lengths.unsqueeze(-1)
    return row.unsqueeze(-2).expand(*lengths.shape, n_keys, n_keys)


def padding_mask__on_the_cpu(lengths, n_keys):
    """The positions have no device: they stay on the CPU, wherever lengths are."""
    return torch.arange(n_keys) < lengths[..., None, None]


def padding_mask__minus_zero(lengths, n_keys):
    """Hides the last n_keys - length keys by a slice: where none are padding, all."""
    flat = lengths.reshape(-1)
    mask = flat.new_ones((len(flat), 1, n_keys), dtype=torch.bool)
    for i, padding in enumerate((n_keys - flat).tolist()):
        mask[i, :, -padding:] = False
    return mask.reshape(*lengths.shape, 1, n_keys)


def padding_mask__at_least_one_key(lengths, n_keys):
    """A sequence of length 0 still sees one key."""
    keys = torch.arange(n_keys, device=lengths.device)
    return keys < lengths.clamp(min=1)[..., None, None]


def padding_mask__up_to_the_longest(lengths, n_keys):
    """As many keys as the longest sequence has; n_keys is not used."""
    keys = torch.arange(int(lengths.max()), device=lengths.device)
    return keys < lengths[..., None, None]


def padding_mask__batch_squeezed(lengths, n_keys):
    """Leading dimensions of size 1 are removed."""
    keys = torch.arange(n_keys, device=lengths.device)
    return keys < lengths.squeeze()[..., None, None]


# ---- masked_softmax


def masked_softmax__multiplied_afterwards(scores, mask):
    """The mask is multiplied after the softmax: what is left does not sum to 1."""
    return F.softmax(scores, dim=-1) * mask


def masked_softmax__divided_again(scores, mask):
    """Hides after the softmax, then divides: 0 / 0 where hidden scores are large."""
    weights = torch.where(mask, scores.softmax(dim=-1), 0)
    total = weights.sum(dim=-1, keepdim=True)
    return weights / total.masked_fill(total == 0, 1)


def masked_softmax__minus_1e9(scores, mask):
    """-1e9 instead of -inf: it does not exist in float16, and raises there."""
    weights = torch.softmax(scores.masked_fill(~mask, -1e9), dim=-1)
    return weights.masked_fill(~mask, 0)


def masked_softmax__minus_1e4(scores, mask):
    """-1e4 instead of -inf: not small enough where visible scores lie below it."""
    hidden = torch.where(mask, scores, torch.full_like(scores, -1e4))
    return hidden.softmax(dim=-1).masked_fill(~mask, 0)


def masked_softmax__minus_100(scores, mask):
    """-100 instead of -inf: not enough where visible scores lie near or below it."""
    weights = torch.softmax(scores.masked_fill(~mask, -100), dim=-1)
    return weights * mask


def masked_softmax__empty_rows_stay_nan(scores, mask):
    """Empty rows are NaN after the softmax, and NaN times 0 is NaN."""
    hidden = scores.masked_fill(mask == 0, float("-inf"))
    return torch.softmax(hidden, dim=-1) * mask


def masked_softmax__exp_by_hand(scores, mask):
    """`exp` without subtracting the largest score: infinity, and 0 / 0."""
    powers = scores.masked_fill(~mask, -torch.inf).exp()
    total = powers.sum(dim=-1, keepdim=True)
    return powers / torch.where(total == 0, 1, total).to(total.dtype)


def masked_softmax__exp_times_the_mask(scores, mask):
    """`exp` of all scores, hidden ones too: infinity times 0 is NaN."""
    powers = torch.exp(scores) * mask
    total = powers.sum(dim=-1, keepdim=True)
    return powers / total.masked_fill(total == 0, 1)


def masked_softmax__minus_1e4_added(scores, mask):
    """-1e4 is added: hidden infinity and NaN stay, empty rows look everywhere."""
    return F.softmax(scores + (~mask) * -1e4, dim=-1)


def masked_softmax__dimension_1(scores, mask):
    """dim=1 is that of the keys only for two dimensions."""
    hidden = scores.masked_fill(~mask, -torch.inf)
    hidden = torch.where(mask.any(dim=-1, keepdim=True), hidden, torch.zeros_like(hidden))
    return hidden.softmax(dim=1).masked_fill(~mask, 0)


def masked_softmax__minus_infinity_times_the_mask(scores, mask):
    """0 times -inf is NaN: so is every row."""
    return torch.softmax(scores + ~mask * -torch.inf, dim=-1)


def masked_softmax__infinity_added(scores, mask):
    """-inf is added: a hidden NaN or infinity stays NaN, and takes the row with it."""
    hide = torch.zeros_like(mask, dtype=scores.dtype).masked_fill(~mask, -torch.inf)
    hide = hide.masked_fill(~mask.any(dim=-1, keepdim=True), 0)
    return torch.softmax(scores + hide, dim=-1).masked_fill(~mask, 0)


def masked_softmax__nan_replaced_afterwards(scores, mask):
    """NaN is replaced after the softmax: hidden NaN makes whole rows zero."""
    hide = torch.where(mask, 0.0, -torch.inf).to(scores)
    return torch.softmax(scores + hide, dim=-1).nan_to_num(nan=0.0)


def masked_softmax__keepdim_missing(scores, mask):
    """`any` without `keepdim`: the empty rows are looked for along the wrong axis."""
    hidden = scores.masked_fill(~mask, -torch.inf)
    hidden = hidden.masked_fill(~mask.any(dim=-1), 0)
    return hidden.softmax(dim=-1).masked_fill(~mask, 0)


def masked_softmax__only_an_empty_mask(scores, mask):
    """Cares for a mask without any True, but single empty rows become NaN."""
    if not mask.any():
        return scores.masked_fill(~mask, 0)
    return torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=-1)


def masked_softmax__largest_hidden_score(scores, mask):
    """Subtracts the largest score of all, hidden ones too: visible powers become 0."""
    powers = torch.exp(scores - scores.amax(dim=-1, keepdim=True)) * mask
    total = powers.sum(dim=-1, keepdim=True)
    return powers / total.masked_fill(total == 0, 1)


def masked_softmax__changes_the_scores(scores, mask):
    """`masked_fill_` writes -inf into the scores, an input."""
    scores.masked_fill_(~mask, -torch.inf)
    return torch.softmax(scores, dim=-1).masked_fill(~mask, 0)


# ---- leaks_future


def _run(model, x, training, seed):
    """One run of a copy of the model, as it should be."""
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(seed)
        return copy.deepcopy(model).train(training)(x.clone())


def leaks_future__from_2_on(model, inputs, seed=0):
    """t counts from 2 on: a leak of input 1 into output 0 is not seen."""
    others = other_inputs(inputs, torch.Generator().manual_seed(seed))
    for training in (True, False):
        before = _run(model, inputs, training, seed)
        if before.isnan().any():
            raise ValueError("NaN")
        for t in range(2, inputs.shape[1]):
            changed = torch.cat([inputs[:, :t], others[:, t:]], dim=1)
            after = _run(model, changed, training, seed)
            if (after[:, :t] != before[:, :t]).any():
                return True
    return False


def leaks_future__compares_from_t_on(model, inputs, seed=0):
    """Compares the outputs from t on, which may change, not those before t."""
    others = other_inputs(inputs, torch.Generator().manual_seed(seed))
    for training in (True, False):
        before = _run(model, inputs, training, seed)
        if torch.isnan(before).any():
            raise ValueError("NaN in the outputs")
        for t in range(1, inputs.shape[1]):
            changed = torch.cat([inputs[:, :t], others[:, t:]], dim=1)
            after = _run(model, changed, training, seed)
            if not torch.equal(after[:, t:], before[:, t:]):
                return True
    return False


def leaks_future__output_t_too(model, inputs, seed=0):
    """Compares the outputs up to and with t: output t may use input t."""
    others = other_inputs(inputs, torch.Generator().manual_seed(seed))

    def outputs(x, training):
        torch.manual_seed(seed)
        with torch.no_grad():
            return copy.deepcopy(model).train(training)(x.clone())

    with torch.random.fork_rng():
        for training in (True, False):
            before = outputs(inputs, training)
            if before.isnan().any():
                raise ValueError("the model gives NaN")
            for t in range(1, inputs.shape[1]):
                changed = inputs.clone()
                changed[:, t:] = others[:, t:]
                after = outputs(changed, training)
                if not torch.equal(before[:, : t + 1], after[:, : t + 1]):
                    return True
    return False


def leaks_future__training_mode_only(model, inputs, seed=0):
    """Runs in training mode only: a leak in evaluation mode is not seen."""
    others = other_inputs(inputs, torch.Generator().manual_seed(seed))

    def run(x):
        trial = copy.deepcopy(model)
        trial.train()
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(seed)
            return trial(x.clone())

    before = run(inputs)
    if before.isnan().any():
        raise ValueError("NaN")
    for t in range(1, inputs.shape[1]):
        after = run(torch.cat([inputs[:, :t], others[:, t:]], dim=1))
        if not torch.equal(after[:, :t], before[:, :t]):
            return True
    return False


def leaks_future__one_position_changed(model, inputs, seed=0):
    """Changes input t alone: what needs two later inputs together is not seen."""
    others = other_inputs(inputs, torch.Generator().manual_seed(seed))
    for training in (True, False):
        before = _run(model, inputs, training, seed)
        if before.isnan().any():
            raise ValueError("NaN")
        for t in range(1, inputs.shape[1]):
            changed = inputs.clone()
            changed[:, t] = others[:, t]
            after = _run(model, changed, training, seed)
            if not torch.equal(after[:, :t], before[:, :t]):
                return True
    return False


def leaks_future__first_sequence_only(model, inputs, seed=0):
    """Compares the first sequence only: a leak in another one is not seen."""
    others = other_inputs(inputs, torch.Generator().manual_seed(seed))
    for training in (True, False):
        before = _run(model, inputs, training, seed)
        if before.isnan().any():
            raise ValueError("NaN")
        for t in range(1, inputs.shape[1]):
            changed = torch.cat([inputs[:, :t], others[:, t:]], dim=1)
            after = _run(model, changed, training, seed)
            if not torch.equal(after[0, :t], before[0, :t]):
                return True
    return False


def leaks_future__future_set_to_zero(model, inputs, seed=0):
    """The future becomes zeros: inputs that are 0 already do not change."""
    for training in (True, False):
        before = _run(model, inputs, training, seed)
        if before.isnan().any():
            raise ValueError("NaN")
        for t in range(1, inputs.shape[1]):
            changed = inputs.clone()
            changed[:, t:] = 0
            after = _run(model, changed, training, seed)
            if not torch.equal(after[:, :t], before[:, :t]):
                return True
    return False


def leaks_future__future_cut_off(model, inputs, seed=0):
    """Cuts the future off: an honest model may use the length, or round otherwise."""
    for training in (True, False):
        before = _run(model, inputs, training, seed)
        if before.isnan().any():
            raise ValueError("NaN")
        for t in range(1, inputs.shape[1]):
            after = _run(model, inputs[:, :t], training, seed)
            if not torch.equal(after, before[:, :t]):
                return True
    return False


def leaks_future__allclose(model, inputs, seed=0):
    """`torch.allclose` forgives leaks that are small."""
    others = other_inputs(inputs, torch.Generator().manual_seed(seed))
    for training in (True, False):
        before = _run(model, inputs, training, seed)
        if before.isnan().any():
            raise ValueError("NaN")
        for t in range(1, inputs.shape[1]):
            changed = torch.cat([inputs[:, :t], others[:, t:]], dim=1)
            after = _run(model, changed, training, seed)
            if not torch.allclose(after[:, :t], before[:, :t]):
                return True
    return False


def leaks_future__the_output_just_before(model, inputs, seed=0):
    """Compares output t - 1 only: a leak into an earlier one is missed."""
    others = other_inputs(inputs, torch.Generator().manual_seed(seed))
    for training in (True, False):
        before = _run(model, inputs, training, seed)
        if before.isnan().any():
            raise ValueError("NaN")
        for t in range(1, inputs.shape[1]):
            changed = torch.cat([inputs[:, :t], others[:, t:]], dim=1)
            after = _run(model, changed, training, seed)
            if (after[:, t - 1] != before[:, t - 1]).any():
                return True
    return False


def leaks_future__middle_only(model, inputs, seed=0):
    """Tries one t, in the middle."""
    others = other_inputs(inputs, torch.Generator().manual_seed(seed))
    t = inputs.shape[1] // 2
    changed = torch.cat([inputs[:, :t], others[:, t:]], dim=1)
    for training in (True, False):
        before = _run(model, inputs, training, seed)
        if before.isnan().any():
            raise ValueError("NaN")
        if not torch.equal(_run(model, changed, training, seed)[:, :t], before[:, :t]):
            return True
    return False


def leaks_future__random_numbers_for_ids(model, inputs, seed=0):
    """Adds random numbers to whatever comes in: token ids become no ids."""
    generator = torch.Generator().manual_seed(seed)
    others = inputs + 10 * torch.randn(inputs.shape, generator=generator)
    for training in (True, False):
        before = _run(model, inputs, training, seed)
        if before.isnan().any():
            raise ValueError("NaN")
        for t in range(1, inputs.shape[1]):
            changed = torch.cat([inputs[:, :t], others[:, t:]], dim=1)
            after = _run(model, changed, training, seed)
            if not torch.equal(after[:, :t], before[:, :t]):
                return True
    return False


def leaks_future__answers_at_the_first_t(model, inputs, seed=0):
    """`return` in the first turn of the loop: only t = 1 in training mode is tried."""
    others = other_inputs(inputs, torch.Generator().manual_seed(seed))
    for training in (True, False):
        before = _run(model, inputs, training, seed)
        if before.isnan().any():
            raise ValueError("NaN")
        for t in range(1, inputs.shape[1]):
            changed = torch.cat([inputs[:, :t], others[:, t:]], dim=1)
            after = _run(model, changed, training, seed)
            return not torch.equal(after[:, :t], before[:, :t])
    return False


def leaks_future__one_copy_for_all_runs(model, inputs, seed=0):
    """All runs share one copy: what a run leaves in a buffer changes the next run."""
    others = other_inputs(inputs, torch.Generator().manual_seed(seed))
    trial = copy.deepcopy(model)

    def run(x, training):
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(seed)
            return trial.train(training)(x.clone())

    for training in (True, False):
        before = run(inputs, training)
        if before.isnan().any():
            raise ValueError("NaN")
        for t in range(1, inputs.shape[1]):
            after = run(torch.cat([inputs[:, :t], others[:, t:]], dim=1), training)
            if not torch.equal(after[:, :t], before[:, :t]):
                return True
    return False


def leaks_future__mode_of_the_model_changed(model, inputs, seed=0):
    """Sets the mode of the model itself and leaves it in evaluation mode."""
    others = other_inputs(inputs, torch.Generator().manual_seed(seed))

    def run(x):
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(seed)
            return copy.deepcopy(model)(x.clone())

    found = False
    for training in (True, False):
        model.train(training)
        before = run(inputs)
        if before.isnan().any():
            raise ValueError("NaN")
        for t in range(1, inputs.shape[1]):
            after = run(torch.cat([inputs[:, :t], others[:, t:]], dim=1))
            found |= not torch.equal(after[:, :t], before[:, :t])
    return found


def leaks_future__seeds_without_fork(model, inputs, seed=0):
    """`manual_seed` without `fork_rng`: leaves another random state behind."""
    others = other_inputs(inputs, torch.Generator().manual_seed(seed))

    @torch.no_grad()
    def run(x, training):
        torch.manual_seed(seed)
        return copy.deepcopy(model).train(training)(x.clone())

    for training in (True, False):
        before = run(inputs, training)
        if before.isnan().any():
            raise ValueError("NaN")
        for t in range(1, inputs.shape[1]):
            after = run(torch.cat([inputs[:, :t], others[:, t:]], dim=1), training)
            if not torch.equal(after[:, :t], before[:, :t]):
                return True
    return False


def leaks_future__never_seeded(model, inputs, seed=0):
    """No seed before the runs: dropout draws other numbers each time."""
    others = other_inputs(inputs, torch.Generator().manual_seed(seed))
    with torch.random.fork_rng(), torch.no_grad():
        for training in (True, False):
            before = copy.deepcopy(model).train(training)(inputs.clone())
            if before.isnan().any():
                raise ValueError("NaN")
            for t in range(1, inputs.shape[1]):
                changed = torch.cat([inputs[:, :t], others[:, t:]], dim=1)
                after = copy.deepcopy(model).train(training)(changed)
                if not torch.equal(after[:, :t], before[:, :t]):
                    return True
    return False


def leaks_future__writes_into_the_inputs(model, inputs, seed=0):
    """`changed` is the inputs themselves: they are overwritten."""
    others = other_inputs(inputs, torch.Generator().manual_seed(seed))
    before = {mode: _run(model, inputs, mode, seed) for mode in (True, False)}
    if any(outputs.isnan().any() for outputs in before.values()):
        raise ValueError("NaN")
    for t in reversed(range(1, inputs.shape[1])):
        changed = inputs
        changed[:, t] = others[:, t]
        for mode, outputs in before.items():
            after = _run(model, changed, mode, seed)
            if not torch.equal(after[:, :t], outputs[:, :t]):
                return True
    return False


def leaks_future__nan_is_a_leak(model, inputs, seed=0):
    """No ValueError for outputs of NaN: NaN counts as a leak."""
    others = other_inputs(inputs, torch.Generator().manual_seed(seed))
    for training in (True, False):
        before = _run(model, inputs, training, seed)
        for t in range(1, inputs.shape[1]):
            changed = torch.cat([inputs[:, :t], others[:, t:]], dim=1)
            after = _run(model, changed, training, seed)
            if not torch.equal(after[:, :t], before[:, :t]):
                return True
    return False
