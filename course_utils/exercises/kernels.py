"""Exercises whose answer is a Triton kernel, or a function that a kernel calls.

ex = Exercise(flash_triton.add_kernel, outer=watched(flash_triton.add), returns=("sum", *OUTSIDE), needs=NEEDS, …)
ex.cases("…", case(x, y).gives((x + y, 0, 0)))        # outer(answer, x, y)
compiles(ex, "add(add_kernel, torch.empty(1000), torch.empty(1000))")

Where there is no GPU, Triton's interpreter runs the answer on the CPU. Then `watched` looks at every place in memory
that a kernel reads or writes: what lies outside its tensors is not touched, but counted.
"""

import ast
import contextlib
import functools
import inspect
import textwrap
import types
from collections.abc import Callable, Generator, Mapping
from typing import Any
from unittest import mock

import numpy
import torch
from torch import Tensor

from course_utils.ahead_of_time import CompilerError, can_compile, compiled
from course_utils.exercises.compare import Mismatch
from course_utils.exercises.exercise import Exercise
from course_utils.triton_or_stub import HAS_TRITON, INTERPRETED

NEEDS = "" if HAS_TRITON else "Triton"
OUTSIDE = ("count of numbers read outside the tensors", "count of numbers written outside the tensors")
AROUND = 2**13  # numbers before and behind each tensor: more than a block that begins in it can reach

# ---- what a kernel touches -----------------------------------------------------------------------------------


class Watch:
    """Counts how many numbers the kernels that run meanwhile read or write outside the tensors that they were given."""

    def __init__(self) -> None:
        self.read = self.written = 0
        self._places = numpy.empty(0, dtype=numpy.uint64)

    def given(self, arguments: Any) -> None:
        """The kernel that runs next has these arguments."""
        places = [_addresses(tensor) for tensor in _tensors(arguments)]
        self._places = numpy.unique(numpy.concatenate(places))

    def outside(self, places: Any, mask: Any) -> Any:
        """Those of the masked places that are in no tensor."""
        found = numpy.searchsorted(self._places, places).clip(max=len(self._places) - 1)
        return mask & (self._places[found] != places)


@contextlib.contextmanager
def watching() -> Generator[Watch]:
    """On a GPU nothing can be watched, and nothing is counted."""
    watch = Watch()
    if not INTERPRETED:
        yield watch
        return
    from triton.runtime.interpreter import GridExecutor, InterpreterBuilder, TensorHandle

    run = GridExecutor.__call__
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    def watched_run(executor: Any, *args: Any, **kwargs: Any) -> None:
        watch.given((args, kwargs))
        run(executor, *args, **kwargs)

    def watched_load(builder: Any, places: Any, mask: Any, *others: Any) -> Any:
        outside = watch.outside(places.data, mask.data)
        watch.read += int(outside.sum())
        values = load(builder, places, TensorHandle(mask.data & ~outside, mask.dtype), *others)
        if numpy.issubdtype(values.data.dtype, numpy.floating):
            values.data[outside] = numpy.nan  # what lies there is not known
        return values

    def watched_store(builder: Any, places: Any, values: Any, mask: Any, *others: Any) -> Any:
        outside = watch.outside(places.data, mask.data)
        watch.written += int(outside.sum())
        return store(builder, places, values, TensorHandle(mask.data & ~outside, mask.dtype), *others)

    with (
        mock.patch.object(GridExecutor, "__call__", watched_run),
        mock.patch.object(InterpreterBuilder, "create_masked_load", watched_load),
        mock.patch.object(InterpreterBuilder, "create_masked_store", watched_store),
    ):
        yield watch


def watched(function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
    """The function, which calls kernels, with two results more: what they have read and written outside their tensors.

    Its tensors are on a GPU where kernels run there, and its results on the CPU. New tensors are full of NaN, not of
    what an earlier call has left there.
    """

    @functools.wraps(function)
    def call(kernel: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        if not hasattr(kernel, "fn"):
            raise TypeError("it is plain Python until `@triton.jit` stands in the line above `def`")
        torch.use_deterministic_algorithms(True, warn_only=True)  # which fills new tensors; put back by the judge
        with watching() as watch:
            results = function(kernel, *map(_placed, args), **kwargs)
        results = results if isinstance(results, tuple) else (results,)
        return *(x.cpu() if isinstance(x, Tensor) else x for x in results), watch.read, watch.written

    return call


def _placed(value: Any) -> Any:
    """A tensor goes to the GPU, or else to a place around which nothing lies: what is read there is outside."""
    if not isinstance(value, Tensor):
        return value
    if not INTERPRETED:
        return value.cuda()
    length = 1 + sum((n - 1) * stride for n, stride in zip(value.shape, value.stride(), strict=True))
    memory = value.new_empty(AROUND + length + AROUND)
    memory.as_strided(value.shape, value.stride(), AROUND).copy_(value)
    return value.set_(memory.untyped_storage(), AROUND, value.shape, value.stride())


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ()
    return [tensor for one in inside for tensor in _tensors(one)]


def _addresses(tensor: Tensor) -> Any:
    """Where in memory each number of the tensor is."""
    places = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        places = places.unsqueeze(-1) + torch.arange(size) * stride
    return (places.flatten() * tensor.element_size() + tensor.data_ptr()).numpy().astype(numpy.uint64)


# ---- what the compiler says ----------------------------------------------------------------------------------


def compiles(exercise: Exercise, launch: str) -> None:
    """A check, the last one, that the compiler takes the answer when `launch` is called for a GPU of today.

    The interpreter runs Python, and so accepts much that the compiler rejects. Products in TF32 are no float32.
    """

    @exercise.check("it compiles for a GPU (compute capability 8.0)", last=True)
    def _(answer: Any, rng: torch.Generator) -> None:
        if not can_compile():
            return
        kernel = answer.answer.answer
        source = f"{source_with_all_it_needs(kernel)}\n\n{exercise.name} = {kernel.fn.__name__}\n\n{launch}\n"
        try:
            kernels = compiled(source, 80)
        except CompilerError as error:
            text = f"Triton's compiler does not accept it, although its interpreter does:\n{error}"
            raise Mismatch(None, None, text) from None
        if any(".tf32" in kernel.ptx for kernel in kernels):  # the interpreter does not round so
            text = "for float32 it multiplies with 10 bits of each number's fraction (TF32): `dot` keeps all 23"
            raise Mismatch(None, None, text)


def source_with_all_it_needs(kernel: Any) -> str:
    """The kernel's source after that of all that it uses and its notebook defines."""
    found: dict[str, str] = {}
    _collect(getattr(kernel, "fn", kernel), found)
    return "\n\n".join(found.values())


def _collect(function: Any, found: dict[str, str]) -> None:
    """Functions and constants by name, each after what it uses. What lesson 15 defines itself is imported already."""
    source = textwrap.dedent(inspect.getsource(function))
    found[function.__name__] = ""  # it may call itself
    for name in _names(source):
        if name in function.__code__.co_varnames:  # its own, whatever the notebook calls so
            continue
        value = function.__globals__.get(name)
        inner = getattr(value, "fn", value)
        if name in found or _is_imported(name, inner):
            continue
        if isinstance(inner, types.FunctionType):
            _collect(inner, found)
        elif isinstance(inner, int | float | str):
            found[name] = f"{name} = {inner!r}"
        elif type(inner).__name__ == "constexpr":
            found[name] = f"{name} = tl.constexpr({inner.value!r})"
    del found[function.__name__]
    found[function.__name__] = source


def _names(source: str) -> list[str]:
    return [node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)]


def _is_imported(name: str, value: Any) -> bool:
    from course_utils.lessons import flash_triton

    theirs: Mapping[str, Any] = vars(flash_triton)
    return name in theirs and getattr(theirs[name], "fn", theirs[name]) is value
