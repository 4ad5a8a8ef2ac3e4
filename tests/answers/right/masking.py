"""Right answers to lesson 05's exercises, in many forms."""

import copy
import itertools

import numpy
import torch
import torch.nn.functional as F
from torch import nn

from course_utils.lessons.masking import other_inputs

# ---- causal_mask


def causal_mask__comparison(n_queries, n_keys, device=None):
    queries = torch.arange(n_keys - n_queries, n_keys, device=device)
    return torch.arange(n_keys, device=device) <= queries.unsqueeze(1)


def causal_mask__tril(n_queries, n_keys, *, device=None, dtype=torch.bool):
    ones = torch.ones(n_queries, n_keys, dtype=dtype, device=device)
    return ones.tril(diagonal=n_keys - n_queries)


def causal_mask__not_triu(n_queries, n_keys, device=None):
    ones = torch.ones((n_queries, n_keys), device=device)
    return ones.triu(n_keys - n_queries + 1) == 0


def causal_mask__double_loop(n_queries, n_keys, device=None):
    mask = torch.zeros(n_queries, n_keys, dtype=torch.bool)
    for i in range(n_queries):
        for j in range(n_keys):
            if j <= i + n_keys - n_queries:
                mask[i, j] = True
    return mask.to(device=device)


def causal_mask__list_comprehension(n_queries, n_keys, device="cpu"):
    shift = n_keys - n_queries
    rows = [[j - i <= shift for j in range(n_keys)] for i in range(n_queries)]
    table = torch.tensor(rows, dtype=torch.bool, device=device)
    return table.reshape(n_queries, n_keys)


def causal_mask__row_by_row(n_queries, n_keys, device=None):
    mask = torch.full((n_queries, n_keys), False, device=device)
    for i in range(n_queries):
        mask[i, : max(0, i + 1 + n_keys - n_queries)] = True
    return mask


def causal_mask__bottom_of_a_square(n_queries, n_keys, device=None):
    n = max(n_queries, n_keys)
    square = torch.tril(torch.ones(n, n, dtype=torch.bool, device=device))
    return square[n - n_queries :, n - n_keys :]


def causal_mask__numpy(n_queries, n_keys, device=None):
    table = numpy.tri(n_queries, n_keys, k=n_keys - n_queries, dtype=bool)
    mask = torch.from_numpy(table)
    return mask if device is None else mask.to(device)


def causal_mask__counted(n_queries, n_keys, device=None):
    mask = torch.ones(n_queries, n_keys, device=device).cumsum(dim=1)
    rows = torch.arange(1, n_queries + 1, device=device)
    return mask <= rows.unsqueeze(1) + n_keys - n_queries


def causal_mask__reversed(n_queries, n_keys, device=None):
    later = torch.ones(n_queries, n_keys, dtype=torch.bool, device=device).flip(0, 1)
    return later.triu().flip(0, 1)


def causal_mask__tril_indices(n_queries, n_keys, device=None):
    rows, columns = torch.tril_indices(n_queries, n_keys, n_keys - n_queries)
    mask = torch.zeros((n_queries, n_keys), dtype=torch.bool, device=device)
    mask[rows, columns] = True
    return mask


causal_mask__lambda = lambda n_queries, n_keys, device=None: torch.ge(  # noqa: E731
    torch.arange(n_queries, device=device)[:, None] - n_queries,
    torch.arange(n_keys, device=device) - n_keys,
)


# ---- padding_mask


def padding_mask__comparison(lengths, n_keys):
    keys = torch.arange(n_keys, device=lengths.device)
    return keys < lengths[..., None, None]


def padding_mask__unsqueeze_twice(lengths, n_keys):
    positions = torch.arange(n_keys).to(lengths.device)
    return (positions < lengths.unsqueeze(-1)).unsqueeze(-2)


def padding_mask__reshape(lengths, n_keys):
    ends = lengths.reshape(*lengths.shape, 1, 1)
    return torch.arange(1, n_keys + 1, device=ends.device).le(ends)


def padding_mask__lists(lengths, n_keys):
    flat = lengths.flatten().tolist()
    rows = [[True] * n + [False] * (n_keys - n) for n in flat]
    mask = torch.tensor(rows, device=lengths.device, dtype=torch.bool)
    return mask.view(*lengths.shape, 1, n_keys)


def padding_mask__sequence_by_sequence(lengths, n_keys):
    numbers = lengths.reshape(-1)
    mask = numbers.new_zeros((numbers.numel(), n_keys), dtype=torch.bool)
    for row, n in enumerate(numbers):
        mask[row, :n] = True
    return mask.reshape(*lengths.shape, 1, n_keys)


def padding_mask__key_by_key(lengths, n_keys):
    columns = [lengths > position for position in range(n_keys)]
    return torch.stack(columns, dim=-1)[..., None, :]


def padding_mask__recursion(lengths, n_keys):
    def one(part):
        if part.dim() > 0:
            return torch.stack([one(p) for p in part])
        n = int(part)
        mask = [position < n for position in range(n_keys)]
        return torch.tensor([mask], device=part.device)

    return one(lengths)


def padding_mask__running_count(lengths, n_keys):
    shape = (*lengths.shape, 1, n_keys)
    counted = torch.ones(shape, dtype=torch.long, device=lengths.device).cumsum(-1)
    return ~(counted > lengths.view(*lengths.shape, 1, 1))


def padding_mask__triangle(lengths, n_keys):
    ones = torch.ones(n_keys + 1, n_keys, dtype=torch.bool, device=lengths.device)
    return ones.tril(-1)[lengths.long()].unsqueeze(-2)


def padding_mask__logical_not(lengths, n_keys):
    keys = torch.arange(n_keys, device=lengths.device)
    return torch.logical_not(keys >= lengths[..., None]).unsqueeze(lengths.dim())


padding_mask__lambda = lambda lengths, n_keys: (  # noqa: E731
    lengths[..., None, None] - torch.arange(n_keys, device=lengths.device) > 0
)


# ---- masked_softmax


def masked_softmax__two_fills(scores, mask):
    hidden = scores.masked_fill(~mask, -torch.inf)
    hidden = hidden.masked_fill(~mask.any(dim=-1, keepdim=True), 0)
    return torch.softmax(hidden, dim=-1).masked_fill(~mask, 0)


def masked_softmax__where(scores, mask):
    some = mask.any(dim=-1, keepdim=True)
    hidden = torch.where(mask | ~some, scores, -torch.inf)
    safe = torch.where(some, hidden, torch.zeros_like(hidden))
    return torch.where(some, safe.softmax(dim=-1), torch.zeros_like(safe))


def masked_softmax__formula(scores, mask):
    shown = torch.where(mask, scores, torch.finfo(scores.dtype).min)
    largest = shown.detach().amax(dim=-1, keepdim=True)
    powers = mask * torch.exp(shown - largest)
    total = powers.sum(dim=-1, keepdim=True)
    return powers / torch.where(total == 0, 1, total)


def masked_softmax__nan_to_num(scores, mask):
    hidden = scores.masked_fill(~mask, -torch.inf)
    return torch.nan_to_num(torch.softmax(hidden, dim=-1), nan=0.0)


def masked_softmax__lowest_number(scores, mask):
    lowest = torch.finfo(scores.dtype).min
    weights = F.softmax(scores.masked_fill(~mask, lowest), dim=-1)
    return weights.masked_fill(~mask, 0)


def masked_softmax__row_by_row(scores, mask):
    n = scores.shape[-1]
    visible = mask.expand(scores.shape).reshape(-1, n)
    rows = []
    for row, see in zip(scores.reshape(-1, n), visible, strict=True):
        weights = torch.zeros_like(row)
        rows.append(weights.masked_scatter(see, row[see].softmax(dim=0)))
    return torch.stack(rows).reshape(scores.shape)


def masked_softmax__number_by_number(scores, mask):
    n = scores.shape[-1]
    visible = mask.expand_as(scores).reshape(-1, n).tolist()
    zero = scores.masked_fill(torch.ones_like(mask), 0).sum()
    result = []
    for row, see in zip(scores.reshape(-1, n), visible, strict=True):
        seen = [j for j in range(n) if see[j]]
        largest = max((row[j].item() for j in seen), default=0)
        powers = {j: torch.exp(row[j] - largest) for j in seen}
        total = sum(powers.values())
        result += [powers[j] / total if j in powers else zero for j in range(n)]
    return torch.stack(result).reshape(scores.shape)


def masked_softmax__extra_column(scores, mask):
    hidden = torch.where(mask, scores, -torch.inf)
    nothing = ~mask.expand_as(scores).any(dim=-1, keepdim=True)
    extra = torch.zeros_like(hidden[..., :1]).masked_fill(~nothing, -torch.inf)
    return torch.cat([hidden, extra], dim=-1).softmax(dim=-1)[..., :-1]


def masked_softmax__logsumexp(scores, mask):
    mask = mask.expand_as(scores)
    empty = mask.logical_not().all(dim=-1, keepdim=True)
    hidden = scores.masked_fill(~mask & ~empty, -torch.inf).masked_fill(empty, 0)
    hidden = hidden - hidden.amax(dim=-1, keepdim=True)
    weights = torch.exp(hidden - hidden.logsumexp(dim=-1, keepdim=True))
    return weights.masked_fill(empty, 0)


def masked_softmax__float64_and_back(scores, mask):
    wide = scores.double().masked_fill(~mask, -torch.inf)
    largest = wide.amax(dim=-1, keepdim=True).clamp(min=-1e300).detach()
    powers = torch.exp(wide - largest)
    total = powers.sum(dim=-1, keepdim=True)
    return (powers / total.clamp(min=1e-300)).to(scores.dtype)


def masked_softmax__mask_multiplied_in(scores, mask):
    safe = torch.where(mask, scores, torch.zeros_like(scores))
    hide = torch.zeros(mask.shape, dtype=scores.dtype, device=scores.device)
    hide = hide.masked_fill(~mask & mask.any(dim=-1, keepdim=True), -torch.inf)
    return torch.softmax(safe + hide, dim=-1) * mask


def masked_softmax__index_put(scores, mask):
    mask = torch.broadcast_to(mask, scores.shape)
    copy_of_scores = scores.clone()
    copy_of_scores[~mask] = -torch.inf
    some = mask.any(dim=-1)
    weights = torch.zeros_like(scores)
    weights[some] = torch.softmax(copy_of_scores[some], dim=-1)
    return weights


class MaskedSoftmax(nn.Module):
    """A softmax that sees only what the mask shows."""

    def forward(self, scores, mask):
        some = mask.any(-1, keepdim=True)
        hidden = scores.masked_fill(mask.logical_not(), float("-inf"))
        weights = nn.Softmax(dim=-1)(torch.where(some, hidden, 0.0))
        return torch.where(mask, weights, 0.0)


masked_softmax__module = MaskedSoftmax()


# ---- leaks_future


def leaks_future__inner_run(model, inputs, seed=0):
    def run(x, training):
        trial = copy.deepcopy(model).train(training)
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(seed)
            return trial(x.clone())

    others = other_inputs(inputs, torch.Generator().manual_seed(seed))
    for training in (True, False):
        outputs = run(inputs, training)
        if outputs.isnan().any():
            raise ValueError("the outputs are NaN")
        for t in range(1, inputs.shape[1]):
            changed = torch.cat([inputs[:, :t], others[:, t:]], dim=1)
            if not torch.equal(run(changed, training)[:, :t], outputs[:, :t]):
                return True
    return False


def leaks_future__times_outside(model, inputs, seed=0):
    others = other_inputs(inputs, torch.Generator().manual_seed(seed))
    outputs = {}
    with torch.random.fork_rng(), torch.no_grad():
        for training in (False, True):
            torch.manual_seed(seed)
            outputs[training] = copy.deepcopy(model).train(training)(inputs.clone())
            if torch.isnan(outputs[training]).any():
                raise ValueError("NaN cannot be compared")
        for t in range(inputs.shape[1] - 1, 0, -1):
            changed = inputs.clone()
            changed[:, t:] = others[:, t:]
            for training in (False, True):
                torch.manual_seed(seed)
                new = copy.deepcopy(model).train(training)(changed.clone())
                if (new[:, :t] != outputs[training][:, :t]).any():
                    return True
    return False


def leaks_future__all_results_first(model, inputs, seed=0):
    times = range(1, inputs.shape[1])
    others = other_inputs(inputs, torch.Generator().manual_seed(seed))
    changed = [torch.cat([inputs[:, :t], others[:, t:]], dim=1) for t in times]
    results = []
    with torch.no_grad(), torch.random.fork_rng():
        for mode in (True, False):
            for x in (inputs, *changed):
                trial = copy.deepcopy(model)
                trial.train(mode)
                torch.manual_seed(seed)
                results.append(trial(x.clone()).detach().clone())
    n = len(changed) + 1
    first = results[0], results[n]
    if any(bool(outputs.isnan().any()) for outputs in first):
        raise ValueError("outputs must not be NaN")
    for outputs, group in zip(first, (results[1:n], results[n + 1 :]), strict=True):
        for t, new in zip(times, group, strict=True):
            if not torch.equal(outputs[:, :t], new[:, :t]):
                return True
    return False


def leaks_future__random_state_by_hand(model, inputs, seed=0):
    cpu = torch.get_rng_state()
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []

    def run(x, training):
        torch.manual_seed(seed)
        with torch.no_grad():
            return copy.deepcopy(model).train(training)(x.clone())

    try:
        others = other_inputs(inputs, torch.Generator().manual_seed(seed))
        found = False
        for training in (True, False):
            before = run(inputs, training)
            if before.isnan().any():
                raise ValueError("the model gives NaN")
            for t in range(1, inputs.size(1)):
                mixed = torch.cat((inputs[:, :t], others[:, t:]), 1)
                after = run(mixed, training)
                found = found or not torch.equal(before[:, :t], after[:, :t])
        return found
    finally:
        torch.set_rng_state(cpu)
        if gpus:
            torch.cuda.set_rng_state_all(gpus)


def leaks_future__any_of_a_generator(model, inputs, seed=0):
    others = other_inputs(inputs, torch.Generator().manual_seed(seed))
    time = inputs.shape[1]
    steps = torch.arange(time, device=inputs.device)
    steps = steps.reshape(1, time, *[1] * (inputs.dim() - 2))

    @torch.no_grad()
    def run(x, training):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            trial = copy.deepcopy(model)
            return (trial.train() if training else trial.eval())(x.clone())

    def leak(training):
        honest = run(inputs, training)
        if honest.isnan().any().item():
            raise ValueError("NaN in the outputs")
        mixed = ((t, torch.where(steps < t, inputs, others)) for t in range(1, time))
        runs = ((t, run(x, training)) for t, x in mixed)
        return any(not new[:, :t].equal(honest[:, :t]) for t, new in runs)

    return leak(True) or leak(False)


def leaks_future__while_loop(model, inputs, seed=0):
    others = other_inputs(inputs, torch.Generator().manual_seed(seed))
    modes, found = [False, True], False
    while modes and not found:
        training, t = modes.pop(), 0
        reference = torch.tensor([])
        while t < inputs.shape[1] and not found:
            x = inputs.clone()
            if t > 0:
                x[:, t:] = others[:, t:]
            trial = copy.deepcopy(model).train(training)
            with torch.random.fork_rng(), torch.no_grad():
                torch.manual_seed(seed)
                outputs = trial(x)
            if t == 0:
                reference = outputs
                if reference.isnan().any():
                    raise ValueError("the outputs are NaN")
            found = bool((outputs[:, :t] != reference[:, :t]).any())
            t += 1
    return found


def leaks_future__state_dict_too(model, inputs, seed=0):
    weights = copy.deepcopy(model.state_dict())
    others = other_inputs(inputs, torch.Generator().manual_seed(seed))
    x = torch.stack([inputs] * inputs.shape[1])
    for t in range(1, inputs.shape[1]):
        x[t, :, t:] = others[:, t:]
    for training in (True, False):
        outputs = []
        for row in x:
            trial = copy.deepcopy(model)
            trial.load_state_dict(weights)
            trial.train(training)
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                with torch.no_grad():
                    outputs.append(trial(row.clone()))
        if outputs[0].isnan().any():
            raise ValueError("NaN is not equal to itself")
        for t, new in enumerate(outputs):
            if not torch.equal(new[:, :t], outputs[0][:, :t]):
                return True
    return False


def leaks_future__product_of_loops(model, inputs, seed=0):
    generator = torch.Generator()
    generator.manual_seed(seed)
    others = other_inputs(inputs, generator)

    def run(t, training):
        x = torch.cat([inputs[:, :t], others[:, t:]], dim=1)
        with torch.random.fork_rng(range(torch.cuda.device_count())):
            torch.manual_seed(seed)
            return copy.deepcopy(model).train(training).requires_grad_(False)(x)

    time = inputs.shape[1]
    unchanged = {mode: run(time, mode) for mode in (True, False)}
    if any(outputs.isnan().any() for outputs in unchanged.values()):
        raise ValueError("the outputs of the model are NaN")
    pairs = itertools.product(unchanged, range(1, time))
    return any(not torch.equal(run(t, m)[:, :t], unchanged[m][:, :t]) for m, t in pairs)


def leaks_future__first_difference(model, inputs, seed=0):
    others = other_inputs(inputs, torch.Generator().manual_seed(seed))
    leaks = []
    with torch.random.fork_rng(), torch.no_grad():
        for train_it in [torch.nn.Module.train, torch.nn.Module.eval]:
            torch.manual_seed(seed)
            outputs = train_it(copy.deepcopy(model))(inputs.clone())
            if not outputs.isnan().logical_not().all():
                raise ValueError("cannot compare NaN")
            for t in range(1, inputs.shape[1]):
                changed = inputs.detach().clone()
                changed[:, t:] = others[:, t:]
                torch.manual_seed(seed)
                new = train_it(copy.deepcopy(model))(changed)
                differs = (new != outputs).transpose(0, 1)
                leaks.append(any(bool(step.any()) for step in differs[:t]))
    return True in leaks
