"""Wrong answers to lesson 07's exercises; each docstring says what is wrong."""

import math

import torch
import torch.nn.functional as F

from course_utils.lessons.sequence_models import causal_conv1d, path_length

# ---- causal_conv1d


def _conv1d(x, kernel, **options):
    flat = x.reshape(-1, *x.shape[-2:]).mT
    outputs = F.conv1d(flat, kernel.permute(2, 1, 0), **options).mT
    return outputs.reshape(*x.shape[:-2], *outputs.shape[-2:])


def causal_conv1d__padding_same(x, kernel, dilation=1):
    """`padding="same"` puts zeros on both sides: outputs read later inputs."""
    return _conv1d(x, kernel, padding="same", dilation=dilation)


def causal_conv1d__padding_not_cut(x, kernel, dilation=1):
    """Padded on both sides by (k - 1) · dilation, and the end is not cut off."""
    far = (len(kernel) - 1) * dilation
    return _conv1d(x, kernel, padding=far, dilation=dilation)


def causal_conv1d__cut_at_the_wrong_end(x, kernel, dilation=1):
    """Padded on both sides, and the first outputs are cut off: it looks ahead only."""
    far = (len(kernel) - 1) * dilation
    return _conv1d(x, kernel, padding=far, dilation=dilation)[..., far:, :]


def causal_conv1d__no_padding(x, kernel, dilation=1):
    """Without zeros in front there are fewer outputs than inputs."""
    return _conv1d(x, kernel, dilation=dilation)


def causal_conv1d__padded_by_k_minus_1(x, kernel, dilation=1):
    """k - 1 zeros, whatever the dilation: too few outputs where it is above 1."""
    return _conv1d(F.pad(x, (0, 0, len(kernel) - 1, 0)), kernel, dilation=dilation)


def causal_conv1d__flipped(x, kernel, dilation=1):
    """The mathematicians' convolution: the kernel is reversed."""
    return causal_conv1d(x, kernel.flip(0), dilation)


def causal_conv1d__first_matrix_for_the_newest(x, kernel, dilation=1):
    """kernel[0] meets the newest vector, kernel[-1] the oldest."""
    total = 0
    for i in range(len(kernel)):
        late = F.pad(x, (0, 0, i * dilation, 0))[..., : x.shape[-2], :]
        total = total + late @ kernel[i]
    return total


def causal_conv1d__dilation_ignored(x, kernel, dilation=1):
    """The dilation is never used."""
    far = len(kernel) - 1
    padded = F.pad(x, (0, 0, far, 0))
    pieces = [padded[..., i : i + x.shape[-2], :] for i in range(len(kernel))]
    return sum(p @ m for p, m in zip(pieces, kernel, strict=True))


def causal_conv1d__stride(x, kernel, dilation=1):
    """The dilation is given as a stride: outputs are left out."""
    return _conv1d(F.pad(x, (0, 0, len(kernel) - 1, 0)), kernel, stride=dilation)


def causal_conv1d__strictly_before(x, kernel, dilation=1):
    """Output t does not read x[t]: one matrix too far back."""
    far = len(kernel) * dilation
    padded = F.pad(x, (0, 0, far, 0))[..., : far + x.shape[-2] - dilation, :]
    return _conv1d(padded, kernel, dilation=dilation)


def causal_conv1d__wrapped_around(x, kernel, dilation=1):
    """`roll` brings the end of the sequence to its beginning."""
    rolled = [x.roll(i * dilation, -2) @ m for i, m in enumerate(kernel.flip(0))]
    return torch.stack(rolled).sum(dim=0)


def causal_conv1d__depthwise(x, kernel, dilation=1):
    """All times are mixed first, by the mean of the matrices: one matrix for all."""
    ones = torch.ones(len(kernel), 1, 1).to(x) * torch.eye(x.shape[-1]).to(x)
    return causal_conv1d(x, ones, dilation) @ kernel.mean(dim=0)


def causal_conv1d__mean(x, kernel, dilation=1):
    """Divided by the number of matrices."""
    return causal_conv1d(x, kernel, dilation) / len(kernel)


def causal_conv1d__batch_needed(x, kernel, dilation=1):
    """`transpose(1, 2)` and `F.conv1d`: one leading dimension only."""
    padded = F.pad(x.transpose(1, 2), ((len(kernel) - 1) * dilation, 0))
    outputs = F.conv1d(padded, kernel.permute(2, 1, 0), dilation=dilation)
    return outputs.transpose(1, 2)


def causal_conv1d__squeezed(x, kernel, dilation=1):
    """`squeeze` removes every dimension of size 1."""
    return causal_conv1d(x, kernel, dilation).squeeze()


def causal_conv1d__zeros_of_float32(x, kernel, dilation=1):
    """The zeros in front are float32 on the CPU, so the result is too wide."""
    zeros = torch.zeros(*x.shape[:-2], (len(kernel) - 1) * dilation, x.shape[-1])
    padded = torch.cat([zeros, x.float()], dim=-2)
    return _conv1d(padded, kernel.float(), dilation=dilation)


def causal_conv1d__detached(x, kernel, dilation=1):
    """The padded copy is detached: no gradient reaches x."""
    return causal_conv1d(x.detach(), kernel, dilation)


def causal_conv1d__first_vector_repeated(x, kernel, dilation=1):
    """Before time 0 stands the first vector, not zeros."""
    far = (len(kernel) - 1) * dilation
    first = x[..., :1, :].repeat_interleave(far, dim=-2)
    return _conv1d(torch.cat([first, x], dim=-2), kernel, dilation=dilation)


# ---- receptive_field


def receptive_field__without_one(kernel_sizes, dilations):
    """The newest input is not counted."""
    return sum((k - 1) * d for k, d in zip(kernel_sizes, dilations, strict=True))


def receptive_field__k_for_k_minus_1(kernel_sizes, dilations):
    """k · dilation for each layer instead of (k - 1) · dilation."""
    return 1 + sum(k * d for k, d in zip(kernel_sizes, dilations, strict=True))


def receptive_field__windows_added(kernel_sizes, dilations):
    """The windows are added up, though they overlap in one input."""
    layers = zip(kernel_sizes, dilations, strict=True)
    return sum((k - 1) * d + 1 for k, d in layers)


def receptive_field__no_dilation(kernel_sizes, dilations):
    """The dilations are not used."""
    return 1 + sum(kernel_sizes) - len(kernel_sizes)


def receptive_field__product(kernel_sizes, dilations):
    """The kernel sizes are multiplied."""
    return math.prod(kernel_sizes)


def receptive_field__power_of_two(kernel_sizes, dilations):
    """Two to the number of layers: right for k = 2 and doubling dilations only."""
    return 2 ** len(kernel_sizes)


def receptive_field__both_sides(kernel_sizes, dilations):
    """Twice the reach, as if the kernel looked to both sides."""
    layers = zip(kernel_sizes, dilations, strict=True)
    return 1 + 2 * sum((k - 1) * d for k, d in layers)


def receptive_field__centred(kernel_sizes, dilations):
    """Half of each kernel, as if it stood in the middle of its window."""
    layers = zip(kernel_sizes, dilations, strict=True)
    return 1 + sum((k // 2) * d for k, d in layers)


def receptive_field__first_kernel(kernel_sizes, dilations):
    """The first kernel size for all layers."""
    return 1 + sum((kernel_sizes[0] - 1) * d for d in dilations) if dilations else 1


def receptive_field__last_layer(kernel_sizes, dilations):
    """Only the last layer is looked at."""
    return 1 + (kernel_sizes[-1] - 1) * dilations[-1] if kernel_sizes else 1


def receptive_field__distinct_inputs(kernel_sizes, dilations):
    """Counts the inputs that are read, without those in the gaps."""
    offsets = [0]
    for k, d in zip(kernel_sizes, dilations, strict=True):
        offsets = sorted({o - j * d for o in offsets for j in range(k)})
    return len(offsets)


def receptive_field__fields_multiplied(kernel_sizes, dilations):
    """The fields of the layers are multiplied instead of their reaches added."""
    layers = zip(kernel_sizes, dilations, strict=True)
    return math.prod(1 + (k - 1) * d for k, d in layers)


def receptive_field__first_dilation(kernel_sizes, dilations):
    """The first dilation for all layers."""
    return 1 + sum(k - 1 for k in kernel_sizes) * dilations[0] if dilations else 1


def receptive_field__wide_kernel(kernel_sizes, dilations):
    """A kernel with dilation is taken to be k · dilation wide."""
    return 1 + sum(k * d - 1 for k, d in zip(kernel_sizes, dilations, strict=True))


def receptive_field__tensor(kernel_sizes, dilations):
    """A tensor instead of an int."""
    gaps = torch.tensor(list(kernel_sizes)) - 1
    return 1 + (gaps * torch.tensor(list(dilations))).sum()


def receptive_field__zero_without_layers(kernel_sizes, dilations):
    """0 where there is no layer."""
    layers = zip(kernel_sizes, dilations, strict=True)
    return 1 + sum((k - 1) * d for k, d in layers) if kernel_sizes else 0


# ---- path_length


def path_length__transposed(reads, start, end):
    """Rows and columns exchanged: who is read by whom."""
    return path_length(reads.mT, start, end)


def path_length__swapped(reads, start, end):
    """Goes from `end` to `start`."""
    return path_length(reads, end, start)


def path_length__one_too_many(reads, start, end):
    """Counts the positions on the way, not the layers."""
    return path_length(reads, start, end) + 1


def path_length__keeps(reads, start, end):
    """Who knew something once is taken to know it always."""
    reached = {start}
    for n_layers, layer in enumerate(reads):
        if end in reached:
            return n_layers
        reached |= {i for i in range(len(layer)) if any(layer[i, j] for j in reached)}
    if end in reached:
        return len(reads)
    raise ValueError("not reached")


def path_length__first_layer_only(reads, start, end):
    """The table of layer 0 for all layers."""
    return path_length(reads[:1].expand(len(reads), -1, -1), start, end)


def path_length__from_the_top(reads, start, end):
    """The last layer works first."""
    return path_length(reads.flip(0), start, end)


def path_length__distance(reads, start, end):
    """How far the positions are apart: right for neighbours only."""
    return abs(end - start)


def path_length__direct(reads, start, end):
    """Looks for a layer in which `end` reads `start` directly."""
    if start == end:
        return 0
    layers = reads[:, end, start].nonzero().flatten().tolist()
    if not layers:
        raise ValueError("not connected")
    return layers[0] + 1


def path_length__minus_one(reads, start, end):
    """-1 instead of an error."""
    try:
        return path_length(reads, start, end)
    except ValueError:
        return -1


def path_length__all_layers(reads, start, end):
    """The number of layers that there are, if they get there at all."""
    if start == end:
        return 0
    path_length(reads, start, end)
    return len(reads)


def path_length__any_order(reads, start, end):
    """All layers thrown together: any of them may be used at any time, and again."""
    table = reads.any(dim=0) if len(reads) else reads.new_zeros(reads.shape[1:])
    return path_length(table.expand(len(reads), *table.shape), start, end)


def path_length__breadth_first(reads, start, end):
    """A breadth-first search in one graph that holds the connections of all layers."""
    neighbours = {}
    for _, i, j in reads.nonzero().tolist():
        neighbours.setdefault(j, set()).add(i)
    distance, queue = {start: 0}, [start]
    for j in queue:
        for i in neighbours.get(j, ()):
            if i not in distance:
                distance[i] = distance[j] + 1
                queue.append(i)
    if end not in distance:
        raise ValueError("not reached")
    return distance[end]


def path_length__never_ends(reads, start, end):
    """The layers begin anew when they are through."""
    if len(reads) == 0:
        return path_length(reads, start, end)
    return path_length(reads.repeat(reads.shape[-1], 1, 1), start, end)


def path_length__last_layer_forgotten(reads, start, end):
    """Does not look after the last layer."""
    reached = {start}
    for n_layers, layer in enumerate(reads):
        if end in reached:
            return n_layers
        reached = {i for i in range(len(layer)) if any(layer[i, j] for j in reached)}
    raise ValueError("not reached")


def path_length__never_zero(reads, start, end):
    """Looks only after a layer, so `start` itself is never 0 away."""
    reached = {start}
    for n_layers, layer in enumerate(reads, start=1):
        reached = {i for i in range(len(layer)) if any(layer[i, j] for j in reached)}
        if end in reached:
            return n_layers
    raise ValueError("not reached")


def path_length__tensor(reads, start, end):
    """A tensor instead of an int."""
    return torch.tensor(path_length(reads, start, end))


# ---- layer_flops


def layer_flops__multiply_adds(n_tokens, d_model, k):
    """A multiplication and an addition count as one."""
    square = n_tokens * d_model**2
    return 6 * square, k * square, 4 * square + 2 * n_tokens**2 * d_model


def layer_flops__table_1(n_tokens, d_model, k):
    """The table of the paper, without any constant."""
    return n_tokens * d_model**2, k * n_tokens * d_model**2, n_tokens**2 * d_model


def layer_flops__no_projections(n_tokens, d_model, k):
    """The attention's projections are forgotten."""
    square = 2 * n_tokens * d_model**2
    return 6 * square, k * square, 4 * n_tokens**2 * d_model


def layer_flops__no_output_projection(n_tokens, d_model, k):
    """Queries, keys and values, but no output projection."""
    square = 2 * n_tokens * d_model**2
    return 6 * square, k * square, 3 * square + 4 * n_tokens**2 * d_model


def layer_flops__no_pairs(n_tokens, d_model, k):
    """The scores and sums, which grow as N², are forgotten."""
    square = 2 * n_tokens * d_model**2
    return 6 * square, k * square, 4 * square


def layer_flops__scores_only(n_tokens, d_model, k):
    """The scores are counted, the weighted sums are not."""
    square = 2 * n_tokens * d_model**2
    return 6 * square, k * square, 4 * square + 2 * n_tokens**2 * d_model


def layer_flops__half_of_the_pairs(n_tokens, d_model, k):
    """Only the pairs that a causal mask leaves."""
    square = 2 * n_tokens * d_model**2
    pairs = n_tokens * (n_tokens + 1) // 2
    return 6 * square, k * square, 4 * square + 4 * pairs * d_model


def layer_flops__plain_rnn(n_tokens, d_model, k):
    """One product of x and one of h: the RNN without gates."""
    square = 2 * n_tokens * d_model**2
    return 2 * square, k * square, 4 * square + 4 * n_tokens**2 * d_model


def layer_flops__only_x(n_tokens, d_model, k):
    """The products of the state are forgotten: three instead of six."""
    square = 2 * n_tokens * d_model**2
    return 3 * square, k * square, 4 * square + 4 * n_tokens**2 * d_model


def layer_flops__no_k(n_tokens, d_model, k):
    """The convolution has one matrix only."""
    square = 2 * n_tokens * d_model**2
    return 6 * square, square, 4 * square + 4 * n_tokens**2 * d_model


def layer_flops__one_d_in_the_convolution(n_tokens, d_model, k):
    """The convolution with d_model instead of d_model squared."""
    square = 2 * n_tokens * d_model**2
    convolution = 2 * k * n_tokens * d_model
    return 6 * square, convolution, 4 * square + 4 * n_tokens**2 * d_model


def layer_flops__image_kernel(n_tokens, d_model, k):
    """k · k matrices, as in a kernel for images."""
    square = 2 * n_tokens * d_model**2
    return 6 * square, k**2 * square, 4 * square + 4 * n_tokens**2 * d_model


def layer_flops__without_zeros(n_tokens, d_model, k):
    """The products with the zeros before time 0 are left out."""
    square = 2 * d_model**2
    real = sum(min(t + 1, k) for t in range(min(n_tokens, 10**4)))
    real += k * max(0, n_tokens - 10**4)
    n = n_tokens * square
    return 6 * n, real * square, 4 * n + 4 * n_tokens**2 * d_model


def layer_flops__floats(n_tokens, d_model, k):
    """Floats, which lose the last digits of large numbers."""
    square = 2.0 * n_tokens * d_model**2
    return 6 * square, k * square, 4 * square + 4.0 * n_tokens**2 * d_model


def layer_flops__attention_first(n_tokens, d_model, k):
    """The results stand in another order."""
    square = 2 * n_tokens * d_model**2
    return 4 * square + 4 * n_tokens**2 * d_model, k * square, 6 * square


def layer_flops__bias_counted(n_tokens, d_model, k):
    """The bias of the convolution is counted too."""
    square = 2 * n_tokens * d_model**2
    convolution = k * square + n_tokens * d_model
    return 6 * square, convolution, 4 * square + 4 * n_tokens**2 * d_model
