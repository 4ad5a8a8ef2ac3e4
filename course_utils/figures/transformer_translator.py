"""The pictures of lesson 10."""

from collections.abc import Mapping, Sequence

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from torch import Tensor

from course_utils.corpora.pairs import Pair
from course_utils.figures.diagrams import arrow, box, canvas
from course_utils.figures.style import COLOURS, new_figure

Bin = tuple[int, int]
QUERY, KEY, VALUE, OUTPUT = (COLOURS[name] for name in ("orange", "blue", "green", "red"))
GREY = COLOURS["grey"]
RNN, TRANSFORMER = COLOURS["orange"], COLOURS["blue"]  # as in the BLEU curves of lesson 02: attention is orange


def whole_model(shapes: Mapping[str, tuple[int, ...]], n_layers: int) -> Figure:
    """Encoder and decoder of the Transformer, from the bottom to the top.

    `shapes` are those of tensors that were really there: "source", "states", "mask", "read", "vectors", "logits".
    """
    figure, axes = new_figure(5.5)
    canvas(axes, 12.8, 11.0)
    left, right, width = 3.0, 9.4, 3.9
    _column(axes, left, width, 3.3, n_layers, ["self-attention", "MLP"])
    _column(axes, right, width, 3.3, n_layers, ["self-attention (causal)", "cross-attention", "MLP"])
    for x, name, inside, colour in ((left, "encoder", "source", KEY), (right, "decoder", "read", QUERY)):
        axes.text(x, 0.35, _named(inside, shapes), ha="center", va="center", fontsize=8.5, color=GREY)
        arrow(axes, (x, 0.6), (x, 1.05))
        box(axes, x, 1.5, width, 0.8, "words + positions", colour)
        arrow(axes, (x, 1.9), (x, 2.5))
        axes.text(x - width / 2, 10.6, name, ha="left", va="center", weight="bold")
    axes.text(left + 0.15, 2.2, "(batch, tokens, d_model)", fontsize=8, color=GREY, va="center")
    axes.text(right + 0.15, 2.2, "(batch, tokens, d_model)", fontsize=8, color=GREY, va="center")
    top_left, cross = 3.3 + 2 * 1.55 - 0.25, 3.3 + 1.55
    axes.text(left, top_left + 0.75, _named("states", shapes), ha="center", va="center", fontsize=8.5, color=GREY)
    arrow(axes, (left, top_left), (left, top_left + 0.45), KEY)
    middle = (left + right) / 2
    path = [left, left, middle, middle], [top_left + 1.05, top_left + 1.5, top_left + 1.5, cross]
    axes.plot(*path, color=KEY, linewidth=1.2)
    arrow(axes, (middle, cross), (right - width / 2, cross), KEY)
    label = {"fontsize": 8.5, "color": KEY, "ha": "center", "va": "center"}
    axes.text((left + middle) / 2, top_left + 1.78, "keys and values, and the mask", **label)
    top = 3.3 + 3 * 1.55 - 0.25
    arrow(axes, (right, top), (right, top + 0.6))
    box(axes, right, top + 1.0, width, 0.8, "linear layer", OUTPUT)
    arrow(axes, (right, top + 1.4), (right, top + 1.85))
    axes.text(right, top + 2.15, _named("logits", shapes), ha="center", va="center", fontsize=8.5, color=GREY)
    return figure


def _named(name: str, shapes: Mapping[str, tuple[int, ...]]) -> str:
    return f"{name} {shapes[name]}"


def _column(axes: Axes, x: float, width: float, bottom: float, n_layers: int, parts: Sequence[str]) -> None:
    """The parts of one block, each followed by an addition and a norm, and how often the block stands there."""
    step, colours = 1.55, {"MLP": VALUE}
    low, high = bottom - 0.75, bottom + step * len(parts) - 0.4
    axes.add_patch(_frame(x - width / 2 - 0.35, low, width + 0.7, high - low))
    axes.text(x + width / 2 + 0.45, high - 0.3, f"× {n_layers}", va="center", fontsize=10)
    for i, part in enumerate(parts):
        y = bottom + step * i
        box(axes, x, y, width, 0.7, part, colours.get(part, KEY if part == "self-attention" else QUERY))
        arrow(axes, (x, y + 0.35), (x, y + 0.53))
        box(axes, x, y + 0.75, width, 0.42, "add, norm", GREY, size=8)
        if i + 1 < len(parts):
            arrow(axes, (x, y + 0.96), (x, y + step - 0.35))


def _frame(x: float, y: float, width: float, height: float) -> FancyBboxPatch:
    frame = FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=0.2")
    frame.set(facecolor="#F4F4F4", edgecolor="none", zorder=0)
    return frame


def chains(words: Sequence[int], chains: Mapping[str, Sequence[int]]) -> Figure:
    """The longest chain of operations against the words in the sentence, a line for each model."""
    figure, axes = new_figure(2.9)
    for (name, values), colour in zip(chains.items(), (RNN, TRANSFORMER), strict=True):
        axes.plot(words, values, marker="o", color=colour, linewidth=2, label=name)
        axes.annotate(f"{values[-1]:,}", (words[-1], values[-1]), xytext=(6, -3), textcoords="offset points")
    axes.set(xlabel="words in the English and in the French sentence", ylabel="operations in a row", ylim=(0, None))
    axes.set_xlim(0, words[-1] * 1.1)
    axes.legend()
    return figure


def bleu_bands(
    bins: Sequence[Bin], stored: Mapping[str, Sequence[Sequence[float]]], here: Sequence[float] | None = None
) -> Figure:
    """BLEU against length: stored trainings as bands from the lowest to the highest seed, this training as points."""
    figure, axes = new_figure(3.3)
    places = range(len(bins))
    for (name, rows), colour in zip(stored.items(), (RNN, TRANSFORMER), strict=False):
        low, high = ([end(values) for values in zip(*rows, strict=True)] for end in (min, max))
        axes.fill_between(places, low, high, color=colour, alpha=0.3, linewidth=0)
        means = [sum(values) / len(values) for values in zip(*rows, strict=True)]
        seeds = f"{len(rows)} seeds" if len(rows) > 1 else "one seed"
        axes.plot(places, means, color=colour, linewidth=2, label=f"{name}, {seeds}")
    if here is not None:
        points = {"marker": "o", "markersize": 6, "linestyle": "none", "markeredgecolor": "white", "zorder": 5}
        axes.plot(places, here, color=COLOURS["black"], label="your Transformer", **points)
    axes.set_xticks(places, [f"{low}–{high}" for low, high in bins])
    lowest = min(min(values) for rows in stored.values() for values in rows)
    floor = 10 * (min(lowest, *(here or [100])) // 10) - 20  # room for the legend
    axes.set(xlabel="words in the English sentence", ylabel="BLEU (0 to 100)", ylim=(max(0, floor), 101))
    axes.legend(loc="lower left")
    return figure


def head_errors(heads: Sequence[Sequence[float]], means: Mapping[str, float], others: Mapping[str, float]) -> Figure:
    """Alignment error rates: each head (a bar a head), means of heads, and dashed lines for other methods."""
    figure, axes = new_figure(3.4)
    names, values, colours = [], [], []
    for layer, errors in enumerate(heads):
        names += [f"{layer}.{head}" for head in range(len(errors))]
        values += errors
        colours += [(COLOURS["sky"], COLOURS["blue"])[layer % 2]] * len(errors)
    places = [i + 0.5 * (i // len(heads[0])) for i in range(len(values))]
    first = places[-1] + 1.7
    places += [first + 1.3 * i for i in range(len(means))]
    names += list(means)
    values += list(means.values())
    colours += [COLOURS["green"]] * len(means)
    bars = axes.bar(places, values, color=colours, width=0.75)
    for text in axes.bar_label(bars, fmt="%.2f", fontsize=8.5, padding=2):
        text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.5})
    axes.set_xticks(places, names, fontsize=8.5)
    for (name, value), line in zip(others.items(), ("--", ":"), strict=True):
        axes.axhline(value, color=COLOURS["red"], linestyle=line, linewidth=1.4, label=f"{name}: {value:.2f}", zorder=0)
    axes.set(ylabel="alignment error rate", ylim=(0, max(values) * 1.25))
    axes.grid(axis="x", visible=False)
    axes.legend(loc="upper right", ncols=2, fontsize=8.5)
    return figure


def beam_tree(
    words: Sequence[str], steps: Sequence[Sequence[tuple[tuple[int, ...], float, bool]]], stop_id: int
) -> Figure:
    """Every continuation of each step, with its probability; those that are kept are in colour.

    `steps` has a list for each step: (tokens, probability, kept). A kept one that ends in `stop_id` has a thick frame.
    """
    figure, axes = new_figure(3.6)
    most = max(map(len, steps))
    canvas(axes, 12.8, 0.72 * most + 1.3)
    places: dict[tuple[int, ...], tuple[float, float]] = {(): (1.0, 0.36 * most + 0.4)}
    box(axes, *places[()], 1.5, 0.55, words[-1], GREY)
    for step, candidates in enumerate(steps):
        x = 4.1 + 4.6 * step
        axes.text(x, 0.72 * most + 0.95, f"step {step + 1}", ha="center", va="center", weight="bold")
        height = 0.72 * most / len(candidates)
        for i, (tokens, chance, kept) in enumerate(candidates):
            y = 0.72 * most + 0.35 - height * (i + 0.5)
            ended = tokens[-1] == stop_id
            colour = (COLOURS["green"] if ended else QUERY) if kept else GREY
            before = places[tokens[:-1]]
            places[tokens] = (x, y)
            text = f"{' '.join(words[t] for t in tokens)}   {chance:.2f}"
            box(axes, x, y, 3.3, min(0.55, height * 0.8), text, colour, faint=not kept)
            start = (before[0] + (0.75 if step == 0 else 1.65), before[1])
            arrow(axes, start, (x - 1.65, y), colour, shrinkA=0, shrinkB=0, alpha=1 if kept else 0.35)
    return figure


def late_words(
    places: Sequence[int],
    stored: Mapping[str, Sequence[float]],
    here: Sequence[float],
    reached: Sequence[float],
) -> Figure:
    """Left: the share of wrong next words by position. Right: the share of training sentences with such a position."""
    figure, (axes, right) = new_figure(3.3, columns=2, width_ratios=(1.7, 1))
    middles = [place + 2 for place in places]
    for (name, values), colour in zip(stored.items(), (RNN, TRANSFORMER, VALUE), strict=True):
        axes.plot(middles, [100 * value for value in values], color=colour, linewidth=2, label=name)
    points = {"marker": "o", "markersize": 5, "linestyle": "none", "markeredgecolor": "white", "zorder": 5}
    axes.plot(middles, [100 * value for value in here], color=COLOURS["black"], label="yours", **points)
    axes.set(xlabel="position in the French sentence", ylabel="wrong next words (%)", ylim=(0, None))
    axes.legend(loc="upper left", fontsize=8.5)
    right.plot(list(places), [100 * share for share in reached], color=GREY, linewidth=2)
    for place, share in zip(list(places)[::2], reached[::2], strict=True):
        right.annotate(
            f"{100 * share:.0f}", (place, 100 * share), xytext=(4, 4), textcoords="offset points", fontsize=8.5
        )
    right.set(xlabel="position", ylabel="training sentences (%)", ylim=(0, 110), xlim=(0, 46))
    return figure


def heads(weights: Float[Tensor, "layers heads target source"], pair: Pair) -> Figure:
    """A small map for each head, a row for each layer."""
    n_layers, n_heads = weights.shape[:2]
    figure, panels = new_figure(0.4 + 1.75 * n_layers, columns=n_heads, rows=n_layers)
    for layer, row in enumerate(panels):
        for head, axes in enumerate(row):
            axes.imshow(weights[layer, head].detach().cpu(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
            axes.set_title(f"layer {layer}, head {head}", fontsize=9)
            axes.tick_params(length=0)
            axes.grid(False)
            below, beside = layer == n_layers - 1, head == 0
            axes.set_xticks(range(len(pair.source)), pair.source if below else [""] * len(pair.source), rotation=60)
            axes.set_yticks(range(len(pair.target)), pair.target if beside else [""] * len(pair.target))
            axes.tick_params(labelsize=8.5)
            for j, values in enumerate(weights[layer, head].tolist()):
                for i, value in enumerate(values):
                    if value >= 0.3:
                        colour = "white" if value > 0.6 else "black"
                        text = f"{value:.1f}".lstrip("0")
                        axes.text(i, j, text, ha="center", va="center", fontsize=7.5, color=colour)
            for i, j in pair.sure:
                frame = Rectangle((i - 0.46, j - 0.46), 0.92, 0.92, fill=False)
                frame.set(edgecolor=COLOURS["red"], linewidth=1.2)
                axes.add_patch(frame)
    return figure
