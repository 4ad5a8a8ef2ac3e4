"""What Triton's compiler makes of kernels, for GPUs that are not here.

for kernel in compiled("add(add_kernel, torch.zeros(1000), torch.zeros(1000))", 75, 90):
    print(kernel.name, kernel.capability, kernel.registers, kernel.spills)

The code is run in a process of its own, where each launch of a kernel only compiles it, with the types, sizes and
alignments of this launch; nothing is computed. Without Triton, or on a system that its compiler was not made for,
`can_compile()` is False.
"""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

# Compute capability -> the bytes of shared memory that one program may have.
SHARED_MEMORY = {75: 65_536, 80: 166_912, 86: 101_376, 89: 101_376, 90: 232_448}
# What the code finds imported already.
_IMPORTS = """\
import torch
from course_utils.triton_or_stub import triton, tl
from course_utils.lessons.flash_triton import *
"""


@dataclass(frozen=True)
class Compiled:
    """One kernel for one GPU. `constants` are its `tl.constexpr` arguments, and its warps and stages.

    `shared` are the bytes of shared memory that a program takes, `spills` the bytes that a thread writes to slow
    memory because its `registers` do not suffice, `mma` the instructions for tensor cores, `fma` those without.
    """

    name: str
    capability: int
    constants: dict[str, int]
    shared: int
    registers: int
    spills: int
    mma: int
    fma: int
    ptx: str


class CompilerError(Exception):
    """The compiler rejects a kernel, or the code has failed before; the message is theirs."""


def can_compile() -> bool:
    from course_utils.triton_or_stub import HAS_TRITON

    return HAS_TRITON and sys.platform == "linux"


def compiled(code: str, *capabilities: int, timeout: float = 300) -> list[Compiled]:
    """Every kernel that `code` launches, for each compute capability (80 is 8.0), in the order of the launches.

    The code finds `torch`, `triton`, `tl` and all of lesson 15 imported; its tensors are on the CPU. Raises
    `CompilerError`.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "launches.py")
        path.write_text(f"{_IMPORTS}{code}\n", encoding="utf-8")  # a file: Triton reads a kernel's source
        command = [sys.executable, "-m", "course_utils.ahead_of_time", str(path), *map(str, capabilities)]
        done = subprocess.run(
            command, capture_output=True, text=True, encoding="utf-8", env=_environment(folder), timeout=timeout
        )
    if done.returncode:
        raise CompilerError(_message(done.stderr))
    return [Compiled(**row) for row in json.loads(done.stdout)]


def _environment(folder: str) -> dict[str, str]:
    """The interpreter off, no GPU, nothing kept from an earlier run, and this package found."""
    here = str(Path(__file__).resolve().parent.parent)
    paths = [here, *filter(None, [os.environ.get("PYTHONPATH")])]
    settings = {"TRITON_INTERPRET": "0", "CUDA_VISIBLE_DEVICES": "", "TRITON_CACHE_DIR": folder}
    return {**os.environ, **settings, "PYTHONPATH": os.pathsep.join(paths), "PYTHONIOENCODING": "utf-8"}


def _message(text: str) -> str:
    """The part of a traceback that says what is wrong: from the last error on."""
    starts = [m.start() for m in re.finditer(r"^[\w.]+(Error|Exception)\b.*", text, re.MULTILINE)]
    return text[starts[-1] :].strip() if starts else text.strip()


# ------------------------------------------------------------------ in the process of its own


class _NoGPU:
    """Stands where Triton's driver of a GPU would: it knows what the GPU is, but cannot launch anything."""

    def __init__(self, capability: int) -> None:
        from triton.backends.compiler import GPUTarget

        self.capability, self.utils = capability, self
        self._target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return self.capability  # Triton keeps kernels by device

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": SHARED_MEMORY[device]}


def _compile_all(source: str, path: str, capabilities: Sequence[int]) -> list[Compiled]:
    from triton import knobs
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    found: list[Compiled] = []
    run, set_active = JITFunction.run, cast(Any, driver).set_active

    def only_compile(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        with contextlib.redirect_stdout(io.StringIO()) as log:
            result = run(kernel, *args, grid=grid, warmup=True, **kwargs)
        if log.getvalue():  # else it was compiled in an earlier launch
            found.append(_described(kernel, result, kwargs, log.getvalue()))

    JITFunction.run = only_compile
    knobs.nvidia.dump_ptxas_log = True
    for capability in capabilities:
        set_active(_NoGPU(capability))
        exec(compile(source, path, "exec"), {"__name__": "launches", "__file__": path})
    return found


def _described(kernel: Any, result: Any, arguments: dict[str, Any], log: str) -> Compiled:
    ptx = result.asm["ptx"]
    return Compiled(
        name=kernel.fn.__name__,
        capability=int(result.metadata.target.arch),
        constants={name: value for name, value in arguments.items() if isinstance(value, int)},
        shared=result.metadata.shared,
        registers=int(re.findall(r"Used (\d+) registers", log)[-1]),
        spills=int(re.findall(r"(\d+) bytes spill stores", log)[-1]),
        mma=len(re.findall(r"\b(?:mma\.sync|wgmma\.mma_async|tcgen05\.mma)", ptx)),
        fma=len(re.findall(r"\bfma\.rn\.f32\b", ptx)),
        ptx=ptx,
    )


def main(path: str, *capabilities: str) -> None:
    source = Path(path).read_text(encoding="utf-8")
    found = _compile_all(source, path, [int(x) for x in capabilities])
    print(json.dumps([asdict(kernel) for kernel in found]))


if __name__ == "__main__":
    main(*sys.argv[1:])
