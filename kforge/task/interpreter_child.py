"""The child of interpreted.py: `python -m kforge.task.interpreter_child op.py folder`, with TRITON_INTERPRET=1 set.

Reads one JSON line a call from stdin and answers with one; the kernel's own prints go to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from kforge.errors import KforgeError
from kforge.task.files import pack, unpack
from kforge.task.load import load_task
from kforge.task.usercode import user_code


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a print in op.py must not look like a reply
    task = load_task(sys.argv[1])
    for line in sys.stdin:
        message = json.loads(line)
        args, kwargs = unpack(Path(message["request"]))
        answer: dict[str, str] = {}
        try:
            with user_code(task.path, "the reference rejects its inputs:"):
                outputs = task.reference(*args, **kwargs)
            pack((outputs, list(args), kwargs), Path(message["reply"]))
        except KforgeError as error:
            answer = {"error": error.message}
        print(json.dumps(answer), file=replies, flush=True)


if __name__ == "__main__":
    main()
