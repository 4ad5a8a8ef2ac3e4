"""Stop Python code that runs too long, in the main thread, on every system."""

import _thread
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_THIS_ROOM = os.path.dirname(__file__)


class OutOfTime(Exception):
    """The time limit was reached."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `OutOfTime` when the body takes more than `seconds` (of the clock on the wall).

    A watchdog thread interrupts the main thread, as the stop button does. Code in a loop inside C cannot be
    stopped like this: the notebook runner's own limit ends such a cell. Outside the main thread there is no limit.
    A stop by the user still raises KeyboardInterrupt.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    watchdog = _Watchdog(seconds)
    try:
        watchdog.start()
        try:
            yield
        finally:
            watchdog.finish()
    except BaseException:
        watchdog.finish()  # the interrupt may have come just before the line above
        if not watchdog.fired:
            raise
    finally:
        watchdog.restore()
    if watchdog.fired:
        raise OutOfTime(f"stopped after {seconds:g} seconds")


class _Watchdog:
    """Interrupts the main thread after a while, again and again until `finish` is called."""

    AGAIN = 0.05  # seconds

    def __init__(self, seconds: float):
        self.seconds, self.fired = seconds, False
        self._finished, self._lock = threading.Event(), threading.Lock()

    def start(self) -> None:
        self._trace = sys.gettrace()
        # Our own handler: an ignored SIGINT (a job in the background of a shell) would stop nothing.
        self._handler = signal.signal(signal.SIGINT, self._interrupt)
        threading.Thread(target=self._watch, daemon=True).start()

    def finish(self) -> None:
        """Stop interrupting, even if an interrupt arrives right now."""
        while not self._finished.is_set():
            try:
                with self._lock:
                    self._finished.set()
            except KeyboardInterrupt:
                continue

    def restore(self) -> None:
        sys.settrace(self._trace)
        signal.signal(signal.SIGINT, signal.default_int_handler if self._handler is None else self._handler)

    def _watch(self) -> None:
        pause = self.seconds
        while not self._finished.wait(pause):
            with self._lock:
                if not self._finished.is_set():
                    self.fired = True
                    _thread.interrupt_main()
            pause = self.AGAIN

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt here, and once more at the next line: `try … except:` may swallow the first."""
        if self.fired:
            sys.settrace(_raise_at_next_line)
            while frame is not None and not frame.f_code.co_filename.startswith(_THIS_ROOM):
                frame.f_trace = _raise_at_next_line
                frame = frame.f_back
        raise KeyboardInterrupt


def _raise_at_next_line(frame: FrameType, event: str, arg: object) -> None:
    if event == "line":
        raise KeyboardInterrupt
