"""Stop Python code that runs too long, in the main thread, on every system."""

import _thread
import contextlib
import ctypes
import signal
import sys
import threading
import time
from types import FrameType, TracebackType

AGAIN = 0.05  # seconds between two looks at the clock, and between two interrupts of the same code
PATIENCE = 12  # how many times longer code may wait than it may compute


class OutOfTime(BaseException):
    """The time limit was reached. Not an `Exception`, so that an answer's `except Exception` does not swallow it."""


class time_limit:
    """Raise `OutOfTime` when the functions that the body calls take more than `seconds` of the processor.

    The clock is that of the main thread, so that a busy machine takes nothing away; code that waits without computing
    (`time.sleep`, a lock) is stopped after `PATIENCE` times as long. Where a system has no clock for a thread, that of
    the whole process counts.

    A watchdog thread interrupts the main thread, as the stop button does: Python code, and calls that wait (a signal
    wakes them; Windows has no such signal, so there they go on). Where the signal is ignored or blocked, an exception
    is put into the main thread directly. Code that computes inside C cannot be stopped like this: the notebook
    runner's own limit ends such a cell. Outside the main thread there is no limit.
    A stop by the user still raises KeyboardInterrupt.
    """

    def __init__(self, seconds: float):
        self._seconds, self._fired, self._interrupts = seconds, False, 0
        self._finished, self._lock = threading.Event(), threading.Lock()

    def __enter__(self) -> "time_limit":
        self._caller = sys._getframe(1)
        self._active = threading.current_thread() is threading.main_thread()
        if self._active:
            self._trace = sys.gettrace()
            # Our own handler: an ignored SIGINT (a job in the background of a shell) would stop nothing.
            self._handler = signal.signal(signal.SIGINT, self._interrupt)
            self._blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ()) if hasattr(signal, "pthread_sigmask") else None
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def look(self) -> None:
        """Raise `OutOfTime` if the limit was reached, whatever the code made of its interrupt."""
        if self._fired:
            raise OutOfTime

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._active:
            return
        while not self._finished.is_set():
            with contextlib.suppress(OutOfTime), self._lock:  # one may arrive here, or in the next lines
                self._finished.set()
        for _ in range(self._interrupts):
            with contextlib.suppress(OutOfTime):
                time.sleep(0)
        sys.settrace(self._trace)
        signal.signal(signal.SIGINT, self._interrupt)
        if self._blocked is not None:  # signals that have waited arrive now, at our handler
            signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked)
        signal.signal(signal.SIGINT, signal.default_int_handler if self._handler is None else self._handler)
        if self._fired:
            raise OutOfTime(f"stopped after {self._seconds:g} seconds") from None

    def _watch(self) -> None:
        """In the watchdog's thread: wait, then interrupt the main thread until it has left the body."""
        computed, waited = _main_thread_seconds(), time.monotonic()
        while not self._finished.wait(min(AGAIN, self._seconds)):
            late = _main_thread_seconds() - computed > self._seconds
            if late or time.monotonic() - waited > PATIENCE * self._seconds:
                with self._lock:
                    if not self._finished.is_set():
                        self._stop()

    def _stop(self) -> None:
        self._fired = True
        self._interrupts += 1
        _interrupt_main_thread()
        if self._interrupts > 2 and self._interrupts % 2:  # the signal does not arrive
            _raise_in_main_thread()

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


def _main_thread() -> int:
    ident = threading.main_thread().ident
    assert ident is not None  # it has begun
    return ident


def _main_thread_seconds() -> float:
    """Seconds of the processor that the main thread has used."""
    if hasattr(time, "pthread_getcpuclockid"):
        return time.clock_gettime(time.pthread_getcpuclockid(_main_thread()))
    return time.process_time()


def _interrupt_main_thread() -> None:
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(_main_thread(), signal.SIGINT)  # also wakes sleep(), join(), select()
    else:
        _thread.interrupt_main()


def _raise_in_main_thread() -> None:
    """Let the main thread raise `OutOfTime` at its next step, whatever it does with signals."""
    ident = ctypes.c_ulong(threading.main_thread().ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(OutOfTime))


def _raise_at_next_line(frame: FrameType, event: str, arg: object) -> None:
    if event == "line":
        raise KeyboardInterrupt
