"""The pictures of lesson 15."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from course_utils.figures.diagrams import arrow, canvas
from course_utils.figures.style import COLOURS, new_figure
from course_utils.lessons.flash_triton import GPU, SPLIT_BACKWARD, flop_and_bytes

_READ, _WRITTEN, _MASKED = COLOURS["blue"], COLOURS["red"], COLOURS["orange"]
_IDLE = "#E4E4E4"
_WAYS = {
    "Triton (ours)": ("red", "o"),
    "flash": ("blue", "s"),
    "cuDNN": ("green", "^"),
    "efficient": ("sky", "v"),
    "math": ("orange", "D"),
    "plain": ("grey", "x"),
}
# kernel -> its loop goes along a row of blocks; what is read once, what in each step, what is written
_PROGRAMS = {
    "forward": (True, ("Q",), ("K", "V"), ("O", "lse")),
    "dK/dV": (False, ("K", "V"), ("Q", "dO", "lse", "δ"), ("dK", "dV")),
    "dQ": (True, ("Q", "dO", "lse", "δ"), ("K", "V"), ("dQ",)),
}


def vector_program(n: int, block: int, program: int) -> Figure:
    """What one program of `add_kernel` does: its block of places, and those behind the end, which a mask leaves out."""
    figure, axes = new_figure(1.9)
    n_places = -(-n // block) * block
    canvas(axes, n_places + 3.4, 4.6)
    for row, (name, colour) in enumerate((("x", _READ), ("y", _READ), ("out", _WRITTEN))):
        y = 3 - 1.2 * row
        axes.text(1.2, y + 0.4, name, ha="right", va="center")
        for place in range(n_places):
            own, inside = place // block == program, place < n
            face = f"{colour}66" if own and inside else _IDLE if inside else "white"
            edge = colour if own else COLOURS["grey"]
            style = "-" if inside else ":"
            axes.add_patch(
                Rectangle((place + 1.6, y), 0.9, 0.8, facecolor=face, edgecolor=edge, linestyle=style, zorder=2 + own)
            )
            if row == 0:
                axes.text(place + 2.05, 4.2, str(place), ha="center", va="center", fontsize=8, color=COLOURS["grey"])
    return figure


def program(kernel: str, n_queries: int, n_keys: int, offset: int, index: int) -> Figure:
    """What program number `index` of a kernel reads and writes; sizes and `offset` are numbers of blocks.

    `kernel` is "forward", "dK/dV" or "dQ". In the middle the blocks of scores, of which it computes a row, or a column.
    """
    figure, axes = new_figure(3.9)
    along_row, once, each, written = _PROGRAMS[kernel]
    left, top = 4.2, n_queries + (0.4 if along_row else 2.4)
    canvas(axes, n_keys + 9.6, top + 2.7)
    for i in range(n_queries):
        for j in range(n_keys):
            _score_block(axes, left + j, top - 1 - i, i, j, offset, own=(i if along_row else j) == index)
    used = [j for j in range(n_keys) if j <= index + offset] if along_row else []
    used = used or [i for i in range(n_queries) if index <= i + offset]
    _strips(axes, once + each, ("Q", "dO", "lse", "δ"), left - 0.7, top, n_queries, index, used, along_row, True)
    _strips(axes, once + each, ("K", "V"), top + 0.5, left, n_keys, index, used, not along_row, False)
    _results(axes, written, left, top, n_queries, n_keys, index)
    handles = [
        Patch(facecolor=f"{_READ}66", edgecolor=_READ, label="read"),
        Patch(facecolor=f"{_WRITTEN}66", edgecolor=_WRITTEN, label="written"),
        Patch(facecolor=f"{COLOURS['green']}66", edgecolor=COLOURS["green"], label="scores, all visible"),
        Patch(facecolor=f"{_MASKED}66", edgecolor=_MASKED, label="scores, masked"),
        Patch(facecolor=_IDLE, edgecolor="white", label="other programs"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8.5)
    return figure


def _score_block(axes: Axes, x: float, y: float, i: int, j: int, offset: int, own: bool) -> None:
    if j > i + offset:
        axes.add_patch(Rectangle((x, y), 0.92, 0.92, facecolor="white", edgecolor="#CCCCCC", linestyle=":"))
        return
    colour = _MASKED if j == i + offset else COLOURS["green"]
    face, edge = (f"{colour}88", colour) if own else (_IDLE, "white")
    axes.add_patch(Rectangle((x, y), 0.92, 0.92, facecolor=face, edgecolor=edge, linewidth=1.4))


def _strips(
    axes: Axes,
    names: Sequence[str],
    known: Sequence[str],
    across: float,
    along: float,
    n: int,
    index: int,
    used: Sequence[int],
    one: bool,
    vertical: bool,
) -> None:
    """The tensors beside the blocks of scores, one strip each; a program reads one block of it, or all that it uses."""
    for number, name in enumerate(name for name in reversed(known) if name in names):
        for block in range(n):
            read = block == index if one else block in used
            face, edge = (f"{_READ}66", _READ) if read else (_IDLE, "white")
            place = (across - 0.8 * number, along - 1 - block) if vertical else (along + block, across + 0.8 * number)
            size = (0.55, 0.92) if vertical else (0.92, 0.55)
            axes.add_patch(Rectangle(place, *size, facecolor=face, edgecolor=edge, linewidth=1.2))
        x, y = (
            (across - 0.8 * number + 0.27, along + 0.25)
            if vertical
            else (along + n + 0.35, across + 0.8 * number + 0.27)
        )
        axes.text(x, y, name, ha="center" if vertical else "left", va="center", fontsize=9)


def _results(
    axes: Axes, names: Sequence[str], left: float, top: float, n_queries: int, n_keys: int, index: int
) -> None:
    """Behind the blocks of scores: the results, at the right for queries, below for keys."""
    for number, name in enumerate(names):
        vertical = name not in ("dK", "dV")
        n = n_queries if vertical else n_keys
        right, below = left + n_keys + 1.9 + 0.8 * number, top - n_queries - 1.3 - 0.8 * number
        for block in range(n):
            face, edge = (f"{_WRITTEN}66", _WRITTEN) if block == index else (_IDLE, "white")
            place = (right, top - 1 - block) if vertical else (left + block, below)
            size = (0.55, 0.92) if vertical else (0.92, 0.55)
            axes.add_patch(Rectangle(place, *size, facecolor=face, edgecolor=edge, linewidth=1.2))
        if vertical:
            axes.text(right + 0.27, top + 0.25, name, ha="center", va="center", fontsize=9)
        else:
            axes.text(left + n_keys + 0.35, below + 0.27, name, ha="left", va="center", fontsize=9)
    if "dK" in names:
        arrow(
            axes, (left + index + 0.46, top - n_queries - 0.05), (left + index + 0.46, top - n_queries - 0.7), _WRITTEN
        )
    else:
        y = top - index - 0.54
        arrow(axes, (left + n_keys + 0.1, y), (left + n_keys + 1.75, y), _WRITTEN)


def speed(rows: Sequence[Mapping[str, Any]], gpu: GPU | None, dtype: str = "float16") -> Figure:
    """TFLOP/s against tokens, forward (above) and backward (below), of one head size in each column.

    `rows` are those of `bench flash_triton` with "what": "speed". Full lines: all keys visible; broken: causal.
    """
    figure, panels = new_figure(5.6, columns=2, rows=2, sharex=True)
    for line, which in zip(panels, ("forward", "backward"), strict=True):
        for axes, d in zip(line, (64, 128), strict=True):
            for (way, (colour, marker)), is_causal in ((w, c) for w in _WAYS.items() for c in (False, True)):
                points = [
                    (row["tokens"], row[f"{which}_tflops"])
                    for row in rows
                    if (row["way"], row["d"], row["is_causal"], row["dtype"]) == (way, d, is_causal, dtype)
                    and f"{which}_tflops" in row
                ]
                if points:
                    label = None if is_causal else way
                    style = "--" if is_causal else "-"
                    axes.plot(
                        *zip(*points, strict=True), style, color=COLOURS[colour], marker=marker, ms=4, label=label
                    )
            if gpu and which == "backward":
                ceiling = SPLIT_BACKWARD * gpu.tensor_tflops
                axes.axhline(ceiling, color="black", linewidth=1, linestyle=":")
                axes.text(512, ceiling, "71 % of the peak", fontsize=8, va="bottom")
            axes.set(xscale="log", ylim=(0, None), title=f"{which}, d = {d}")
            axes.set_xticks(ticks := (512, 2048, 8192), [f"{n:,}" for n in ticks])
            axes.minorticks_off()
    for axes in panels[:, 0]:
        axes.set_ylabel("TFLOP/s")
    for axes in panels[1]:
        axes.set_xlabel("tokens N")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, fontsize=8.5)
    return figure


def roofline(rows: Sequence[Mapping[str, Any]], gpu: GPU | None, dtype: str = "float16") -> Figure:
    """TFLOP/s against the operations for each byte that must be moved, under what a GPU can do at most.

    Without measured `rows` it shows the roof alone, and where attention of 1,024 to 16,384 tokens lies.
    """
    figure, axes = new_figure(3.6)
    places = {n: flop / moved for n in (1024, 4096, 16_384) for flop, moved in [flop_and_bytes(n, 64)]}
    if gpu:
        ridge = gpu.tensor_tflops * 1e3 / gpu.bandwidth
        xs = [1, ridge, 20_000]
        axes.plot(xs, [min(gpu.tensor_tflops, x * gpu.bandwidth / 1e3) for x in xs], color="black", linewidth=1.5)
        axes.axhline(gpu.plain_tflops, color=COLOURS["grey"], linewidth=1, linestyle="--")
        axes.text(
            *(20_000, gpu.plain_tflops / 1.5, "float32, without tensor cores"),
            fontsize=8.5,
            ha="right",
            color=COLOURS["grey"],
            backgroundcolor="white",  # over the lines of the attentions
        )
        axes.text(ridge * 1.3, gpu.tensor_tflops * 1.3, "tensor cores", fontsize=8.5, backgroundcolor="white")
        axes.text(1.5, 2.1 * gpu.bandwidth / 1e3, "memory", fontsize=8.5, rotation=41, rotation_mode="anchor")
        axes.set_ylim(gpu.bandwidth / 1e3, gpu.tensor_tflops * 3)
    for n, x in places.items():
        axes.axvline(x, color=COLOURS["sky"], linewidth=1)
        axes.text(x, 0.02, f"{n:,} tokens", rotation=90, fontsize=8, ha="right", transform=axes.get_xaxis_transform())
    for way, (colour, marker) in _WAYS.items():
        points = [
            (flop / moved, row["forward_tflops"])
            for row in rows
            if (row["way"], row["d"], row["is_causal"], row["dtype"]) == (way, 64, False, dtype)
            and "forward_tflops" in row
            for flop, moved in [flop_and_bytes(row["tokens"], 64)]
        ]
        if points:
            axes.plot(*zip(*points, strict=True), marker, color=COLOURS[colour], ms=5, label=way)
    axes.set(xscale="log", yscale="log", xlabel="operations for each byte from memory", ylabel="TFLOP/s")
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize=8.5, loc="upper left")
    return figure
