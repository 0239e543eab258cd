"""Loading op.py in its four forms, and the optional names."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
import torch

from kforge.errors import TaskError, UsageError
from kforge.task import Call, Constraint, Domain, Form, Precision, Tolerance

MODULE = """
class Model(nn.Module):
    def __init__(self, n, bias=True):
        super().__init__()
        self.linear = nn.Linear(n, 2, bias=bias)

    def forward(self, x):
        return self.linear(x)

def get_inputs():
    return [torch.randn(3, 4)]
"""


def test_the_room_imports_without_torch():
    """`import kforge.task` must not import torch: `kforge --help` answers without it."""
    code = "import sys, kforge.task; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_exported_name_resolves():
    """Each name in the room's table exists and is no submodule that shadows a function."""
    import kforge.task

    for name in dir(kforge.task):
        assert not inspect.ismodule(getattr(kforge.task, name)), name
    with pytest.raises(AttributeError):
        _ = kforge.task.no_such_name


def test_form_module(load):
    """A Model with get_init_inputs is constructed from them; a plain sequence is positional."""
    task = load(MODULE + "def get_init_inputs():\n    return [4]\n")
    assert task.form is Form.MODULE
    assert task.name == "op" and task.n_variants == 1 and len(task.digest) == 16
    assert task.init_call() == Call((4,), {})
    assert task.run(task.make_reference(), task.make_call()).shape == (3, 2)


def test_init_inputs_with_keywords(load):
    """`[args, kwargs]` gives positional and keyword arguments."""
    task = load(MODULE + "def get_init_inputs():\n    return [[4], {'bias': False}]\n")
    assert task.init_call() == Call((4,), {"bias": False})
    assert task.make_reference().linear.bias is None


def test_form_function_keeps_signature_and_defaults(load):
    """A reference function becomes a module whose forward has the function's parameters and defaults."""
    task = load(
        "def reference(x, scale: float = 2.0, *, shift=1):\n    return x * scale + shift\n"
        "def get_inputs():\n    return {'x': torch.ones(2), 'shift': 3}\n"
    )
    assert task.form is Form.FUNCTION
    module = task.make_reference()
    assert str(inspect.signature(module.forward)) == "(x, scale=2.0, *, shift=1)"
    assert task.run(module, task.make_call()).tolist() == [5.0, 5.0]
    assert task.init_call() == Call()


def test_inputs_are_seeded_and_the_generator_is_put_back(load):
    """The same seed gives the same inputs, another seed others, and the caller's random state does not move."""
    task = load(MODULE)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again, other = (task.make_call(seed=seed).args[0] for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_reference_is_constructed_under_the_seed(load):
    """Two references of one seed have equal parameters."""
    task = load(MODULE + "def get_init_inputs():\n    return [4]\n")
    a, b, c = (task.make_reference(seed=seed).linear.weight for seed in (3, 3, 4))
    assert torch.equal(a, b) and not torch.equal(a, c)


@pytest.mark.parametrize(("mode", "training"), [("eval", False), ("train", True)])
def test_mode(load, mode, training):
    """MODE sets the module's mode; without it the module stays as constructed."""
    task = load(MODULE + f"MODE = {mode!r}\ndef get_init_inputs():\n    return [4]\n")
    assert task.make_reference().training is training


def test_mode_default_is_as_constructed(load):
    """A module that switches itself to eval in its constructor stays there."""
    task = load(MODULE.replace("bias=bias)", "bias=bias); self.eval()") + "def get_init_inputs():\n    return [4]\n")
    assert task.mode is None and task.make_reference().training is False


def test_precision_is_set_around_a_run_only(load):
    """PRECISION holds inside the reference and torch's own setting is back afterwards."""
    task = load(
        "def reference(x):\n    return x, torch.get_float32_matmul_precision()\n"
        "def get_inputs():\n    return [torch.ones(1)]\nPRECISION = 'medium'\n"
    )
    before = torch.get_float32_matmul_precision()
    assert task.precision is Precision.MEDIUM
    assert task.run(task.make_reference(), task.make_call())[1] == "medium"
    assert torch.get_float32_matmul_precision() == before


def test_no_gradients_inside_a_run(load):
    """The reference runs under no_grad although its parameters require gradients."""
    task = load(MODULE + "def get_init_inputs():\n    return [4]\n")
    assert not task.run(task.make_reference(), task.make_call()).requires_grad


def test_variants_are_made_lazily(load):
    """A maker of get_input_variants is called only when its variant is asked for."""
    task = load(
        MODULE + "MADE = []\ndef big():\n    MADE.append(1)\n    return [torch.zeros(7, 4)]\n"
        "def get_input_variants():\n    return [big]\n"
    )
    assert task.n_variants == 2 and task.namespace["MADE"] == []
    assert task.make_call(1).args[0].shape == (7, 4) and task.namespace["MADE"] == [1]
    with pytest.raises(UsageError, match=r"op.py has input variants 0 to 1 \(asked: 2\)"):
        task.make_call(2)


def test_settings(load):
    """CONSTRAINTS, TOLERANCE and DOMAIN arrive typed."""
    task = load(
        MODULE + "CONSTRAINTS = ['keep_nan', 'max_shared=49152', 'keep_nan']\n"
        "TOLERANCE = {'rms': 3, 'max': 8.0}\nDOMAIN = {'x': (0, 1)}\n"
    )
    assert task.constraints == (Constraint("keep_nan"), Constraint("max_shared", 49152))
    assert str(task.constraints[1]) == "max_shared=49152"
    assert task.constraints[1].description == "at most 49152 bytes of shared memory a block"
    assert task.tolerance == Tolerance(3.0, 8.0)
    assert task.tolerance.label == "user tolerance (rms 3x, max 8x)"
    assert task.domain == Domain({"x": (0.0, 1.0)})


def test_tolerance_factors_follow_the_rule(load):
    """Without TOLERANCE the rule's factors hold by dtype, and a user's factor never narrows one."""
    rule, user = Tolerance(), Tolerance(rms=1.5)
    assert rule.label == "tolerance by rule" and rule.max_factor() == 4.0
    assert (rule.rms_factor(torch.float32), rule.rms_factor(torch.bfloat16)) == (2.0, 1.25)
    assert (user.rms_factor(torch.float32), user.rms_factor(torch.float16)) == (2.0, 1.5)


def test_domain_as_a_function(load):
    """A callable DOMAIN is kept and asked for a bool."""
    task = load(MODULE + "def DOMAIN(x):\n    return bool((x > 0).all())\n")
    assert task.domain.accepts is not None and task.domain.accepts(torch.ones(2)) is True
    assert not task.domain.unrestricted


def test_local_imports(op, tmp_path):
    """op.py may import what lies beside it, at import and inside its functions."""
    from kforge.task import load_task

    (tmp_path / "kforge_test_helper.py").write_text("FACTOR = 3.0\n")
    path = op(
        "from kforge_test_helper import FACTOR\ndef reference(x):\n    import kforge_test_helper as h\n"
        "    return x * FACTOR * h.FACTOR\ndef get_inputs():\n    return [torch.ones(1)]\n"
    )
    task = load_task(path)
    assert task.run(task.make_reference(), task.make_call()).item() == 9.0
    assert str(tmp_path) not in sys.path


def test_dataclasses_in_op(load):
    """A dataclass in op.py works: its module is registered while it is loaded."""
    task = load(
        "from __future__ import annotations\nimport torch\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Config:\n    n: int = 3\n"
        "def reference(x):\n    return x * Config().n\ndef get_inputs():\n    return [torch.ones(1)]\n",
        raw=True,
    )
    assert task.run(task.make_reference(), task.make_call()).item() == 3.0


def test_digest_follows_the_text(op):
    """Another text is another digest."""
    from kforge.task import load_task

    first = load_task(op(MODULE)).digest
    assert load_task(op(MODULE)).digest == first != load_task(op(MODULE + "# changed\n")).digest


def test_other_type_than_module_is_refused(load):
    """A Model whose constructor returns something else is a task error."""
    task = load(MODULE + "def get_init_inputs():\n    return ['x']\n")
    with pytest.raises(TaskError, match=r"^op.py:6: Model\(...\) raised TypeError: "):
        task.make_reference()
