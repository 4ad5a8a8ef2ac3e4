"""Lesson 15: the kernels, in Triton's interpreter where there is no GPU, and what the compiler makes of them.

The inputs are what public kernels have failed for, each made small.
"""

import inspect
import itertools
import linecache
import math
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from matplotlib.colors import to_hex
from torch import Tensor

from course_utils import benchmarks
from course_utils.ahead_of_time import SHARED_MEMORY, CompilerError, can_compile, compiled
from course_utils.exercises.exercise import Exercise, exercises_of
from course_utils.exercises.flash_triton import FAR, TENSORS, formula, rows_apart
from course_utils.exercises.kernels import source_with_all_it_needs, watching
from course_utils.figures import flash_triton as figures
from course_utils.figures.style import COLOURS
from course_utils.lessons import flash_triton
from course_utils.lessons.flash_attention import causal_offset
from course_utils.lessons.language_model import LanguageModel, attend_rotary
from course_utils.lessons.multi_head import attend
from course_utils.syllabus import ROOT
from course_utils.triton_or_stub import HAS_TRITON, INTERPRETED, triton
from tests.answers import answers
from tests.helpers import numbers

if not HAS_TRITON:
    pytest.skip("Triton exists for Linux only", allow_module_level=True)

DEVICE = "cpu" if INTERPRETED else "cuda"
needs_compiler = pytest.mark.skipif(not can_compile(), reason="Triton has no compiler here")
Tensors = tuple[Tensor, ...]


def inputs(n_queries=5, n_keys=7, d=16, batch=1, heads=1, kv_heads=1, size=1.0) -> Tensors:
    shapes = (batch, heads, n_queries, d), (batch, kv_heads, n_keys, d), (batch, kv_heads, n_keys, d)
    q, k, v = (numbers(i, *shape).to(DEVICE) for i, shape in enumerate(shapes))
    return size * q, k, v


def constant(first: float, n: int) -> Tensor:
    x = torch.zeros(1, 1, n, 16, dtype=torch.float64, device=DEVICE)
    x[..., 0] = first
    return x


def fused() -> Tensors:
    """Queries, keys and values as views of one tensor, the tokens before the heads."""
    return tuple(numbers(0, 2, 9, 3, 2, 16).to(DEVICE).permute(2, 0, 3, 1, 4))


def every_second() -> Tensors:
    return tuple(numbers(i, 1, 2, 9, 32).to(DEVICE)[..., ::2] for i in range(3))


# name -> (queries, keys, values), offset, or None for all keys, what the gradients of the outputs look like
CASES: dict[str, tuple[Tensors, int | None, Callable[[Tensor], Tensor]]] = {
    "65 tokens": (inputs(65, 65, 32), None, torch.clone),
    "100 tokens, causal": (inputs(100, 100), 0, torch.clone),
    "one query, 200 keys": (inputs(1, 200), 199, torch.clone),
    "one query, one key": (inputs(1, 1), 0, torch.clone),
    "more keys than queries, to the end": (inputs(5, 40), 35, torch.clone),
    "more keys than queries, to the start": (inputs(5, 40), 0, torch.clone),
    "more queries than keys, to the start": (inputs(40, 8), 0, torch.clone),
    "rows that see nothing": (inputs(40, 8), -32, torch.clone),
    "no row sees anything": (inputs(5, 3), -20, torch.clone),
    "several blocks of keys": (inputs(33, 150, 32), 117, torch.clone),
    "three heads share keys": (inputs(9, 20, 16, 2, 6, 2), 11, torch.clone),
    "head size 128": (inputs(9, 70, 128), None, torch.clone),
    "large scores": (inputs(40, 70, 64, size=6.0), 30, torch.clone),
    "scores -400": ((constant(40.0, 9), constant(-40.0, 70), numbers(2, 1, 1, 70, 16).to(DEVICE)), None, torch.clone),
    "scores beyond float16": (
        (constant(300.0, 5), constant(300.0, 7), numbers(2, 1, 1, 7, 16).to(DEVICE)),
        2,
        torch.clone,
    ),
    "views of one tensor": (fused(), 0, torch.clone),
    "every second column": (every_second(), 0, torch.clone),
    "gradients from a sum": (
        inputs(9, 9),
        0,
        lambda o: torch.ones(1, 1, 1, 1, dtype=o.dtype, device=o.device).expand(o.shape),
    ),
    "gradients transposed": (inputs(9, 9, heads=9), 0, lambda o: o.transpose(1, 2).contiguous().transpose(1, 2)),
}


def gradients(function: Callable[..., Tensor], qkv: Tensors, factors: Tensor) -> Tensors:
    leaves = [x.detach().requires_grad_() for x in qkv]
    outputs = function(*leaves)
    return outputs.detach(), *torch.autograd.grad(outputs, leaves, factors)


def visible(qkv: Tensors, offset: int) -> Tensor:
    n_queries, n_keys = qkv[0].shape[2], qkv[1].shape[2]
    rows, columns = torch.arange(n_queries, device=DEVICE), torch.arange(n_keys, device=DEVICE)
    return columns <= rows[:, None] + offset


def pytorchs(qkv: Tensors, offset: int, factors: Tensor) -> Tensors:
    """By PyTorch, in the dtype of the inputs; a row that sees nothing gets zeros."""

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
        mask = visible(qkv, offset)
        outputs = F.scaled_dot_product_attention(q, k, v, mask | ~mask.any(dim=-1, keepdim=True))
        return outputs * mask.any(dim=-1, keepdim=True)

    return gradients(attention, qkv, factors)


def ours(module: Any, qkv: Tensors, offset: int, factors: Tensor) -> Tensors:
    return gradients(lambda *x: module.FlashAttention.apply(*x, offset), qkv, factors)


def fault(got: Tensors, theirs: Tensors, exact: Tensors) -> str:
    """What is wrong by the rule: twice PyTorch's error for outputs, three times for gradients, and some roundings."""
    for name, factor, x, y, z in zip("oqkv", (2, 3, 3, 3), got, theirs, exact, strict=True):
        errors = [float((result.double() - z).abs().max()) for result in (x, y)]
        roundings = 8 * torch.finfo(x.dtype).eps * float(z.abs().max().clamp(min=1))
        if not (x.dtype == y.dtype and x.shape == y.shape and errors[0] <= factor * errors[1] + roundings):
            return f"{name}: {errors[0]:.2g}, PyTorch {errors[1]:.2g}"
    return ""


def fault_of(module: Any, name: str, dtype: torch.dtype) -> str:
    qkv, offset, like = CASES[name]
    offset = qkv[1].shape[2] if offset is None else offset
    shaped = like(numbers(9, *qkv[0].shape).to(DEVICE))
    exact = pytorchs(qkv, offset, shaped)
    qkv, factors = tuple(x.to(dtype) for x in qkv), shaped.to(dtype)
    return fault(ours(module, qkv, offset, factors), pytorchs(qkv, offset, factors), exact)


DTYPES = [torch.float32, torch.float16] + [torch.bfloat16] * (not INTERPRETED)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients(name: str, dtype: torch.dtype) -> None:
    assert not fault_of(flash_triton, name, dtype)


@pytest.mark.parametrize("tile", [(16, 16), (16, 64), (64, 16), (64, 64)])
def test_every_size_of_blocks(tile: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flash_triton, "tile_for", lambda *_: flash_triton.Tile(*tile, 4, 1))
    monkeypatch.setitem(CASES, "50 tokens", (inputs(50, 50), 0, torch.clone))
    assert not fault_of(flash_triton, "50 tokens", torch.float32)


@pytest.mark.parametrize("offset", [70, 30, -20])
def test_log_sum_exp(offset: int) -> None:
    q, k, v = (x.float() for x in inputs(40, 70))
    _, log_sum_exp = flash_triton.flash_forward(flash_triton.flash_forward_inner, q, k, v, offset)
    exact = formula(q.cpu(), k.cpu(), v.cpu(), offset)[1]
    torch.testing.assert_close(log_sum_exp.cpu().double(), exact, rtol=1e-5, atol=1e-5)


def test_two_runs_are_equal_bit_by_bit() -> None:
    qkv = tuple(x.half() for x in inputs(40, 70, heads=2))
    runs = [ours(flash_triton, qkv, 30, qkv[0]) for _ in range(2 if INTERPRETED else 250)]
    assert all(map(torch.equal, a, b) for a, b in itertools.pairwise(runs))


def in_rubbish(x: Tensor) -> Tensor:
    """The same numbers, with NaN before and behind them, and between the rows."""
    *leading, rows, columns = x.shape
    larger = x.new_full((*leading, rows + 140, columns + 8), math.nan)
    view = larger[..., 4 : rows + 4, 3 : columns + 3]
    view.copy_(x)
    return view


def test_nothing_outside_the_tensors_is_read_or_written() -> None:
    """NaN all around would show in the results; in the interpreter every access is looked at."""
    qkv = tuple(x.float() for x in inputs(33, 70, heads=2, kv_heads=1))
    factors = numbers(9, 1, 2, 33, 16).to(DEVICE).float()
    with watching() as watch:
        got = ours(flash_triton, tuple(map(in_rubbish, qkv)), 37, in_rubbish(factors))
    assert all(map(torch.equal, got, ours(flash_triton, qkv, 37, factors)))
    assert watch.read == watch.written == 0


def far_apart(which: str) -> Tensor:
    """Half-precision numbers of which some lie 2 ** 31 numbers behind the first; the memory between takes no place."""
    if which == "row":
        return rows_apart(numbers(0, 1, 1, 65, 16).half(), FAR // 64)
    x = rows_apart(numbers(0, 3, 16).half(), FAR // 2)
    return x[:, None, None] if which == "batch" else x[None, :, None]


@pytest.mark.skipif(not INTERPRETED, reason="it would take 20 GB of a GPU")
@pytest.mark.parametrize("which", ["batch", "head", "row"])
def test_offsets_that_32_bits_cannot_hold(which: str) -> None:
    far = far_apart(which)
    near = far.contiguous()
    with watching() as watch:  # a wrong place is not touched, but counted
        got = ours(flash_triton, (far, far, far), 0, far)
    assert watch.read == watch.written == 0
    assert all(map(torch.equal, got, ours(flash_triton, (near, near, near), 0, near)))


@pytest.mark.parametrize("align", ["start", "end"])
def test_flash_attention_aligns_as_lesson_14_does(align: str) -> None:
    q, k, v = (x.float() for x in inputs(5, 9))
    got = flash_triton.flash_attention(q, k, v, is_causal=True, align=align)
    expected = formula(q.cpu(), k.cpu(), v.cpu(), causal_offset(5, 9, align))[0]
    torch.testing.assert_close(got.cpu().double(), expected, rtol=1e-5, atol=1e-5)
    full = flash_triton.flash_attention(q, k, v)
    torch.testing.assert_close(full.cpu().double(), formula(q.cpu(), k.cpu(), v.cpu(), 9)[0], rtol=1e-5, atol=1e-5)


def test_bfloat16_is_rounded_once_in_the_interpreter() -> None:
    q, k, v = (x.bfloat16().requires_grad_() for x in inputs(5, 9))
    outputs = flash_triton.flash_attention(q, k, v)
    assert outputs.dtype == torch.bfloat16
    outputs.sum().backward()
    assert q.grad is not None and q.grad.dtype == torch.bfloat16
    exact = formula(q.detach().cpu(), k.detach().cpu(), v.detach().cpu(), 9)[0]
    torch.testing.assert_close(outputs.detach().cpu().double(), exact, rtol=8e-3, atol=8e-3)


WRONG = {
    "head size d must be one of": lambda q, k, v: (q[..., :8], k[..., :8], v[..., :8]),
    "q, k, v need the shape": lambda q, k, v: (q[0], k[0], v[0]),
    "k and v need the same shape": lambda q, k, v: (q, k, v[:, :, 1:]),
    "same batch and head size": lambda q, k, v: (torch.cat([q, q]), k, v),
    "must be a multiple of those of k": lambda q, k, v: (q[:, :1], k, v),
    "no size may be 0": lambda q, k, v: (q, k[:, :, :0], v[:, :, :0]),
    "need one dtype": lambda q, k, v: (q, k.half(), v),
    "torch.float64": lambda q, k, v: (q.double(), k.double(), v.double()),
}


@pytest.mark.usefixtures("no_hook")
@pytest.mark.parametrize("message", WRONG)
def test_wrong_inputs_are_named(message: str) -> None:
    q, k, v = (x.float() for x in inputs(heads=2, kv_heads=2))
    with pytest.raises(ValueError, match=message):
        flash_triton.flash_attention(*WRONG[message](q, k, v))
    with pytest.raises(ValueError, match="align must be"):
        flash_triton.flash_attention(q, k, v, is_causal=True, align="top")
    with pytest.raises(ValueError, match="takes `is_causal` only"):
        flash_triton.attend_with_kernel(q, k, v, torch.ones(5, 7, dtype=torch.bool))


def test_the_language_model_has_the_same_logits_and_gradients() -> None:
    def run(attention: Callable[..., Tensor]) -> list[Tensor]:
        torch.manual_seed(0)
        model = LanguageModel(11, 32, 2, 2, 12, lambda *x, **y: attend_rotary(*x, **y, attend=attention)).to(DEVICE)
        logits = model(torch.arange(12, device=DEVICE).remainder(11)[None])
        logits.square().sum().backward()
        return [logits, *(p.grad for p in model.parameters() if p.grad is not None)]

    for ours, theirs in zip(run(flash_triton.attend_with_kernel), run(attend), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------ warm-ups


@pytest.mark.parametrize("n", [1, 128, 129, 1000])
def test_add_and_softmax(n: int) -> None:
    x, y = (numbers(i, 3, n, dtype=torch.float32).to(DEVICE) for i in (0, 1))
    assert torch.equal(flash_triton.add(flash_triton.add_kernel, x[0], y[0]), x[0] + y[0])
    torch.testing.assert_close(flash_triton.softmax(flash_triton.softmax_kernel, x), torch.softmax(x, dim=-1))


@pytest.mark.parametrize("sizes", [(1, 1, 1), (33, 70, 40), (64, 32, 96)])
def test_matmul(sizes: tuple[int, int, int]) -> None:
    a, b = numbers(0, *sizes[:2]).to(DEVICE).float(), numbers(1, *sizes[1:]).to(DEVICE).float().mT.contiguous().mT
    torch.testing.assert_close(flash_triton.matmul(a, b), a @ b, rtol=1e-4, atol=1e-4)


# ------------------------------------------------------------------ without Triton


def in_a_process(code: str, **environment: str) -> str:
    import os

    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_without_triton_the_lesson_runs_and_says_what_is_missing() -> None:
    out = in_a_process("""
import sys
sys.modules["triton"] = None
names = {}
from course_utils import start
lesson = start("flash_triton", names)
import torch
from course_utils.lessons import flash_triton as ft
q, k = torch.randn(1, 4, 5, 16), torch.randn(1, 2, 9, 16)
mask = torch.arange(9) <= torch.arange(5)[:, None] + 4
theirs = torch.nn.functional.scaled_dot_product_attention(q, *[k.repeat_interleave(2, 1)] * 2, mask)
torch.testing.assert_close(ft.flash_attention(q, k, k, is_causal=True), theirs)
try:
    ft.add(ft.add_kernel, q[0, 0, 0], q[0, 0, 0])
except RuntimeError as error:
    print(error)
names["add_kernel"] = ft.add_kernel.fn
lesson.check("add_kernel")
lesson.summary()
""")
    assert "`add_kernel` cannot run. Triton is not installed here" in out
    assert "– add_kernel needs Triton" in out and "0 of 0 exercises solved, 0 of 0 points" in out


# ------------------------------------------------------------------ the compiler

LAUNCHES = """
def launches(d, dtype, batch=2, heads=4, kv_heads=2, n_queries=256, n_keys=512):
    q, do, o = (torch.empty(batch, heads, n_queries, d, dtype=dtype) for _ in range(3))
    k, v = (torch.empty(batch, kv_heads, n_keys, d, dtype=dtype) for _ in range(2))
    lse = torch.empty(batch, heads, n_queries)
    flash_forward(flash_forward_inner, q, k, v, n_keys - n_queries)
    flash_delta(o, do)
    flash_dkv(flash_dkv_inner, q, k, v, do, lse, lse, n_keys - n_queries)
    flash_dq(flash_dq_inner, q, k, v, do, lse, lse, n_keys - n_queries)
"""
# An integer argument that is 1 becomes a constant, so each of these is another kernel.
ONES = [{"kv_heads": 4}, {"heads": 1, "kv_heads": 1}, {"n_queries": 1}, {"n_keys": 1}, {"n_queries": 1, "n_keys": 1}]
ODD = {"batch": 1, "n_queries": 251, "n_keys": 253}


# Bytes. Colab's Triton spills 84 in the dK/dV kernel of head size 64 for an A100.
MOST_SPILLED = 96 if triton.__version__ == "3.6.0" else 64


def well_compiled(calls: str, *capabilities: int) -> None:
    kernels = compiled(LAUNCHES + calls, *capabilities)
    assert kernels
    for kernel in kernels:
        words = f"{kernel.name} {kernel.constants} for {kernel.capability}"
        assert kernel.shared <= SHARED_MEMORY[kernel.capability], f"{words}: {kernel.shared} bytes of shared memory"
        assert kernel.spills <= MOST_SPILLED, f"{words} spills {kernel.spills} bytes"
        fast = kernel.capability >= 80 and "float32" not in calls and "delta" not in kernel.name
        assert bool(kernel.mma) == fast, f"{words}: {kernel.mma} products by tensor cores"
        assert kernel.shared <= in_the_table(kernel.constants), f"{words}: {kernel.shared} bytes, the table has less"


def in_the_table(constants: dict[str, int]) -> int:
    """The bytes of shared memory that the lesson's table has for such a tile."""
    launched = {name: constants.get(name) for name in ("BLOCK_Q", "BLOCK_K", "num_warps", "num_stages")}
    tiles = [t for (_, d, _), t in flash_triton.TILES.items() if d == constants["D"]]
    return max((t.shared for t in tiles if flash_triton.launch(t) == launched), default=10**4)


@needs_compiler
def test_what_ships_compiles_for_an_a100() -> None:
    well_compiled("launches(64, torch.float16), launches(128, torch.float16)", 80)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("d", flash_triton.HEAD_SIZES)
def test_all_that_ships_compiles_for_every_gpu(d: int, dtype: str) -> None:
    well_compiled(f"launches({d}, torch.{dtype})", *([75, 80, 90] if dtype != "bfloat16" else [80, 90]))


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("options", [*ONES, ODD], ids=str)
def test_integers_that_are_one(options: dict[str, int]) -> None:
    well_compiled(f"for d in (64, 128): launches(d, torch.float16, **{options})", 80)


def test_tiles_fit_the_gpus_that_they_are_made_for() -> None:
    limits = {"fma": SHARED_MEMORY[75], "sm_80": SHARED_MEMORY[86], "sm_90": SHARED_MEMORY[90]}
    for (family, _, _), tile in flash_triton.TILES.items():
        assert tile.shared <= limits[family]
    assert len(flash_triton.TILES) == 3 * 4 * 3
    half = torch.float16
    assert [flash_triton.families(c, half)[0] for c in (75, 80, 89, 90, 100, 120)] == [
        *("fma", "sm_80", "sm_80", "sm_90", "sm_90", "sm_80"),
    ]
    assert flash_triton.families(90, torch.float32) == ("fma",)


@needs_compiler
def test_the_compiler_rejects_what_the_interpreter_accepts() -> None:
    source = "WIDTH = 128\n\n" + inspect.getsource(flash_triton.add_kernel.fn).replace(
        "places < n", "places < n + WIDTH"
    )
    with pytest.raises(CompilerError, match="WIDTH"):
        compiled(f"{source}\nadd(add_kernel, torch.empty(1000), torch.empty(1000))", 80)


def test_a_kernel_takes_what_it_needs_along() -> None:
    source = "def twice(x):\n    return FACTOR * x\n\n\ndef add_kernel(x):\n    return dot(twice(x), x)\n"
    names = vars(module_of(source)) | {"FACTOR": 2, "dot": flash_triton.dot}
    vars(sys.modules["of_a_test"]).update(names)
    text = source_with_all_it_needs(names["add_kernel"])
    assert text.index("FACTOR = 2") < text.index("def twice") < text.index("def add_kernel") and "def dot" not in text


# ------------------------------------------------------------------ kernels that are wrong

# The first place where the one text stands is replaced by the other.
MUTANTS = {
    "causal, off by one": ("rows + offset + 1, 0", "rows + offset, 0"),
    "the full blocks reach too far": (
        "visible_keys(start, offset, n_keys) // BLOCK_K * BLOCK_K\n    last",
        "tl.cdiv(visible_keys(start, offset, n_keys), BLOCK_K) * BLOCK_K\n    last",
    ),
    "keys not scaled": ("grad_keys * scale", "grad_keys"),
    "queries not scaled": ("grad_queries * scale", "grad_queries"),
    "no delta for the keys": (" - deltas[None, :]", ""),
    "the keys' gradients begin a block late": (
        "tl.maximum(start - offset, 0)",
        "tl.maximum(start - offset + BLOCK_Q, 0)",
    ),
    "no rescaling": ("acc * rescale[:, None]", "acc"),
    "the wrong group": ("matrix_of(k, batch, head // group), matrix_of", "matrix_of(k, batch, 0), matrix_of"),
    "only one head of the group": ("(kv_head + 1) * group", "kv_head * group + 1"),
    "no guard for empty rows, forward": ('tl.where(new_max == -float("inf"), 0.0, new_max)', "new_max"),
    "no guard for empty rows, backward": (
        'tl.where(empty, float("inf"), log_sum_exp * LOG2_OF_E)',
        "log_sum_exp * LOG2_OF_E",
    ),
    "the gradients of the outputs read with the queries' strides": (
        "*map(pair, (q, k, v, do, lse, delta, dk, dv))",
        "*map(pair, (q, k, v)), (do, q.stride()), *map(pair, (lse, delta, dk, dv))",
    ),
    "no mask for the keys' gradients": (
        "columns[:, None] < visible_keys(rows, offset, n_keys)[None, :]",
        "columns[:, None] < n_keys + 0 * rows[None, :]",
    ),
    "no mask for the queries' gradients": (
        "tl.exp2(scores - log_sum_exp[:, None])",
        "tl.exp2(dot(queries, tl.trans(keys)) * log2_scale - log_sum_exp[:, None])",
    ),
    "32 bits for the rows": ("ptr + tl.cast(start, tl.int64) * row_stride", "ptr + start * row_stride"),
    "32 bits for the batch": (
        "tl.cast(batch, tl.int64) * strides[0] + tl.cast(head, tl.int64) * strides[1]\n",
        "batch * strides[0] + head * strides[1]\n",
    ),
}


def module_of(source: str) -> Any:
    """A module with this source, which Triton can read."""
    file, module = f"<{hash(source)}>", types.ModuleType("of_a_test")
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    sys.modules["of_a_test"] = module
    exec(compile(source, file, "exec"), vars(module))
    return module


def mutated(old: str, new: str) -> Any:
    """The lesson's module with one text replaced."""
    source = Path(inspect.getfile(flash_triton)).read_text(encoding="utf-8")
    assert old in source
    return module_of(source.replace(old, new, 1))


@pytest.mark.slow
@pytest.mark.skipif(not INTERPRETED, reason="what they read elsewhere would break the GPU's context")
@pytest.mark.parametrize("name", MUTANTS)
def test_wrong_kernels_are_noticed(name: str) -> None:
    module = mutated(*MUTANTS[name])
    with watching() as watch:
        noticed = any(fault_of(module, case, torch.float32) for case in CASES) or bool(watch.read or watch.written)
    if "32 bits" in name:
        assert not noticed, "ordinary inputs do not see it"
        far = far_apart("batch" if "batch" in name else "row")
        with watching() as watch:
            ours(module, (far, far, far), 65, far)
        noticed = bool(watch.read)
    assert noticed


@pytest.mark.slow
@pytest.mark.skipif(not INTERPRETED, reason="for machines without a GPU")
def test_with_what_colab_has(tmp_path: Path) -> None:
    """Triton 3.6.0 and NumPy 2.1, in a folder that comes before the environment's own."""
    packages = ["triton==3.6.0", "numpy==2.1.3"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path), *packages]
    subprocess.run(command, check=True, timeout=500)
    code = "import numpy, triton; print(numpy.__version__, triton.__version__)"
    assert in_a_process(code, PYTHONPATH=str(tmp_path)).split() == ["2.1.3", "3.6.0"]
    options = ["-q", "-n0", "-m", "not slow", "-p", "no:cacheprovider", __file__]
    code = f"import sys, pytest; sys.exit(pytest.main({options}))"
    print(in_a_process(code, PYTHONPATH=f"{tmp_path}:{ROOT}", TRITON_INTERPRET="1"))


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("exercise", exercises_of("flash_triton").values(), ids=lambda exercise: exercise.name)
def test_right_answers_compile(exercise: Exercise) -> None:
    """All in one process: `tests/test_answers.py` does not compile them."""
    launches = []
    kernels: list[Any] = [*answers("right", exercise).values()]
    for answer in kernels:
        text = f"{source_with_all_it_needs(answer)}\n\n{exercise.name} = {answer.fn.__name__}"
        launches.append(f"{text}\n\n{LAUNCH[exercise.name]}")
    assert len(compiled("\n\n".join(launches), 80)) == len(launches)


LAUNCH = {
    "add_kernel": "add(add_kernel, torch.empty(1000), torch.empty(1000))",
    "softmax_kernel": "softmax(softmax_kernel, torch.empty(64, 1000, dtype=torch.float16))",
    "flash_forward_inner": f"{TENSORS}\nflash_forward(flash_forward_inner, q, k, v, 0)",
    "flash_dq_inner": f"{TENSORS}\nflash_dq(flash_dq_inner, q, k, v, q, q[..., 0].float(), q[..., 0].float(), 0)",
}


@pytest.mark.slow
def test_without_triton_the_notebook_runs_to_its_end() -> None:
    out = in_a_process("""
import sys
sys.modules["triton"] = None
from course_utils import syllabus
from course_utils.authoring import assemble
names = {}
for cell in assemble.code_cells(assemble.read(syllabus.find("flash_triton").notebook)):
    exec(cell.source.replace("%pip", "pass  #"), names)
""")
    assert "`flash_forward_kernel` cannot run" in out and "C40 is not measured here" in out


# ------------------------------------------------------------------ pictures and the measurement


def test_pictures_of_programs_show_what_is_read_and_written() -> None:
    """With five blocks of queries and six of keys: the program in row 3 sees 5 blocks of keys, the last one masked."""
    for kernel, index, read, written in (
        ("forward", 3, 1 + 2 * 5, 2),
        ("dQ", 3, 4 + 2 * 5, 1),
        ("dK/dV", 2, 2 + 4 * 4, 2),
    ):
        colours = [to_hex(patch.get_edgecolor()) for patch in figures.program(kernel, 5, 6, 1, index).axes[0].patches]
        rectangles = [c.upper() for c in colours]
        arrows = 1
        assert rectangles.count(COLOURS["blue"].upper()) == read
        assert rectangles.count(COLOURS["red"].upper()) == written + arrows
        assert rectangles.count(COLOURS["orange"].upper()) == 1
    mine = [
        p for p in figures.vector_program(10, 4, 2).axes[0].patches if p.get_linestyle() == "-" and p.get_zorder() == 3
    ]
    assert len(mine) == 3 * 2


def test_without_a_gpu_the_measurement_says_so_and_stores_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not INTERPRETED:
        pytest.skip("there is a GPU")
    monkeypatch.setattr(benchmarks, "_FOLDERS", (tmp_path,))
    assert benchmarks.main(["flash_triton"]) == 0
    assert "needs a GPU" in capsys.readouterr().out and not list(tmp_path.iterdir())
    assert benchmarks._parts("flash") == ["flash", "flash_triton"]


def test_limits_of_gpus() -> None:
    assert flash_triton.gpu_called("NVIDIA A100-SXM4-80GB") == flash_triton.GPUS["A100"]
    assert flash_triton.gpu_called("NVIDIA GeForce RTX 4090") is None
    flop, moved = flash_triton.flop_and_bytes(4096, 64)
    assert round(flop / moved) == 2032  # 69 GFLOP and 34 MB for 16 heads
