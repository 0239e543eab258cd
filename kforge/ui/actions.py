"""Everything the IDE can be asked to do, once: keys, footer, palette, help and the keymap in kforge.toml follow it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from textual.binding import Binding


@dataclass(frozen=True)
class Action:
    """id: its name in [keys]; key: default, "" none; do: the app's action; footer: its place there, 0 for none."""

    id: str
    key: str
    title: str
    help: str
    do: str = ""
    footer: int = 0
    priority: bool = True

    @property
    def action(self) -> str:
        """The action string of Textual."""
        return self.do or self.id


ACTIONS: dict[str, Action] = {
    a.id: a
    for a in (
        Action("help", "f1", "Help", "keys and commands of the pane that has the focus", footer=1),
        Action("run", "f2", "Run/stop", "look for a faster kernel, or stop looking", footer=2),
        Action("next_pane", "f3", "Next pane", "editor, timeline, diff, profile, search tree, steer"),
        Action("accept", "f4", "Accept", "see the evidence, then put the candidate beside op.py", footer=3),
        Action("verify", "f5", "Verify", "judge and time the candidate as it is in the editor", footer=4),
        Action("show_diff", "f8", "Diff", "what the candidate changes, hunk by hunk", footer=5),
        Action("show_profile", "f9", "Profile", "why the candidate is as fast as it is"),
        Action("export", "f10", "Export", "make a package of the candidate", footer=3),
        Action("palette", "ctrl+p", "Palette", "find any command by its name", do="command_palette"),
        Action("steer", "ctrl+g", "Steer", "say something to the agent", footer=6),
        Action("save", "ctrl+s", "Save", "write the file that is shown"),
        Action("quit", "ctrl+q", "Quit", "leave; runs are kept", footer=7),
        Action("stop", "", "Stop", "stop the work in progress (escape twice)"),
        Action("show_timeline", "alt+1", "Timeline", "every attempt as it happened"),
        Action("show_tree", "alt+2", "Search tree", "attempts by where they came from"),
        Action("show_log", "alt+3", "Log", "what the core says"),
        Action("focus_editor", "alt+0", "Editor", "back to the text"),
        Action("next_tab", "alt+t", "Next file", "the next tab of the editor"),
        Action("find", "ctrl+f", "Find", "find words in the file"),
        Action("find_next", "alt+n", "Find next", "the next place"),
        Action("find_previous", "alt+p", "Find previous", "the place before"),
        Action("go_to_line", "alt+g", "Go to line", "by its number"),
        Action("edit_outside", "alt+e", "Open in $EDITOR", "hand the file to your editor and come back"),
        Action("reload", "alt+r", "Reload", "take the file from disk, edits here are one undo away"),
        Action("metric", "alt+m", "Next metric", "another figure in the gutter, then none"),
        Action("hotter", "alt+j", "Next hot line", "the next line in order of cost", do="hot_line(1)"),
        Action("colder", "alt+k", "Previous hot line", "the line before in order of cost", do="hot_line(-1)"),
        Action("undo_accept", "", "Undo accept", "take the last accept back"),
        Action("baseline", "", "Baseline source", "what PyTorch's compiler writes for op.py"),
        Action("sessions", "", "Sessions", "runs of this project; continue one"),
        Action("doctor", "", "Doctor", "what is on this machine, and what works without"),
        Action("settings", "f12", "Settings", "theme, keys, vim motions, model"),
        Action("next_theme", "", "Next theme", "dark, light, high contrast"),
        Action("copy_all", "", "Copy the file", "to the clipboard, over ssh too"),
    )
}
FOOTER_KEYS = 7


def bindings(keys: Mapping[str, str]) -> list[Binding]:
    """The app's bindings with the keymap of kforge.toml in force (id -> key, "" for none)."""
    found = []
    for action in ACTIONS.values():
        key = keys.get(action.id, action.key)
        if key:
            found.append(
                Binding(
                    key, action.action, action.title, show=action.footer > 0, priority=action.priority, id=action.id
                )
            )
    return found


def shown(key: str) -> str:
    """A key as a person writes it: "^g", "F2", "alt-m"."""
    key = key.partition(",")[0]
    if key.startswith("ctrl+"):
        return "^" + key[5:]
    return key.upper() if key.startswith("f") and key[1:].isdigit() else key.replace("+", "-")
