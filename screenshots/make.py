"""Makes the screenshots of the README from one real session of the IDE on the emulator.

    python screenshots/make.py [--out screenshots] [--only NAME ...] [--svg]

The IDE works on a copy of examples/softmax.py, its inputs large enough for memory to bind: the engine proposes, the
judge judges, a slower variant is judged and profiled beside it, so that the diff has figures and findings. Each picture
is what the app shows then: SVG by Textual, PNG by a headless Chromium, made small by pngquant, where these are found.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

ROOT = Path(__file__).resolve().parent.parent
WIDE, NARROW = (130, 40), (80, 24)
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE_S = 420.0
BUDGET_S = 360.0
SMALL, LARGE = "torch.randn(128, 1024)", "torch.randn(3072, 1024)"

# What a first version by hand looks like: every thread reads and writes element by element, four apart.
SLOWER = (
    (
        "x_in[k] = load<VEC>(x_row + col);",
        "#pragma unroll\n            for (int j = 0; j < VEC; ++j) x_in[k].at[j] = x_row[col + j];",
    ),
    (
        "store(y_row + col, y_out);",
        "#pragma unroll\n            for (int j = 0; j < VEC; ++j) y_row[col + j] = y_out.at[j];",
    ),
)
WRONG = (("exponent[k][j] / row_sum", "exponent[k][j] / (row_sum + 1.0f)"),)


class Shots:
    """Takes the pictures that were asked for."""

    def __init__(self, out: Path, only: set[str], keep_svg: bool) -> None:
        self.out, self.only, self.keep_svg = out, only, keep_svg
        self.browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
        self.made: list[Path] = []

    async def take(self, pilot: Pilot[int], name: str) -> None:
        """What the app shows now, as `name`."""
        if self.only and name not in self.only:
            return
        await pilot.pause(0.4)
        svg = self.out / f"{name}.svg"
        svg.write_text(pilot.app.export_screenshot(title="kforge softmax.py"))
        self.made.append(svg)
        if self.browser is not None:
            png = self.out / f"{name}.png"
            render(self.browser, svg, png)
            self.made.append(png)
            if not self.keep_svg:
                svg.unlink()
                self.made.remove(svg)


def render(browser: str, svg: Path, png: Path) -> None:
    """One SVG as a PNG of its own size."""
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg.read_text())
    assert box is not None, svg
    size = f"{round(float(box[1]))},{round(float(box[2]))}"
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--default-background-color=00000000",
    ]
    command = [browser, *options, f"--window-size={size}", f"--screenshot={png}", svg.absolute().as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    if smaller := shutil.which("pngquant"):
        subprocess.run([smaller, "--force", "--ext", ".png", "128", str(png)], check=True, timeout=60)


async def until(pilot: Pilot[int], true: Callable[[], object], what: str) -> None:
    """Wait until something is so; SystemExit with what was waited for when it takes too long."""
    end = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > end:
            raise SystemExit(f"{what}: not so within {PATIENCE_S:g} s")
        await pilot.pause(0.1)


async def judged(app: Any, files: dict[str, str], folder: Path, changes: Iterable[tuple[str, str]]) -> str:
    """The digest of a changed candidate, judged by the core."""
    folder.mkdir()
    for name, text in files.items():
        for new, old in changes:
            text = text.replace(new, old)
        (folder / name).write_text(text)
    found = await app.core.request("verify", module=str(folder / "softmax_kforge.py"))
    return str(found["candidate"])


async def session(project: Path, shots: Shots) -> None:
    """The tour: run, timeline, profile, tree, diff, accept, export, help; then light, then a small terminal."""
    from kforge.ui.app import KforgeApp
    from kforge.ui.settings import Settings

    app = KforgeApp(project / "softmax.py", Settings())
    app.animation_level = "none"
    async with app.run_test(size=WIDE) as pilot:
        await until(pilot, lambda: app.session, "the core opens softmax.py")
        app.budget = BUDGET_S  # a busy machine would leave gates out
        await pilot.press("f2")
        await until(pilot, lambda: app.progress.reports and not app.core.busy, "the engine's run ends")
        best = app.candidate
        await pilot.pause(1.0)

        files = (await app.core.request("source", candidate=best))["files"]
        slower = await judged(app, files, project / "by_hand", SLOWER)
        await judged(app, files, project / "wrong", WRONG)
        await app.core.request("profile", candidate=slower)
        await app.core.request("profile", candidate=best)
        app.candidate = best
        await app.show_candidate(best)

        timeline = app.query_one("#pane-timeline")
        app.desk.show("timeline", focus=True)
        entries = timeline.list  # type: ignore[attr-defined]
        entries.settle()
        entries.move_cursor(entries.row_of(timeline.attempt(best)))  # type: ignore[attr-defined]
        await pilot.press("enter")
        await shots.take(pilot, "timeline")

        app.desk.show("profile", focus=True)
        app.query_one("#pane-profile").show(best)  # type: ignore[attr-defined]
        await shots.take(pilot, "profile")

        app.desk.show("tree", focus=True)
        await shots.take(pilot, "tree")

        await app.show_diff(best, against=slower)
        await pilot.press("j", "a")
        await shots.take(pilot, "diff")
        app.theme = "kforge-light"
        await shots.take(pilot, "diff-light")
        app.theme = "kforge-dark"
        await app.show_diff(best, against="")
        await shots.take(pilot, "correspondence")

        await pilot.press("f1")
        await shots.take(pilot, "help")
        await pilot.press("escape")

        await pilot.press("f4")
        await until(pilot, lambda: len(app.screen_stack) > 1, "the accept dialog opens")
        await shots.take(pilot, "accept")
        await pilot.press("a")
        await until(pilot, lambda: (project / "softmax_kforge.py").is_file(), "the candidate is written")
        await until(pilot, lambda: len(app.screen_stack) == 1 and not app.core.busy, "the accept dialog closes")

        await pilot.press("f10")
        await until(pilot, lambda: len(app.screen_stack) > 1, "the export dialog opens")
        await shots.take(pilot, "export")
        await pilot.press("escape")

        await pilot.resize_terminal(*NARROW)
        app.desk.show("timeline", focus=True)
        await pilot.pause(0.3)
        await shots.take(pilot, "small")


def main() -> None:
    """Parse the command line and make the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "screenshots")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--svg", action="store_true", help="keep the SVG files too")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    shots = Shots(chosen.out.absolute(), set(chosen.only), chosen.svg)
    if shots.browser is None:
        print("no Chromium found: SVG files only", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="kforge-tour-") as folder:
        project = Path(folder) / "project"
        project.mkdir()
        op = (ROOT / "examples" / "softmax.py").read_text()
        assert SMALL in op
        (project / "softmax.py").write_text(op.replace(SMALL, LARGE))
        os.chdir(project)
        os.environ.setdefault("TERM", "xterm-256color")
        asyncio.run(session(project, shots))
        os.chdir(ROOT)
    for path in shots.made:
        print(f"{path} {path.stat().st_size // 1024} kB")


if __name__ == "__main__":
    main()
