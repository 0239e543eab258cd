"""The search tree and the raw log: what the core's tree holds is shown, folded, chosen; lessons below."""

from __future__ import annotations

from typing import Any

from textual.pilot import Pilot

from kforge.agent.search.tree import Tree
from kforge.ui.panes.log import LogPane, fields
from kforge.ui.panes.tree import TreePane
from tests.ui.panes.hosting import HOSTILE, Host, hosted, on_screen, play, proposed, recorded, shown


def _evaluated(number: int, status: str = "verified", **more: Any) -> tuple[str, dict[str, Any]]:
    data = {"candidate": f"{number:016x}", "node": number, "status": status, "verdict": "same", "plan": "quick"}
    return "evaluated", data | {"reward": 0.1 * number, "failure": "" if status == "verified" else "off by one"} | more


def _events() -> list[tuple[str, Any]]:
    return [
        ("run_started", {"task": "/somewhere/op.py"}),
        proposed(1), _evaluated(1, speedup=1.2, ms=4.0),
        proposed(2, parent_node=1), _evaluated(2, speedup=2.5, ms=2.0),
        proposed(3, parent_node=1), _evaluated(3, "wrong"),
        proposed(4, parent_node=2),
        ("node", {"node": 3, "reward": -1.0, "visits": 1, "value": -1.0, "pruned": "wrong twice"}),
        ("lesson", {"family": "row", "shape_class": "wide", "chip": "H200", "direction": "vectorise",
                    "outcome": "better", "gain": 1.5, "text": "float4 loads"}),
    ]  # fmt: skip


def test_attempts_stand_under_their_parents() -> None:
    """Depth first with scores; the fastest has the star, a dead end its reason, a failure its words; lessons below."""
    pane = TreePane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        play(pane, _events())
        rows = shown(pane.view)
        assert rows[0].startswith("op.py  3 judged")
        assert rows[1].startswith("└─ ✓ #1 verified same 1.20x 4 ms  reward 0.10")
        assert rows[2].startswith("  ├─ ★ #2 verified same 2.50x 2 ms")
        assert rows[3] == "  │ └─ ● #4 proposed  idea 4"
        assert rows[4].startswith("  └─ ✗ #3 wrong") and rows[4].endswith("off by one")
        assert rows[5] == "    └ pruned: wrong twice"
        assert rows[7:] == [
            "Lessons of this and earlier runs",
            "· better 1.50x vectorise: float4 loads  (row, wide, H200)",
        ]
        await pilot.pause()
        assert "4 attempts" in on_screen(host)

    hosted(pane, act)


def test_it_is_the_core_s_own_tree() -> None:
    """After the events of a recorded run the pane holds the tree that the core's class makes of them."""
    pane = TreePane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        expected = Tree()
        for kind, data in recorded("softmax_run"):
            pane.on_core_event(kind, data)
            expected.apply(kind, data)
        assert pane.attempts == expected and len(expected) == 1
        assert "★ #1 verified untimed" in shown(pane.view)[1]

    hosted(pane, act)


def test_keys_fold_and_choose() -> None:
    """space, left and right fold; enter and d choose an attempt but not the reference; b goes to the best, unfolded."""
    pane = TreePane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        play(pane, _events())
        pane.view.settle()
        await pilot.press("enter", "j", "space")
        rows = shown(pane.view)
        assert rows[1].endswith("[2 hidden]") and not any("#2" in row for row in rows)
        await pilot.press("right")
        assert any("#2" in row for row in shown(pane.view))
        await pilot.press("left", "home", "b")
        assert pane.view.selected is not None and pane.view.selected.id == 2
        await pilot.press("enter", "k", "d", "end", "enter")
        await pilot.pause()

    host = hosted(pane, act)
    assert [(m.node, m.candidate) for m in host.get(TreePane.Selected)] == [(2, f"{2:016x}"), (1, f"{1:016x}")]


def test_deep_and_wide_trees() -> None:
    """Ten thousand attempts, a chain as well as a fan, are listed without recursion; only what is in sight is drawn."""
    for parent in (lambda i: i - 1, lambda i: 0):
        pane = TreePane()

        async def act(host: Host, pilot: Pilot[None], pane: TreePane = pane, parent: Any = parent) -> None:
            play(pane, [proposed(i, parent_node=parent(i)) for i in range(1, 10_001)])
            pane.view.settle()
            assert pane.view.count == 10_001
            await pilot.press("end")
            await pilot.pause()
            assert "#10000 proposed" in on_screen(host)

        hosted(pane, act)


def test_another_run_goes_on_in_the_tree() -> None:
    """A run numbers its attempts from 1; in the tree they go on, under the right parents; clear ends it."""
    pane = TreePane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        play(pane, _events())
        again = [("run_started", {"task": "op.py"}), proposed(1, candidate="known", node=1), *_events()[3:5]]
        again[2] = ("proposed", {"candidate": "new", "node": 2, "parent_node": 1, "idea": "second run"})
        again[3] = ("evaluated", {"candidate": "new", "node": 2, "status": "verified", "reward": 0.0})
        play(pane, again)  # type: ignore[arg-type]
        node = pane.attempts.find("new")
        assert node is not None and (node.id, node.parent, node.status) == (6, 5, "verified")
        assert pane.attempts.nodes[2].candidate == f"{2:016x}"
        pane.on_core_event("node", {"node": 2, "pruned": "enough"})
        assert (node.pruned, pane.attempts.nodes[2].pruned) == ("enough", "")
        pane.clear()
        assert len(pane.attempts) == 0 and len(shown(pane.view)) == 1

    hosted(pane, act)


def test_hostile_ideas_and_lessons() -> None:
    """Model text in ideas, failures, reasons and lessons is shown as it is, one row each, cut to the pane."""
    pane = TreePane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        play(pane, [proposed(1, idea=HOSTILE), _evaluated(1, "wrong", failure=HOSTILE)])
        play(pane, [("node", {"node": 1, "pruned": HOSTILE}), ("lesson", {"outcome": HOSTILE, "text": HOSTILE})])
        text = "\n".join(shown(pane.view))
        await pilot.pause()
        text += on_screen(host)
        assert text.count("tile[threadIdx.x] = v[/]; [b]bold[/b]") >= 4
        assert not [c for c in text if c in "\x1b\x07\x00\x08\r\u202e\u2028\u200b"]

    hosted(pane, act)


def test_the_log_is_no_json() -> None:
    """An event reads as names and values, without what is empty; only words with a space in them are quoted."""
    data = {"candidate": "ab12", "passed": True, "detail": "", "ms": 0.123456, "files": ["a.cu"]}
    data |= {"left": {"s": 3, "t": None}, "idea": "one block per row"}
    assert fields(data) == 'candidate=ab12 passed=true ms=0.1235 files=[a.cu] left={s=3} idea="one block per row"'


def test_log_keeps_the_last_lines() -> None:
    """Every event is one harmless line, the core's stderr too; only the last few thousand are kept."""
    pane = LogPane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        play(pane, recorded("wrong"))
        pane.on_core_event("log", {"text": "from stderr"})
        pane.on_core_event("message", {"text": HOSTILE})
        pane.settle()
        assert pane.line_count == len(recorded("wrong")) + 2
        assert str(pane.lines[-2]) == "log            from stderr"
        assert "report" not in "".join(str(line) for line in pane.lines)
        last = str(pane.lines[-1])
        assert "tile[threadIdx.x] = v[/]; [b]bold" in last and len(last) < 2_100 and last.isprintable()
        for i in range(6_000):
            pane.on_core_event("log", {"text": str(i)})
        pane.settle()
        assert pane.line_count == 5_000 and str(pane.lines[-1]).endswith("5999")

    hosted(pane, act)
