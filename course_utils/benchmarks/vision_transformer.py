"""Lesson 11's measurements."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.benchmarks.timing import ratios
from course_utils.corpora import images
from course_utils.corpora.images import Images, Splits
from course_utils.lessons import vision_transformer as lesson
from course_utils.lessons.transformer_block import copy_block_weights

# How many images are learned of each data set, all of 8 × 8 pixels; the CNN has as many parameters as the ViT.
_SIZES = {"digits": (50, 100, 200, 400, 800, 1198), "mnist": (100, 1000, 4000)}
_MODELS: dict[str, Callable[[], nn.Module]] = {
    "ViT": lesson.digit_model,
    "CNN": functools.partial(lesson.ConvNet, 27, 52, 10),
    "ViT, mean pooling": functools.partial(lesson.digit_model, lesson.MeanPoolingViT),
    "small CNN": functools.partial(lesson.ConvNet, 12, 24, 10),
}


def images_needed() -> list[dict[str, Any]]:
    """Lesson 11: accuracy of a ViT and a CNN against the number of training images, three seeds. Ten minutes."""
    settings = [(data, name, n) for data, sizes in _SIZES.items() for name in ("ViT", "CNN") for n in sizes]
    settings += [("digits", name, 1198) for name in ("ViT, mean pooling", "small CNN")]
    return [row(*setting, seed) for setting in settings for seed in range(3)]


def row(data: str, name: str, n: int, seed: int) -> dict[str, Any]:
    """Train one model on n images, others for each seed, and measure it on what is held out."""
    splits = _data(data)
    torch.manual_seed(seed)
    model = _MODELS[name]()
    shuffled = torch.randperm(len(splits.train.labels), generator=torch.Generator().manual_seed(seed))
    chosen = shuffled[:n] if n < len(shuffled) else torch.arange(n)  # all of them: the lesson's order and models
    lesson.train_on_images(model, Images(*(x[chosen] for x in splits.train)), seed)
    size = sum(p.numel() for p in model.parameters())
    found: dict[str, Any] = {"data": data, "model": name, "parameters": size, "steps": lesson.STEPS}
    found |= {"images": n, "seed": seed, "right": round(lesson.accuracy(model, splits.held_out), 4)}
    print(found, flush=True)
    return found


@functools.cache
def _data(name: str) -> Splits:
    return images.digits() if name == "digits" else shrunk(images.mnist())


def shrunk(splits: Splits) -> Splits:
    """MNIST's images with 8 × 8 pixels: 3 × 3 of theirs each, without the two at the edges, which are nearly empty."""
    return Splits(*(Images(F.avg_pool2d(x[..., 2:-2, 2:-2], 3), labels) for x, labels in splits))


# ------------------------------------------------------------------ how fast

_SHAPES = ((64, 8, 2, 48, 96, 2), (16, 32, 4, 128, 512, 4), (8, 64, 8, 192, 768, 3))


def layers() -> list[dict[str, Any]]:
    """Lesson 11: the time of a Vision Transformer's training step, as a part of PyTorch's own layers'. A minute."""
    rows = []
    for batch, side, patch_size, d_model, d_hidden, heads in _SHAPES:
        found = {
            "batch": batch,
            "side": side,
            "patch_size": patch_size,
            "d_model": d_model,
            "heads": heads,
            "blocks": 2,
        }
        ours, theirs = models(side, patch_size, d_model, d_hidden, heads)
        pixels, labels = torch.rand(batch, 3, side, side), torch.randint(10, (batch,))
        calls = {"pytorch": functools.partial(loss, theirs, pixels, labels)}
        rows.append(found | ratios(calls | {"ours": functools.partial(loss, ours, pixels, labels)}, to="pytorch"))
        print(rows[-1], flush=True)
    return rows


def loss(model: nn.Module, pixels: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(model(pixels), labels)


class PyTorchViT(nn.Module):
    """The lesson's model, made of PyTorch's layers."""

    def __init__(self, side: int, patch_size: int, d_model: int, d_hidden: int, n_heads: int, n_layers: int) -> None:
        super().__init__()
        self.projection = nn.Conv2d(3, d_model, patch_size, stride=patch_size)
        self.class_token = nn.Parameter(torch.zeros(1, 1, d_model))
        self.positions = nn.Parameter(torch.zeros(1 + (side // patch_size) ** 2, d_model))
        how = {"dropout": 0.0, "activation": F.gelu, "batch_first": True, "norm_first": True}
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(d_model, n_heads, d_hidden, **how) for _ in range(n_layers)
        )
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, 10)

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.projection(pixels).flatten(2).mT
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


@torch.no_grad()
def models(
    side: int, patch_size: int, d_model: int, d_hidden: int, n_heads: int
) -> tuple[lesson.VisionTransformer, PyTorchViT]:
    """Ours and PyTorch's, with the same weights."""
    theirs = PyTorchViT(side, patch_size, d_model, d_hidden, n_heads, n_layers=2)
    ours = lesson.VisionTransformer((3, side, side), patch_size, d_model, 2, n_heads, d_hidden, 10)
    kernels = theirs.projection.state_dict()
    ours.projection.load_state_dict(kernels | {"weight": kernels["weight"].flatten(1)})
    ours.class_token.copy_(theirs.class_token.flatten())
    ours.positions.copy_(theirs.positions)
    ours.head.load_state_dict(theirs.head.state_dict())
    pairs: Any = zip(theirs.layers, ours.blocks, strict=False)  # behind our blocks stands a norm
    for theirs_layer, block in pairs:
        copy_block_weights(theirs_layer, block)
    return ours, theirs
