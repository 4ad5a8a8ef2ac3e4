"""Lesson 15's measurement, for a GPU: first whether the kernels are right there, then how fast they are."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from course_utils.figures import flash_triton as figures
from course_utils.figures import style
from course_utils.lessons import flash_triton
from course_utils.syllabus import ROOT
from course_utils.triton_or_stub import HAS_TRITON, INTERPRETED, triton

_TOKENS, _WIDTH = 16_384, 2_048  # tokens of a batch together, and heads times head size
_LENGTHS = (512, 1024, 2048, 4096, 8192, 16_384)
_BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
_PASSES = {"forward": 1.0, "backward": 2.5, "both": 3.5}  # their operations, in forward passes
_MILLISECONDS = 60  # for each number; all together take about six minutes


def flash() -> list[dict[str, Any]]:
    """Lesson 15, on a GPU: errors of the kernels, then TFLOP/s and memory beside PyTorch's backends. 8 minutes."""
    if not HAS_TRITON or INTERPRETED or not torch.cuda.is_available():
        print("flash_triton: needs a GPU and Triton, so nothing was measured, and nothing is stored")
        return []
    gpu = flash_triton.gpu_called(torch.cuda.get_device_name())
    errors, speeds = _errors(), _speeds(gpu)
    for name, picture in (("speed", figures.speed(speeds, gpu)), ("roofline", figures.roofline(speeds, gpu))):
        path = ROOT / "data" / "measured" / f"flash_triton_{name}.png"
        path.write_bytes(style.png(picture))
        print(f"stored in {path.relative_to(ROOT)}")
    return [*errors, *speeds]


# ---- right? --------------------------------------------------------------------------------------------------


def _errors() -> list[dict[str, Any]]:
    """Errors against float64, as multiples of PyTorch's in the same dtype; raises where one is too large."""
    rows = []
    half = [torch.float16, torch.bfloat16] if torch.cuda.get_device_capability() >= (8, 0) else [torch.float16]
    kinds = [*itertools.product(half, flash_triton.HEAD_SIZES), (torch.float32, 64)]
    # Queries, keys and offset: all visible, causal to the end, and to the start with rows that see nothing
    sizes = (512, 512, 512), (333, 1000, 667), (1000, 333, -667)
    for (dtype, d), (n_queries, n_keys, shift) in itertools.product(kinds, sizes):
        torch.manual_seed(0)
        shapes = (2, 4, n_queries, d), (2, 2, n_keys, d), (2, 2, n_keys, d), (2, 4, n_queries, d)
        exact = [torch.randn(shape, device="cuda", dtype=torch.float64) for shape in shapes]
        given = [x.to(dtype) for x in exact]
        exact = [x.double() for x in given]
        wanted, theirs = _by_formula(exact, shift), _by_formula(given, shift)
        ours = _by_kernels(given, shift)
        again = _by_kernels(given, shift)
        row = {"what": "error", "dtype": _name(dtype), "d": d, "queries": n_queries, "keys": n_keys, "offset": shift}
        for name, factor, x, y, z, same in zip("oqkv", (2, 3, 3, 3), ours, theirs, wanted, again, strict=True):
            error, allowed = float((x - z).abs().max()), factor * float((y - z).abs().max())
            allowed += 8 * torch.finfo(dtype).eps * float(z.abs().max().clamp(min=1))
            row[name] = round(error / allowed, 3)
            if not error <= allowed or not torch.equal(x, same):
                raise RuntimeError(f"wrong on this GPU: {name} of {row}: {error:.3g}, allowed {allowed:.3g}")
        rows.append(row)
    print(
        f"right: {len(rows)} cases, the largest error is {max(max(r[n] for n in 'oqkv') for r in rows)} of what may be"
    )
    return rows


def _by_formula(given: list[Tensor], offset: int) -> tuple[Tensor, ...]:
    """Outputs and gradients; `given` are queries, keys, values and the gradients of the outputs."""

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
        rows, columns = (torch.arange(x.shape[2], device=x.device) for x in (q, k))
        visible = columns <= rows[:, None] + offset
        scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~visible, -math.inf)
        return torch.where(visible, torch.softmax(scores, dim=-1), 0.0).to(v.dtype) @ v

    return _with_gradients(attention, given)


def _by_kernels(given: list[Tensor], offset: int) -> tuple[Tensor, ...]:
    return _with_gradients(lambda *x: flash_triton.FlashAttention.apply(*x, offset), given)


def _with_gradients(function: Callable[..., Tensor], given: list[Tensor]) -> tuple[Tensor, ...]:
    *inputs, grad = given
    leaves = [x.detach().requires_grad_() for x in inputs]
    outputs = function(*leaves)
    return tuple(x.double() for x in (outputs.detach(), *torch.autograd.grad(outputs, leaves, grad)))


# ---- fast? ---------------------------------------------------------------------------------------------------


def _speeds(gpu: flash_triton.GPU | None) -> list[dict[str, Any]]:
    rows = []
    dtypes = [torch.float16] + [torch.bfloat16] * (torch.cuda.get_device_capability() >= (8, 0))
    for dtype, d, is_causal, n in itertools.product(dtypes, (64, 128), (False, True), _LENGTHS):
        shape = _TOKENS // n, _WIDTH // d, n, d
        q, k, v, grad = (torch.randn(shape, device="cuda", dtype=dtype) for _ in range(4))
        for way, attention in _ways(is_causal).items():
            row: dict[str, Any] = {
                "what": "speed",
                "way": way,
                "dtype": _name(dtype),
                "d": d,
                "is_causal": is_causal,
                "tokens": n,
            }
            row |= _measured(attention, q, k, v, grad, is_causal)
            if gpu and "failed" not in row:
                row |= {f"{x}_percent": round(100 * row[f"{x}_tflops"] / gpu.tensor_tflops, 1) for x in _PASSES}
            rows.append(row)
            print(row, flush=True)
    return rows


def _ways(is_causal: bool) -> dict[str, Callable[..., Tensor]]:
    """Ours, each backend of PyTorch on its own, and the formula with all scores in memory."""

    def backend(which: SDPBackend) -> Callable[..., Tensor]:
        def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            with sdpa_kernel(which):
                return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

        return attention

    def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if is_causal:
            hidden = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(1)
            scores = scores.masked_fill(hidden, -math.inf)
        return torch.softmax(scores, dim=-1) @ v

    ours = {"Triton (ours)": lambda q, k, v: flash_triton.flash_attention(q, k, v, is_causal=is_causal)}
    return {**ours, **{name: backend(which) for name, which in _BACKENDS.items()}, "plain": plain}


def _measured(
    attention: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, grad: Tensor, is_causal: bool
) -> dict[str, Any]:
    """Milliseconds, TFLOP/s and the peak of memory beyond the inputs; an error's name where it does not run.

    Forward counts 4 N² d for each head, half of it if causal; backward 2.5 times as much, whatever is done in truth.
    Ours does 3.5 times as much there, so that it can reach 5/7 = 71 per cent of the peak at most.
    """
    batch, heads, n, d = q.shape
    flop = 4 * batch * heads * n * n * d / (2 if is_causal else 1)
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    try:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        outputs = attention(*leaves)
        torch.autograd.grad(outputs, leaves, grad, retain_graph=True)
        peak = torch.cuda.max_memory_allocated() - before
        times = {
            "forward": _milliseconds(lambda: attention(q, k, v)),
            "backward": _milliseconds(lambda: torch.autograd.grad(outputs, leaves, grad, retain_graph=True)),
            "both": _milliseconds(lambda: torch.autograd.grad(attention(*leaves), leaves, grad)),
        }
    except RuntimeError as error:  # out of memory, or a backend that this GPU does not have
        return {"failed": f"{type(error).__name__}: {str(error).splitlines()[0][:90]}"}
    row: dict[str, Any] = {"bytes": peak}
    for name, share in _PASSES.items():
        row[f"{name}_ms"] = round(times[name], 4)
        row[f"{name}_tflops"] = round(share * flop / times[name] / 1e9, 1)
    return row


def _milliseconds(call: Callable[[], Any]) -> float:
    """The median; the second-level cache is emptied before each run."""
    return float(triton.testing.do_bench(call, warmup=_MILLISECONDS // 3, rep=_MILLISECONDS, return_mode="median"))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
