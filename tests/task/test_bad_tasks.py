"""Every way in which an op.py can be wrong ends with one clear line and the right exit code."""

from __future__ import annotations

import signal
import sys

import pytest
import torch

from kforge.errors import KforgeError, MissingError, Stop, TaskError, TooLargeError
from kforge.task import inspect_task, load_task

GOOD = "def reference(x):\n    return x + 1\n"
INPUTS = "def get_inputs():\n    return [torch.ones(2)]\n"
EXISTING = "keep_nan, no_fast_math, deterministic, no_vendor_calls, keep_signature, max_shared=N"


def message(action) -> str:
    """The message of the TaskError that `action` raises; it is one line."""
    with pytest.raises(TaskError) as caught:
        action()
    assert caught.value.exit_code == 2 and "\n" not in caught.value.message
    return caught.value.message


def test_no_such_file(tmp_path):
    """A path that does not exist is named as it was given."""
    assert message(lambda: load_task(tmp_path / "nothing.py")) == f"no such file: {tmp_path}/nothing.py"


def test_folder(tmp_path):
    """A folder is no task."""
    assert message(lambda: load_task(tmp_path)) == f"not a file: {tmp_path}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\ndef broken(:\n", "op.py:2: syntax error: invalid syntax"),
        (
            "import torch\nimport no_such_package_at_all\n",
            "op.py:2: import failed: No module named 'no_such_package_at_all'",
        ),
        (
            "from math import nothing\n",
            "op.py:1: import failed: cannot import name 'nothing' from 'math' (unknown location)",
        ),
        ("x = 1\ny = x / 0\n", "op.py:2: loading failed: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(4)\n", "op.py:2: loading failed: SystemExit: 4"),
        ("x = 1\n", "op.py: no reference found"),
        ("class Model:\n    pass\n", "op.py: no reference found: class Model is not a torch.nn.Module"),
        ("def reference(x):\n    return x\n", "op.py: get_inputs() is missing"),
        ("def reference(x):\n    return x\nget_inputs = 3\n", "op.py: get_inputs() is missing"),
    ],
)
def test_file_that_cannot_be_loaded(op, text, expected):
    """Syntax, import and structure errors name the file and, where there is one, the line."""
    found = message(lambda: load_task(op(text, raw=True)))
    assert found == expected or ("cannot import name" in expected and found.startswith(expected.split(" (")[0]))


def test_null_bytes(tmp_path):
    """A binary file is refused in words."""
    path = tmp_path / "op.py"
    path.write_bytes(b"x = 1\0\n")
    assert message(lambda: load_task(path)).startswith("op.py")


def test_ambiguous_reference(op):
    """Model and reference in one file is one too many."""
    text = "class Model(nn.Module):\n    pass\n" + GOOD + INPUTS
    assert message(lambda: load_task(op(text))) == "op.py: ambiguous reference: class Model and reference(...)"


def test_get_inputs_raises(load):
    """The line is the one in op.py where get_inputs failed, also inside a helper."""
    task = load(GOOD + "def helper():\n    raise ValueError('bad\\nsize')\ndef get_inputs():\n    return [helper()]\n")
    assert message(task.make_call) == "op.py:6: get_inputs() raised ValueError: bad"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            "torch.ones(2)",
            "op.py: get_inputs() returned a Tensor; it must return a sequence (positional) or a dict (keyword)",
        ),
        ("None", "op.py: get_inputs() returned a NoneType; it must return a sequence (positional) or a dict (keyword)"),
        ("7", "op.py: get_inputs() returned an int; it must return a sequence (positional) or a dict (keyword)"),
        (
            "{1: torch.ones(2)}",
            "op.py: get_inputs() returned a dict with keys that are no names; a dict is passed as keyword arguments",
        ),
    ],
)
def test_get_inputs_returns_something_else(load, value, expected):
    """Only a sequence or a dict with names is a set of inputs."""
    task = load(GOOD + f"def get_inputs():\n    return {value}\n")
    assert message(task.make_call) == expected


def test_variants_that_are_no_makers(op):
    """get_input_variants returns functions, not inputs."""
    text = GOOD + INPUTS + "def get_input_variants():\n    return [[torch.ones(2)]]\n"
    assert message(lambda: load_task(op(text))) == (
        "op.py: get_input_variants() must return a list of input makers (functions without arguments)"
    )


def test_variant_raises(load):
    """A failing maker is named by its position."""
    task = load(GOOD + INPUTS + "def get_input_variants():\n    return [lambda: 1 / 0]\n")
    assert message(lambda: task.make_call(1)) == (
        "op.py:8: get_input_variants()[0]() raised ZeroDivisionError: division by zero"
    )


@pytest.mark.parametrize(
    ("makers", "expected"),
    [
        ("lambda: [torch.ones(3)], lambda: 1 / 0", "op.py:8: get_input_variants()[1]() raised ZeroDivisionError: "),
        ("lambda: None", "op.py: get_input_variants()[0]() returned a NoneType"),
        ("lambda: [torch.ones(2, 3)]", "op.py:4: the reference rejects the inputs of variant 1: RuntimeError: "),
        ("lambda: []", "op.py: the reference rejects the inputs of variant 1: TypeError: "),
    ],
)
def test_a_variant_that_fails_is_found_at_inspection(load, makers, expected):
    """Makers and the reference are tried on every variant, and the one that fails is named."""
    task = load(
        "def reference(x):\n    return torch.ones(4, 1) @ x[None]\n"
        f"def get_inputs():\n    return [torch.ones(2)]\ndef get_input_variants():\n    return [{makers}]\n"
    )
    assert message(lambda: inspect_task(task)).startswith(expected)


def test_variants_that_need_real_values_are_tried_with_them(load):
    """A reference that reads values, and a maker made of numpy, are no failures; globals keep no trace of the trial."""
    task = load(
        "import numpy\nSEEN = []\nLAST = None\ndef reference(x):\n    global LAST\n    LAST = x\n"
        "    return x * float(x.sum())\ndef get_inputs():\n    return [torch.ones(2)]\n"
        "def get_input_variants():\n"
        "    return [lambda: [torch.from_numpy(numpy.ones(3))], lambda: [torch.ones(5)]]\n"
    )
    assert inspect_task(task).variants == (0, 1, 2)
    assert type(task.namespace["LAST"]) is torch.Tensor


def test_interrupts_of_a_person_pass(load, monkeypatch):
    """ctrl-c under Python's own handler, and a stop that a signal asked for, are not taken for the task's errors."""
    task = load(GOOD + "def get_inputs():\n    raise KeyboardInterrupt\n")
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        task.make_call()
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_IGN)
    assert message(task.make_call) == "op.py:6: get_inputs() raised KeyboardInterrupt"
    task.namespace["KeyboardInterrupt"] = Stop
    with pytest.raises(Stop):
        task.make_call()


@pytest.mark.parametrize("line", ["sys.path.clear()", "sys.path = None", "sys.path = []"])
def test_sys_path_is_put_back(op, monkeypatch, line):
    """What was on sys.path is there after op.py, what op.py added stays, op.py's own folder does not."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = list(sys.path)
    path = op("import sys\n" + GOOD + INPUTS + line + "\n")
    load_task(path)
    assert sys.path == before
    load_task(op("import sys\n" + GOOD + INPUTS + "sys.path.append('/somewhere')\n"))
    assert sys.path == [*before, "/somewhere"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("CONSTRAINTS = ['fast']", f"op.py: unknown constraint 'fast'; available: {EXISTING}"),
        ("CONSTRAINTS = 'keep_nan'", f"op.py: CONSTRAINTS must be a list of names (got str); available: {EXISTING}"),
        (
            "CONSTRAINTS = ['max_shared']",
            "op.py: constraint max_shared needs a whole number of bytes: max_shared=N (got 'max_shared')",
        ),
        ("CONSTRAINTS = ['keep_nan=1']", "op.py: constraint keep_nan takes no value (got 'keep_nan=1')"),
        (
            "CONSTRAINTS = ['max_shared=1', 'max_shared=2']",
            "op.py: constraint max_shared is given twice with different values",
        ),
        ("MODE = 'test'", "op.py: unknown MODE 'test'; available: train, eval"),
        ("PRECISION = 'tf32'", "op.py: unknown PRECISION 'tf32'; available: highest, high, medium"),
        ("TOLERANCE = 2", 'op.py: TOLERANCE must be a dict {"rms": factor, "max": factor} (got int)'),
        ("TOLERANCE = {'mean': 2}", "op.py: unknown key 'mean' in TOLERANCE; available: rms, max"),
        ("TOLERANCE = {'rms': 1.0}", "op.py: TOLERANCE['rms'] must be at least the rule's 1.25 (got 1)"),
        ("TOLERANCE = {'max': True}", "op.py: TOLERANCE['max'] must be a number (got True)"),
        ("DOMAIN = {'x': (1, 0)}", "op.py: DOMAIN['x'] must be (low, high) with low < high (got (1, 0))"),
        ("DOMAIN = 3", "op.py: DOMAIN must be a dict {input path: (low, high)} or a callable (got int)"),
    ],
)
def test_settings_that_do_not_exist(op, line, expected):
    """A wrong setting says what exists."""
    assert message(lambda: load_task(op(GOOD + INPUTS + line + "\n"))) == expected


def test_inputs_that_the_reference_rejects(load):
    """torch's own words are passed on, with the line of op.py."""
    task = load(
        "def reference(a, b):\n    return a @ b\ndef get_inputs():\n    return [torch.ones(2, 3), torch.ones(2, 3)]\n"
    )
    assert message(lambda: inspect_task(task)) == (
        "op.py:4: the reference rejects its inputs: RuntimeError: "
        "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)"
    )


def test_domain_of_no_input(load):
    """A misspelt range would hold for nothing: it is named beside the inputs that there are; right paths pass."""
    rest = "def reference(x, state):\n    return x + state[0]\n"
    rest += "def get_inputs():\n    return [torch.ones(2), [torch.ones(2)]]\n"
    wrong = load(rest + "DOMAIN = {'x': (0, 2), 'y': (0, 1)}\n")
    with pytest.raises(TaskError) as caught:
        inspect_task(wrong)
    assert caught.value.message == "op.py: DOMAIN names y, which is no input"
    assert caught.value.hint == "inputs: x, state[0]"
    inspect_task(load(rest + "DOMAIN = {'x': (0, 2), 'state[0]': (0, 1)}\n"))


def test_wrong_number_of_inputs(load):
    """A call that does not fit the signature is said in Python's words."""
    task = load(GOOD + "def get_inputs():\n    return [torch.ones(1), torch.ones(1)]\n")
    found = message(lambda: inspect_task(task))
    assert found.startswith("op.py: the reference rejects its inputs: TypeError: ") and "2" in found


@pytest.mark.parametrize(("value", "shown"), [("None", "None"), ("x.sum().item()", "2.0"), ("[1, 'a']", "[1, 'a']")])
def test_output_tree_without_tensors(load, value, shown):
    """There is nothing to compare when no tensor comes back."""
    task = load(f"def reference(x):\n    return {value}\n" + INPUTS)
    assert message(lambda: inspect_task(task)) == f"op.py: the reference returns no tensor (it returned {shown})"


@pytest.mark.parametrize("source", ["import random\nrandom.seed(None)\n", "import numpy.random as random\n"])
def test_non_deterministic_reference(load, source):
    """Random numbers from elsewhere than torch's generators vary between reseeded runs."""
    task = load(source + "def reference(x):\n    return x + random.random()\n" + INPUTS)
    found = message(lambda: inspect_task(task))
    assert found.startswith("op.py: the reference is non-deterministic: out differs by up to 0.")
    assert found.endswith("between runs with the same seed")


def test_counter_as_output_is_non_deterministic(load):
    """State kept outside the module counts as non-determinism, and is found on integers too."""
    task = load("N = [0]\ndef reference(x):\n    N[0] += 5\n    return torch.full((2,), N[0])\n" + INPUTS)
    assert "non-deterministic" in message(lambda: inspect_task(task))


def test_too_large_for_the_emulator(load):
    """Inputs beyond the limit end with exit 3, the limit and the way out, and are never allocated."""
    task = load(GOOD + "def get_inputs():\n    return [torch.randn(1 << 40)]\n")
    with pytest.raises(TooLargeError) as caught:
        inspect_task(task)
    assert caught.value.exit_code == 3
    assert caught.value.message == (
        "op.py: the inputs are too large for the emulator: "
        "4194304 MiB of inputs, state and outputs, the limit is 64 MiB"
    )
    assert "GPU" in caught.value.hint and "get_input_variants()" in caught.value.hint


def test_outputs_count_towards_the_limit(load):
    """Small inputs whose outputs do not fit are refused as well."""
    task = load(
        "def reference(x):\n    return x[:, None] * x[None, :]\ndef get_inputs():\n    return [torch.randn(5000)]\n"
    )
    with pytest.raises(TooLargeError, match="95 MiB of inputs, state and outputs"):
        inspect_task(task)


def test_code_that_needs_a_gpu(load):
    """What cannot be redirected to the CPU is a missing GPU (exit 3), not a bad task."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    task = load("def reference(x):\n    torch.cuda.synchronize()\n    return x\n" + INPUTS)
    with pytest.raises(MissingError, match=r"^op.py:4: this needs a GPU: ") as caught:
        inspect_task(task)
    assert caught.value.exit_code == 3


def test_errors_know_their_json(op):
    """The same text goes out under --json."""
    with pytest.raises(KforgeError) as caught:
        load_task(op("x = 1\n"))
    assert caught.value.as_dict()["error"] == {
        "kind": "task",
        "message": "op.py: no reference found",
        "hint": "define class Model(nn.Module), a function reference(...), "
        "or a Triton or Helion kernel with its launching function",
    }


def test_a_candidate_in_the_place_of_a_task(op):
    """Both files the wrong way round: the hint says which comes first."""
    with pytest.raises(KforgeError) as caught:
        load_task(op("import torch\nclass ModelNew(torch.nn.Module):\n    pass\n"))
    assert caught.value.hint == "it defines ModelNew, so it is a candidate: op.py comes first"
