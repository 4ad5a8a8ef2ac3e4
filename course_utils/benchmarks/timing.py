"""How the layers are timed: all in turn, and only their ratios are kept."""

import statistics
import time
from collections.abc import Callable, Mapping

from torch import Tensor

_TURNS, _WARM_UP = 60, 5


def ratios(calls: Mapping[str, Callable[[], Tensor]], to: str) -> dict[str, float]:
    """The time of a forward and backward pass of each call, as a part of that of the call named `to`.

    The median over many turns. In each turn every call has its turn: a slow moment of the machine slows all of them.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(_TURNS):
        for name, call in calls.items():
            began = time.perf_counter()
            call().sum().backward()
            seconds[name].append(time.perf_counter() - began)
    return {
        f"{name}_to_{to}": round(statistics.median(map(float.__truediv__, times[_WARM_UP:], seconds[to][_WARM_UP:])), 2)
        for name, times in seconds.items()
        if name != to
    }
