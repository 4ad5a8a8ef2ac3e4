"""Which tensors a function computes, from which others, and what it calls them: recorded while it runs.

Every call of PyTorch tells which tensors went in and which came out (`TorchFunctionMode`). The variables of the
running function give the names.
"""

import dis
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


@dataclass(frozen=True)
class Traced:
    """A tensor with a name: its variable, its shape, and the places (in the list) of the tensors it was computed from.

    The last ones are those that are returned and from which no other one was computed.
    """

    name: str
    shape: tuple[int, ...]
    sources: tuple[int, ...]
    is_input: bool
    is_last: bool


def trace(function: Callable, inputs: Mapping[str, Tensor]) -> list[Traced]:
    """Call `function(**inputs)` and return its tensors: the inputs, then the others in the order of computation.

    Tensors without a variable are passed over: what is computed from them comes from their sources. A returned one
    is called "output" ("output 1", ... where there are several). A variable that gets a new tensor is there twice,
    and so is one that is changed in place. If the function ends in `return other(...)`, where `other` is a function
    too, the variables of `other` count as its own. Parameters, and other tensors that were there before, are left
    out. Raises ValueError as `draw_shapes` says; errors of the function pass through.
    """
    recorder = _Recorder(_code(function), _distinct(inputs))
    with recorder:
        returned = list(_tensors(function(**recorder.inputs)))
    if not returned:
        raise ValueError("the function returned no tensor: there is nothing to draw")
    recorder.look()
    return recorder.traced(returned)


def _code(function: Callable) -> CodeType:
    """The code whose variables are read: of a module its forward, of a wrapped function the one inside."""
    if isinstance(function, nn.Module):
        return _code(function.forward)
    if isinstance(function, functools.partial):
        return _code(function.func)
    if hasattr(function, "__wrapped__"):
        return _code(function.__wrapped__)
    if not hasattr(function, "__code__"):
        raise ValueError(f"expected a function or a module written in Python, whose variables can be read: {function}")
    return function.__code__


def _distinct(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inputs, each an object of its own, so that a tensor given twice stays two inputs."""
    distinct: dict[str, Tensor] = {}
    for name, tensor in inputs.items():
        if not isinstance(tensor, Tensor):
            raise ValueError(f"every input must be a tensor, but {name} is of type {type(tensor).__name__}")
        again = any(tensor is other for other in distinct.values())
        distinct[name] = tensor.view_as(tensor) if again else tensor
    return distinct


def _tensors(value: Any) -> Iterator[Tensor]:
    """Every tensor in a value, also inside of lists, tuples and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(item)


_Key = tuple[int, int]


def _key(tensor: Tensor) -> _Key:
    """Which tensor, and how often it was changed in place: after a change it counts as another one."""
    return id(tensor), 0 if tensor.is_inference() else tensor._version


class _Recorder(TorchFunctionMode):
    def __init__(self, code: CodeType, inputs: dict[str, Tensor]) -> None:
        super().__init__()
        self.code = code
        self.inputs = inputs
        self.frames: list[FrameType] = []
        self.made: dict[_Key, list[_Key]] = {}  # every tensor that was computed, and from which ones
        self.tensors: dict[_Key, Tensor] = {}  # kept alive: the id of a lost object is used again
        self.shapes: dict[_Key, tuple[int, ...]] = {}
        self.names: dict[_Key, str] = {}
        for name, tensor in inputs.items():
            self._add(tensor, [])
            self.names[_key(tensor)] = name

    def _add(self, tensor: Tensor, sources: list[_Key]) -> None:
        key = _key(tensor)
        self.tensors[key] = tensor
        self.made.setdefault(key, sources)
        self.shapes.setdefault(key, tuple(tensor.shape))

    def __torch_function__(self, func, types, args=(), kwargs=None):
        running = _read_frames(self.code, sys._getframe(1))
        self.frames += [frame for frame in running if frame not in self.frames]
        self.look()
        given = list(_tensors((args, kwargs)))
        sources = [_key(tensor) for tensor in given]
        bases = [(tensor._base, _key(tensor._base)) for tensor in given if tensor._base is not None]
        result = func(*args, **(kwargs or {}))
        for tensor in (*given, *_tensors(result)):
            if _key(tensor) not in sources:
                self._add(tensor, sources)
        for base, before in bases:  # they change together with their views
            if _key(base) != before:
                self._add(base, [before, *sources])
        return result

    def look(self) -> None:
        """Note how the variables are called that hold a tensor now. The first name of a tensor stays."""
        for frame in self.frames:
            for name, value in frame.f_locals.items():
                if isinstance(value, Tensor) and not name.startswith("_"):
                    self.names.setdefault(_key(value), name)

    def traced(self, returned: list[Tensor]) -> list[Traced]:
        unnamed = {_key(tensor): tensor for tensor in returned if _key(tensor) not in self.names}
        for i, (key, tensor) in enumerate(unnamed.items(), 1):
            self._add(tensor, [])
            self.names[key] = "output" if len(unnamed) == 1 else f"output {i}"
        places = {key: i for i, key in enumerate(key for key in self.made if key in self.names)}
        sources = {key: self._sources(key, places) for key in places}
        inputs = {_key(tensor) for tensor in self.inputs.values()}
        last = {_key(tensor) for tensor in returned if not any(places[_key(tensor)] in s for s in sources.values())}
        return [Traced(self.names[key], self.shapes[key], sources[key], key in inputs, key in last) for key in places]

    def _sources(self, key: _Key, places: Mapping[_Key, int]) -> tuple[int, ...]:
        """The named tensors that a tensor was computed from, in the order in which the code has them."""
        found, seen, todo = [], set(), list(self.made[key])
        while todo:
            source = todo.pop(0)
            if source in seen:
                continue
            seen.add(source)
            if source in places:
                found.append(places[source])
            else:
                todo[:0] = self.made.get(source, ())
        return tuple(found)


_WRAPPERS = ("jaxtyping._decorator", "torch.utils._contextlib")  # what a checked function, and no_grad, run in


def _read_frames(code: CodeType, frame: FrameType | None) -> list[FrameType]:
    """The running call of `code`, and as long as that is inside of `return other(...)`, the call of `other`."""
    stack: list[FrameType] = []
    while frame and frame.f_code is not trace.__code__:
        stack.insert(0, frame)
        frame = frame.f_back
    while stack and stack[0].f_code is not code:
        stack.pop(0)
    read = stack[:1]
    for frame in stack[1:]:
        module = frame.f_globals.get("__name__", "")
        if module in _WRAPPERS:
            continue
        if module.partition(".")[0] == "torch" or not _is_returning(read[-1]):
            break
        read.append(frame)
    return read


def _is_returning(frame: FrameType) -> bool:
    """Whether the frame does nothing more than return what comes from the function that it is calling."""
    following = (step.opname for step in dis.get_instructions(frame.f_code) if step.offset > frame.f_lasti)
    return next(following) == "RETURN_VALUE"
