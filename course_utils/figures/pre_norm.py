"""The pictures of lesson 12."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Literal

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from course_utils.figures.curves import running_mean
from course_utils.figures.diagrams import arrow, box, canvas
from course_utils.figures.style import COLOURS, new_figure

# Post-LN and pre-norm keep the colours that they have in lesson 08.
POST, PRE = COLOURS["blue"], COLOURS["green"]
GREY = COLOURS["grey"]
_PARTS = {"attention": COLOURS["orange"], "MLP": COLOURS["green"], "norm": COLOURS["sky"]}
_STACKS = {"Post-LN": (POST, "o"), "Pre-LN": (PRE, "D")}
_WAYS: dict[str, tuple[str, Literal["-", "--", ":"]]] = {
    "Post-LN, full rate at once": (POST, "-"),
    "Post-LN, warm-up": (COLOURS["sky"], "--"),
    "Pre-LN, full rate at once": (PRE, "-"),
    "Post-LN, untrained": (GREY, ":"),
}


def orders() -> Figure:
    """Post-LN and Pre-LN side by side: the line from below to above is the path of x."""
    figure, axes = new_figure(4.6)
    canvas(axes, 16, 11)
    _draw_order(axes, 3.2, "Post-LN", post=True)
    _draw_order(axes, 11.2, "Pre-LN", post=False)
    return figure


def _draw_order(axes: Axes, x: float, title: str, post: bool) -> None:
    red, branch = COLOURS["red"], x + 2.9
    axes.text(x + 1.4, 10.7, title, ha="center", va="center", fontsize=11)
    axes.text(x, 0.3, "x", ha="center", va="center", fontsize=11)
    below = 0.6
    for first, name in ((1.1, "attention"), (5.5, "MLP")):
        plus = first + 2.5
        arrow(axes, (x, below), (x, plus - 0.3), red)
        axes.text(x, plus, "+", ha="center", va="center", fontsize=15, color=red)
        axes.plot([x, branch], [first, first], color=GREY, linewidth=1.2)
        part = first + (0.9 if post else 1.65)
        if not post:
            arrow(axes, (branch, first), (branch, first + 0.35), GREY)
            box(axes, branch, first + 0.65, 2.3, 0.6, "norm", _PARTS["norm"])
        arrow(axes, (branch, first + (0 if post else 0.95)), (branch, part - 0.3), GREY)
        box(axes, branch, part, 2.3, 0.6, name, _PARTS[name])
        axes.plot([branch, branch], [part + 0.3, plus], color=GREY, linewidth=1.2)
        arrow(axes, (branch, plus), (x + 0.3, plus), GREY)
        below = plus + 0.3
        if post:
            arrow(axes, (x, below), (x, plus + 0.8), red)
            box(axes, x, plus + 1.1, 2.3, 0.6, "norm", _PARTS["norm"])
            below = plus + 1.4
    arrow(axes, (x, below), (x, 10.2), red)


def gradients(
    by_block: Mapping[str, Mapping[int, Sequence[Sequence[float]]]], last: Mapping[str, Mapping[int, Sequence[float]]]
) -> Figure:
    """Left the mean gradient of every block, right that of the last block against the depth, with deviations.

    `by_block` is stack -> depth -> a list for each seed, `last` is stack -> depth -> a number for each seed.
    """
    figure, (left, right) = new_figure(3.6, columns=2)
    for name, depths in by_block.items():
        colour, marker = _STACKS[name]
        for depth, runs in depths.items():
            means = [mean(values) for values in zip(*runs, strict=True)]
            left.plot(range(1, depth + 1), means, color=colour, marker=marker, markersize=3.5, linewidth=1.3)
            style = {"textcoords": "offset points", "va": "center", "fontsize": 9, "color": colour}
            if depth > 2:  # at 2 both stacks end at nearly the same point
                left.annotate(str(depth), (depth, means[-1]), xytext=(5, 5 if name == "Post-LN" else -5), **style)
    left.set(xlabel="block", ylabel="length of the gradient", yscale="log")
    left.set_xticks([1, 2, 6, 12])
    left.set_xlim(right=13)
    left.set_title("every block, in stacks of 2, 6 and 12", fontsize=9.5)
    for name, depths in last.items():
        colour, marker = _STACKS[name]
        means = [mean(v) for v in depths.values()]
        style = {"color": colour, "marker": marker, "markersize": 4.5, "linewidth": 1.5, "capsize": 3}
        right.errorbar(list(depths), means, [stdev(v) for v in depths.values()], label=name, **style)
    depths, first = list(last["Pre-LN"]), mean(last["Pre-LN"][min(last["Pre-LN"])])
    law = [first * (depths[0] / n) ** 0.5 for n in depths]
    right.plot(depths, law, color="black", linestyle="--", linewidth=1.2, label="1/√depth", zorder=3)
    right.set(xlabel="blocks in the stack", xscale="log", yscale="log")
    right.set_xticks(depths, [str(n) for n in depths])
    right.minorticks_off()
    right.set_title("the last block", fontsize=9.5)
    low, high = (f(left.get_ylim()[i], right.get_ylim()[i]) for i, f in ((0, min), (1, max)))
    for axes in (left, right):
        axes.set_ylim(low, high)
        ticks = [t for t in (0.02, 0.05, 0.1, 0.2, 0.5, 1) if low < t < high]
        axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
        axes.minorticks_off()
    figure.legend(*right.get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=9)
    return figure


def warm_up(
    rates: Mapping[str, Sequence[float]], losses: Mapping[str, Sequence[Sequence[float]]], guessing: float
) -> Figure:
    """Left the learning rate of every step, right the loss, a line for each seed."""
    figure, (left, right) = new_figure(3.5, columns=2, width_ratios=(1, 1.5))
    for (name, values), colour, dashes in zip(rates.items(), ("black", COLOURS["sky"]), ("-", "--"), strict=True):
        left.plot(values, color=colour, linestyle=dashes, linewidth=1.8, label=name)
    left.set(xlabel="training step", ylabel="learning rate", ylim=(0, 1.35 * max(max(v) for v in rates.values())))
    left.legend(fontsize=8.5, loc="upper center")
    for name, runs in losses.items():
        colour, dashes = _WAYS[name]
        for run in runs:
            right.plot(running_mean(run, 10), color=colour, linestyle=dashes, linewidth=1.4)
    right.axhline(guessing, color=GREY, linestyle=":", linewidth=1.3)
    end = max(len(run) for runs in losses.values() for run in runs)
    style = {"textcoords": "offset points", "ha": "right", "fontsize": 8.5, "color": GREY}
    right.annotate("guessing", (end, guessing), xytext=(0, 5), **style)
    right.set(xlabel="training step", ylabel="loss (nats per answer)", ylim=(0, 2.6))
    figure.legend(_way_handles(losses), losses, loc="outside upper center", ncols=3, fontsize=8.5)
    return figure


def distinct(profiles: Mapping[str, Sequence[Sequence[float]]]) -> Figure:
    """What distinguishes the tokens after every block, as a part of their size: a line for each seed."""
    figure, axes = new_figure(3.4)
    for name, runs in profiles.items():
        colour, dashes = _WAYS[name]
        above = {"linewidth": 1.5, "zorder": 3} if dashes == "--" else {"linewidth": 2}
        for run in runs:
            axes.plot(run, color=colour, linestyle=dashes, **above)
    axes.set(yscale="log", xlabel="blocks passed", ylabel="what distinguishes the people,\nas a part of the size")
    axes.set_xticks(range(0, 13, 2))
    figure.legend(_way_handles(profiles), profiles, loc="outside upper center", ncols=2, fontsize=8.5)
    return figure


def _way_handles(names: Mapping[str, object]) -> list[Line2D]:
    return [Line2D([], [], color=_WAYS[name][0], linestyle=_WAYS[name][1], linewidth=2) for name in names]


def variants(losses: Mapping[str, Sequence[float]]) -> Figure:
    """The held-out loss of every way to build the block: a point for each seed, a tick at the mean."""
    figure, axes = new_figure(0.7 + 0.42 * len(losses))
    for y, (name, seeds) in enumerate(losses.items()):
        colour = COLOURS["orange"] if "experts" in name else COLOURS["pink"] if "SwiGLU" in name else POST
        axes.plot(seeds, [y] * len(seeds), "o", color=colour, markersize=6, alpha=0.75)
        axes.plot([mean(seeds)], [y], "|", color="black", markersize=15, markeredgewidth=1.6)
    axes.set_yticks(range(len(losses)), list(losses))
    axes.set(xlabel="loss on held-out text (nats per byte)", ylim=(len(losses) - 0.5, -0.5))
    axes.grid(axis="y", visible=False)
    return figure


def expert_load(shares: Mapping[str, Sequence[Sequence[float]]]) -> Figure:
    """The share of the work that each expert gets, a bar for each seed: a panel for each way of training."""
    figure, panels = new_figure(2.9, columns=len(shares), sharey=True)
    for axes, (title, seeds) in zip(panels, shares.items(), strict=True):
        width = 0.8 / len(seeds)
        for k, values in enumerate(seeds):
            places = [e + width * (k - (len(seeds) - 1) / 2) for e in range(len(values))]
            colour = COLOURS[("blue", "sky", "orange")[k % 3]]
            axes.bar(places, values, width=width, color=colour, label=f"seed {k}")
        axes.axhline(1 / len(seeds[0]), color="black", linestyle="--", linewidth=1)
        axes.set_xticks(range(len(seeds[0])))
        axes.set_xlabel("expert")
        axes.set_title(title, fontsize=10)
        axes.grid(axis="x", visible=False)
    panels[0].set_ylabel("share of the work")
    panels[-1].legend(fontsize=8.5, loc="upper right")
    return figure


def first_token(weights: Float[Tensor, "time time"], names: Sequence[str], new: int) -> Figure:
    """Where one head looks. Rows before the red line hold letters that were not there before."""
    figure, axes = new_figure(4.4)
    axes.imshow(weights.detach().cpu(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for i, row in enumerate(weights.tolist()):
        for j, weight in enumerate(row):
            if weight >= 0.05:
                colour = "white" if weight > 0.6 else "black"
                axes.text(
                    j,
                    i,
                    f"{weight:.2f}"[1:] if weight < 0.995 else "1",
                    ha="center",
                    va="center",
                    fontsize=7.5,
                    color=colour,
                )
    axes.axhline(new + 0.5, color=COLOURS["red"], linewidth=1.4)
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("column: the letter that is looked at", fontsize=8.5, color=GREY)
    axes.set_ylabel("row: the letter read last", fontsize=8.5, color=GREY)
    axes.xaxis.set_ticks_position("top")
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    return figure
