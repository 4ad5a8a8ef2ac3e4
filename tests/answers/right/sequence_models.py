"""Right answers to lesson 07's exercises, in many forms."""

import itertools
import math
from collections import deque

import numpy as np
import torch
import torch.nn.functional as F

# ---- causal_conv1d


def causal_conv1d__sum_of_slices(x, kernel, dilation=1):
    k, n_times = len(kernel), x.shape[-2]
    padded = F.pad(x, (0, 0, (k - 1) * dilation, 0))
    return sum(padded[..., i * dilation : i * dilation + n_times, :] @ kernel[i] for i in range(k))


def causal_conv1d__pytorch(x, kernel, dilation=1):
    *leading, n_times, d_in = x.shape
    flat = x.reshape(-1, n_times, d_in).transpose(1, 2)
    flat = F.pad(flat, ((len(kernel) - 1) * dilation, 0))
    outputs = F.conv1d(flat, kernel.permute(2, 1, 0), dilation=dilation)
    return outputs.transpose(1, 2).reshape(*leading, n_times, kernel.shape[-1])


def causal_conv1d__pytorch_padded_and_cut(x, kernel, dilation=1):
    far = (len(kernel) - 1) * dilation
    flat = x.reshape(-1, *x.shape[-2:]).mT
    outputs = F.conv1d(flat, kernel.permute(2, 1, 0), padding=far, dilation=dilation)
    outputs = outputs[..., : x.shape[-2]].mT
    return outputs.reshape(*x.shape[:-1], kernel.shape[-1])


def causal_conv1d__einsum_over_windows(x, kernel, dilation=1):
    k = len(kernel)
    zeros = x.new_zeros(*x.shape[:-2], (k - 1) * dilation, x.shape[-1])
    padded = torch.cat([zeros, x], dim=-2)
    pieces = [padded.narrow(-2, i * dilation, x.shape[-2]) for i in range(k)]  # each (..., time, d_in)
    return torch.einsum("k...ti,kio->...to", torch.stack(pieces), kernel)


def causal_conv1d__loop_over_time(x, kernel, dilation=1):
    outputs = []
    for t in range(x.shape[-2]):
        total = x[..., t, :] @ kernel[-1]
        for back in range(1, len(kernel)):
            if t - back * dilation >= 0:
                total = total + x[..., t - back * dilation, :] @ kernel[-1 - back]
        outputs.append(total)
    return torch.stack(outputs, dim=-2)


def causal_conv1d__shifted_outputs(x, kernel, dilation=1):
    result = torch.zeros_like(x @ kernel[0])
    for i, matrix in enumerate(reversed(kernel)):
        late = F.pad(x @ matrix, (0, 0, i * dilation, 0))
        result = result + late[..., : x.shape[-2], :]
    return result


def causal_conv1d__index(x, kernel, dilation=1):
    n_times, k = x.shape[-2], len(kernel)
    times = torch.arange(n_times, device=x.device)[:, None]
    back = (k - 1 - torch.arange(k, device=x.device)) * dilation
    places = times - back  # (time, k)
    taken = x[..., places.clamp(min=0), :]
    taken = torch.where((places >= 0)[..., None], taken, torch.zeros_like(taken))
    return taken.flatten(-2) @ kernel.flatten(0, 1)


def causal_conv1d__unfold(x, kernel, dilation=1):
    k = len(kernel)
    padded = F.pad(x, (0, 0, (k - 1) * dilation, 0))
    windows = padded.unfold(-2, (k - 1) * dilation + 1, 1)[..., ::dilation]
    return torch.einsum("...tik,kio->...to", windows, kernel)


def causal_conv1d__matrix_of_shifts(x, kernel, dilation=1):
    n_times, result = x.shape[-2], 0
    for i, matrix in enumerate(kernel):
        far = (len(kernel) - 1 - i) * dilation
        shift = torch.ones(n_times, n_times, dtype=x.dtype, device=x.device)
        shift = shift.tril(-far) - shift.tril(-far - 1)
        result = result + shift @ (x @ matrix)
    return result


def causal_conv1d__kernel_with_holes(x, kernel, dilation=1):
    k, d_in, d_out = kernel.shape
    wide = kernel.new_zeros((k - 1) * dilation + 1, d_in, d_out)
    wide = wide.index_copy(0, torch.arange(k, device=kernel.device) * dilation, kernel)
    padded = F.pad(x, (0, 0, len(wide) - 1, 0))
    pieces = [padded[..., i : i + x.shape[-2], :] for i in range(len(wide))]
    return torch.cat(pieces, dim=-1) @ wide.flatten(0, 1)


# ---- receptive_field


def receptive_field__sum(kernel_sizes, dilations):
    return 1 + sum((k - 1) * d for k, d in zip(kernel_sizes, dilations, strict=True))


def receptive_field__loop(kernel_sizes, dilations):
    field = 1
    for i in range(len(kernel_sizes)):
        field += (kernel_sizes[i] - 1) * dilations[i]
    return field


def receptive_field__oldest(kernel_sizes, dilations):
    oldest = 0
    for k, d in zip(kernel_sizes, dilations, strict=True):
        oldest = oldest - (k - 1) * d
    return 0 - oldest + 1


def receptive_field__recursion(kernel_sizes, dilations):
    if not kernel_sizes:
        return 1
    below = receptive_field__recursion(kernel_sizes[:-1], dilations[:-1])
    return below + (kernel_sizes[-1] - 1) * dilations[-1]


def receptive_field__torch(kernel_sizes, dilations):
    gaps = torch.tensor(list(kernel_sizes)) - 1
    return 1 + int((gaps * torch.tensor(list(dilations))).sum())


def receptive_field__numpy(kernel_sizes, dilations):
    gaps = np.array(kernel_sizes, dtype=int) - 1
    return int(np.dot(gaps, np.array(dilations, dtype=int))) + 1


def receptive_field__sumprod(kernel_sizes, dilations):
    return (
        1 + math.sumprod([k - 1 for k in kernel_sizes], dilations)
        if hasattr(math, "sumprod")
        else receptive_field__sum(kernel_sizes, dilations)
    )


def receptive_field__set_of_inputs(kernel_sizes, dilations):
    reach = {0}
    for k, d in zip(kernel_sizes, dilations, strict=True):
        reach = {t - i * d for t in reach for i in range(k)}
    return max(reach) - min(reach) + 1


def receptive_field__accumulate(kernel_sizes, dilations):
    added = ((k - 1) * d for k, d in zip(kernel_sizes, dilations, strict=True))
    *_, last = itertools.accumulate(added, initial=1)
    return last


def receptive_field__windows(kernel_sizes, dilations):
    windows = [(k - 1) * d + 1 for k, d in zip(kernel_sizes, dilations, strict=True)]
    return sum(windows) - len(windows) + 1


# ---- path_length


def path_length__sets(reads, start, end):
    known, layers = {start}, 0
    while end not in known:
        if layers == len(reads):
            raise ValueError("not reached")
        table = reads[layers]
        known = {i for i in range(len(table)) if any(table[i, j] for j in known)}
        layers += 1
    return layers


def path_length__bool_vector(reads, start, end):
    reached = torch.zeros(reads.shape[-1], dtype=torch.bool, device=reads.device)
    reached[start] = True
    for layers in range(len(reads) + 1):
        if reached[end]:
            return layers
        if layers < len(reads):
            reached = reads[layers][:, reached].any(dim=1)
    raise ValueError("the layers do not get there")


def path_length__matrix_products(reads, start, end):
    connected = torch.eye(reads.shape[-1], device=reads.device)
    if connected[end, start] > 0:
        return 0
    for layers, layer in enumerate(reads, start=1):
        connected = ((layer.float() @ connected) > 0).float()
        if connected[end, start]:
            return layers
    raise ValueError(f"no way from {start} to {end}")


def path_length__numpy(reads, start, end):
    tables = reads.cpu().numpy().astype(bool)
    reached = np.zeros(reads.shape[-1], dtype=bool)
    reached[start] = True
    for layers, table in enumerate(tables):
        if reached[end]:
            return layers
        reached = (table & reached).any(axis=1)
    if reached[end]:
        return len(tables)
    raise ValueError("not reached")


def path_length__recursion(reads, start, end):
    def reachable(position, layers):
        if layers == 0:
            return position == start
        below = reads[layers - 1, position].nonzero().flatten().tolist()
        return any(known(j, layers - 1) for j in below)

    table = {}

    def known(position, layers):
        if (position, layers) not in table:
            table[position, layers] = reachable(position, layers)
        return table[position, layers]

    for layers in range(len(reads) + 1):
        if known(end, layers):
            return layers
    raise ValueError("never")


def path_length__queue(reads, start, end):
    waiting, seen = deque([(start, 0)]), {(start, 0)}
    while waiting:
        position, layers = waiting.popleft()
        if position == end:
            return layers
        if layers < len(reads):
            for i in reads[layers, :, position].nonzero().flatten().tolist():
                if (i, layers + 1) not in seen:
                    seen.add((i, layers + 1))
                    waiting.append((i, layers + 1))
    raise ValueError(f"{start} does not reach {end}")


def path_length__lists(reads, start, end):
    known = [i == start for i in range(reads.shape[-1])]
    if known[end]:
        return 0
    for layers, rows in enumerate(reads.tolist(), start=1):
        known = [any(r and k for r, k in zip(row, known, strict=True)) for row in rows]
        if known[end]:
            return layers
    raise ValueError("these layers are not enough")


def path_length__backwards(reads, start, end):
    for layers in range(len(reads) + 1):
        needed = {end}
        for layer in reversed(range(layers)):
            needed = {j for i in needed for j in reads[layer, i].nonzero().flatten().tolist()}
        if start in needed:
            return layers
    raise ValueError("there is no such way")


def path_length__one_column(reads, start, end):
    if start == end:
        return 0
    column = None
    for layers, layer in enumerate(reads, start=1):
        below = layer[:, [start]] if column is None else layer.int() @ column.int()
        column = below > 0  # (positions, 1)
        if column[end]:
            return layers
    raise ValueError("too few layers")


def path_length__where(reads, start, end):
    positions = torch.tensor([start], device=reads.device)
    for layers, layer in enumerate(reads):
        if end in positions.tolist():
            return layers
        positions = torch.where(layer[:, positions].any(dim=-1))[0]
    if end in positions.tolist():
        return reads.shape[0]
    raise ValueError("not carried that far")


# ---- layer_flops


def layer_flops__formulas(n_tokens, d_model, k):
    n, d = n_tokens, d_model
    return 12 * n * d**2, 2 * k * n * d**2, 8 * n * d**2 + 4 * n**2 * d


def layer_flops__products(n_tokens, d_model, k):
    def product(a, b, c):
        return 2 * a * b * c

    gru = n_tokens * 2 * product(1, d_model, 3 * d_model)
    convolution = product(n_tokens, k * d_model, d_model)
    projections = 4 * product(n_tokens, d_model, d_model)
    scores = product(n_tokens, d_model, n_tokens)
    sums = product(n_tokens, n_tokens, d_model)
    return gru, convolution, projections + scores + sums


def layer_flops__macs(n_tokens, d_model, k):
    macs = n_tokens * d_model * d_model
    attention = 4 * macs + 2 * n_tokens * n_tokens * d_model
    return tuple(2 * each for each in (6 * macs, k * macs, attention))


def layer_flops__per_token(n_tokens, d_model, k):
    dot = 2 * d_model
    matrix = d_model * dot
    attention = 4 * matrix + n_tokens * dot + d_model * 2 * n_tokens
    return n_tokens * 6 * matrix, n_tokens * k * matrix, n_tokens * attention


def layer_flops__loop(n_tokens, d_model, k):
    gru = sum(2 * d_model * 3 * d_model for _ in ("x", "h")) * n_tokens
    convolution = 0
    for _ in range(k):
        convolution += 2 * n_tokens * d_model**2
    attention = 0
    for shape in [(n_tokens, d_model, d_model)] * 4:
        attention += 2 * math.prod(shape)
    for shape in [(n_tokens, d_model, n_tokens), (n_tokens, n_tokens, d_model)]:
        attention += 2 * math.prod(shape)
    return gru, convolution, attention


def layer_flops__gates(n_tokens, d_model, k):
    gates, inputs = 3, 2
    square = n_tokens * d_model * d_model * 2
    return gates * inputs * square, square * k, square * 4 + 4 * n_tokens**2 * d_model


def layer_flops__factored(n_tokens, d_model, k):
    nd = n_tokens * d_model
    return 12 * nd * d_model, 2 * k * nd * d_model, 4 * nd * (2 * d_model + n_tokens)


def layer_flops__dictionary(n_tokens, d_model, k):
    one = 2 * n_tokens * pow(d_model, 2)
    flops = {"gru": 6 * one, "convolution": k * one}
    flops["attention"] = 4 * one + 2 * (2 * d_model * pow(n_tokens, 2))
    return flops["gru"], flops["convolution"], flops["attention"]


def layer_flops__numpy(n_tokens, d_model, k):
    n, d, k = (np.int64(x) for x in (n_tokens, d_model, k))
    return tuple(int(x) for x in (12 * n * d * d, 2 * k * n * d * d, 8 * n * d * d + 4 * n * n * d))


def layer_flops__heads_of_one(n_tokens, d_model, k):
    per_head = 2 * (2 * n_tokens * n_tokens * 1)
    attention = 4 * 2 * n_tokens * d_model * d_model + d_model * per_head
    return (
        6 * 2 * n_tokens * d_model * d_model,
        k * 2 * n_tokens * d_model * d_model,
        attention,
    )
