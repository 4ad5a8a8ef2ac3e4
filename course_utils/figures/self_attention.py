"""The pictures of lesson 04."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Arc, Rectangle
from torch import Tensor

from course_utils.figures.diagrams import arrow, box, canvas
from course_utils.figures.style import COLOURS, new_figure

QUERY, KEY, OUTPUT = COLOURS["orange"], COLOURS["blue"], COLOURS["red"]
_WORDS = ("blue", "red", "green", "pink", "orange", "sky", "black")  # one colour per word
_KINDS = {"none": "grey", "sinusoidal": "blue", "learned": "orange", "rotary": "green"}


def order_model(tokens: str) -> Figure:
    """The model of the order task, from the tokens below to the answer above."""
    figure, axes = new_figure(4.0)
    width = 1.5 * len(tokens)
    canvas(axes, width + 3.6, 7.2)
    for i, token in enumerate(tokens):
        x = 1.5 * (i + 0.5)
        colour = {"A": COLOURS["red"], "B": COLOURS["blue"]}.get(token, COLOURS["grey"])
        box(axes, x, 0.5, 1.1, 0.8, token, colour, size=11)
        box(axes, x, 2.0, 1.1, 0.8, f"$x_{{{i}}}$", COLOURS["sky"])
        box(axes, x, 5.0, 1.1, 0.8, "vote", COLOURS["sky"])
        for bottom in (0.95, 2.45, 3.95, 5.45):
            arrow(axes, (x, bottom), (x, bottom + 0.65))
    box(axes, width / 2, 3.5, width - 0.4, 0.8, "self-attention", COLOURS["pink"])
    box(axes, width / 2, 6.55, width - 0.4, 0.8, "mean of the votes: A before B?", COLOURS["green"])
    notes = (
        "the tokens",
        "one vector\nfor each token",
        "every vector looks\nat all of them",
        "one number\nfor each token",
    )
    for y, text in zip((0.5, 2.0, 3.5, 5.0), notes, strict=True):
        axes.text(width + 0.2, y, text, va="center", fontsize=9.5, color=COLOURS["grey"])
    return figure


# ------------------------------------------------------------------ who depends on whom


def influence_maps(words: Sequence[str], maps: Mapping[str, Float[Tensor, "tokens tokens"]]) -> Figure:
    """Maps with one row per output and one column per input, side by side; cells that are exactly 0 are hatched."""
    figure, panels = new_figure(2.6, columns=len(maps), sharey=True)
    for axes, (title, values) in zip(panels, maps.items(), strict=True):
        axes.imshow(values, cmap="Blues", vmin=0, vmax=float(values.max()) * 1.15, aspect="auto")
        axes.set_xticks(range(len(words)), words, rotation=45, ha="left", rotation_mode="anchor", fontsize=9)
        axes.set_yticks(range(len(words)), words)
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        axes.grid(False)
        axes.set_xlabel(title)
        for i, row in enumerate(values.tolist()):
            for j, value in enumerate(row):
                if value == 0:
                    axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor="#DDDDDD", edgecolor="white"))
                colour = "white" if value > 0.65 * values.max() else "black"
                text = f"{value:.2f}".lstrip("0") if value else "0"
                axes.text(j, i, text, ha="center", va="center", fontsize=9, color=colour)
    panels[0].set_ylabel("output of")
    return figure


def equivariance(
    first: Sequence[tuple[str, Float[Tensor, "tokens d"], Sequence[str]]],
    second: Sequence[tuple[str, Float[Tensor, "tokens d"], Sequence[str]]],
) -> Figure:
    """Two ways through the same two operations, one above the other: each step is (title, vectors, words)."""
    steps = max(len(first), len(second))
    figure, rows = new_figure(3.9, columns=steps, rows=2)
    colours = dict(zip(first[0][2], _WORDS, strict=False))
    for panels, way in zip(rows, (first, second), strict=True):
        for axes, (title, vectors, words) in zip(panels, way, strict=True):
            _draw_vectors(axes, vectors, words, colours)
            axes.set_title(title, fontsize=10)
        for spine in panels[-1].spines.values():
            spine.set(visible=True, color=OUTPUT, linewidth=2.5)
    return figure


def _draw_vectors(
    axes: Axes, vectors: Float[Tensor, "tokens d"], words: Sequence[str], colours: Mapping[str, str]
) -> None:
    largest = float(vectors.abs().max())
    axes.imshow(vectors, cmap="PuOr", vmin=-1.3 * largest, vmax=1.3 * largest, aspect="auto")
    for i, row in enumerate(vectors.tolist()):
        for j, value in enumerate(row):
            colour = "white" if abs(value) > 0.7 * largest else "black"
            text = f"{value:.2f}".removeprefix("0").removesuffix(".00") or "0"
            axes.text(j, i, text, ha="center", va="center", fontsize=9, color=colour)
    axes.set_yticks(range(len(words)), words)
    for label, word in zip(axes.get_yticklabels(), words, strict=True):
        label.set_color(COLOURS[colours[word]])
        label.set_fontweight("bold")
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.grid(False)


# ------------------------------------------------------------------ sinusoids


def encoding(table: Float[Tensor, "positions d_model"]) -> Figure:
    """The encoding as a map: one row per position, one column per number."""
    figure, axes = new_figure(3.4)
    image = axes.imshow(table, cmap="PuOr", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    figure.colorbar(image, ax=axes, label="value", ticks=[-1, 0, 1])
    axes.set(xlabel="column of the encoding", ylabel="position $t$")
    axes.grid(False)
    return figure


def similarity(sinusoids: Float[Tensor, "positions d_model"], random: Float[Tensor, "positions d_model"]) -> Figure:
    """Dot products of the encoding of every position with that of every other one, and the same against offset."""
    figure, (left, right) = new_figure(3.1, columns=2, width_ratios=(1, 1.25))
    image = left.imshow(sinusoids @ sinusoids.T, cmap="Purples", vmin=0)
    figure.colorbar(image, ax=left, label="dot product", shrink=0.8)
    left.set(xlabel="position $s$", ylabel="position $t$")
    left.grid(False)
    grey = {"color": COLOURS["grey"], "marker": ".", "linestyle": "none", "markersize": 4, "alpha": 0.6}
    draw_against_offset(right, random @ random.T, "random vectors", step=7, **grey)
    draw_against_offset(right, sinusoids @ sinusoids.T, "sinusoids", color=COLOURS["blue"], linewidth=1)
    right.set(xlabel="offset $s - t$", ylabel="dot product")
    right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, columnspacing=1)
    return figure


def draw_against_offset(
    axes: Axes, scores: Float[Tensor, "queries keys"], label: str | None = None, step: int = 1, **options
) -> None:
    """Each `step`-th row of the scores as a curve against the offset: position of the key minus that of the query."""
    for t in range(0, len(scores), step):
        axes.plot(torch.arange(scores.shape[1]) - t, scores[t], label=label if t == 0 else None, **options)


def shifted(
    plain: Float[Tensor, "positions positions"], turned: Float[Tensor, "positions positions"], m: int, frequency: float
) -> Figure:
    """Left: one pair of the encoding at two positions, and m steps later. Right: dot products, plain and shifted."""
    figure, (left, right) = new_figure(2.9, columns=2, width_ratios=(1, 1.5))
    for t, colour in ((1, COLOURS["green"]), (12, COLOURS["pink"])):
        # The axes are (sine, cosine): the pair points upwards at position 0 and turns as the hand of a clock does
        before, after = (torch.tensor([p * frequency]) for p in (t, t + m))
        _ghost(left, (before.sin().item(), before.cos().item()), colour)
        arrow(left, (0, 0), (after.sin().item(), after.cos().item()), colour, shrinkA=0, shrinkB=0)
        for angle, text in ((before, f"{t}"), (after, f"{t + m}")):
            left.text(1.2 * angle.sin().item(), 1.2 * angle.cos().item(), text, color=colour, ha="center", va="center")
        start, end = (90 - float(torch.rad2deg(angle)) for angle in (after, before))
        left.add_patch(Arc((0, 0), 0.8, 0.8, theta1=start, theta2=end, color=colour))
    left.set(xlim=(-1.45, 1.45), ylim=(-1.45, 1.45), aspect="equal", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
    left.set(xlabel="sine", ylabel="cosine")
    draw_against_offset(right, plain, "as they are", color=COLOURS["blue"], linewidth=1)
    draw_against_offset(right, turned, f"query times $R_{m}$", color=QUERY, linewidth=1)
    right.axvline(0, color=COLOURS["grey"], linestyle="--", linewidth=1)
    right.set(xlabel="offset: key minus query", ylabel="dot product", xlim=(-30, 30))
    right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, columnspacing=1)
    return figure


# ------------------------------------------------------------------ the order task


def order_results(accuracies: Mapping[str, Sequence[float]], guessing: tuple[float, float]) -> Figure:
    """Accuracy of each kind of position, one dot per seed, beside the interval in which pure guesses fall."""
    figure, axes = new_figure(0.42 * len(accuracies) + 0.9)
    labels = list(accuracies)[::-1]
    axes.axvspan(*guessing, color=COLOURS["grey"], alpha=0.25, linewidth=0)
    axes.text(0.5, len(labels) - 0.42, "pure guesses", ha="center", va="bottom", fontsize=9, color=COLOURS["grey"])
    for y, label in enumerate(labels):
        values = sorted(accuracies[label])
        offsets = [0.16 * (i - (len(values) - 1) / 2) for i in range(len(values))]  # equal values stay visible
        axes.plot(values, [y + o for o in offsets], "o", color=COLOURS[_KINDS[label]], markersize=6, clip_on=False)
    axes.set_yticks(range(len(labels)), labels)
    axes.set(xlabel="share of right answers", xlim=(0.4, 1.0), ylim=(-0.5, len(labels) - 0.45))
    axes.grid(axis="y", visible=False)
    return figure


def longer_sequences(
    runs: Mapping[str, Mapping[int, Sequence[float]]], trained: int, guessing: tuple[float, float]
) -> Figure:
    """Accuracy against length: one dot per run, a line through the means."""
    figure, axes = new_figure(3.0)
    lengths = list(next(iter(runs.values())))
    for shift, (label, values) in enumerate(runs.items()):
        colour = COLOURS[_KINDS[label]]
        axes.plot(lengths, [sum(v) / len(v) for v in values.values()], color=colour, label=label)
        for n, accuracies in values.items():
            axes.plot([n + 0.35 * (shift - 1)] * len(accuracies), accuracies, "o", color=colour, markersize=4.5)
    axes.axvline(trained, color=COLOURS["black"], linestyle="--", linewidth=1)
    axes.text(trained - 0.4, 0.34, "trained length", rotation=90, ha="right", va="bottom", fontsize=9)
    axes.axhspan(*guessing, color=COLOURS["grey"], alpha=0.25, linewidth=0)
    axes.text(33, 0.5, "pure guesses", ha="center", va="center", fontsize=9)
    axes.set_xticks(lengths)
    axes.set(xlabel="tokens in the sequence", ylabel="share of right answers", ylim=(0.3, 1.04))
    axes.set_xlim(9, max(lengths) + 1)
    axes.legend(loc="upper right", fontsize=9)
    return figure


def answer_maps(maps: Mapping[str, Float[Tensor, "place_of_a place_of_b"]], trained: int) -> Figure:
    """How often "A before B" is the answer, for every place of A and of B; a frame around the trained places.

    Blue is always yes, orange always no, grey what cannot be asked.
    """
    figure, panels = new_figure(2.2, columns=len(maps), sharey=True)
    colours = LinearSegmentedColormap.from_list("answers", [COLOURS["orange"], "white", COLOURS["blue"]])
    colours.set_bad(COLOURS["grey"])
    for axes, (title, shares) in zip(panels, maps.items(), strict=True):
        axes.imshow(shares, cmap=colours, vmin=0, vmax=1, interpolation="nearest")
        axes.add_patch(Rectangle((-0.5, -0.5), trained, trained, fill=False, edgecolor=OUTPUT, linewidth=2))
        axes.set_title(title, fontsize=10)
        axes.set_xticks([0, trained, len(shares) - 1])
        axes.set_yticks([0, trained, len(shares) - 1])
        axes.set_xlabel("place of B")
        axes.grid(False)
    panels[0].set_ylabel("place of A")
    size = len(next(iter(maps.values())))
    for place, text in ((0.25, "no"), (0.75, "yes")):  # the two halves of the first map
        across = place * size
        panels[0].text(across, size - across, text, ha="center", va="center", fontsize=10, color="white")
    return figure


# ------------------------------------------------------------------ rotary positions


def _ghost(axes: Axes, end: tuple[float, float], colour: str) -> None:
    """A pale arrow from the origin: where a vector stood before it was turned."""
    arrow(axes, (0, 0), end, colour, shrinkA=0, shrinkB=0, linestyle=(0, (2, 1.5)), alpha=0.45)


def rotated_pair(
    query: Float[Tensor, " 2"],
    key: Float[Tensor, " 2"],
    panels: Sequence[tuple[str, Float[Tensor, " 2"], Float[Tensor, " 2"]]],
) -> Figure:
    """A query and a key of two numbers as arrows: pale as they were, full when turned (title, query, key)."""
    figure, row = new_figure(2.8, columns=len(panels), sharey=True)
    for axes, (title, turned_query, turned_key) in zip(row, panels, strict=True):
        _ghost(axes, tuple(query.tolist()), QUERY)
        _ghost(axes, tuple(key.tolist()), KEY)
        for vector, colour, name in ((turned_query, QUERY, "$q$"), (turned_key, KEY, "$k$")):
            arrow(axes, (0, 0), tuple(vector.tolist()), colour, shrinkA=0, shrinkB=0)
            x, y = (1.25 * vector).tolist()
            axes.text(x, y, name, color=colour, ha="center", va="center", fontsize=12)
        axes.set(xlim=(-1.5, 1.5), ylim=(-1.5, 1.5), aspect="equal", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
        axes.set_title(title, fontsize=10)
        score = turned_query.dot(turned_key).item()
        axes.set_xlabel(f"dot product {score:.2f}".replace("-", "−"))
    return figure


def score_maps(maps: Mapping[str, Float[Tensor, "queries keys"]]) -> Figure:
    """Scores of one query and one key at all positions: above as maps, below against the offset; one scale for all."""
    figure, (above, below) = new_figure(5.0, columns=len(maps), rows=2, sharey="row", height_ratios=(1.25, 1))
    largest = max(float(scores.abs().max()) for scores in maps.values())
    for axes, under, (title, scores) in zip(above, below, maps.items(), strict=True):
        axes.imshow(scores, cmap="PuOr", vmin=-largest, vmax=largest)
        axes.set_title(title, fontsize=10)
        axes.set_xticks(range(0, len(scores), 2))
        axes.set_yticks(range(0, len(scores), 2))
        axes.set_xlabel("position of the key")
        axes.grid(False)
        draw_against_offset(under, scores, color=COLOURS["green"], marker="o", markersize=3.5, linestyle="none")
        for offset in (-1, 1):
            ring = {"marker": "o", "markersize": 8, "linestyle": "none", "fillstyle": "none", "color": OUTPUT}
            if float(scores.diagonal(offset).std()) < 1e-4:  # one score for this offset
                under.plot(offset, scores.diagonal(offset)[0], **ring)
        under.axvline(0, color=COLOURS["grey"], linestyle="--", linewidth=1)
        under.set_xlabel("offset: key minus query")
    above[0].set_ylabel("position of the query")
    below[0].set_ylabel("score")
    figure.colorbar(above[0].images[0], ax=[*above, *below], label="score", shrink=0.5, anchor=(0, 0.95))
    return figure


def layouts(d_k: int) -> Figure:
    """Which columns are a pair, in the interleaved layout (above) and in the half-split one (below)."""
    figure, axes = new_figure(1.9)
    canvas(axes, 1.1 * d_k + 3.4, 3.6)
    for y, name in ((2.6, "interleaved"), (0.7, "half-split")):
        axes.text(3.1, y, name, ha="right", va="center")
        for column in range(d_k):
            pair = column // 2 if name == "interleaved" else column % (d_k // 2)
            first = column % 2 == 0 if name == "interleaved" else column < d_k // 2
            text = f"${'a' if first else 'b'}_{{{pair}}}$"
            box(axes, 3.4 + 1.1 * (column + 0.5), y, 1.0, 0.9, text, COLOURS[_WORDS[pair]], size=11)
            axes.text(3.4 + 1.1 * (column + 0.5), y - 0.68, f"{column}", ha="center", va="center", fontsize=8)
    return figure
