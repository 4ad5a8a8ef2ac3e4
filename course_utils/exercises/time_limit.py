"""Stop Python code that runs too long, in the main thread, on every system."""

import _thread
import signal
import sys
import threading
from types import FrameType, TracebackType

AGAIN = 0.05  # seconds between two interrupts of the same code


class OutOfTime(Exception):
    """The time limit was reached."""


class time_limit:
    """Raise `OutOfTime` when the functions that the body calls take more than `seconds` (of the clock on the wall).

    A watchdog thread interrupts the main thread, as the stop button does: Python code, and calls that wait (a signal
    wakes them; Windows has no such signal, so there they go on). Code that computes inside C cannot be stopped like
    this: the notebook runner's own limit ends such a cell. Outside the main thread there is no limit.
    A stop by the user still raises KeyboardInterrupt.
    """

    def __init__(self, seconds: float):
        self._seconds, self._fired = seconds, False
        self._finished, self._lock = threading.Event(), threading.Lock()

    def __enter__(self) -> None:
        self._caller = sys._getframe(1)
        self._active = threading.current_thread() is threading.main_thread()
        if self._active:
            self._trace = sys.gettrace()
            # Our own handler: an ignored SIGINT (a job in the background of a shell) would stop nothing.
            self._handler = signal.signal(signal.SIGINT, self._interrupt)
            threading.Thread(target=self._watch, daemon=True).start()

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._active:
            return
        with self._lock:
            self._finished.set()
        sys.settrace(self._trace)
        signal.signal(signal.SIGINT, signal.default_int_handler if self._handler is None else self._handler)
        if self._fired:
            raise OutOfTime(f"stopped after {self._seconds:g} seconds") from None

    def _watch(self) -> None:
        """In the watchdog's thread: wait, then interrupt the main thread until it has left the body."""
        pause = self._seconds
        while not self._finished.wait(pause):
            with self._lock:
                if not self._finished.is_set():
                    self._fired = True
                    _interrupt_main_thread()
            pause = AGAIN

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt here, and once more at the next line: `try … except:` may swallow the first."""
        if self._fired and self._is_ours(frame):
            return  # the next interrupt comes soon; here it could skip the clean-up
        if self._fired:
            sys.settrace(_raise_at_next_line)
            while frame is not None and frame is not self._caller:
                frame.f_trace = _raise_at_next_line
                frame = frame.f_back
        raise KeyboardInterrupt

    def _is_ours(self, frame: FrameType | None) -> bool:
        """Whether the code that runs now is the body itself, or the start and end of the limit."""
        if frame is self._caller:
            return True
        while frame is not None and frame is not self._caller:
            if frame.f_code in (time_limit.__enter__.__code__, time_limit.__exit__.__code__):
                return True
            frame = frame.f_back
        return False


def _interrupt_main_thread() -> None:
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # also wakes sleep(), join(), select()
    else:
        _thread.interrupt_main()


def _raise_at_next_line(frame: FrameType, event: str, arg: object) -> None:
    if event == "line":
        raise KeyboardInterrupt
