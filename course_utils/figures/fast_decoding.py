"""The pictures of lesson 13."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from course_utils.figures.curves import running_mean
from course_utils.figures.style import COLOURS, new_figure

NEW, KEPT, UNSEEN = COLOURS["orange"], COLOURS["sky"], "#E4E4E4"
LINES = {
    "without a cache": COLOURS["red"],
    "with a cache": COLOURS["blue"],
    "softmax": COLOURS["blue"],
    "softmax, window of 32": COLOURS["orange"],
    "linear": COLOURS["green"],
    "all tokens": COLOURS["red"],
    "window of 32": COLOURS["orange"],
    "window of 28": COLOURS["black"],
    "window of 28, first 4 kept": COLOURS["blue"],
}


def what_is_computed(n_prompt: int, n_tokens: int) -> Figure:
    """Which tokens' keys and values are computed at each step, without a cache and with one."""
    figure, panels = new_figure(2.5, columns=2)
    for axes, title, cached in zip(panels, ("without a cache", "with a cache"), (False, True), strict=True):
        for step, length in enumerate(range(n_prompt, n_tokens + 1)):
            for token in range(length):
                old = cached and step > 0 and token < length - 1
                axes.add_patch(
                    Rectangle((token, step), 1, 1, facecolor=KEPT if old else NEW, edgecolor="white", linewidth=2)
                )
        axes.set(xlim=(0, n_tokens), ylim=(n_tokens - n_prompt + 1, 0), title=title, xlabel="token")
        axes.set_xticks([i + 0.5 for i in range(n_tokens)], map(str, range(n_tokens)))
        steps = range(n_tokens - n_prompt + 1)
        axes.set_yticks([i + 0.5 for i in steps], [str(i + 1) for i in steps])
        axes.tick_params(length=0)
        axes.grid(False)
        axes.spines[:].set_visible(False)
        axes.title.set_fontsize(10)
    panels[0].set_ylabel("call of the model")
    handles = [Patch(color=NEW, label="computed now"), Patch(color=KEPT, label="taken from the cache")]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=9)
    return figure


def work(
    positions: Sequence[int], operations: Mapping[str, Sequence[int]], seconds: Mapping[str, Sequence[float]]
) -> Figure:
    """What one more token costs against its position: counted operations, and time as a multiple of the first."""
    figure, (left, right) = new_figure(2.9, columns=2)
    unit = seconds["with a cache"][0]
    for name, counts in operations.items():
        left.plot(positions, counts, color=LINES[name], marker="o", label=name)
        right.plot(positions, [s / unit for s in seconds[name]], color=LINES[name], marker="o", label=name)
    left.set_ylabel("operations in products")
    right.set_ylabel("time (blue at 31: 1)")
    for axes in (left, right):
        axes.set(xscale="log", yscale="log", xlabel="position of the new token")
        axes.set_xticks(positions, map(str, positions), fontsize=8.5)
        axes.set_xticks([], minor=True)
    left.set_ylim(top=max(operations["without a cache"]) * 8)
    left.legend(loc="upper left")
    return figure


def memory(
    positions: Sequence[int], measured: Mapping[str, Sequence[int]], formula: Mapping[str, Sequence[int]]
) -> Figure:
    """Bytes of a cache against the number of tokens: measured points on the lines of the formula."""
    figure, axes = new_figure(2.9)
    for (name, points), colour in zip(measured.items(), ("blue", "orange", "green"), strict=True):
        axes.plot(positions, [b / 1000 for b in formula[name]], color=COLOURS[colour], linewidth=1.5)
        axes.plot(positions, [b / 1000 for b in points], "o", color=COLOURS[colour], label=name)
        axes.annotate(
            f"{points[-1] / 1000:.0f}",
            (positions[-1], points[-1] / 1000),
            xytext=(6, -3),
            textcoords="offset points",
            fontsize=9,
        )
    axes.set(xlabel="tokens in the cache", ylabel="kB (1,000 bytes)", ylim=(0, None))
    axes.legend(loc="upper left")
    return figure


def streaming(losses: Mapping[str, Sequence[float]], window: int, n_context: int, smooth: int = 16) -> Figure:
    """The loss against the position in a text that is longer than the context."""
    figure, axes = new_figure(3.0)
    styles = (2.0, "-"), (3.5, "-"), (2.0, "--"), (2.0, ":")  # curves may lie on each other
    for (name, values), (width, style) in zip(losses.items(), styles, strict=True):
        axes.plot(running_mean(values, smooth), color=LINES[name], linestyle=style, linewidth=width, label=name)
    for place, text in ((window, "the window\nis full"), (n_context, "end of the\nlength trained")):
        axes.axvline(place, color=COLOURS["grey"], linewidth=1, linestyle=":")
        axes.annotate(
            text, (place, 1), xycoords=("data", "axes fraction"), xytext=(4, -2), textcoords="offset points",
            va="top", fontsize=8.5, color=COLOURS["grey"],
        )  # fmt: skip
    axes.set(xlabel="position", ylabel="nats per token", xlim=(0, None))
    axes.legend(loc="upper right")
    return figure


def costs(
    lengths: Sequence[int],
    panels: Mapping[str, Mapping[str, Sequence[float]]],
    crossings: Sequence[tuple[float, str] | None],
) -> Figure:
    """Softmax with a cache and linear attention: what one token costs, against the tokens before it."""
    figure, all_axes = new_figure(2.9, columns=3)
    for axes, (title, lines), crossing in zip(all_axes, panels.items(), crossings, strict=True):
        for name, values in lines.items():
            axes.plot(lengths, values, color=LINES[name], marker=".", label=name)
        axes.set(xscale="log", yscale="log", xlabel="tokens N")
        axes.set_title(title, fontsize=9.5)
        axes.tick_params(labelsize=8)
        if crossing is not None:
            axes.axvline(crossing[0], color=COLOURS["grey"], linewidth=1, linestyle=":")
            axes.annotate(
                crossing[1], (crossing[0], 0.05), xycoords=("data", "axes fraction"), xytext=(3, 0),
                textcoords="offset points", fontsize=8.5, color=COLOURS["grey"],
            )  # fmt: skip
    figure.legend(*all_axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=9)
    return figure


def _doublings(accuracy: Sequence[float]) -> tuple[list[float], list[float]]:
    """The means over 1, 2–3, 4–7, … pairs, and the middle of each of these groups."""
    places, means, start = [], [], 1
    while start <= len(accuracy):
        end = min(2 * start, len(accuracy) + 1)
        places.append((start * (end - 1)) ** 0.5)
        means.append(sum(accuracy[start - 1 : end - 1]) / (end - start))
        start = end
    return places, means


def _draw_recall(
    axes: Axes, runs: Sequence[Sequence[float]], colour: str, label: str, style: str = "-", width: float = 2
) -> None:
    """All seeds as thin lines, and their mean."""
    for run in runs:
        axes.plot(*_doublings(run), color=colour, linewidth=0.8, alpha=0.5, linestyle=style)
    mean = [sum(values) / len(runs) for values in zip(*runs, strict=True)]
    axes.plot(*_doublings(mean), color=colour, linewidth=width, marker=".", linestyle=style, label=label)


def recall(
    now: Mapping[str, Sequence[Sequence[float]]], longer: Mapping[str, Sequence[Sequence[float]]], chance: float
) -> Figure:
    """Recall against the pairs read so far: three kinds of memory, and linear attention trained longer."""
    figure, (left, right) = new_figure(4.2, columns=2, sharey=True)
    for name, runs in now.items():
        _draw_recall(left, runs, LINES[name], name)
    colours = {"softmax": ("blue", "sky", "red"), "linear": ("green", "pink", "black")}
    drawn = dict.fromkeys(colours, 0)
    for name, runs in longer.items():
        kind = name.partition(",")[0]
        style = "--" if drawn[kind] == 1 else "-"
        width = 5 if name == next(iter(longer)) else 2  # the next curve may lie on it
        _draw_recall(right, runs, COLOURS[colours[kind][drawn[kind]]], name, style, width)
        drawn[kind] += 1
    for axes, title in ((left, "200 steps, in this lesson"), (right, "800 steps, stored")):
        axes.axhline(chance, color=COLOURS["grey"], linestyle="--", linewidth=1)
        axes.set(xscale="log", xlabel="pairs read so far", ylim=(0, 1.05))
        axes.set_title(title, fontsize=10)
        axes.set_xticks([1, 4, 16, 64], ["1", "4", "16", "64"])
        axes.set_xticks([], minor=True)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), fontsize=8.5)
    left.set_ylabel("share of right answers")
    return figure
