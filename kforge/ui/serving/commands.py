"""What the core can do for the IDE: each command calls what the command line calls, with the task kept loaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kforge.errors import UsageError
from kforge.kernel.candidate import Candidate
from kforge.store.events import LOG_NAME, salvage
from kforge.ui.files import read
from kforge.ui.serving.leaving import Leaving
from kforge.ui.serving.warm import import_all


class CoreCommands(Leaving):
    """Commands for one op.py, by name: `do_<name>`, its arguments those of the request."""

    immediate = frozenset({"steer", "steer_edit", "steer_drop", "constrain", "release"})
    lookups = frozenset({"source", "diff", "hunks", "evidence", "runs"})

    def names(self) -> frozenset[str]:
        """Every command."""
        return frozenset(name.removeprefix("do_") for name in dir(self) if name.startswith("do_"))

    def call(self, do: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The result of one command."""
        function = getattr(self, f"do_{do}")
        try:
            return function(**arguments) or {}
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            raise UsageError(f"{do}: {str(error).partition('() ')[2] or error}") from error

    def begin(self) -> None:
        """An earlier stop no longer holds."""
        self.control.reset()

    def stop(self) -> None:
        """End what is in progress."""
        self.control.stop()

    # the task

    def do_open(self, op: str | None = None) -> dict[str, Any]:
        """Load op.py and say what stands beside it."""
        if op is not None and Path(op).absolute() != self.op:
            raise UsageError(f"this core serves {self.op.name}", "start another one for another file")
        from kforge.environment.target import target_name
        from kforge.task import resolve_device

        task = self.task()
        device = str(resolve_device(self.settings.device))
        self.warm.start()
        rules = [{"name": str(rule), "origin": "op.py"} for rule in task.constraints]
        rules += [{"name": name, "origin": origin} for name, origin in self.rules.items()]
        taken = self.standing()
        return {
            **self.task_facts(task),
            "device": device,
            "target": target_name(device),
            "variants": task.n_variants,
            "rules": rules,
            "model": self.settings.model or "",
            "budget": self.settings.budget,
            "out": str(self.out),
            "accepted": {"candidate": taken.candidate, "folder": taken.folder, "files": sorted(taken.after)}
            if taken is not None
            else None,
        }

    def do_prepare(self) -> dict[str, Any]:
        """What the judge finds out before anything is proposed (shapes, work, floor), as events."""
        from kforge.agent.interrupting import interruptible
        from kforge.task import resolve_device

        import_all()
        interruptible(
            self.control,
            lambda: self.warm.prepare(self.task(), str(resolve_device(self.settings.device)), self._told),
        )
        return {}

    def _told(self, kind: str, /, **data: Any) -> None:
        self.tell(kind, data, self.run)

    # steering

    def do_steer(self, text: str, when: str = "now") -> dict[str, Any]:
        """Say something to the run in progress, or to the next one."""
        return {"steer": asdict(self.control.steer(text, when))}

    def do_steer_edit(self, steer: int, text: str) -> dict[str, Any]:
        """Other words for what was not taken yet. steer: its number."""
        return {"steer": asdict(self.control.edit(steer, text))}

    def do_steer_drop(self, steer: int) -> dict[str, Any]:
        """Take it back."""
        return {"steer": asdict(self.control.drop(steer))}

    def do_constrain(self, text: str) -> dict[str, Any]:
        """A standing rule for this run and the next ones."""
        with self._hearing:
            if self.bench is not None:
                return {"rules": [str(rule) for rule in self.bench.constrain(text, "developer")]}
            from kforge.agent.steering import rules
            from kforge.task.constraints import available

            added = [str(rule) for rule in rules(text)]
            if not added:
                raise UsageError(f"no standing rule is meant by {text!r}", f"rules: {available()}")
            for name in added:
                self.note("constraint", name=name, action="added", origin="developer")
            return {"rules": added}

    def do_release(self, name: str) -> dict[str, Any]:
        """A standing rule no longer holds."""
        base = name.partition("=")[0]
        with self._hearing:
            known = next((n for n in self.rules if n.partition("=")[0] == base), None)
            if self.bench is not None:
                self.bench.release(base)
            elif known is None:
                raise UsageError(f"no rule {name!r} was added here", "op.py's own stand in its CONSTRAINTS")
            else:
                self.note("constraint", name=known, action="removed", origin="developer")
        return {}

    # candidates

    def do_verify(self, module: str, files: Mapping[str, str] | None = None, plan: str = "") -> dict[str, Any]:
        """Judge a candidate from disk, or as `files` (texts by name) has it. plan: "" that of the settings."""
        from kforge.ui.serving.running import judge

        path = Path(module).absolute()
        candidate = Candidate(path.name, {**self._beside(path), **(files or {})}, proposer="user")
        self.shelf.put(candidate)
        return judge(self, candidate, path, plan)

    def _beside(self, module: Path) -> dict[str, str]:
        return dict(Candidate.read(module).files) if module.is_file() else {}

    def do_source(self, candidate: str) -> dict[str, Any]:
        """A candidate's files."""
        found = self.shelf.candidate(candidate)
        return {"candidate": found.digest, "module": found.module, "files": dict(found.files)}

    def do_profile(self, candidate: str) -> dict[str, Any]:
        """Why it is as fast as it is: the object of `kforge profile --json`."""
        from kforge.agent.profile import ProfileOptions, profile, summary

        module = self.shelf.lay_out(self.shelf.candidate(candidate))
        options = ProfileOptions(device=self.settings.device, arch=self.settings.arch, state=self.state)
        found = profile(self.op, module, options, lambda text: self.tell("message", {"text": text}, self.run))
        data = summary(self.op.name, found)
        self.note("profiled", candidate=candidate, profile=data)
        return data

    def do_diff(self, a: str, b: str) -> dict[str, Any]:
        """The unified diff from a to b, each a digest, or "op" for op.py."""
        import difflib

        sides = [self._texts(side) for side in (a, b)]
        names = sorted({*sides[0], *sides[1]})
        rows: list[str] = []
        for name in names:
            old, new = (side.get(name, "").splitlines(keepends=True) for side in sides)
            rows += difflib.unified_diff(old, new, f"a/{name}", f"b/{name}")
        return {"diff": "".join(row if row.endswith("\n") else row + "\n" for row in rows)}

    def _texts(self, side: str) -> dict[str, str]:
        if side == "op":
            return {self.op.name: read(self.op)[0]}
        return dict(self.shelf.candidate(side).files)

    def do_hunks(self, candidate: str, against: str = "") -> dict[str, Any]:
        """What the candidate changes over another one, "parent", "accepted", or (the default) over op.py."""
        from kforge.agent.comparison import comparison

        new = self.shelf.candidate(candidate)
        old = self._against(new, against)
        reference = (self.op.name, read(self.op)[0])
        before = self.shelf.profile(old.digest) if old is not None else None
        return comparison(new, old, reference, before, self.shelf.profile(new.digest), self.shelf.origins(reference))

    def _against(self, candidate: Candidate, against: str) -> Candidate | None:
        if against == "accepted":
            return self._accepted()
        digest = candidate.parent if against == "parent" else against
        return self.shelf.candidate(digest) if digest else None

    def _accepted(self) -> Candidate | None:
        """What stands beside op.py."""
        module = self.op.with_name(f"{self.op.stem}_kforge.py")
        if not module.is_file():
            return None
        found = Candidate.read(module)
        self.shelf.put(found)  # edited by hand since: no run has it
        return found

    def do_apply_hunks(
        self,
        candidate: str,
        against: str = "",
        accepted: Iterable[str] = (),
        rejected: Iterable[Mapping[str, str]] = (),
    ) -> dict[str, Any]:
        """The candidate of which only the accepted hunks are taken, judged; what was rejected is told to the agent."""
        from kforge.agent import hunks
        from kforge.ui.serving.running import judge

        new = self.shelf.candidate(candidate)
        old = self._against(new, against)
        if old is None:
            raise UsageError("there is nothing to take hunks against", "accept the candidate as a whole")
        known = hunks.hunks(old.files, new.files)
        rejected = list(rejected)
        for row in rejected:
            self.note("hunk", candidate=new.digest, hunk=row["id"], action="rejected", reason=row.get("reason", ""))
        words = hunks.rejection(known, rejected)
        if words:
            self.control.steer(words, "queued")
        accepted = list(accepted)
        for identifier in accepted:
            self.note("hunk", candidate=new.digest, hunk=identifier, action="accepted", reason="")
        part = hunks.partial(new, old, accepted)
        if part is old:
            return {"candidate": old.digest, "judged": False}
        if part is new:
            return {"candidate": new.digest, "judged": False}
        self.shelf.put(part)
        return {"judged": True, **judge(self, part, self.op.with_name(part.module))}

    # the project

    def do_runs(self, limit: int = 50) -> dict[str, Any]:
        """The latest runs of this project, newest first."""
        from kforge.store.index import Index

        if not (self.state / "index.sqlite").is_file():
            return {"runs": []}
        with Index(self.state / "index.sqlite") as index:
            return {"runs": [asdict(row) | {"folder": str(row.folder)} for row in index.runs(limit)]}

    def do_events(self, run: str) -> dict[str, Any]:
        """What a run's log holds, sent as events again: the panes show it as if it happened now."""
        path = self.state / "runs" / run / LOG_NAME
        if not path.is_file():
            raise UsageError(f"no run {run!r} in this project", "/resume without a name lists them")
        events, damage = salvage(path)
        for event in events:
            self.tell(event.kind, event.data, run)
        self.run = run
        return {"events": len(events), "damage": damage}

    def do_doctor(self) -> dict[str, Any]:
        """What is on this machine."""
        return self.doctor()

    def do_run(
        self, model: str | None = None, search: str | None = None, budget: float | None = None, usd: float | None = None
    ) -> dict[str, Any]:
        """Look for a faster kernel, as `kforge suggest` does."""
        from kforge.ui.serving.running import run

        return run(self, model=model, search=search, budget=budget, usd=usd)

    def do_resume(self, run: str) -> dict[str, Any]:
        """Continue a run from its log."""
        from kforge.ui.serving.running import resume

        return resume(self, run)

    def do_baseline_source(self) -> dict[str, Any]:
        """What PyTorch's compiler writes for op.py."""
        from kforge.ui.serving.running import baseline_source

        return {"source": baseline_source(self)}
