"""Landlock: what of the file system, and whom with signals, a candidate's process can reach (Linux 5.13 on)."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_EXECUTE, _WRITE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_FILE_RIGHTS = _EXECUTE | _WRITE | _READ_FILE | _TRUNCATE | _IOCTL_DEV  # what a rule on a file may name
_NET = 3  # bind and connect of TCP
_SCOPED = 3  # abstract Unix sockets, signals
_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15}  # number of file rights that an ABI handles; 16 from 5 on

READ = _READ_FILE | _READ_DIR
READ_EXECUTE = READ | _EXECUTE
DEVICE = _READ_FILE | _READ_DIR | _WRITE | _IOCTL_DEV
READ_WRITE = READ | _WRITE | _TRUNCATE
EVERYTHING = (1 << 16) - 1


def abi() -> int:
    """The kernel's Landlock version, 0 where it has none."""
    return max(0, int(ctypes.CDLL(None, use_errno=True).syscall(_CREATE, None, 0, 1)))


def restrict(rules: Iterable[tuple[Path, int]], files_only: bool = False) -> str:
    """Allow only `rules` (path, rights; a folder with all below it) from now on; "in force, ABI n" or why not.

    Paths that do not exist are skipped. no_new_privs must be set. files_only: leave sockets and signals alone.
    """
    version = abi()
    if version == 0:
        return "absent: this kernel has no Landlock"
    libc = ctypes.CDLL(None, use_errno=True)
    handled = (1 << _RIGHTS_BY_ABI.get(version, 16)) - 1
    net = _NET if version >= 4 and not files_only else 0
    scoped = _SCOPED if version >= 6 and not files_only else 0
    attributes = struct.pack("=QQQ", handled, net, scoped)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = libc.syscall(_CREATE, ctypes.c_char_p(attributes), ctypes.c_size_t(size), 0)
    if ruleset < 0:
        return f"absent: {os.strerror(ctypes.get_errno())}"
    try:
        for path, rights in rules:
            try:
                fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            rights &= handled if path.is_dir() else handled & _FILE_RIGHTS
            rule = struct.pack("=Qi", rights, fd)
            failed = libc.syscall(_ADD, ruleset, 1, ctypes.c_char_p(rule), 0)
            problem = os.strerror(ctypes.get_errno())
            os.close(fd)
            if failed:
                return f"absent: rule for {path}: {problem}"
        if libc.syscall(_RESTRICT, ruleset, 0):
            return f"absent: {os.strerror(ctypes.get_errno())}"
    finally:
        os.close(ruleset)
    return f"in force, ABI {version}"


def scopes_signals() -> bool:
    """True where a restricted process can signal only its own domain."""
    return abi() >= 6
