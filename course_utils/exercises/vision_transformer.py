"""Lesson 11's exercises: an image as patches and back, a Vision Transformer, and where it has looked."""

import re

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.exercises import Exercise, case, expect, normal, note
from course_utils.exercises.compare import Mismatch
from course_utils.lessons import vision_transformer
from course_utils.lessons.vision_transformer import patchify

# ---- patchify ------------------------------------------------------------------------------------------------

ex = Exercise(
    vision_transformer.patchify,
    points=2,
    minutes=20,
    hints=(
        "Each axis of pixels is two axes: which patch, and which pixel of it. `x.unflatten(-1, (-1, patch_size))` "
        "makes two axes of the last one. No number is computed, only the axes are put in order.",
        "After cutting, the shape is (…, channels, rows, patch_size, columns, patch_size); rows and columns count "
        "patches. Which axes must stand in front, which belong to one vector? `movedim` puts them there, and `flatten` "
        "makes one axis of several.",
        "The order at the end is (…, rows, columns, channels, patch_size, patch_size): flatten the last three, then "
        "the two before. First of all `raise ValueError(…)`, with height, width and patch size in its message (an "
        "`assert` raises another error).",
    ),
)


def image(*leading, channels=4, rows=5, columns=7, patch_size=6):
    return case(normal(*leading, channels, rows * patch_size, columns * patch_size), patch_size)


def by_convolution(call):
    """Each number of a patch is found by a convolution whose kernel is 1 there and 0 elsewhere."""
    pixels, size = call.args
    *leading, channels, height, width = pixels.shape
    kernels = torch.eye(channels * size * size).unflatten(1, (channels, size, size))
    found = F.conv2d(pixels.reshape(-1, channels, height, width), kernels, stride=size)
    return call.gives(found.flatten(-2).mT.reshape(*leading, -1, channels * size * size))


FOUR = torch.arange(16.0).reshape(1, 4, 4)
TWO_CHANNELS = torch.stack([torch.arange(8.0).reshape(2, 4), torch.arange(8.0).reshape(2, 4) + 10])
ex.cases(
    "images that you can follow",
    case(FOUR, 2)
    .gives(torch.tensor([[0.0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]))
    .noted("four rows of four pixels, numbered as one reads"),
    case(TWO_CHANNELS, 2)
    .gives(torch.tensor([[0.0, 1, 4, 5, 10, 11, 14, 15], [2, 3, 6, 7, 12, 13, 16, 17]]))
    .noted("two channels of 2 × 4 pixels: the second one begins with 10"),
)
ex.cases(
    "one, three and four channels, higher or wider than square",
    *(
        by_convolution(image(2, channels=n, rows=rows, columns=5 - rows, patch_size=3))
        for n in (1, 3, 4)
        for rows in (1, 4)
    ),
)
ex.promises(image, "leading", "sizes", "dtypes", "gradients", "device")
ex.raises(
    ValueError,
    "ValueError where a side is no multiple of the patch",
    *(case(normal(3, *sides), 4) for sides in ((8, 9), (9, 8), (6, 6), (2, 2), (4, 2))),
    case(normal(2, 1, 12, 8), 5),
)


@ex.check("the ValueError says height, width and patch size")
def _(answer, rng):
    for height, width, size in ((21, 14, 6), (32, 17, 8)):
        try:
            answer(normal(3, height, width), size)
        except ValueError as error:
            numbers = {int(n) for n in re.findall(r"\d+", str(error))}
            missing = [n for n in (height, width, size) if n not in numbers]
            if missing:
                raise Mismatch(None, None, f"{height} × {width}, {size}: not in the message: {missing}") from None
        else:
            raise Mismatch(None, None, f"{height} × {width} pixels, patch size {size}: there was no error")


ex.mistake(
    "patches in the order of columns",
    {"(-5, -4)": "(-4, -5)"},
    hint="After the first patch comes the one to its *right*, not the one below it.",
)
ex.mistake(
    "the pixels of a patch in the order of columns",
    {"cut.movedim((-4, -2), (-5, -4))": "cut.movedim((-4, -2), (-5, -4)).mT"},
    hint="Inside a patch, too, you read from left to right, then the next line. Yours reads the columns.",
)
ex.mistake(
    "channels mixed",
    {"cut.movedim((-4, -2), (-5, -4))": "cut.movedim((-4, -2), (-5, -4)).movedim(-3, -1)"},
    hint="In a vector all numbers of the first channel come first, then the second channel. Yours takes all channels "
    "of the first pixel, then all of the second pixel.",
)
ex.mistake(
    "the pixels are not cut into squares",
    {
        "cut.movedim((-4, -2), (-5, -4)).flatten(-3).flatten(-3, -2)": (
            "images.flatten(-3).unflatten(-1, (-1, images.shape[-3] * patch_size**2))"
        )
    },
    hint="`reshape` and `view` keep the order of all numbers, so your vectors are pieces of *lines*. A patch has "
    "pixels of several lines: axes must change places before they are joined.",
)
ex.mistake(
    "each channel has patches of its own",
    {
        "cut.movedim((-4, -2), (-5, -4)).flatten(-3).flatten(-3, -2)": (
            "cut.transpose(-3, -2).flatten(-2).flatten(-4, -2)"
        )
    },
    hint="A patch has the pixels of *all* channels at its place: its vector has channels · patch_size² numbers.",
)
ex.mistake(
    "numbers before patches",
    {".flatten(-3).flatten(-3, -2)": ".flatten(-3).flatten(-3, -2).mT"},
    hint="The patches stand before their numbers: (…, patches, numbers). (`F.unfold` has them the other way round.)",
)
ex.mistake(
    "rows and columns of patches are two axes",
    {".flatten(-3).flatten(-3, -2)": ".flatten(-3)"},
    hint="There is one axis for all patches: join the two axes of the grid.",
)
ex.mistake(
    "what is left over is cut off",
    lambda images, patch_size: patchify(
        images[..., : images.shape[-2] // patch_size * patch_size, : images.shape[-1] // patch_size * patch_size],
        patch_size,
    ),
    hint="Where a side is no multiple of the patch size, the docstring asks for a ValueError. Yours drops pixels.",
)
ex.mistake(
    "patch_size counts patches",
    {"(-1, patch_size)).unflatten(-3, (-1, patch_size))": "(patch_size, -1)).unflatten(-3, (patch_size, -1))"},
    hint="`patch_size` is the number of *pixels* on each side of a patch, not the number of patches on each side.",
)

# ---- unpatchify ----------------------------------------------------------------------------------------------

ex = Exercise(
    vision_transformer.unpatchify,
    points=1,
    minutes=10,
    hints=(
        "The same steps as in `patchify`, backwards. There, axes were put together last; here they are cut first.",
        "Cut the patches' axis into (rows, columns) and the numbers' axis into (channels, patch_size, patch_size). "
        "Rows are `height // patch_size`.",
        "Now it is (…, rows, columns, channels, patch_size, patch_size), and should be (…, channels, rows, patch_size, "
        "columns, patch_size). Then join the last two axes, and the two before them.",
    ),
)


def patches(*leading, channels=4, rows=5, columns=7, patch_size=6):
    numbers = normal(*leading, rows * columns, channels * patch_size**2)
    return case(numbers, patch_size, rows * patch_size, columns * patch_size)


ex.cases(
    "patches that you can follow",
    case(torch.tensor([[0.0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]), 2, 4, 4).gives(FOUR),
    case(torch.tensor([[0.0, 1, 4, 5, 10, 11, 14, 15], [2, 3, 6, 7, 12, 13, 16, 17]]), 2, 2, 4).gives(TWO_CHANNELS),
)
ex.cases(
    "what `patchify` has cut: one, three and four channels, higher or wider than square",
    *(
        case(patchify(x, 3), 3, *x.shape[-2:]).gives(x)
        for n in (1, 3, 4)
        for x in (normal(2, n, 3, 12), normal(2, n, 12, 3))
    ),
)
ex.promises(patches, "leading", "sizes", "dtypes", "gradients", "device")

ex.mistake(
    "patches in the order of columns",
    {"patches.unflatten(-2, (rows, columns))": "patches.unflatten(-2, (columns, rows)).transpose(-3, -2)"},
    hint="After the first patch comes the one to its *right*, not the one below it.",
)
ex.mistake(
    "the pixels of a patch in the order of columns",
    {"(-1, patch_size, patch_size))": "(-1, patch_size, patch_size)).mT"},
    hint="Inside a patch, too, the numbers go from left to right, then to the next line.",
)
ex.mistake(
    "channels mixed",
    {
        "grid.unflatten(-1, (-1, patch_size, patch_size))": (
            "grid.unflatten(-1, (patch_size, patch_size, -1)).movedim(-1, -3)"
        )
    },
    hint="In a vector all numbers of the first channel come first. Yours takes the channels of a pixel side by side.",
)
ex.mistake(
    "the squares are not put back",
    lambda patches, patch_size, height, width: patches.flatten(-2).unflatten(-1, (-1, height, width)),
    hint="`reshape` and `view` keep the order of all numbers. A line of the image has pixels of several patches, so "
    "axes must change places before they are joined.",
)
ex.mistake(
    "height and width exchanged",
    {"height // patch_size, width // patch_size": "width // patch_size, height // patch_size"},
    hint="The grid has `height // patch_size` rows and `width // patch_size` columns. You have exchanged them.",
)
ex.mistake(
    "rows and columns of the image exchanged",
    {".flatten(-2).flatten(-3, -2)": ".flatten(-2).flatten(-3, -2).mT"},
    hint="The last axis is the width. Your image is mirrored at its diagonal.",
)
ex.mistake(
    "only the first channel",
    {"grid.unflatten(-1, (-1,": "grid[..., : patch_size**2].unflatten(-1, (-1,"},
    hint="The numbers of a patch are those of *all* its channels: channels · patch_size² of them.",
)
ex.mistake(
    "the channels at the end",
    {".flatten(-2).flatten(-3, -2)": ".flatten(-2).flatten(-3, -2).movedim(-3, -1)"},
    hint="The channels stand before height and width: (…, channels, height, width).",
)

# ---- vit_logits ----------------------------------------------------------------------------------------------

ex = Exercise(
    vision_transformer.vit_logits,
    points=3,
    minutes=15,
    hints=(
        "Say it in five steps: project, put one token more in front, add, run the blocks, read one token.",
        "`class_token` is one vector, and each image needs it once: `class_token.expand(*x.shape[:-2], 1, -1)` has the "
        "leading dimensions of `x`. `torch.cat([...], dim=-2)` puts tokens in front of others.",
        "Only then add `positions`: it has a vector for the class token, too. After the blocks, token 0 is "
        "`x[..., 0, :]`, and the head gets only that.",
    ),
)


def doubled(x):
    return 2 * x


def halved(x):
    return x / 2


def with_sum(x):
    return x + x.sum(dim=-2, keepdim=True)


class Projects(nn.Module):
    """In place of the projection, or of the head."""

    def __init__(self, n_in, n_out, seed, name):
        super().__init__()
        self.w = nn.Parameter(normal(n_in, n_out, seed=seed) / n_in**0.5)
        self.b = nn.Parameter(normal(n_out, seed=seed + 1))
        self.name = name

    def forward(self, x):
        note(f"asked of the {self.name}", [x])
        return x @ self.w + self.b


class Mixes(nn.Module):
    """In place of the blocks: no token is linear in what came in, and all of them meet."""

    def __init__(self, d_model):
        super().__init__()
        self.w, self.u = (nn.Parameter(normal(d_model, d_model, seed=s) / d_model**0.5) for s in (5, 6))

    def forward(self, x):
        note("asked of the blocks", [x])
        return torch.tanh(x @ self.w + torch.tanh(x @ self.u).mean(dim=-2, keepdim=True)) + x / 2


def classified(*leading, patches=5, numbers=4, d_model=6, classes=7):
    return case(
        normal(*leading, patches, numbers),
        Projects(numbers, d_model, 11, "projection"),
        normal(d_model, seed=1),
        normal(1 + patches, d_model, seed=2),
        Mixes(d_model),
        Projects(d_model, classes, 13, "head"),
    )


ex.cases(
    "two patches of one number that you can follow",
    case(
        torch.tensor([[1.0], [2.0]]),
        doubled,
        torch.tensor([10.0]),
        torch.tensor([[100.0], [200.0], [300.0]]),
        with_sum,
        halved,
    )
    .gives(torch.tensor([363.0]))
    .noted("the tokens are 110, 202 and 304, their sum is 616; the first one becomes 726"),
)
ex.promises(classified, "leading", "sizes", "dtypes", "gradients", "device")


@ex.check("blocks of PyTorch")
def _(answer, rng):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(12, 3, 20, dropout=0.0, batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(12), enable_nested_tensor=False)
    projection, head = nn.Linear(9, 12), nn.Linear(12, 5)
    numbers, class_token, positions = normal(2, 4, 9), normal(12, seed=1), normal(5, 12, seed=2)
    with torch.no_grad():
        tokens = torch.cat([class_token.repeat(2, 1, 1), projection(numbers)], dim=1) + positions
        wanted = head(encoder(tokens)[:, 0])
        expect(answer(numbers, projection, class_token, positions, encoder, head), wanted, "the logits")


@ex.check("each function is called once, and the blocks get all tokens")
def _(answer, rng):
    asked = []

    def named(name, part):
        def call(x):
            asked.append((name, tuple(x.shape)))
            return part(x)

        return call

    numbers, projection, class_token, positions, blocks, head = classified(2).args
    parts = (named(*pair) for pair in (("projection", projection), ("blocks", blocks), ("head", head)))
    project, mix, read = parts
    answer(numbers, project, class_token, positions, mix, read)
    expect([name for name, _ in asked], ["projection", "blocks", "head"], "the calls")
    expect(asked[1][1], (2, 6, 6), "the shape that `blocks` gets")


TOKENS, READ = "x = torch.cat([first, x], dim=-2) + positions", "head(blocks(x)[..., 0, :])"
ex.mistake(
    "positions are added to the class token only",
    {TOKENS: "x = torch.cat([first + positions[0], x], dim=-2)"},
    hint="*Each* token gets the vector of its position, the patches above all: without it nobody knows where they are.",
)
ex.mistake(
    "the same position for all tokens",
    {TOKENS: "x = torch.cat([first, x], dim=-2) + positions[0]"},
    hint="Each token has a position of its own: `positions` has as many vectors as there are tokens.",
)
ex.mistake(
    "no position for the class token",
    {TOKENS: "x = torch.cat([first, x + positions[1:]], dim=-2)"},
    hint="The class token has a position, too: the first vector of `positions`. Add after the class token is in front.",
)
ex.mistake(
    "the patches get the positions from the first one on",
    {TOKENS: "x = torch.cat([first, x + positions[:-1]], dim=-2)"},
    hint="The first vector of `positions` belongs to the class token. Put the class token in front first, then add.",
)
ex.mistake(
    "positions are forgotten",
    {" + positions": ""},
    hint="Add `positions` to the tokens. Otherwise the blocks see a set of patches, not an image.",
)
ex.mistake(
    "positions are added after the blocks",
    {TOKENS: "x = torch.cat([first, x], dim=-2)", READ: "head((blocks(x) + positions)[..., 0, :])"},
    hint="The blocks need the positions: add them before.",
)
ex.mistake(
    "the class token behind the patches, and read there",
    {"[first, x]": "[x, first]", "[..., 0, :]": "[..., -1, :]"},
    hint="The class token stands *before* the patches: the first vector of `positions` is its own.",
)
ex.mistake(
    "the class token behind the patches",
    {"[first, x]": "[x, first]"},
    hint="The class token stands *before* the patches, and the head reads it. Yours reads the first patch.",
)
ex.mistake(
    "the last token is read",
    {"[..., 0, :]": "[..., -1, :]"},
    hint="The class token is the first one: index 0. Yours reads the last patch.",
)
ex.mistake(
    "the first patch is read",
    {"[..., 0, :]": "[..., 1, :]"},
    hint="The class token is the first token: index 0.",
)
ex.mistake(
    "the first image is read",
    {"[..., 0, :]": "[0]"},
    hint="`x[0]` is the first entry of the *first* axis: with a batch, all tokens of the first image. The class token "
    "is `x[..., 0, :]`.",
)
ex.mistake(
    "the mean of all tokens",
    {"[..., 0, :]": ".mean(dim=-2)"},
    hint="The head reads what has become of the class token, not a mean. (The mean is the other way; the lesson "
    "compares both.)",
)
ex.mistake(
    "the mean of the patches",
    {"[..., 0, :]": "[..., 1:, :].mean(dim=-2)"},
    hint="The head reads what has become of the class token, not the mean of the patches.",
)
ex.mistake(
    "no class token",
    {TOKENS: "x = x + positions[1:]"},
    hint="Put `class_token` in front of the patches. Without it you read the first patch.",
)
ex.mistake(
    "the class token is added to all patches",
    {TOKENS: "x = x + first + positions[1:]"},
    hint="The class token is a token *more*: `torch.cat`, not `+`.",
)
ex.mistake(
    "the blocks are forgotten",
    {"blocks(x)": "x"},
    hint="Without `blocks` the class token has not seen a single patch.",
)
ex.mistake(
    "the head is forgotten",
    {READ: "blocks(x)[..., 0, :]"},
    hint="`head` makes the logits: one number for each class.",
)
ex.mistake(
    "the logits of every token",
    {READ: "head(blocks(x))"},
    hint="One image has one answer: give only the class token to the head.",
)
ex.mistake(
    "an axis of one token stays",
    {"[..., 0, :]": "[..., :1, :]"},
    hint="`x[..., :1, :]` keeps an axis of size 1. `x[..., 0, :]` does not.",
)

# ---- attention_rollout ---------------------------------------------------------------------------------------

ex = Exercise(
    vision_transformer.attention_rollout,
    points=2,
    minutes=15,
    hints=(
        "First make one matrix of each layer: the mean over the heads, and then half of it plus half of the identity. "
        "`torch.eye` needs the dtype and the device of `weights`, or the two cannot be multiplied.",
        "What does a token of layer 2 have of input token 3? Over every token of layer 1: how much of it is in the "
        "token of layer 2, times how much of input 3 is in it. That sum is a matrix product.",
        "Start with the identity, and for each layer, the first one first, multiply from the *left*: "
        "`rollout = layer @ rollout`.",
    ),
)


def looked(*leading, layers=4, heads=5, tokens=7):
    return case(torch.softmax(2 * normal(*leading, layers, heads, tokens, tokens), dim=-1))


FIRST, SECOND = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[0.0, 1.0], [0.0, 1.0]])
ex.cases(
    "two tokens that you can follow",
    case(FIRST[None, None]).gives(torch.tensor([[1.0, 0.0], [0.5, 0.5]])).noted("one layer, one head"),
    case(torch.stack([FIRST, SECOND])[None])
    .gives(torch.tensor([[0.75, 0.25], [0.25, 0.75]]))
    .noted("one layer, two heads: their mean is .5 everywhere"),
    case(torch.stack([FIRST, SECOND])[:, None])
    .gives(torch.tensor([[0.75, 0.25], [0.5, 0.5]]))
    .noted("two layers with one head"),
)
ex.promises(looked, "leading", "sizes", "dtypes", "gradients", "device")


@ex.check("a token is made of all input tokens, with shares that sum to 1")
def _(answer, rng):
    rollout = answer(*looked(2, layers=3).args)
    expect(rollout.sum(dim=-1), torch.ones(2, 7), "the sums of the shares")


MEAN, STEP = "mixed = weights.mean(dim=-3)", "rollout = (layer + itself) / 2 @ rollout"
ex.mistake(
    "without the residual connection",
    {STEP: "rollout = layer @ rollout"},
    hint="A token keeps itself: a residual connection leads around each attention. Take half of the weights and half "
    "of the identity.",
)
ex.mistake(
    "the layers in the wrong order",
    {STEP: "rollout = rollout @ ((layer + itself) / 2)"},
    hint="The last layer stands left: its tokens are made of those of the layer before it, `layer @ rollout`.",
)
ex.mistake(
    "the identity is added, and nothing halved",
    {STEP: "rollout = (layer + itself) @ rollout"},
    hint="Weights and identity sum to 2 now. Shares sum to 1: take half of each.",
)
ex.mistake(
    "only the last layer",
    {STEP: "rollout = (layer + itself) / 2"},
    hint="You forget the layers before the last one. The product goes over all of them.",
)
ex.mistake(
    "the mean of the layers",
    lambda weights: (weights.mean(dim=(-3, -4)) + torch.eye(weights.shape[-1]).to(weights)) / 2,
    hint="The layers stand one behind the other, so their matrices are *multiplied*, not averaged.",
)
ex.mistake(
    "multiplied number by number",
    {STEP: "rollout = (layer + itself) / 2 * rollout"},
    hint="A token of the next layer is a sum over all tokens of the layer before: the matrix product `@`, not `*`.",
)
ex.mistake(
    "each head on its own through all layers",
    lambda weights: _rolled_out(weights.movedim(-4, -3)).mean(dim=-3),
    hint="The heads meet after every layer. Take their mean first, then go from layer to layer.",
)
ex.mistake(
    "the largest head",
    {MEAN: "mixed = weights.amax(dim=-3)"},
    hint="Take the *mean* over the heads.",
)
ex.mistake(
    "the first head",
    {MEAN: "mixed = weights[..., 0, :, :]"},
    hint="Take the mean over all heads, not the first one.",
)
ex.mistake(
    "the sum of the heads",
    {MEAN: "mixed = weights.sum(dim=-3)"},
    hint="Take the mean over the heads: then the shares still sum to 1.",
)
ex.mistake(
    "rows and columns exchanged",
    {"return rollout": "return rollout.mT"},
    hint="Rows are the tokens of the last layer, columns the input tokens.",
)
ex.mistake(
    "the mean over the layers, the product over the heads",
    {"dim=-3)\n": "dim=-4)\n"},
    hint="Layers stand before heads: (…, layers, heads, tokens, tokens). You have exchanged the two.",
)
ex.mistake(
    "the first layer twice",
    {"rollout = itself\n": "rollout = (mixed[..., 0, :, :] + itself) / 2\n"},
    hint="Start with the identity, or with the first layer and then go on with the *second* one.",
)


def _rolled_out(layers):
    """The product of the layers of each head."""
    itself = torch.eye(layers.shape[-1]).to(layers)
    rollout = itself
    for layer in layers.unbind(dim=-3):
        rollout = (layer + itself) / 2 @ rollout
    return rollout
