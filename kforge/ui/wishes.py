"""What the panes ask for by messages, turned into actions and requests. Handlers by Textual's names for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.ui.deciding import Deciding

if TYPE_CHECKING:
    from kforge.ui.panes import DiffPane, ProfilePane, TimelinePane, TreePane


class Wishes(Deciding):
    """The handlers of the panes' messages."""

    def on_timeline_pane_diff_asked(self, message: TimelinePane.DiffAsked) -> None:
        self.run_worker(self.show_diff(message.candidate), group="diff", exclusive=True)

    def on_timeline_pane_profile_asked(self, message: TimelinePane.ProfileAsked) -> None:
        self.desk.show("profile")
        self.work(self.profile(message.candidate))

    def on_profile_pane_profile_asked(self, message: ProfilePane.ProfileAsked) -> None:
        self.work(self.profile(message.candidate))

    def on_tree_pane_selected(self, message: TreePane.Selected) -> None:
        if message.candidate:
            self.run_worker(self.show_diff(message.candidate), group="diff", exclusive=True)

    def on_diff_pane_accepted(self, message: DiffPane.Accepted) -> None:
        self.work(self.take_hunks(message), "accept")

    def on_diff_pane_rejected(self, message: DiffPane.Rejected) -> None:
        if not message.hunk:  # of single hunks it hears when the others are applied
            self.run_worker(self._tell_agent(message.text, "queued"), group="steer")

    def on_diff_pane_commented(self, message: DiffPane.Commented) -> None:
        self.run_worker(self._tell_agent(message.text, "now"), group="steer")

    def on_diff_pane_undo_asked(self, message: DiffPane.UndoAsked) -> None:
        self.action_undo_accept()

    async def _tell_agent(self, text: str, when: str) -> None:
        if await self.ask("steer", text=text, when=when) is not None:
            self.bar.notice("the agent will hear it" if self.core.busy else "kept for the next run")
