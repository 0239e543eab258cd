"""A core that speaks the protocol without torch: it plays the events of a recorded run and answers what it is asked.

    python scripted_core.py op.py '{"pause": 0.01, "stubborn": true}'

Options: pause (seconds between events of a run), stubborn (a stop is ignored), crash (command that ends the process),
events (how many, at 200 a second, instead of the recorded run), accepted (op.py has an accepted candidate), log (a
file that every request is written to).
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "panes" / "recorded"
MODULE, KERNEL = "softmax_kforge.py", "softmax_kforge.cu"
FILES = {
    MODULE: "from kforge.kernel import Kernel\n\n\nclass ModelNew:\n    pass\n",
    KERNEL: '// tile[threadIdx.x] = v[/]\nextern "C" __global__ void f(float* x) {\n    x[threadIdx.x] = 1.0f;\n}\n',
}
DIGEST = "0123456789abcdef"
REPORT = {"status": "verified", "verdict": "untimed", "target": "emulator", "plan": "standard", "gates": []}


def main() -> None:
    op, options = Path(sys.argv[1]).absolute(), json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    Core(op, options).serve()


class Core:
    def __init__(self, op: Path, options: dict[str, Any]) -> None:
        self.op, self.options = op, options
        self.lock = threading.Lock()
        self.stopped = threading.Event()
        self.steers: dict[int, dict[str, Any]] = {}
        self.rules: dict[str, str] = {}
        self.todo: queue.Queue[dict[str, Any]] = queue.Queue()

    def say(self, value: dict[str, Any]) -> None:
        with self.lock:
            sys.stdout.write(json.dumps(value) + "\n")
            sys.stdout.flush()

    def event(self, kind: str, **data: Any) -> None:
        self.say({"event": kind, "data": data, "run": "scripted"})

    def serve(self) -> None:
        threading.Thread(target=self.read, daemon=True).start()
        while True:
            request = self.todo.get()
            self.stopped.clear()
            if request["do"] == self.options.get("crash"):
                print("Traceback: tile[threadIdx.x] = v[/] broke", file=sys.stderr, flush=True)
                os._exit(3)
            self.answer(request)
            if request["do"] == "quit":
                return

    def read(self) -> None:
        at_once = {"stop", "steer", "steer_edit", "steer_drop", "constrain", "release", "source", "hunks", "evidence"}
        for line in sys.stdin:
            request = json.loads(line)
            if self.options.get("log"):
                with open(self.options["log"], "a") as log:
                    log.write(line)
            if request["do"] in at_once | {"runs"}:
                self.answer(request)
            else:
                self.todo.put(request)
        os._exit(0)

    def answer(self, request: dict[str, Any]) -> None:
        arguments = {k: v for k, v in request.items() if k not in ("id", "do")}
        try:
            result = getattr(self, "do_" + request["do"])(**arguments)
        except Refused as refused:
            error = {"kind": refused.kind, "message": str(refused), "hint": "as the script says"}
            self.say({"re": request["id"], "ok": False, "error": error, "exit_code": 1})
        else:
            self.say({"re": request["id"], "ok": True, "result": result or {}})

    def do_open(self, op: str) -> dict[str, Any]:
        if "not a task" in self.op.read_text():
            raise Refused("no Model in it", "task")
        rules = [{"name": "keep_nan", "origin": "op.py"}, *({"name": n, "origin": o} for n, o in self.rules.items())]
        folder = str(self.op.parent)
        accepted = (
            {"candidate": DIGEST, "folder": folder, "files": sorted(FILES)} if self.options.get("accepted") else None
        )
        out = str(self.op.parent / "kforge_out" / self.op.stem)
        return {
            "task": self.op.stem, "target": "emulator", "device": "cpu", "rules": rules, "model": "", "budget": 60.0,
            "out": out, "accepted": accepted,
        }  # fmt: skip

    def do_prepare(self) -> None:
        self.event("task_inspected", inputs=["float32[128, 1024]"], outputs=["float32[128, 1024]"], notes=[])
        self.event("floor", floor_ms=0.0123, bound="memory", source="data sheet")

    def do_run(self, **_: Any) -> dict[str, Any]:
        for id, steer in list(self.steers.items()):
            self.event("steer", **{**steer, "state": "taken"})
            del self.steers[id]
        if "events" in self.options:
            self.stream(int(self.options["events"]))
        lines = (RECORDED / "softmax_run.jsonl").read_text().splitlines()
        last = ""
        for line in lines:
            row = json.loads(line)
            if self.options.get("stubborn"):
                time.sleep(self.options["pause"])
            elif self.stopped.wait(self.options.get("pause", 0.0)):
                self.event("stopped", seconds=1.0)
                raise Refused("stopped", "interrupted")
            if row["event"] == "written":
                out = self.op.parent / "kforge_out" / self.op.stem
                out.mkdir(parents=True, exist_ok=True)
                for name, text in FILES.items():
                    (out / name).write_text(text)
                row["data"] = {"files": [str(out / name) for name in FILES], "folder": str(out)}
            last = row["data"].get("candidate") or last
            self.say({**row, "run": "scripted"})
        return {"status": "verified", "verdict": "untimed", "candidate": last, "files": [], "last_line": ""}

    def stream(self, count: int) -> None:
        for n in range(count):
            if self.stopped.wait(1 / 200):
                raise Refused("stopped", "interrupted")
            self.event("case", candidate=DIGEST, label=f"variant 0, seed {n}", passed=True)

    do_resume = do_run

    def do_stop(self) -> dict[str, Any]:
        self.stopped.set()
        return {"stopped": True}

    def do_steer(self, text: str, when: str) -> dict[str, Any]:
        steer = {"id": len(self.steers) + 1, "text": text, "when": when}
        self.steers[steer["id"]] = steer
        self.event("steer", **steer, state="received")
        return {"steer": steer}

    def do_steer_edit(self, steer: int, text: str) -> dict[str, Any]:
        if steer not in self.steers:
            raise Refused(f"steer {steer} is not waiting", "usage")
        self.steers[steer]["text"] = text
        self.event("steer", **self.steers[steer], state="edited")
        return {"steer": self.steers[steer]}

    def do_steer_drop(self, steer: int) -> None:
        self.event("steer", **self.steers.pop(steer), state="dropped")

    def do_constrain(self, text: str) -> dict[str, Any]:
        if " " in text:
            raise Refused(f"no standing rule is meant by {text!r}", "usage")
        self.rules[text] = "developer"
        self.event("constraint", name=text, action="added", origin="developer")
        return {"rules": [text]}

    def do_release(self, name: str) -> None:
        del self.rules[name]
        self.event("constraint", name=name, action="removed", origin="developer")

    def do_source(self, candidate: str) -> dict[str, Any]:
        return {"candidate": candidate, "module": MODULE, "files": FILES}

    def do_verify(self, module: str, files: dict[str, str], plan: str = "") -> dict[str, Any]:
        text = files.get(KERNEL, "")
        self.event("proposed", candidate=DIGEST, proposer="user", files=sorted(files))
        if "broken" in text:
            detail = f'{KERNEL}(3): error: identifier "broken" is undefined\n  x[/] = [b]1[/b]'
            self.event("gate", candidate=DIGEST, name="build", passed=False, detail=detail, seconds=0.1)
            self.event("evaluated", candidate=DIGEST, status="build_failed", verdict="untimed", plan="standard",
                       report={**REPORT, "status": "build_failed"}, failure=detail)  # fmt: skip
            return {"candidate": DIGEST, "status": "build_failed", "verdict": "untimed"}
        self.event("evaluated", candidate=DIGEST, status="verified", verdict="untimed", plan="standard", report=REPORT)
        return {"candidate": DIGEST, "status": "verified", "verdict": "untimed"}

    def do_profile(self, candidate: str) -> dict[str, Any]:
        values = {
            "2": {"values": {"instructions": 4.0}, "stall": ""},
            "3": {"values": {"instructions": 40.0, "width": 4.0}},
        }
        lines = {
            KERNEL: {"file": KERNEL, "candidate": candidate, "metrics": ["instructions", "width"], "lines": values}
        }
        profile = {"target": "emulator", "roofline": {"bound": None, "headroom": None}, "findings": [], "lines": lines}
        self.event("profiled", candidate=candidate, profile=profile)
        return profile

    def do_hunks(self, candidate: str, against: str) -> dict[str, Any]:
        new = FILES[KERNEL]
        old = new.replace("1.0f", "2.0f")
        hunk = {"id": "abc", "old_start": 3, "old_lines": 1, "new_start": 3, "new_lines": 1, "adds": False,
                "removes": False, "splittable": False, "notes": []}  # fmt: skip
        file = {"file": KERNEL, "old": old, "new": new, "hunks": [hunk], "figures": {}, "notes": []}
        reference = {"name": self.op.name, "text": self.op.read_text()}
        return {"candidate": candidate, "against": "fedcba9876543210", "module": MODULE, "related": True,
                "matching": 0.9, "metrics": [], "files": [file], "reference": reference, "pairs": []}  # fmt: skip

    def do_apply_hunks(self, **_: Any) -> dict[str, Any]:
        return {"candidate": DIGEST, "judged": True, "status": "verified"}

    def do_evidence(self, candidate: str) -> dict[str, Any]:
        return {"candidate": candidate, "report": REPORT, "problem": "", "warnings": [], "verified": True,
                "stamps": ["EMULATOR ONLY"], "run": "scripted", "folder": str(self.op.parent),
                "files": sorted(FILES), "accepted": candidate if self._beside() else ""}  # fmt: skip

    def _beside(self) -> bool:
        return (self.op.parent / KERNEL).exists()

    def do_accept(self, candidate: str) -> dict[str, Any]:
        for name, text in FILES.items():
            (self.op.parent / name).write_text(text)
        files = [str(self.op.parent / name) for name in FILES]
        self.event("accepted", candidate=candidate, files=files, folder=str(self.op.parent))
        return {"entry": 1, "files": files, "folder": str(self.op.parent)}

    def do_undo(self) -> dict[str, Any]:
        files = [self.op.parent / name for name in FILES]
        if not files[0].exists():
            raise Refused("there is no accept to undo", "usage")
        for path in files:
            path.unlink()
        self.event("undone", files=[str(path) for path in files])
        return {"entry": 1, "files": [], "folder": str(self.op.parent)}

    def do_export(self, candidate: str, to: str, **_: Any) -> dict[str, Any]:
        if to == "taken":
            raise Refused("taken is not empty", "export")
        self.event("exported", candidate=candidate, folder=to, format="extension", stamp="EMULATOR ONLY")
        return {"folder": to, "stamp": "EMULATOR ONLY", "files": ["README.md"]}

    def do_runs(self) -> dict[str, Any]:
        row = {"id": "20260101-000000-softmax-abcdef", "task": str(self.op), "started": 1.7e9, "status": "interrupted",
               "verdict": "untimed", "speedup": None, "evaluations": 2}  # fmt: skip
        return {"runs": [row, {**row, "id": "other", "task": "/elsewhere/gelu.py"}]}

    def do_events(self, run: str) -> dict[str, Any]:
        if run == "nowhere":
            raise Refused("no run 'nowhere' in this project", "usage")
        self.event("message", text=f"the log of {run}")
        return {"events": 1, "damage": []}

    def do_doctor(self) -> dict[str, Any]:
        tool = {
            "name": "nvcc [/]",
            "found": False,
            "version": "",
            "detail": "not in PATH",
            "why": "w",
            "without": "NVRTC",
        }
        return {"modes": {"emulator": "works"}, "tools": [tool], "settings": "defaults", "settings_problem": ""}

    def do_baseline_source(self) -> dict[str, Any]:
        raise Refused("Inductor's Triton code needs a GPU", "missing")

    def do_quit(self) -> None:
        self.stopped.set()


class Refused(Exception):
    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


if __name__ == "__main__":
    main()
