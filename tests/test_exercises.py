"""The exercise engine: what is recognised, what is said, and that the lesson always goes on."""

import copy
import gc
import os
import queue
import random
import re
import signal
import sys
import time
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from course_utils import start, strict
from course_utils.exercises import Exercise, Mismatch, case, expect, recognise
from course_utils.exercises import exercise as exercise_module
from course_utils.exercises.compare import difference
from course_utils.exercises.exercise import Check
from course_utils.exercises.judge import ShortText, judge
from course_utils.exercises.lesson import Unsolved
from course_utils.exercises.pretend_device import PretendDevice
from course_utils.exercises.promises import FromSignature, sizes_of
from course_utils.exercises.time_limit import PATIENCE, OutOfTime, time_limit
from course_utils.lessons import start_here

STRICT_VARIABLES = strict.VARIABLES


@pytest.fixture(autouse=True)
def relaxed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks do not raise here, although pytest is running."""
    monkeypatch.setattr(strict, "VARIABLES", ())


@pytest.fixture
def names() -> dict[str, Any]:
    """The notebook's globals."""
    return {}


class Notebook:
    """Check a `softmax` of lesson 00, and give what was printed. Without an argument: what stands there now."""

    def __init__(self, names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
        self.names, self.capsys = names, capsys
        self.lesson = start("start_here", names)

    def __call__(self, *answer: Any) -> str:
        if answer:
            self.names["softmax"] = answer[0]
        self.lesson.check("softmax")
        return self.capsys.readouterr().out


@pytest.fixture
def check(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> Notebook:
    return Notebook(names, capsys)


def right(scores: torch.Tensor) -> torch.Tensor:
    return torch.softmax(scores, dim=-1)


def unwritten(scores: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError


# ---- verdicts ----------------------------------------------------------------------------------------------


def test_right_answer_passes_and_stays(check, names):
    assert check(right) == f"✓ softmax: {len(start_here_exercise().checks)} checks passed\n"
    assert names["softmax"] is right


def test_unwritten_answer_lets_the_reference_stand_in(check, names):
    assert check(unwritten).startswith("○ softmax is not written yet.")
    assert torch.allclose(names["softmax"](torch.zeros(4)), torch.full((4,), 0.25))


def test_stand_in_repeats_the_earlier_verdict(check):
    first = check(lambda scores: scores).split("\n")[0]
    again = check()
    assert again.startswith(first) and first.startswith("✗ softmax: ")
    assert "the old result" in again


def test_a_new_answer_after_the_stand_in_is_checked(check):
    check(unwritten)
    assert check(right).startswith("✓")


def test_undefined_name(check):
    assert "Run the cell above that begins with `def softmax`" in check()


def test_syntax_error_is_named_and_the_reference_stands_in(check, names):
    names["In"] = ["", "x = 1", "def softmax(scores)\n    return scores"]
    text = check()
    assert "not valid Python" in text and "SyntaxError in line 1" in text
    assert callable(names["softmax"])


def test_syntax_error_after_a_right_answer_is_not_hidden_by_it(check, names):
    names["In"] = ["def softmax(scores): return torch.softmax(scores, -1)", "def softmax(scores:\n    return"]
    assert check(right).startswith("✗ softmax: the answer cell is not valid Python")


@pytest.mark.parametrize(
    "newer", ["softmax = nn.Softmax(-1)", "class softmax:\n    pass", "get_ipython().x('def softmax(s): return 1')"]
)
def test_an_older_syntax_error_is_forgotten(check, names, newer):
    names["In"] = ["def softmax(s)\n    return 1", newer]
    assert check(right).startswith("✓")


@pytest.mark.parametrize("other", ["# def softmax (broken\n1 +", "print(\n"])
def test_other_broken_cells_are_not_the_answer(check, names, other):
    names["In"] = ["def softmax(scores): return torch.softmax(scores, -1)", other]
    assert check(right).startswith("✓")
    names["In"] = 5
    assert check(right).startswith("✓")


def test_errors_of_the_compiler_count_too(check, names):
    names["In"] = ["def softmax(scores, scores):\n    return 1"]
    assert "not valid Python" in check(right)


def test_not_a_function(check):
    assert "✗ softmax is not a function" in check(torch.zeros(3))


class Yes:
    """Claims to be equal to everything, and to have everything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __getattr__(self, name: str) -> "Yes":
        return self

    def __call__(self, *args: object) -> "Yes":
        return self

    __hash__ = None
    __class__ = torch.Tensor


class RudeError(Exception):
    def __str__(self) -> str:
        raise SystemExit


class YesTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return True


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda scores: None, "got      None (is a `return` missing?)"),
        (lambda scores: scores.numpy(), "an object of type ndarray"),
        (lambda scores: right(scores).tolist(), "a list of length 3"),
        (lambda scores: (right(scores),), "a tuple of length 1"),
        (lambda scores: right(scores)[None], "expected shape (3,)\n    but got shape  (1, 3)"),
        (lambda scores: right(scores).double(), "expected dtype float32\n    but got dtype  float64"),
        (lambda scores: right(scores) * float("nan"), "got nan in 3 of 3 places, first at [0]"),
        (lambda scores: right(scores) * 1.01, "the largest error is at [2]: expected 0.6652, got 0.6719"),
        (lambda scores: Yes(), "an object of type Yes"),
        (lambda scores: torch.zeros(3).as_subclass(YesTensor), "an object of type YesTensor"),
        (lambda scores: right(scores).to_sparse(), "an object of type Tensor (torch.sparse_coo, device cpu)"),
        (lambda scores: right(scores).to("meta"), "an object of type Tensor (torch.strided, device meta)"),
        (lambda scores: sys.exit("bye"), "raised SystemExit: bye"),
        (lambda scores: (_ for _ in ()).throw(RudeError()), "raised RudeError: "),
        (lambda: 3, "takes 0 positional arguments"),
        (lambda scores: scores.sub_(1), "changed its input `scores`"),
        (lambda scores: scores @ torch.ones(99), "in this line: (lambda scores: scores @ torch.ones(99)"),
    ],
)
def test_wrong_answers_get_one_clear_message(check, names, answer, said):
    text = check(answer)
    assert text.startswith("✗ softmax: ")
    assert said in text
    assert len(text.splitlines()) <= 11
    assert torch.allclose(names["softmax"](torch.zeros(2)), torch.tensor([0.5, 0.5]))


def test_endless_recursion(check):
    def softmax(scores):
        return softmax(scores)

    assert "RecursionError" in check(softmax)


def test_known_mistake_is_named_with_its_hint(check):
    text = check(lambda scores: torch.exp(scores) / torch.exp(scores).sum(dim=-1, keepdim=True))
    assert "✗ softmax: 2 of" in text
    assert "This looks like: exp without subtracting the largest score. exp(1000) is inf" in text


def test_other_mistakes_are_not_named(check):
    assert "This looks like" not in check(lambda scores: right(scores) * 1.01)


def test_pages_of_text_become_a_few_lines(check):
    def softmax(scores):
        for number in range(1000):
            print("line", number)
        return right(scores)

    text = check(softmax)
    assert text.startswith("✓") and "line 7" in text and "line 8" not in text
    assert re.search(r"… and \d+,992 more lines", text)  # a thousand for each call


def test_short_text_keeps_a_long_line_short():
    text = ShortText()
    for _ in range(100):
        text.write("x" * 1000)
    assert len(str(text)) == ShortText.CHARACTERS


# ---- loops -------------------------------------------------------------------------------------------------


def loop(scores):
    while True:
        pass


def loop_that_swallows_everything(scores):
    while True:
        try:
            time.sleep(0.01)
        except:  # noqa: E722
            continue


def long_wait(scores):
    time.sleep(60)


def loop_that_answers_when_stopped(scores):
    try:
        while True:
            pass
    except BaseException:
        return right(scores)


def loop_that_raises_something_else(scores):
    try:
        while True:
            pass
    except KeyboardInterrupt:
        raise ValueError("mine") from None


def wait_for_a_queue(scores):
    return queue.Queue().get()


def loop_that_ignores_the_signal(scores):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    loop(scores)


def loop_that_blocks_the_signal(scores):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    loop(scores)


LOOPS = [
    loop,
    long_wait,
    loop_that_swallows_everything,
    loop_that_answers_when_stopped,
    loop_that_raises_something_else,
]
SIGNALS = [loop_that_ignores_the_signal, loop_that_blocks_the_signal] if hasattr(signal, "pthread_sigmask") else []


@pytest.mark.parametrize("answer", [*LOOPS, wait_for_a_queue, *SIGNALS])
def test_endless_loops_are_stopped(monkeypatch, answer):
    monkeypatch.setattr(start_here_exercise(), "seconds", 0.2)
    handler = signal.getsignal(signal.SIGINT)
    verdict = judge(start_here_exercise(), answer)
    assert verdict.out_of_time and verdict.status == "wrong"
    assert "a loop that never ends" in str(verdict.failed[0].problem), "the first thing that is said"
    time.sleep(0.2)  # no late interrupt arrives: this line would raise KeyboardInterrupt
    assert signal.getsignal(signal.SIGINT) is handler
    assert not hasattr(signal, "pthread_sigmask") or not signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_waiting_is_not_computing():
    """A busy machine lets an answer wait: only the processor's time counts, up to a generous limit."""
    with time_limit(0.2):
        time.sleep(0.2 * PATIENCE / 3)


def test_time_limit_leaves_a_stop_by_the_user_alone():
    with pytest.raises(KeyboardInterrupt), time_limit(5):
        raise KeyboardInterrupt


def test_time_limit_restores_the_trace_function():
    before = sys.gettrace()
    with pytest.raises(OutOfTime), time_limit(0.1):
        loop(None)
    assert sys.gettrace() is before


def test_fast_code_is_not_interrupted():
    for _ in range(300):
        with time_limit(5):
            pass


def start_here_exercise() -> Exercise:
    return exercise_module.exercises_of("start_here")["softmax"]


# ---- nothing gets out ----------------------------------------------------------------------------------------


def test_random_states_and_modes_are_as_before(check):
    def softmax(scores):
        torch.manual_seed(1), random.seed(1), numpy.random.seed(1)
        torch.set_grad_enabled(False), torch.set_default_dtype(torch.float64)
        return right(scores)

    torch.manual_seed(7), random.seed(7), numpy.random.seed(7)
    expected = torch.rand(1), random.random(), numpy.random.rand()
    torch.manual_seed(7), random.seed(7), numpy.random.seed(7)
    check(softmax)
    assert (torch.rand(1), random.random(), numpy.random.rand()) == expected
    assert torch.is_grad_enabled() and torch.get_default_dtype() == torch.float32


def test_settings_of_the_notebook_do_not_reach_the_checks(check):
    try:
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        with torch.inference_mode(), torch.autocast("cpu"):
            assert check(right).startswith("✓")
            assert "This looks like" not in check(lambda: None)
        assert torch.get_default_dtype() == torch.float64 and torch.get_default_device().type == "meta"
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)


def test_settings_of_the_answer_do_not_stay(check):
    depth, folder, threads = sys.getrecursionlimit(), os.getcwd(), torch.get_num_threads()

    def softmax(scores):
        sys.setrecursionlimit(5000), os.chdir("/"), torch.set_num_threads(threads + 1)
        torch.set_default_device("cpu")
        return right(scores)

    assert check(softmax).startswith("✓")
    assert (sys.getrecursionlimit(), os.getcwd(), torch.get_num_threads()) == (depth, folder, threads)


def test_changing_infinities_in_place_is_noticed(check):
    def softmax(scores):
        return right(scores.clamp_(min=torch.finfo(scores.dtype).min))

    assert "changed its input `scores`" in check(softmax)


def patch_torch(scores):
    torch.isclose = lambda *args, **kwargs: torch.tensor(True)
    return scores


MODULES: Any = sys.modules  # what is set in them is no mistake here


def patch_a_method(scores):
    torch.Tensor.double = lambda self: torch.zeros(())
    return scores


def patch_the_engine(scores):
    MODULES["course_utils.exercises.compare"].difference = lambda *args: None
    return scores


def patch_python(scores):
    MODULES["builtins"].all = lambda values: True
    return scores


def patch_what_python_gives(scores):
    MODULES["contextlib"].suppress = MODULES["warnings"].catch_warnings = None
    return scores


def clear_the_checks(scores):
    for exercise in exercise_module.all_exercises():
        exercise.checks = ()
    return scores


def enter_a_mode(scores):
    class Yes(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return torch.tensor(True)

    Yes().__enter__()
    return scores


def enter_a_dispatch_mode(scores):
    class Changed(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {})) if "eq" not in str(func) else torch.tensor(True)

    Changed().__enter__()
    return scores


@pytest.mark.parametrize(
    "answer",
    [
        patch_torch,
        patch_a_method,
        patch_the_engine,
        patch_python,
        patch_what_python_gives,
        clear_the_checks,
        enter_a_mode,
        enter_a_dispatch_mode,
    ],
)
def test_what_the_judge_relies_on_is_put_back(answer):
    assert judge(start_here_exercise(), answer).status == "wrong"
    assert judge(start_here_exercise(), lambda scores: scores).status == "wrong", "the next wrong answer"
    assert judge(start_here_exercise(), right).status == "passed"


def test_settings_for_the_whole_process_are_put_back(check):
    def softmax(scores):
        torch.autograd.set_detect_anomaly(True), torch.use_deterministic_algorithms(True)
        torch.set_float32_matmul_precision("medium"), torch.set_printoptions(precision=2)
        os.environ["SOFTMAX"], sys.excepthook = "yes", lambda *error: None
        gc.disable()
        return right(scores)

    hook, text = sys.excepthook, str(torch.tensor(1 / 3))
    assert check(softmax).startswith("✓")
    assert not torch.is_anomaly_enabled() and not torch.are_deterministic_algorithms_enabled()
    assert torch.get_float32_matmul_precision() == "highest" and str(torch.tensor(1 / 3)) == text
    assert "SOFTMAX" not in os.environ and sys.excepthook is hook and gc.isenabled()


def test_a_working_folder_that_is_gone_does_no_harm(check, tmp_path):
    def softmax(scores):
        (tmp_path / "gone").mkdir()
        os.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        return right(scores)

    folder = os.getcwd()
    assert check(softmax).startswith("✓") and os.getcwd() == folder


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_child_of_the_answer_judges_nothing():
    children = []

    def softmax(scores):
        children.append(os.fork())
        return right(scores)

    exercise = copy.copy(start_here_exercise())
    exercise.checks = exercise.checks[:1]
    verdict = judge(exercise, softmax)
    if 0 in children:  # the child has come out of `judge`
        os._exit(1)
    assert verdict.status == "passed"
    assert [os.waitpid(child, 0)[1] for child in children] == [0]


class Changes:
    """Changes what it is given."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        self.change = change

    def __call__(self, scores: Any) -> Any:
        self.change(scores)
        return scores


@pytest.mark.parametrize(
    ("given", "change"),
    [
        ({(0, 0), (1, 1)}, lambda links: links.discard((1, 1))),
        ([1, 2], lambda numbers: numbers.append(3)),
        ({"a": 1}, lambda table: table.clear()),
        (torch.zeros(3), lambda scores: scores.requires_grad_()),
        (torch.zeros(2, 3), lambda scores: scores.t_()),
        (torch.nn.BatchNorm1d(3), lambda model: model.eval()),
        (torch.nn.BatchNorm1d(3), lambda model: model(torch.randn(4, 3))),
    ],
)
def test_changed_inputs_of_every_kind_are_noticed(given, change):
    exercise = copy.copy(start_here_exercise())
    exercise.checks = exercise.checks[-1:]
    exercise.cases("same", case(given).gives(given))
    verdict = judge(exercise, Changes(change))
    assert "your function changed its input" in str(verdict.failed[0].problem)
    assert verdict.mistake is recognise.IN_PLACE


# ---- the device --------------------------------------------------------------------------------------------

LENGTHS = torch.tensor([1, 3])


@pytest.mark.parametrize(
    ("function", "fits"),
    [
        (lambda n: torch.arange(3) < n[:, None], False),
        (lambda n: torch.arange(3, device=n.device) < n[:, None], True),
        (lambda n: torch.arange(3).to(n.device) < n[:, None], True),
        (lambda n: torch.arange(3).type_as(n) < n[:, None], True),
        (lambda n: torch.arange(3).to(n) < n[:, None], True),
        (lambda n: torch.tensor([[i < k for i in range(3)] for k in n.tolist()]), False),
        (lambda n: torch.tensor([[i < k for i in range(3)] for k in n.tolist()], device=n.device), True),
        (lambda n: torch.zeros_like(n), True),
        (lambda n: n.new_zeros(3), True),
        (lambda n: n + torch.tensor(2), True),
        (lambda n: n @ torch.ones(2).long(), False),
        (lambda n: n[torch.arange(2)], True),
        (lambda n: n.cpu(), False),
        (lambda n: (n.cpu(), n)[1], True),
        (lambda n: n.to("cpu").to(n.device), True),
        (lambda n: torch.from_numpy(n.numpy()), False),
        (lambda n: torch.stack([n[0], n[1]]), True),
        (lambda n: torch.stack([n, torch.zeros(2).long()]), False),
        (lambda n: torch.zeros(2, device="cpu"), False),
        (lambda n: torch.zeros(2).cuda() if n.is_cuda and not n.is_cpu else torch.zeros(2), True),
        (lambda n: torch.zeros(2, device=f"cuda:{n.get_device()}"), True),
        (lambda n: torch.asarray(n), True),
        (lambda n: torch.nn.Linear(2, 2, bias=False).to(n.device)(n.float()), True),
        (lambda n: torch.nn.BatchNorm1d(2).to(n.device, torch.float64).running_mean + n, True),
    ],
)
def test_the_pretended_gpu_shows_what_is_left_on_the_cpu(function, fits):
    with PretendDevice() as device:
        try:
            found = not device.strangers(function(LENGTHS))
        except (RuntimeError, TypeError):
            found = False
    assert found is fits


# ---- strict mode -------------------------------------------------------------------------------------------


def make_strict(monkeypatch, variable):
    monkeypatch.setattr(strict, "VARIABLES", (variable,))
    monkeypatch.setenv(variable, "1")


@pytest.mark.parametrize("variable", ["PYTEST_CURRENT_TEST", "NBGRADER_EXECUTION", "COURSE_STRICT"])
def test_strict_mode_prints_binds_and_raises(check, names, capsys, monkeypatch, variable):
    assert variable in STRICT_VARIABLES
    make_strict(monkeypatch, variable)
    with pytest.raises(Unsolved, match="○ softmax is not written yet") as raised:
        check(unwritten)
    assert capsys.readouterr().out.startswith("○ softmax")
    assert names["softmax"] is start_here_exercise().reference
    assert len(raised.value._render_traceback_()) == 1
    names["softmax"] = right
    check.lesson.check("softmax")


# ---- the rest of a lesson ------------------------------------------------------------------------------------


def test_hints_come_one_by_one_and_then_point_to_the_solution(check, capsys):
    for _ in range(4):
        check.lesson.hint("softmax")
    lines = capsys.readouterr().out.splitlines()
    assert [line[:11] for line in lines[:3]] == ["Hint 1 of 3", "Hint 2 of 3", "Hint 3 of 3"]
    assert 'lesson.solution("softmax")' in lines[3]


def test_solution_shows_the_source(check, capsys):
    check.lesson.solution("softmax")
    assert capsys.readouterr().out.startswith("def softmax(scores")


def test_unknown_exercise_and_unknown_lesson(check):
    with pytest.raises(ValueError, match="this lesson has no exercise 'sofmax'; it has: softmax"):
        check.lesson.check("sofmax")
    with pytest.raises(ValueError, match="no lesson is called 'start_hear'"):
        start("start_hear", {})


def test_try_out_changes_nothing(check, names, capsys):
    check.lesson.try_out("softmax", unwritten)
    assert capsys.readouterr().out.startswith("○")
    assert "softmax" not in names


def test_summary_counts_verdicts_and_points(check, capsys):
    check.lesson.summary()
    assert "0 of 1 exercises solved, 0 of 1 points" in capsys.readouterr().out
    check(right)
    check.lesson.summary()
    assert "1 of 1 exercises solved, 1 of 1 points" in capsys.readouterr().out


def test_claim_prints_one_line_and_raises_in_strict_mode_only(check, capsys, monkeypatch):
    check.lesson.claim("C01", "Quality falls.", True, {"bleu": 3})
    check.lesson.claim("C01", "Quality falls.", torch.tensor(1) > 2)
    assert capsys.readouterr().out == "✓ C01: Quality falls.\n✗ C01: Quality falls.\n"
    make_strict(monkeypatch, "COURSE_STRICT")
    with pytest.raises(Unsolved):
        check.lesson.claim("C01", "Quality falls.", False)
    with pytest.raises(ValueError, match="looks like C01"):
        check.lesson.claim("one", "Quality falls.", True)


def test_start_twice_is_safe_and_seeds(names):
    start("start_here", names)
    first = torch.rand(3)
    start("start_here", names)
    assert torch.equal(first, torch.rand(3))


def test_start_chooses_triton_interpreter_without_a_gpu(names):
    start("start_here", names)
    assert torch.cuda.is_available() or os.environ["TRITON_INTERPRET"] == "1"


# ---- declaring ---------------------------------------------------------------------------------------------


def test_an_edit_whose_text_does_not_stand_there_exactly_once_is_refused():
    with pytest.raises(ValueError, match="'scores' stands 2 times in softmax, not once"):
        start_here_exercise().mistake("m", {"scores": "x"}, hint="h")
    with pytest.raises(ValueError, match="'largest score' stands 0 times in softmax, not once"):
        start_here_exercise().mistake("m", {"largest score": "x"}, hint="h")


def test_sizes_that_could_be_mixed_up_are_refused():
    softmax = start_here.softmax
    with pytest.raises(ValueError, match="all sizes must differ"):
        sizes_of(FromSignature(softmax, {"n": 5, "m": 5}))
    with pytest.raises(ValueError, match="none may be 2 or 3"):
        sizes_of(FromSignature(softmax, {"n": 3}))
    with pytest.raises(ValueError, match="d_k must not be a square, got 9"):
        sizes_of(FromSignature(softmax, {"d_k": 9}))


def test_a_check_that_cannot_use_the_value_says_so():
    def use(answer, rng):
        answer(1).no_such_thing()

    exercise = start_here_exercise()
    broken = copy.copy(exercise)
    broken.checks, broken.mistakes = (Check("use", use),), ()
    assert "could not be used (the int 3)" in str(judge(broken, lambda x: 3).failed[0].problem)


# ---- comparing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (3, 3.0),
        (3, True),
        (3.0, 4),
        (1.0, True),
        (3.0, numpy.float32(3.0)),
        (3, numpy.int64(3)),
        ((1, 2), [1, 2]),
        ({1, 2}, {1, 3}),
        ({1, 2}, frozenset({1, 2})),
        (3.0, 3.01),
        ("a", "b"),
        ([1, 2], (1, 2)),
        ([1, 2], [1, 2, 3]),
        ([1, 2], [1, 3]),
        ({"a": 1}, {"a": 2}),
        (None, 0),
        (torch.tensor([1, 2]), torch.tensor([1, 3])),
        (torch.tensor([1.0, 2.0]), torch.tensor([1, 2])),
        (torch.tensor([1.0, 2.0]), torch.tensor([[1.0, 2.0]])),
        (torch.tensor([float("nan"), 2.0]), torch.tensor([1.0, 2.0])),
        (torch.tensor([float("-inf"), 2.0]), torch.tensor([float("inf"), 2.0])),
        (torch.tensor([True]), torch.tensor([False])),
        (torch.tensor(1.0, dtype=torch.float64), torch.tensor(1.0 + 1e-6, dtype=torch.float64)),
        (1.0, Yes()),
        ([1], Yes()),
    ],
)
def test_expect_tells_apart(expected, got):
    with pytest.raises(Mismatch):
        expect(got, expected, "here")
    assert difference(expected, expected) is None


def test_expect_accepts_rounding():
    expect(torch.tensor([1.0, float("nan")]), torch.tensor([1.00001, float("nan")]), "float32 rounds")
    expect([torch.ones(2), 3], [torch.ones(2), 3], "nested")
    expect(0.1 + 0.2, 0.3, "floats round")


Pair = namedtuple("Pair", "first second")


@pytest.mark.parametrize(
    ("expected", "got"),
    [(0.5, numpy.float64(0.5)), (0.0, 0), ((1, 2.0), Pair(1, numpy.float64(2))), ([1], type("Rows", (list,), {})([1]))],
)
def test_subclasses_of_pythons_types_are_what_they_are(expected, got):
    expect(got, expected, "here")


def test_a_subclass_cannot_lie():
    class Liar(float):
        def __float__(self) -> float:
            return 0.5

        def __eq__(self, other: object) -> bool:
            return True

        def __add__(self, other: object) -> float:
            return 0.5

    with pytest.raises(Mismatch):
        expect(Liar(3.0), 0.5, "here")


def test_half_precision_is_compared_with_the_exact_value():
    """1 + 1/2048 + … rounds in another way in another order: the largest number of the tensor says how much."""
    exact = torch.tensor([1000.0, 0.001], dtype=torch.float64)
    rounded = exact.half()
    expect(rounded + torch.tensor([0, 1.0]).half(), rounded, "1 is a rounding of 1000 in float16", exact)
    with pytest.raises(Mismatch):
        expect(rounded + torch.tensor([0, 20.0]).half(), rounded, "20 is not", exact)


@pytest.mark.parametrize(
    ("expected", "got", "said"),
    [
        (torch.tensor(0.412651), torch.tensor(0.412749), "expected 0.41265\ngot      0.41275"),
        (torch.tensor([0.5, 0.412651]), torch.tensor([0.5, 0.412749]), "expected 0.41265, got 0.41275"),
        (torch.tensor(2), torch.tensor(3), "expected 2\ngot      3"),
        ([[1]], None, "got      None"),
    ],
)
def test_differences_in_words(expected, got, said):
    assert said in str(difference(expected, got))


def test_a_list_that_contains_itself():
    itself: list = []
    itself.append(itself)
    assert "the list itself" in str(difference([[1]], itself))
    assert "a list of length 1" in str(judge(start_here_exercise(), lambda scores: itself).failed[0].problem)


def test_a_result_without_a_gradient_is_said_in_words(check):
    text = check(lambda scores: right(scores).detach())
    assert "no gradient reaches scores from the result: `detach`, `.item()`" in text
    assert "This looks like: the gradient is cut off" in text


def test_other_names_of_parameters_are_refused(check):
    assert "the parameters must be called (scores), as the stub has them; yours are called (x)" in check(
        lambda x: torch.softmax(x, dim=-1)
    )


# ---- when an answer is wrong, where no known mistake is found ------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (lambda scores: torch.softmax(scores, dim=1) if scores.dim() > 1 else scores, recognise.ONE_LEADING_DIMENSION),
        (lambda scores: right(scores).squeeze(), recognise.SIZE_ONE),
        (lambda scores: right(scores) + torch.zeros(scores.shape[-1:], dtype=scores.dtype), recognise.DEVICE),
        (lambda scores: right(scores).float(), recognise.DTYPE),
    ],
)
def test_patterns(answer, cause):
    assert judge(start_here_exercise(), answer).mistake is cause


def test_no_cause_from_exceptions_alone():
    def softmax(scores):
        raise RuntimeError("typo")

    for lesson in ("attention_layer", "self_attention", "multi_head"):
        for exercise in exercise_module.exercises_of(lesson).values():
            assert judge(exercise, lambda *args, **kwargs: softmax(None)).mistake is None


def test_mismatch_shows_the_place_in_a_list():
    with pytest.raises(Mismatch, match=r"at \[1\]:\nexpected 2\ngot      5"):
        expect([1, 5], [1, 2], "the list")
