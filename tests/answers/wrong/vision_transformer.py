"""Wrong answers to lesson 11's exercises; each docstring says what is wrong."""

import torch
import torch.nn.functional as F

# ---- patchify


def _must_fit(images, patch_size):
    height, width = images.shape[-2:]
    if height % patch_size or width % patch_size:
        raise ValueError(f"{height} × {width} pixels cannot be cut into patches of {patch_size}")


def patchify__reshape(images, patch_size):
    """Pieces of lines, not squares."""
    _must_fit(images, patch_size)
    return images.reshape(*images.shape[:-3], -1, images.shape[-3] * patch_size * patch_size)


def patchify__columns_first(images, patch_size):
    """The patches go down the columns."""
    _must_fit(images, patch_size)
    stripes = images.split(patch_size, dim=-1)
    return torch.stack([p.flatten(-3) for s in stripes for p in s.split(patch_size, dim=-2)], dim=-2)


def patchify__channels_last(images, patch_size):
    """All channels of a pixel side by side."""
    _must_fit(images, patch_size)
    *leading, channels, height, width = images.shape
    x = images.reshape(-1, channels, height // patch_size, patch_size, width // patch_size, patch_size)
    return x.permute(0, 2, 4, 3, 5, 1).reshape(*leading, -1, channels * patch_size**2)


def patchify__pixels_transposed(images, patch_size):
    """The pixels of a patch go down its columns."""
    _must_fit(images, patch_size)
    *leading, channels, height, width = images.shape
    x = images.reshape(-1, channels, height // patch_size, patch_size, width // patch_size, patch_size)
    return x.permute(0, 2, 4, 1, 5, 3).reshape(*leading, -1, channels * patch_size**2)


def patchify__unfold_not_transposed(images, patch_size):
    """`F.unfold` has the numbers before the patches."""
    _must_fit(images, patch_size)
    found = F.unfold(images.reshape(-1, *images.shape[-3:]), patch_size, stride=patch_size)
    return found.reshape(*images.shape[:-3], *found.shape[1:])


def patchify__overlapping(images, patch_size):
    """Stride 1: the windows overlap."""
    _must_fit(images, patch_size)
    found = F.unfold(images.reshape(-1, *images.shape[-3:]), patch_size).mT
    return found.reshape(*images.shape[:-3], *found.shape[1:])


def patchify__cuts_off(images, patch_size):
    """What is left over is dropped without an error."""
    found = F.unfold(images.reshape(-1, *images.shape[-3:]), patch_size, stride=patch_size).mT
    return found.reshape(*images.shape[:-3], *found.shape[1:])


def patchify__assertion(images, patch_size):
    """An AssertionError, where a ValueError is promised."""
    assert images.shape[-2] % patch_size == 0 and images.shape[-1] % patch_size == 0
    cut = images.unflatten(-1, (-1, patch_size)).unflatten(-3, (-1, patch_size))
    return cut.movedim((-4, -2), (-5, -4)).flatten(-3).flatten(-3, -2)


def patchify__says_nothing(images, patch_size):
    """The error does not say the sizes."""
    if images.shape[-2] % patch_size or images.shape[-1] % patch_size:
        raise ValueError("wrong size")
    cut = images.unflatten(-1, (-1, patch_size)).unflatten(-3, (-1, patch_size))
    return cut.movedim((-4, -2), (-5, -4)).flatten(-3).flatten(-3, -2)


def patchify__square_grid(images, patch_size):
    """As many columns of patches as rows."""
    _must_fit(images, patch_size)
    n = images.shape[-2] // patch_size
    squares = [
        images[..., i * patch_size : (i + 1) * patch_size, j * patch_size : (j + 1) * patch_size].flatten(-3)
        for i in range(n)
        for j in range(n)
    ]
    return torch.stack(squares, dim=-2)


def patchify__channel_by_channel(images, patch_size):
    """Each channel has patches of its own."""
    _must_fit(images, patch_size)
    cut = images.unflatten(-1, (-1, patch_size)).unflatten(-3, (-1, patch_size))
    return cut.transpose(-3, -2).flatten(-2).flatten(-4, -2)


def patchify__squeezed(images, patch_size):
    """Axes of size one are lost."""
    _must_fit(images, patch_size)
    cut = images.unflatten(-1, (-1, patch_size)).unflatten(-3, (-1, patch_size))
    return cut.movedim((-4, -2), (-5, -4)).flatten(-3).flatten(-3, -2).squeeze()


# ---- unpatchify


def unpatchify__reshape(patches, patch_size, height, width):
    """The patches are not put back as squares."""
    return patches.reshape(*patches.shape[:-2], -1, height, width)


def unpatchify__columns_first(patches, patch_size, height, width):
    """The patches are laid down the columns."""
    squares = patches.unflatten(-1, (-1, patch_size, patch_size)).unbind(dim=-4)
    n = height // patch_size
    columns = [torch.cat(squares[first : first + n], dim=-2) for first in range(0, len(squares), n)]
    return torch.cat(columns, dim=-1)


def unpatchify__channels_last(patches, patch_size, height, width):
    """Reads the channels of a pixel side by side."""
    x = patches.unflatten(-2, (height // patch_size, -1)).unflatten(-1, (patch_size, patch_size, -1))
    return torch.einsum("...rkpqc->...crpkq", x).flatten(-2).flatten(-3, -2)


def unpatchify__pixels_transposed(patches, patch_size, height, width):
    """The pixels of a patch are laid down its columns."""
    x = patches.unflatten(-2, (height // patch_size, -1)).unflatten(-1, (-1, patch_size, patch_size))
    return torch.einsum("...rkcqp->...crpkq", x).flatten(-2).flatten(-3, -2)


def unpatchify__sides_exchanged(patches, patch_size, height, width):
    """Rows from the width, columns from the height."""
    x = patches.unflatten(-2, (width // patch_size, -1)).unflatten(-1, (-1, patch_size, patch_size))
    return torch.einsum("...rkcpq->...crpkq", x).flatten(-2).flatten(-3, -2)


def unpatchify__square(patches, patch_size, height, width):
    """Takes every image for a square."""
    n = int(patches.shape[-2] ** 0.5)
    x = patches[..., : n * n, :].unflatten(-2, (n, n)).unflatten(-1, (-1, patch_size, patch_size))
    return torch.einsum("...rkcpq->...crpkq", x).flatten(-2).flatten(-3, -2)


def unpatchify__one_channel(patches, patch_size, height, width):
    """Only the first channel comes back."""
    first = patches[..., : patch_size**2]
    x = first.unflatten(-2, (height // patch_size, -1)).unflatten(-1, (-1, patch_size, patch_size))
    return torch.einsum("...rkcpq->...crpkq", x).flatten(-2).flatten(-3, -2)


def unpatchify__channels_at_the_end(patches, patch_size, height, width):
    """The channels are the last axis."""
    x = patches.unflatten(-2, (height // patch_size, -1)).unflatten(-1, (-1, patch_size, patch_size))
    return torch.einsum("...rkcpq->...rpkqc", x).flatten(-3, -2).flatten(-4, -3)


def unpatchify__one_batch(patches, patch_size, height, width):
    """Works with exactly one leading dimension."""
    n, rows, columns = len(patches), height // patch_size, width // patch_size
    x = patches.reshape(n, rows, columns, -1, patch_size, patch_size)
    return x.permute(0, 3, 1, 4, 2, 5).reshape(n, -1, height, width)


def unpatchify__squeezed(patches, patch_size, height, width):
    """The axis of a single channel is lost."""
    x = patches.unflatten(-2, (height // patch_size, -1)).unflatten(-1, (-1, patch_size, patch_size))
    return torch.einsum("...rkcpq->...crpkq", x).flatten(-2).flatten(-3, -2).squeeze()


def unpatchify__float32(patches, patch_size, height, width):
    """The dtype is lost."""
    channels = patches.shape[-1] // patch_size**2
    image = torch.zeros(*patches.shape[:-2], channels, height, width)
    for i in range(patches.shape[-2]):
        row, column = divmod(i, width // patch_size)
        top, left = row * patch_size, column * patch_size
        square = patches[..., i, :].unflatten(-1, (channels, patch_size, patch_size))
        image[..., top : top + patch_size, left : left + patch_size] = square
    return image


# ---- vit_logits


def _with_class(class_token, x):
    return torch.cat([class_token.expand(*x.shape[:-2], 1, -1), x], dim=-2)


def vit_logits__position_of_class_only(patches, projection, class_token, positions, blocks, head):
    """Only the class token gets a position."""
    x = _with_class(class_token + positions[0], projection(patches))
    return head(blocks(x)[..., 0, :])


def vit_logits__positions_of_patches_only(patches, projection, class_token, positions, blocks, head):
    """The class token gets no position."""
    x = _with_class(class_token, projection(patches) + positions[1:])
    return head(blocks(x)[..., 0, :])


def vit_logits__positions_shifted(patches, projection, class_token, positions, blocks, head):
    """The first patch gets the class token's position."""
    x = _with_class(class_token, projection(patches) + positions[:-1])
    return head(blocks(x)[..., 0, :])


def vit_logits__no_positions(patches, projection, class_token, positions, blocks, head):
    """No positions."""
    return head(blocks(_with_class(class_token, projection(patches)))[..., 0, :])


def vit_logits__mean(patches, projection, class_token, positions, blocks, head):
    """The mean of all tokens instead of the class token."""
    return head(blocks(_with_class(class_token, projection(patches)) + positions).mean(dim=-2))


def vit_logits__last(patches, projection, class_token, positions, blocks, head):
    """Reads the last token."""
    return head(blocks(_with_class(class_token, projection(patches)) + positions)[..., -1, :])


def vit_logits__class_at_the_end(patches, projection, class_token, positions, blocks, head):
    """The class token stands at the end, and is read there."""
    x = projection(patches)
    x = torch.cat([x, class_token.expand(*x.shape[:-2], 1, -1)], dim=-2) + positions
    return head(blocks(x)[..., -1, :])


def vit_logits__no_class_token(patches, projection, class_token, positions, blocks, head):
    """Reads the first patch; there is no class token."""
    return head(blocks(projection(patches) + positions[1:])[..., 0, :])


def vit_logits__all_tokens(patches, projection, class_token, positions, blocks, head):
    """The head reads every token."""
    return head(blocks(_with_class(class_token, projection(patches)) + positions))


def vit_logits__first_axis(patches, projection, class_token, positions, blocks, head):
    """`[:, 0]` is the first token with exactly one leading dimension only."""
    return head(blocks(_with_class(class_token, projection(patches)) + positions)[:, 0])


def vit_logits__first_image(patches, projection, class_token, positions, blocks, head):
    """`[0]` is the first token without leading dimensions only; with a batch it is the first image."""
    return head(blocks(_with_class(class_token, projection(patches)) + positions)[0])


def vit_logits__no_head(patches, projection, class_token, positions, blocks, head):
    """The head is not used."""
    return blocks(_with_class(class_token, projection(patches)) + positions)[..., 0, :]


def vit_logits__positions_after(patches, projection, class_token, positions, blocks, head):
    """Positions come after the blocks."""
    return head((blocks(_with_class(class_token, projection(patches))) + positions)[..., 0, :])


def vit_logits__token_by_token(patches, projection, class_token, positions, blocks, head):
    """Projects each patch in a call of its own."""
    x = torch.stack([projection(p) for p in patches.unbind(-2)], dim=-2)
    return head(blocks(_with_class(class_token, x) + positions)[..., 0, :])


def vit_logits__detached(patches, projection, class_token, positions, blocks, head):
    """No gradient reaches the class token."""
    return head(blocks(_with_class(class_token.detach(), projection(patches)) + positions)[..., 0, :])


# ---- attention_rollout


def _eye(weights):
    return torch.eye(weights.shape[-1]).to(weights)


def attention_rollout__no_residual(weights):
    """Without the residual connection."""
    rollout = _eye(weights)
    for layer in weights.mean(-3).unbind(-3):
        rollout = layer @ rollout
    return rollout


def attention_rollout__wrong_order(weights):
    """The first layer stands left."""
    rollout = _eye(weights)
    for layer in weights.mean(-3).unbind(-3):
        rollout = rollout @ (layer + _eye(weights)) / 2
    return rollout


def attention_rollout__not_halved(weights):
    """Adds the identity and does not halve."""
    rollout = _eye(weights)
    for layer in weights.mean(-3).unbind(-3):
        rollout = (layer + _eye(weights)) @ rollout
    return rollout


def attention_rollout__last_layer(weights):
    """Only the last layer."""
    return (weights[..., -1, :, :, :].mean(-3) + _eye(weights)) / 2


def attention_rollout__largest_head(weights):
    """The largest head at each place."""
    rollout = _eye(weights)
    for layer in weights.amax(-3).unbind(-3):
        rollout = (layer + _eye(weights)) / 2 @ rollout
    return rollout


def attention_rollout__first_head(weights):
    """One head only."""
    rollout = _eye(weights)
    for layer in weights[..., 0, :, :].unbind(-3):
        rollout = (layer + _eye(weights)) / 2 @ rollout
    return rollout


def attention_rollout__mean_of_layers(weights):
    """Layers are averaged, not multiplied."""
    return (weights.mean(dim=(-4, -3)) + _eye(weights)) / 2


def attention_rollout__residual_at_the_end(weights):
    """The residual connection comes once, at the end."""
    rollout = _eye(weights)
    for layer in weights.mean(-3).unbind(-3):
        rollout = layer @ rollout
    return (rollout + _eye(weights)) / 2


def attention_rollout__transposed(weights):
    """Rows and columns exchanged."""
    rollout = _eye(weights)
    for layer in weights.mean(-3).unbind(-3):
        rollout = (layer + _eye(weights)) / 2 @ rollout
    return rollout.mT


def attention_rollout__numbers_multiplied(weights):
    """`*` instead of the matrix product."""
    rollout = torch.ones_like(weights[..., 0, 0, :, :])
    for layer in weights.mean(-3).unbind(-3):
        rollout = (layer + _eye(weights)) / 2 * rollout
    return rollout


def attention_rollout__heads_apart(weights):
    """Each head goes through all layers alone."""
    rollout = _eye(weights)
    for layer in weights.unbind(-4):
        rollout = (layer + _eye(weights)) / 2 @ rollout
    return rollout.mean(-3)


def attention_rollout__first_layer_twice(weights):
    """The first layer counts twice."""
    steps = [(layer + _eye(weights)) / 2 for layer in weights.mean(-3).unbind(-3)]
    rollout = steps[0]
    for step in steps:
        rollout = step @ rollout
    return rollout


def attention_rollout__identity_of_float32(weights):
    """The identity has always the default dtype."""
    rollout = torch.eye(weights.shape[-1])
    for layer in weights.mean(-3).unbind(-3):
        rollout = (layer + torch.eye(weights.shape[-1])) / 2 @ rollout
    return rollout


def attention_rollout__class_row(weights):
    """Only the row of the first token."""
    rollout = _eye(weights)
    for layer in weights.mean(-3).unbind(-3):
        rollout = (layer + _eye(weights)) / 2 @ rollout
    return rollout[..., 0, :]
