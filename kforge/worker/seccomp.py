"""The system-call filter of a candidate's process: which calls are denied, as data, and their translation to BPF.

A denied call answers an error number and does not kill, so that a candidate's failure is a message in words.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable

_NUMBERS = {
    "x86_64": {
        "kill": 62, "tkill": 200, "tgkill": 234, "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297, "fork": 57,
        "vfork": 58, "clone": 56, "execve": 59, "execveat": 322, "socket": 41, "ptrace": 101, "prlimit64": 302,
        "process_vm_readv": 310, "process_vm_writev": 311, "bpf": 321, "perf_event_open": 298, "unshare": 272,
        "setns": 308, "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "keyctl": 250, "add_key": 248,
        "request_key": 249, "userfaultfd": 323, "open_by_handle_at": 304, "kexec_load": 246, "init_module": 175,
        "finit_module": 313, "delete_module": 176, "reboot": 169, "swapon": 167, "quotactl": 179, "acct": 163,
    },
    "aarch64": {
        "kill": 129, "tkill": 130, "tgkill": 131, "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240, "clone": 220,
        "execve": 221, "execveat": 281, "socket": 198, "ptrace": 117, "prlimit64": 261, "process_vm_readv": 270,
        "process_vm_writev": 271, "bpf": 280, "perf_event_open": 241, "unshare": 97, "setns": 268, "mount": 40,
        "umount2": 39, "pivot_root": 41, "chroot": 51, "keyctl": 219, "add_key": 217, "request_key": 218,
        "userfaultfd": 282, "open_by_handle_at": 265, "kexec_load": 104, "init_module": 105, "finit_module": 273,
        "delete_module": 106, "reboot": 142, "swapon": 224, "quotactl": 60, "acct": 89,
    },
}  # fmt: skip
_SHARED_NUMBERS = {  # the same on both machines (numbers above 424 always are)
    "pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "clone3": 435, "pidfd_getfd": 438, "process_madvise": 440, "move_mount": 429, "fsopen": 430, "mount_setattr": 442,
}  # fmt: skip
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000

_ALWAYS = (
    "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "process_madvise", "bpf", "perf_event_open",
    "unshare", "setns", "mount", "umount2", "move_mount", "fsopen", "mount_setattr", "pivot_root", "chroot", "keyctl",
    "add_key", "request_key", "userfaultfd", "open_by_handle_at", "kexec_load", "init_module", "finit_module",
    "delete_module", "reboot", "swapon", "quotactl", "acct",
)  # fmt: skip
_MISSING = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register")  # libc falls back on ENOSYS
_RUN_ONLY = ("execve", "execveat", "fork", "vfork")
_SIGNALS = ("kill", "tgkill")  # allowed to oneself
_SIGNALS_DENIED = ("tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal")

_CLONE_THREAD = 0x00010000
_CLONE_NEW = 0x7E020000 | 0x00000080  # every namespace flag
_AF_UNIX = 1

_LOAD, _EQUAL, _ANY_BIT, _GREATER_EQUAL, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_RET_ALLOW, _RET_ERRNO = 0x7FFF0000, 0x00050000
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2


def _op(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)


def _argument(index: int) -> bytes:
    return _op(_LOAD, 16 + 8 * index)  # low half; both machines are little-endian


def _deny(number: int, error: int) -> bytes:
    return _op(_EQUAL, number, 0, 1) + _op(_RETURN, _RET_ERRNO | error)


def _when(number: int, body: list[bytes]) -> list[bytes]:
    """Run `body` for this call; it must return. The accumulator holds the call's number before and after."""
    return [_op(_EQUAL, number, 0, len(body)), *body]


def _one_of(index: int, values: Iterable[int], error: int) -> list[bytes]:
    """Allow the call only when an argument is one of `values`."""
    body = [_argument(index)]
    for value in values:
        body += [_op(_EQUAL, value & 0xFFFFFFFF, 0, 1), _op(_RETURN, _RET_ALLOW)]
    return [*body, _op(_RETURN, _RET_ERRNO | error)]


def program(phase: str, machine: str, pid: int, scoped_signals: bool) -> bytes:
    """The filter for `phase` ("build" or "run") as BPF text; signals in *build* are left to Landlock's scope."""
    numbers = _NUMBERS[machine] | _SHARED_NUMBERS
    deny = errno.EPERM
    code = [_op(_LOAD, 4), _op(_EQUAL, _AUDIT_ARCH[machine], 1, 0), _op(_RETURN, _RET_ERRNO | errno.ENOSYS)]
    code += [_op(_LOAD, 0)]
    if machine == "x86_64":
        code += [_op(_GREATER_EQUAL, _X32_BIT, 0, 1), _op(_RETURN, _RET_ERRNO | errno.ENOSYS)]
    code += [_deny(numbers[name], errno.ENOSYS) for name in _MISSING]
    denied = _ALWAYS + (_RUN_ONLY if phase == "run" else ())
    code += [_deny(numbers[name], deny) for name in denied if name in numbers]
    code += _when(numbers["socket"], _one_of(0, [_AF_UNIX], errno.EACCES))
    code += _when(numbers["prlimit64"], _one_of(0, [0, pid], deny))
    if phase == "run" or not scoped_signals:
        code += [_deny(numbers[name], deny) for name in _SIGNALS_DENIED]
        for name in _SIGNALS:
            code += _when(numbers[name], _one_of(0, [pid] if name == "tgkill" else [0, pid], deny))
    forbidden = _op(_RETURN, _RET_ERRNO | deny)
    allowed = _op(_RETURN, _RET_ALLOW)
    if phase == "run":
        code += _when(numbers["clone"], [_argument(0), _op(_ANY_BIT, _CLONE_THREAD, 1, 0), forbidden, allowed])
    else:
        code += _when(numbers["clone"], [_argument(0), _op(_ANY_BIT, _CLONE_NEW, 0, 1), forbidden, allowed])
    code += [allowed]
    return b"".join(code)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def install(phase: str, scoped_signals: bool) -> str:
    """Install the filter for the calling thread and what it starts; "in force" or why not.

    no_new_privs must be set. Call while single-threaded: other threads would stay outside.
    """
    machine = platform.machine()
    if machine not in _NUMBERS:
        return f"absent: no table of system calls for {machine}"
    code = program(phase, machine, os.getpid(), scoped_signals)
    # each instruction is 8 bytes; built lists mix single and joined instructions, hence by length
    text = ctypes.create_string_buffer(code, len(code))
    filter_ = _Program(len(code) // 8, ctypes.addressof(text))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filter_), 0, 0):
        return f"absent: {os.strerror(ctypes.get_errno())}"
    return "in force"
