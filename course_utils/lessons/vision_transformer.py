"""Lesson 11: an image cut into patches is a sequence.

Dosovitskiy et al. 2021 (https://arxiv.org/abs/2010.11929) for the Vision Transformer,
Touvron et al. 2021 (https://arxiv.org/abs/2012.12877) for DeiT, Abnar and Zuidema 2020
(https://arxiv.org/abs/2005.00928) for attention rollout.

Layout: images are (..., channels, height, width), patches (..., patches, numbers).
"""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from course_utils.corpora.images import Images
from course_utils.lessons.multi_head import MultiHeadAttention, attend
from course_utils.lessons.transformer_block import (
    MLP,
    LayerNorm,
    TransformerBlock,
    pre_norm_block,
)
from course_utils.training import one_thread, train

Model = TypeVar("Model", bound=nn.Module)


def patchify(
    images: Float[Tensor, "... channels height width"], patch_size: int
) -> Float[Tensor, "... patches numbers"]:
    """Cuts each image into square patches, and makes a vector of each.

    A patch has `patch_size` pixels on each side. The patches stand in the order in
    which one reads a page: from left to right, and from the top to the bottom. In a
    vector, all numbers of the first channel come first, in the same order, then all of
    the second channel, and so on. Images need not be square. Raises ValueError when
    height or width is no multiple of `patch_size`; the message has height, width and
    patch size. Any number of leading dimensions, including none.
    """
    height, width = images.shape[-2:]
    if height % patch_size or width % patch_size:
        raise ValueError(
            f"images of {height} × {width} pixels cannot be cut into patches of "
            f"{patch_size} × {patch_size}"
        )
    cut = images.unflatten(-1, (-1, patch_size)).unflatten(-3, (-1, patch_size))
    # (..., channels, rows, patch_size, columns, patch_size)
    return cut.movedim((-4, -2), (-5, -4)).flatten(-3).flatten(-3, -2)


def unpatchify(
    patches: Float[Tensor, "... patches numbers"],
    patch_size: int,
    height: int,
    width: int,
) -> Float[Tensor, "... channels height width"]:
    """The inverse of `patchify`: the images that were cut into these patches.

    `height` and `width` are those of the images, in pixels. How many channels there
    are follows from the numbers of a patch. Any number of leading dimensions, including
    none.
    """
    rows, columns = height // patch_size, width // patch_size
    grid = patches.unflatten(-2, (rows, columns))
    cut = grid.unflatten(-1, (-1, patch_size, patch_size))
    # (..., rows, columns, channels, patch_size, patch_size)
    return cut.movedim((-5, -4), (-4, -2)).flatten(-2).flatten(-3, -2)


def vit_logits(
    patches: Float[Tensor, "... patches numbers"],
    projection: Callable[[Tensor], Tensor],
    class_token: Float[Tensor, " d_model"],
    positions: Float[Tensor, "tokens d_model"],
    blocks: Callable[[Tensor], Tensor],
    head: Callable[[Tensor], Tensor],
) -> Float[Tensor, "... classes"]:
    """The logits of an image, from its patches.

    `projection` makes a token of d_model numbers of each patch. One token more, the
    learned `class_token`, stands before those of the patches, so there are as many
    tokens as `positions` has rows. To each token the vector of its position is added,
    and all of them go through `blocks`, which keeps the shape. `head` makes the logits
    of what has become of the class token. Each function is called once. Any number of
    leading dimensions, including none; dtype and device follow `patches`.
    """
    x = projection(patches)
    first = class_token.expand(*x.shape[:-2], 1, -1)
    x = torch.cat([first, x], dim=-2) + positions
    return head(blocks(x)[..., 0, :])


def attention_rollout(
    weights: Float[Tensor, "... layers heads tokens tokens"],
) -> Float[Tensor, "... tokens tokens"]:
    """How much of each input token (column) is in each token of the last layer (row).

    `weights` are the attention weights of all layers, the first layer first. In each
    layer a token is one half what the layer attends to, the mean over the heads, and
    one half itself, since a residual connection leads around the attention. The layers
    follow each other, so what a token of one layer is made of is found in the layer
    before it. Any number of leading dimensions, including none; dtype and device follow
    `weights`.
    """
    mixed = weights.mean(dim=-3)
    itself = torch.eye(mixed.shape[-1], dtype=mixed.dtype, device=mixed.device)
    rollout = itself
    for layer in mixed.unbind(dim=-3):
        rollout = (layer + itself) / 2 @ rollout
    return rollout


# ------------------------------------------------------------------ the model


class VisionTransformer(nn.Module):
    """Classifies images of one shape: logits (..., classes)."""

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        patch_size: int,
        d_model: int,
        n_layers: int,
        n_heads: int,
        d_hidden: int,
        n_classes: int,
        attend: Callable = attend,
    ) -> None:
        super().__init__()
        self.patch_size = patch_size
        # The patches of an empty image say how many there are, and of how many numbers
        n_patches, n_numbers = patchify(torch.zeros(image_shape), patch_size).shape
        self.projection = nn.Linear(n_numbers, d_model)
        self.class_token = nn.Parameter(torch.randn(d_model) / 2)
        self.positions = nn.Parameter(torch.randn(1 + n_patches, d_model) / 2)
        mlp = partial(MLP, activation=F.gelu)
        how = {"order": pre_norm_block, "attend": attend, "mlp": mlp}
        blocks = (
            TransformerBlock(d_model, n_heads, d_hidden, **how) for _ in range(n_layers)
        )
        self.blocks = nn.Sequential(*blocks, LayerNorm(d_model))
        self.head = nn.Linear(d_model, n_classes)

    def forward(
        self, images: Float[Tensor, "... channels height width"]
    ) -> Float[Tensor, "... classes"]:
        patches = patchify(images, self.patch_size)
        parts = self.projection, self.class_token, self.positions
        return vit_logits(patches, *parts, self.blocks, self.head)


class MeanPoolingViT(VisionTransformer):
    """The same without a class token: the head reads the mean of all tokens."""

    def __init__(self, *sizes: Any, **how: Any) -> None:
        super().__init__(*sizes, **how)
        del self.class_token
        self.positions = nn.Parameter(self.positions[1:].detach())

    def forward(
        self, images: Float[Tensor, "... channels height width"]
    ) -> Float[Tensor, "... classes"]:
        x = self.projection(patchify(images, self.patch_size)) + self.positions
        return self.head(self.blocks(x).mean(dim=-2))


@torch.no_grad()
def without_positions(model: VisionTransformer) -> VisionTransformer:
    """The model, with positions that are zero and stay zero in training."""
    model.positions.zero_()
    model.positions.requires_grad_(False)
    return model


class ConvNet(nn.Sequential):
    """Three convolutions of 3 × 3, and a linear layer over what is left of the image.

    The first convolution makes `channels` numbers at each place, the others `wide`.
    """

    def __init__(self, channels: int, wide: int, n_classes: int) -> None:
        def layer(n_in: int, n_out: int) -> tuple[nn.Module, ...]:
            convolution = nn.Conv2d(n_in, n_out, 3, padding=1)
            return convolution, nn.BatchNorm2d(n_out), nn.ReLU()

        super().__init__(
            *layer(1, channels),
            *layer(channels, wide),
            nn.MaxPool2d(2),
            *layer(wide, wide),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(4 * wide, n_classes),
        )


# ------------------------------------------------------------------ training

# About 5 s on one core
D_MODEL, N_LAYERS, N_HEADS, D_HIDDEN = 48, 2, 2, 96
STEPS, BATCH_SIZE, LEARNING_RATE, WARMUP, NOISE = 560, 64, 4e-3, 0.2, 0.2


def digit_model(
    kind: Callable[..., Model] = VisionTransformer, side: int = 8, n_classes: int = 10
) -> Model:
    """This lesson's model, untrained: 16 patches, whatever the side of the image."""
    sizes = D_MODEL, N_LAYERS, N_HEADS, D_HIDDEN, n_classes
    return kind((1, side, side), side // 4, *sizes)


def noisy_batches(
    data: Images, batch_size: int, generator: torch.Generator
) -> Iterator[Images]:
    """Yields batches without end: all images in a new order, then all of them again.

    Each time a little noise is added to each pixel, so no image comes twice. What does
    not fill a batch is left out until the next time. `generator` is a CPU generator.
    """
    batch_size = min(batch_size, len(data.labels))
    while True:
        order = torch.randperm(len(data.labels), generator=generator)
        for rows in order.split(batch_size):
            if len(rows) == batch_size:
                images = data.images[rows.to(data.images.device)]
                noise = torch.randn(images.shape, generator=generator)
                labels = data.labels[rows.to(data.labels.device)]
                yield Images(images + NOISE * noise.to(images.device), labels)


def image_loss(model: nn.Module, batch: Images) -> Float[Tensor, ""]:
    """Nats per image."""
    return F.cross_entropy(model(batch.images), batch.labels)


@torch.no_grad()
def accuracy(model: nn.Module, data: Images) -> float:
    """The share of images whose most probable class is right."""
    was_training = model.training
    model.eval()  # batch norm then uses the means of the training
    right = model(data.images).argmax(dim=-1) == data.labels
    model.train(was_training)
    return right.float().mean().item()


@one_thread()
def train_on_images(
    model: nn.Module,
    data: Images,
    seed: int,
    steps: int = STEPS,
    learning_rate: float = LEARNING_RATE,
) -> list[float]:
    """Trains `model` in place; returns the loss of each step."""
    batches = noisy_batches(data, BATCH_SIZE, torch.Generator().manual_seed(seed))
    settings = {"steps": steps, "learning_rate": learning_rate, "warmup": WARMUP}
    return train(model, batches, image_loss, **settings)


def in_a_quarter(data: Images, n: int, generator: torch.Generator) -> Images:
    """`n` random images, each in one quarter of an empty image twice as high and wide.

    The label is the quarter: 0 and 1 at the top, 2 and 3 at the bottom. What the image
    shows does not matter.
    """
    chosen = torch.randint(len(data.labels), (n,), generator=generator)
    quarters = torch.randint(4, (n,), generator=generator)
    places = F.one_hot(quarters, 4).unflatten(-1, (2, 2)).float()
    images = data.images[chosen]
    return Images(
        torch.einsum("nij,nchw->ncihjw", places, images).flatten(-2).flatten(-3, -2),
        quarters,
    )


# ------------------------------------------------------------------ looking inside


@torch.no_grad()
def attention_weights(
    model: nn.Module, images: Float[Tensor, "batch channels height width"]
) -> Float[Tensor, "batch layers heads tokens tokens"]:
    """The attention weights of every layer of a model that has `TransformerBlock`s."""
    kept = []

    def keep(layer: MultiHeadAttention, inputs: tuple[Tensor]) -> None:
        kept.append(layer.weights(*inputs))

    layers = [m for m in model.modules() if isinstance(m, MultiHeadAttention)]
    hooks = [layer.register_forward_pre_hook(keep) for layer in layers]
    try:
        model(images)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack(kept, dim=1)


def hide_patches(
    images: Float[Tensor, "batch channels height width"],
    patch_size: int,
    hidden: Bool[Tensor, "batch patches"],
) -> Float[Tensor, "batch channels height width"]:
    """The images with nothing (zeros) in the patches where `hidden` is True."""
    patches = patchify(images, patch_size).masked_fill(hidden.unsqueeze(-1), 0)
    return unpatchify(patches, patch_size, *images.shape[-2:])


# ------------------------------------------------------------------ published weights


def from_deit(weights: Mapping[str, Tensor], n_heads: int) -> VisionTransformer:
    """Our model with the weights of a DeiT, under the names that its authors give.

    Its images are square, and its norms have an eps of 1e-6. Raises KeyError or
    RuntimeError when names or shapes are not those of a DeiT.
    """
    kernel, positions = weights["patch_embed.proj.weight"], weights["pos_embed"][0]
    ours = {
        "projection.weight": kernel.flatten(1),
        "projection.bias": weights["patch_embed.proj.bias"],
        "class_token": weights["cls_token"].flatten(),
        "positions": positions,
    }
    n_layers = sum(name.endswith("norm1.weight") for name in weights)
    for part in ("weight", "bias"):
        gain = {"weight": "gain", "bias": "bias"}[part]
        ours[f"blocks.{n_layers}.{gain}"] = weights[f"norm.{part}"]
        ours[f"head.{part}"] = weights[f"head.{part}"]
        for i in range(n_layers):
            block = f"blocks.{i}."
            for n in (1, 2):
                ours[f"{block}norm_{n}.{gain}"] = weights[f"{block}norm{n}.{part}"]
            q_k_v = weights[f"{block}attn.qkv.{part}"].chunk(3)
            for name, matrix in zip(("queries", "keys", "values"), q_k_v, strict=True):
                ours[f"{block}attention.to_{name}.{part}"] = matrix
            for name, their_name in (
                ("attention.output", "attn.proj"),
                ("mlp.up", "mlp.fc1"),
                ("mlp.down", "mlp.fc2"),
            ):
                ours[f"{block}{name}.{part}"] = weights[f"{block}{their_name}.{part}"]
    d_model, channels, patch_size, _ = kernel.shape
    side = patch_size * math.isqrt(len(positions) - 1)
    d_hidden, n_classes = len(weights["blocks.0.mlp.fc1.bias"]), len(ours["head.bias"])
    sizes = d_model, n_layers, n_heads, d_hidden, n_classes
    model = VisionTransformer((channels, side, side), patch_size, *sizes)
    model.load_state_dict(ours)
    for norm in model.modules():
        if isinstance(norm, LayerNorm):
            norm.eps = 1e-6
    return model
