"""What a candidate's end or error means: a status, and words for the person or the model that must act on it."""

from __future__ import annotations

from kforge.environment.detectors import Watch
from kforge.environment.report import Status
from kforge.errors import ChildFailed, MisalignedError

OF_KIND = {
    "timed_out": Status.TIMED_OUT,
    "crashed": Status.CRASHED,
    "protocol": Status.HACKED,
    "damaged": Status.WRONG,
}
DETECTOR_OF = {"protocol": "forged_result", "damaged": "guard_bands"}
_LOG = 2000  # characters of a compiler's log


def outcome(failure: ChildFailed, raised: Status, watch: Watch) -> tuple[Status, str]:
    """Status and words. raised: what an exception in the candidate's own code means here."""
    words, error = failure.text.strip(), failure.error
    if failure.kind in DETECTOR_OF:
        watch.fire(DETECTOR_OF[failure.kind], words)
    elif error.get("gpu_only"):
        return Status.BUILT, f"GPU only: {error['message']}"
    elif error.get("kind") == "build":
        log = error.get("log", "").strip()[-_LOG:]
        return Status.BUILD_FAILED, "\n".join(filter(None, (error["message"], log)))
    elif error.get("kind") == MisalignedError.kind:
        watch.fire("out_of_bounds", error["message"])
        return Status.WRONG, error["message"]
    elif error:
        words = " ".join(filter(None, (error["message"], error.get("hint", ""))))
    return OF_KIND.get(failure.kind, raised), words
