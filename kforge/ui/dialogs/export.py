"""The export dialog: format, folder, package name and the stamp that the package will carry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Checkbox, Input, RadioButton, RadioSet, Static

from kforge.export.formats import FORMATS
from kforge.ui.dialogs.accept import BOX, Dialog
from kforge.ui.panes.glyphs import MUTED
from kforge.ui.text import one_line, plain


class ExportScreen(Dialog[dict[str, Any] | None]):
    """Returns the arguments of `export` (to, format, name, force, build), None for none.

    evidence: the core's answer to `evidence`, formats and domain (lines) too; default: the folder that is proposed.
    """

    DEFAULT_CSS = f"""
    ExportScreen {{ {BOX}
        & RadioSet {{ width: 1fr; height: auto; border: none; padding: 0; }}
        & .field {{ height: 1; margin-top: 1; }}
        & .field > Static {{ width: 12; }}
        & .field > Input {{ width: 1fr; }}
        & #export-stamp {{ margin-top: 1; height: auto; }}
        & #export-domain {{ height: auto; }}
        & #export-said {{ display: none; height: auto; }}
        & #export-said.-shown {{ display: block; }}
        & Checkbox {{ height: 1; }}
    }}
    """
    HELP = (
        "# Export\n\nA package of the candidate: its format, where it goes, and the stamp on its README's first line."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Back", id="export.cancel"),
        Binding("ctrl+s", "export", "Export", id="export.export"),
    ]

    def __init__(self, evidence: Mapping[str, Any], default: str = "") -> None:
        super().__init__()
        self.evidence = evidence
        self.default = default
        self.formats = [name for name in evidence.get("formats") or FORMATS if name in FORMATS]

    def compose(self) -> ComposeResult:
        digest = one_line(str(self.evidence.get("candidate") or ""))[:8]
        with Vertical(classes="dialog"):
            yield Static(Content.styled(f"Export candidate {digest}", "bold"))
            with VerticalScroll(classes="dialog-body", can_focus=False):
                with RadioSet(id="export-format", compact=True):
                    for k, name in enumerate(self.formats):
                        yield RadioButton(Content(f"{name}: {FORMATS[name]}"), value=k == 0, id=f"format-{name}")
                with Horizontal(classes="field"):
                    yield Static("to folder")
                    yield Input(self.default, id="export-to", compact=True, select_on_focus=False)
                with Horizontal(classes="field"):
                    yield Static("package")
                    yield Input(
                        "", id="export-name", compact=True, placeholder="its name; also the namespace of its operators"
                    )
                yield Static(self._stamp(), id="export-stamp")
                yield Static(self._domain(), id="export-domain")
                yield Checkbox("build it and run its tests now", value=True, id="export-build", compact=True)
                yield Checkbox("export although it is not verified", id="export-force", compact=True)
                yield Static("", id="export-said")
            with Horizontal(classes="dialog-buttons"):
                yield Button("Export", id="export-yes", variant="success", compact=True)
                yield Button("Back", id="export-no", compact=True)
                yield Static("ctrl+s export  escape back", classes="dialog-keys")

    def on_mount(self) -> None:
        self.query_one("#export-to", Input).focus()
        self.query_one("#export-force", Checkbox).display = bool(self.evidence.get("problem"))

    def _stamp(self) -> Content:
        stamps = [one_line(str(stamp)) for stamp in self.evidence.get("stamps") or ()]
        problem = one_line(str(self.evidence.get("problem") or ""), 300)
        lines = [
            Content.assemble(("stamp: ", MUTED), (", ".join(stamps), "bold $text-warning"),
                             (" on the first line of its README", MUTED))
            if stamps else Content.styled("no stamp: it is verified, and faster on a GPU", "$text-success")
        ]  # fmt: skip
        lines += [plain(f"refused without the tick below: {problem}", "$text-error")] if problem else []
        return Content("\n").join(lines)

    def _domain(self) -> Content:
        lines = [one_line(str(line), 400) for line in self.evidence.get("domain") or ()]
        if lines:
            lines[0] += "; other calls are computed by the reference"
        return Content("\n").join(plain(line, MUTED) for line in lines)

    @property
    def chosen_format(self) -> str:
        """The format that is ticked."""
        pressed = self.query_one("#export-format", RadioSet).pressed_button
        return str(pressed.id).removeprefix("format-") if pressed is not None else self.formats[0]

    @on(Input.Submitted)
    @on(Button.Pressed, "#export-yes")
    def action_export(self) -> None:
        to = self.query_one("#export-to", Input).value.strip()
        name = self.query_one("#export-name", Input).value.strip()
        force = self.query_one("#export-force", Checkbox).value
        said = self.query_one("#export-said", Static).add_class("-shown")
        if not to:
            said.update(Content.styled("It needs a folder.", "$text-error"))
            self.query_one("#export-to", Input).focus()
        elif name and not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            said.update(Content.styled("A package is named by lower-case letters, digits and _.", "$text-error"))
            self.query_one("#export-name", Input).focus()
        elif self.evidence.get("problem") and not force:
            said.update(plain(f"Not exported: {one_line(str(self.evidence['problem']), 300)}.", "$text-error"))
            self.query_one("#export-force", Checkbox).focus()
        else:
            build = self.query_one("#export-build", Checkbox).value
            self.dismiss({"to": to, "format": self.chosen_format, "name": name, "force": force, "build": build})

    @on(Button.Pressed, "#export-no")
    def action_cancel(self) -> None:
        self.dismiss(None)
