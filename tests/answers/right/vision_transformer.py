"""Right answers to lesson 11's exercises, in many forms."""

import torch
import torch.nn.functional as F

# ---- patchify


def patchify__axes(images, patch_size):
    height, width = images.shape[-2:]
    if height % patch_size or width % patch_size:
        raise ValueError(f"{height} × {width} pixels cannot be cut into patches of {patch_size}")
    cut = images.unflatten(-1, (-1, patch_size)).unflatten(-3, (-1, patch_size))
    return cut.movedim((-4, -2), (-5, -4)).flatten(-3).flatten(-3, -2)


def patchify__reshape_and_permute(images, patch_size):
    *leading, channels, height, width = images.shape
    rows, columns = height // patch_size, width // patch_size
    if (rows * patch_size, columns * patch_size) != (height, width):
        raise ValueError(f"height {height} and width {width} must be multiples of {patch_size}")
    x = images.reshape(-1, channels, rows, patch_size, columns, patch_size)
    x = x.permute(0, 2, 4, 1, 3, 5)
    return x.reshape(*leading, rows * columns, channels * patch_size * patch_size)


def patchify__loop(images, patch_size):
    height, width = images.shape[-2], images.shape[-1]
    if height % patch_size != 0 or width % patch_size != 0:
        raise ValueError(f"height {height}, width {width}: no multiple of the patch size {patch_size}")
    found = []
    for top in range(0, height, patch_size):
        for left in range(0, width, patch_size):
            square = images[..., top : top + patch_size, left : left + patch_size]
            found.append(square.flatten(-3))
    return torch.stack(found, dim=-2)


def patchify__unfold_of_pytorch(images, patch_size):
    height, width = images.shape[-2:]
    if height % patch_size or width % patch_size:
        raise ValueError((height, width, patch_size))
    flat = images.reshape(-1, *images.shape[-3:])
    found = F.unfold(flat, patch_size, stride=patch_size).transpose(1, 2)
    return found.reshape(*images.shape[:-3], *found.shape[1:])


def patchify__tensor_unfold(images, patch_size):
    height, width = images.shape[-2:]
    if max(height % patch_size, width % patch_size) > 0:
        raise ValueError(f"{height}x{width} / {patch_size}")
    squares = images.unfold(-2, patch_size, patch_size).unfold(-2, patch_size, patch_size)
    return squares.movedim(-5, -3).flatten(-3).flatten(-3, -2)


def patchify__split(images, patch_size):
    height, width = images.shape[-2:]
    if any(side % patch_size for side in (height, width)):
        raise ValueError(f"sides {height}, {width}, patch {patch_size}")
    stripes = images.split(patch_size, dim=-2)
    return torch.stack([p.flatten(-3) for s in stripes for p in s.split(patch_size, dim=-1)], dim=-2)


def patchify__einsum(images, patch_size):
    height, width = images.shape[-2:]
    if height % patch_size or width % patch_size:
        raise ValueError(f"({height}, {width}) is not divisible by {patch_size}")
    cut = images.unflatten(-1, (-1, patch_size)).unflatten(-3, (-1, patch_size))
    return torch.einsum("...crpkq->...rkcpq", cut).flatten(-3).flatten(-3, -2)


def patchify__index(images, patch_size):
    *_, channels, height, width = images.shape
    if height % patch_size or width % patch_size:
        raise ValueError(f"an image of {height} by {width} has no patches of {patch_size}")
    places = torch.arange(channels * height * width, device=images.device).reshape(channels, height, width)
    order = torch.cat([p.flatten() for s in places.split(patch_size, 1) for p in s.split(patch_size, 2)])
    return images.flatten(-3)[..., order].unflatten(-1, (-1, channels * patch_size**2))


def patchify__transposes(images, patch_size):
    *leading, channels, height, width = images.shape
    if height % patch_size or width % patch_size:
        raise ValueError(f"{height}, {width}, {patch_size}")
    x = images.reshape(*leading, channels, height // patch_size, patch_size, width // patch_size, patch_size)
    x = x.transpose(-3, -2)  # channels, rows, columns, patch, patch
    x = x.transpose(-5, -4).transpose(-4, -3)  # rows, columns, channels, patch, patch
    return x.reshape(*leading, -1, channels * patch_size**2)


def patchify__stripes_then_squares(images, patch_size):
    (rows, rest_h), (columns, rest_w) = (divmod(side, patch_size) for side in images.shape[-2:])
    if rest_h or rest_w:
        raise ValueError(f"shape {tuple(images.shape[-2:])}, patch_size {patch_size}")
    stripes = images.unflatten(-2, (rows, patch_size)).movedim(-3, -4)  # rows, channels, patch, width
    squares = stripes.unflatten(-1, (columns, patch_size)).movedim(-2, -4)
    return squares.flatten(-3).flatten(-3, -2)


# ---- unpatchify


def unpatchify__axes(patches, patch_size, height, width):
    grid = patches.unflatten(-2, (height // patch_size, width // patch_size))
    cut = grid.unflatten(-1, (-1, patch_size, patch_size))
    return cut.movedim((-5, -4), (-4, -2)).flatten(-2).flatten(-3, -2)


def unpatchify__reshape_and_permute(patches, patch_size, height, width):
    leading, rows, columns = patches.shape[:-2], height // patch_size, width // patch_size
    x = patches.reshape(-1, rows, columns, patches.shape[-1] // patch_size**2, patch_size, patch_size)
    return x.permute(0, 3, 1, 4, 2, 5).reshape(*leading, -1, height, width)


def unpatchify__fold(patches, patch_size, height, width):
    flat = patches.reshape(-1, *patches.shape[-2:]).transpose(1, 2)
    found = F.fold(flat, (height, width), patch_size, stride=patch_size)
    return found.reshape(*patches.shape[:-2], *found.shape[1:])


def unpatchify__einsum(patches, patch_size, height, width):
    rows, columns = height // patch_size, width // patch_size
    x = patches.unflatten(-1, (-1, patch_size, patch_size)).unflatten(-4, (rows, columns))
    return torch.einsum("...rkcpq->...crpkq", x).flatten(-2).flatten(-3, -2)


def unpatchify__rows_joined(patches, patch_size, height, width):
    squares = patches.unflatten(-1, (-1, patch_size, patch_size)).unbind(dim=-4)
    n = width // patch_size
    lines = [torch.cat(squares[first : first + n], dim=-1) for first in range(0, len(squares), n)]
    return torch.cat(lines, dim=-2)


def unpatchify__written_into_zeros(patches, patch_size, height, width):
    channels = patches.shape[-1] // patch_size**2
    image = patches.new_zeros(*patches.shape[:-2], channels, height, width)
    for i in range(patches.shape[-2]):
        row, column = divmod(i, width // patch_size)
        top, left = row * patch_size, column * patch_size
        square = patches[..., i, :].unflatten(-1, (channels, patch_size, patch_size))
        image[..., top : top + patch_size, left : left + patch_size] = square
    return image


def unpatchify__transposes(patches, patch_size, height, width):
    rows, columns = height // patch_size, width // patch_size
    x = patches.reshape(*patches.shape[:-2], rows, columns, -1, patch_size, patch_size)
    x = x.transpose(-4, -3).transpose(-5, -4)  # channels, rows, columns, patch, patch
    return x.transpose(-3, -2).reshape(*patches.shape[:-2], -1, height, width)


def unpatchify__pixel_shuffle(patches, patch_size, height, width):
    flat = patches.reshape(-1, *patches.shape[-2:]).mT
    grid = flat.unflatten(-1, (height // patch_size, width // patch_size))
    found = F.pixel_shuffle(grid, patch_size)
    return found.reshape(*patches.shape[:-2], *found.shape[1:])


def unpatchify__index(patches, patch_size, height, width):
    channels = patches.shape[-1] // patch_size**2
    places = torch.arange(channels * height * width, device=patches.device).reshape(channels, height, width)
    order = torch.cat([p.flatten() for s in places.split(patch_size, 1) for p in s.split(patch_size, 2)])
    return patches.flatten(-2)[..., order.argsort()].unflatten(-1, (channels, height, width))


# ---- vit_logits


def vit_logits__steps(patches, projection, class_token, positions, blocks, head):
    x = projection(patches)
    first = class_token.expand(*x.shape[:-2], 1, -1)
    x = torch.cat([first, x], dim=-2) + positions
    return head(blocks(x)[..., 0, :])


def vit_logits__added_before(patches, projection, class_token, positions, blocks, head):
    tokens = projection(patches) + positions[1:]
    first = (class_token + positions[0]).expand(*tokens.shape[:-2], 1, tokens.shape[-1])
    return head(blocks(torch.cat((first, tokens), dim=-2))[..., 0, :])


def vit_logits__ones_like(patches, projection, class_token, positions, blocks, head):
    tokens = projection(patches)
    first = torch.ones_like(tokens[..., :1, :]) * class_token
    return head(blocks(torch.cat([first, tokens], -2).add(positions)).select(-2, 0))


def vit_logits__unbind(patches, projection, class_token, positions, blocks, head):
    tokens = projection(patches)
    first = class_token.broadcast_to(*tokens.shape[:-2], 1, *class_token.shape)
    out = blocks(torch.cat([first, tokens], dim=-2) + positions)
    class_vector, *_ = out.unbind(dim=-2)
    return head(class_vector)


def vit_logits__pad(patches, projection, class_token, positions, blocks, head):
    tokens = F.pad(projection(patches), (0, 0, 1, 0))
    marked = F.pad(class_token[None], (0, 0, 0, positions.shape[0] - 1))
    return head(blocks(tokens + marked + positions)[..., 0, :])


def vit_logits__repeat(patches, projection, class_token, positions, blocks, head):
    x = projection(patches)
    first = class_token.repeat(*x.shape[:-2], 1, 1)
    x = torch.cat([first, x], dim=x.dim() - 2)
    x = blocks(x + positions)
    return head(x[..., 0, :])


def vit_logits__flat_batch(patches, projection, class_token, positions, blocks, head):
    leading = patches.shape[:-2]
    x = projection(patches.reshape(-1, *patches.shape[-2:]))
    x = torch.cat([class_token.expand(len(x), 1, -1), x], dim=1)
    logits = head(blocks(x + positions)[:, 0])
    return logits.reshape(*leading, logits.shape[-1])


def vit_logits__stack(patches, projection, class_token, positions, blocks, head):
    tokens = projection(patches)
    one = class_token.expand_as(tokens[..., 0, :])
    x = torch.stack([one, *tokens.unbind(-2)], dim=-2)
    return head(
        torch.index_select(blocks(x + positions), -2, torch.zeros(1, dtype=torch.long, device=x.device))[..., 0, :]
    )


def vit_logits__narrow(patches, projection, class_token, positions, blocks, head):
    tokens = projection(patches)
    first = class_token.unsqueeze(0).expand(*tokens.shape[:-2], 1, -1)
    x = blocks(positions + torch.concat([first, tokens], dim=-2))
    return head(x.narrow(-2, 0, 1).flatten(-2))


def vit_logits__new_empty(patches, projection, class_token, positions, blocks, head):
    tokens = projection(patches)
    x = tokens.new_empty(*tokens.shape[:-2], tokens.shape[-2] + 1, tokens.shape[-1])
    x[..., 1:, :] = tokens
    x[..., 0, :] = class_token
    return head(blocks(x + positions)[..., 0, :])


# ---- attention_rollout


def attention_rollout__product(weights):
    mixed = weights.mean(dim=-3)
    itself = torch.eye(mixed.shape[-1], dtype=mixed.dtype, device=mixed.device)
    rollout = itself.expand_as(mixed[..., 0, :, :])
    for layer in mixed.unbind(dim=-3):
        rollout = (layer + itself) / 2 @ rollout
    return rollout


def attention_rollout__first_layer_first(weights):
    n = weights.shape[-1]
    steps = 0.5 * weights.mean(-3) + 0.5 * torch.eye(n).to(weights)
    rollout = steps[..., 0, :, :]
    for i in range(1, steps.shape[-3]):
        rollout = torch.matmul(steps[..., i, :, :], rollout)
    return rollout


def attention_rollout__last_layer_first(weights):
    steps = weights.mean(-3).unbind(-3)
    itself = torch.eye(weights.shape[-1], device=weights.device, dtype=weights.dtype)
    rollout = itself + 0 * steps[0]
    for step in reversed(steps):
        rollout = rollout @ (step / 2 + itself / 2)
    return rollout


def attention_rollout__half_by_half(weights):
    """The residual keeps half of what was there, the attention brings the other half."""
    mixed = weights.mean(-3)
    rollout = torch.eye(weights.shape[-1]).to(weights).expand_as(mixed[..., 0, :, :])
    for layer in range(mixed.shape[-3]):
        rollout = rollout / 2 + mixed[..., layer, :, :] @ rollout / 2
    return rollout


def attention_rollout__recursion(weights):
    itself = torch.eye(weights.shape[-1]).to(weights)
    last = (weights[..., -1, :, :, :].mean(-3) + itself) / 2
    if weights.shape[-4] == 1:
        return last
    return last @ attention_rollout__recursion(weights[..., :-1, :, :, :])


def attention_rollout__chain(weights):
    itself = torch.eye(weights.shape[-1]).to(weights)
    steps = [(w.mean(-3) + itself) / 2 for w in weights.unbind(-4)]
    while len(steps) > 1:
        *rest, one, other = steps
        steps = [*rest, other @ one]
    return steps[0]


def attention_rollout__diagonal(weights):
    steps = weights.mean(dim=-3) / 2
    steps = steps + torch.diag_embed(torch.full_like(steps[..., 0], 0.5))
    rollout = steps[..., 0, :, :]
    for i in range(1, weights.shape[-4]):
        rollout = torch.einsum("...ij,...jk->...ik", steps[..., i, :, :], rollout)
    return rollout


def attention_rollout__residual_in_each_head(weights):
    steps = ((weights + torch.eye(weights.shape[-1]).to(weights)) / 2).mean(-3)
    rollout, *others = steps.unbind(-3)
    for step in others:
        rollout = step @ rollout
    return rollout


def attention_rollout__sums(weights):
    heads = weights.shape[-3]
    itself = torch.eye(weights.shape[-1]).to(weights)
    steps = (sum(weights.unbind(-3)) / heads + itself) * 0.5
    rollout = steps[..., 0, :, :]
    for i in range(1, steps.shape[-3]):
        rollout = (steps[..., i, :, :].unsqueeze(-1) * rollout.unsqueeze(-3)).sum(-2)
    return rollout


def attention_rollout__transposed(weights):
    itself = torch.eye(weights.shape[-1]).to(weights)
    columns = itself
    for w in weights.mean(-3).unbind(-3):
        columns = columns @ ((w + itself) / 2).mT
    return columns.mT
