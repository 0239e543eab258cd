"""The task room: what the user brings. Loads op.py, makes inputs, captures the graph, counts bytes and operations.

Names are re-exported lazily: importing this package imports neither torch nor the modules behind the names. No
submodule may bear the name of a function exported here: importing it would shadow the function.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.task.alias import Alias as Alias
    from kforge.task.alias import Effects as Effects
    from kforge.task.alias import Observed as Observed
    from kforge.task.alias import observe as observe
    from kforge.task.call import Call as Call
    from kforge.task.call import call_leaves as call_leaves
    from kforge.task.call import clone_call as clone_call
    from kforge.task.call import describe_call as describe_call
    from kforge.task.call import tree_leaves as tree_leaves
    from kforge.task.capturing import capture as capture
    from kforge.task.capturing import capture_module as capture_module
    from kforge.task.capturing import capture_resized as capture_resized
    from kforge.task.constraints import Constraint as Constraint
    from kforge.task.constraints import parse_constraints as parse_constraints
    from kforge.task.counting import Cost as Cost
    from kforge.task.counting import NodeCost as NodeCost
    from kforge.task.counting import count as count
    from kforge.task.device import move_call as move_call
    from kforge.task.device import move_module as move_module
    from kforge.task.device import move_tree as move_tree
    from kforge.task.device import redirect_cuda as redirect_cuda
    from kforge.task.device import resolve_device as resolve_device
    from kforge.task.domain import Domain as Domain
    from kforge.task.form import Form as Form
    from kforge.task.graph import Capture as Capture
    from kforge.task.graph import InputKind as InputKind
    from kforge.task.graph import InputRef as InputRef
    from kforge.task.graph import Mutation as Mutation
    from kforge.task.graph import Origin as Origin
    from kforge.task.inspect import TaskFacts as TaskFacts
    from kforge.task.inspect import TensorFact as TensorFact
    from kforge.task.inspect import check_operations as check_operations
    from kforge.task.inspect import inspect_task as inspect_task
    from kforge.task.limits import EMULATOR_BYTES as EMULATOR_BYTES
    from kforge.task.limits import EMULATOR_OPERATIONS as EMULATOR_OPERATIONS
    from kforge.task.load import load_task as load_task
    from kforge.task.precision import Precision as Precision
    from kforge.task.precision import matmul_precision as matmul_precision
    from kforge.task.promotion import Promoted as Promoted
    from kforge.task.promotion import Replay as Replay
    from kforge.task.promotion import promote as promote
    from kforge.task.recording import Recording as Recording
    from kforge.task.recording import capture_run as capture_run
    from kforge.task.state import State as State
    from kforge.task.state import StateMismatch as StateMismatch
    from kforge.task.state import copy_state as copy_state
    from kforge.task.state import named_state as named_state
    from kforge.task.state import randomise_state as randomise_state
    from kforge.task.state import read_state as read_state
    from kforge.task.state import running_statistics as running_statistics
    from kforge.task.task import Task as Task
    from kforge.task.task import seeded as seeded
    from kforge.task.tolerance import Tolerance as Tolerance

_HOMES = {
    "alias": "Alias Effects Observed observe",
    "call": "Call call_leaves clone_call describe_call tree_leaves",
    "capturing": "capture capture_module capture_resized",
    "constraints": "Constraint parse_constraints",
    "counting": "Cost NodeCost count",
    "device": "move_call move_module move_tree redirect_cuda resolve_device",
    "domain": "Domain",
    "form": "Form",
    "graph": "Capture InputKind InputRef Mutation Origin",
    "inspect": "TaskFacts TensorFact check_operations inspect_task",
    "limits": "EMULATOR_BYTES EMULATOR_OPERATIONS",
    "load": "load_task",
    "precision": "Precision matmul_precision",
    "promotion": "Promoted Replay promote",
    "recording": "Recording capture_run",
    "state": "State StateMismatch copy_state named_state randomise_state read_state running_statistics",
    "task": "Task seeded",
    "tolerance": "Tolerance",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_HOME_OF)
