"""The kernel that runs a notebook: it is noticed when it dies, and its output cannot fill the memory."""

import json
import os
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty
from typing import Any

import zmq
from jupyter_client.manager import KernelManager
from nbval import kernel as nbval_kernel

MOST_OUTPUT = 20_000_000  # bytes of a cell's output; a picture has about 100,000
_AT_ONCE = 100  # messages between two looks at the clock
_LONGEST_SOCKET = 100  # characters: the system allows 107
_KEEP = "__import__('sys')._course_streams = __import__('sys').stdout, __import__('sys').stderr"
_RESTORE = "__import__('sys').stdout, __import__('sys').stderr = __import__('sys')._course_streams"


def use_sockets_of_the_file_system() -> Callable[[], None]:
    """Let nbval's kernels listen in a folder instead of on TCP ports; returns what tidies up.

    Two workers can then never choose the same port, and no network is needed.
    """
    if os.name != "posix":
        return lambda: None
    folder = tempfile.TemporaryDirectory(prefix="nb", ignore_cleanup_errors=True)
    if len(folder.name) > _LONGEST_SOCKET - 20:  # TMPDIR is a long path
        folder.cleanup()
        if not os.access("/tmp", os.W_OK):
            return lambda: None
        folder = tempfile.TemporaryDirectory(prefix="nb", dir="/tmp", ignore_cleanup_errors=True)

    class Manager(KernelManager):
        def __init__(self, **options: Any) -> None:
            super().__init__(transport="ipc", ip=f"{folder.name}/{uuid.uuid4().hex[:8]}", **options)

    nbval_kernel.KernelManager = Manager
    return folder.cleanup


class Kernel(nbval_kernel.RunningKernel):
    """As nbval's, but it keeps the reply of a cell, reads the output while the cell runs, and stops a flood of it."""

    def __init__(self, folder: Path, startup_timeout: int):
        self._begin()
        super().__init__(nbval_kernel.CURRENT_ENV_KERNEL_NAME, cwd=str(folder), startup_timeout=startup_timeout)
        self.run_silently(_KEEP)

    def _begin(self) -> None:
        self.reply: dict[str, Any] = {}
        self._output: deque[dict[str, Any]] = deque()
        self._room = MOST_OUTPUT
        self._give_up = float("inf")

    @property
    def is_flooded(self) -> bool:
        return self._room < 0

    def execute_cell_input(self, cell_input: str, allow_stdin: bool | None = None) -> str:
        self._begin()
        return super().execute_cell_input(cell_input, allow_stdin)

    def await_reply(self, msg_id: str, timeout: float | None = None) -> None:
        """Wait for the cell's end. RuntimeError when the kernel dies meanwhile, or will; `Empty`, after which nbval
        interrupts the kernel, when time is up or the output is too much."""
        end = time.monotonic() + (timeout or 1e9)
        while True:
            self._read_output()
            try:
                message = super().get_message("shell", timeout=0.05)
            except Empty:
                if not self.is_alive():
                    raise RuntimeError("the kernel died while it ran this cell") from None
                if time.monotonic() >= end or self.is_flooded:
                    raise
                continue
            if message["parent_header"].get("msg_id") == msg_id:
                self.reply = message["content"]
                if any(one["source"] == "ask_exit" and not one["keepkernel"] for one in self.reply.get("payload", ())):
                    self.km.shutdown_kernel(now=True)  # else it would go a moment later, during another cell
                    raise RuntimeError("it ended the kernel, as exit() does")
                return

    def get_message(self, stream: str, timeout: float | None = None) -> dict[str, Any]:
        """As nbval's; after an interrupt a cell that prints on is given up like one that is silent."""
        if stream != "iopub":
            return super().get_message(stream, timeout)
        end = min(self._give_up, time.monotonic() + (1e9 if timeout is None else timeout))
        self._read_output()
        while not self._output:
            if time.monotonic() >= end:
                raise Empty
            self.kc.iopub_channel.socket.poll(50)
            self._read_output()
        return self._output.popleft()

    def interrupt(self) -> None:
        self._give_up = time.monotonic() + (1 if self.is_flooded else 5)
        super().interrupt()

    def run_silently(self, source: str, timeout: float = 60) -> None:
        """Run a line that leaves no output; errors in it are nobody's."""
        self.await_reply(self.kc.execute(source, silent=True, store_history=False), timeout)

    def restore_streams(self) -> None:
        """What a check prints must be seen, even if a cell has put something else in the place of `sys.stdout`."""
        self.run_silently(_RESTORE)

    def _read_output(self) -> None:
        """Take what has been printed so far. What is too much is dropped before it is decoded."""
        channel = self.kc.iopub_channel
        with suppress(zmq.Again):
            for _ in range(_AT_ONCE):
                frames = channel.session.feed_identities(channel.socket.recv_multipart(zmq.NOBLOCK))[1]
                if json.loads(frames[1])["msg_type"] in ("stream", "display_data", "update_display_data"):
                    self._room -= sum(map(len, frames))
                    if self.is_flooded:
                        return
                self._output.append(channel.session.deserialize(frames))
