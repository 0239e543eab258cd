"""The border between what the developer says and what was merely read: sources, logs, tool results are data.

Data stand between two lines that carry a digest of the data themselves, so no text can hold the line that would end it.
The developer's words stand behind a code word that only the system prompt and they carry; it is taken out of all data.
"""

from __future__ import annotations

import hashlib
import re
import secrets

# Words by which chat templates part speakers (ChatML, Llama 3, ...): a server that does not escape them would let a
# source file speak as the system.
_TEMPLATE_MARKS = re.compile(r"<\|([A-Za-z0-9_]{2,40})\|>")
# Terminal control other than line ends and tabs, and signs that turn the direction of text or have no width.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)
_LINE_ENDS = re.compile("[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")  # besides the newline
PASSWORD = re.compile(r"developer-[0-9a-f]{16}")


def password() -> str:
    """A fresh code word of one conversation, behind which the developer speaks."""
    return f"developer-{secrets.token_hex(8)}"


def data(text: str, label: str) -> str:
    """A text from elsewhere, fit to be shown to a model as data. label: what it is; one short line."""
    body = clean(text)
    label = re.sub(r"[^\w .,:/()=+-]", "", label)[:80]
    mark = hashlib.sha256(f"{label}\n{body}".encode()).hexdigest()[:16]
    return f"<data {mark}: {label}>\n{body.rstrip()}\n</data {mark}>"


def developer(text: str, code: str) -> str:
    """The developer's own words, as the system prompt says how to know them."""
    # A steer may quote a hunk of a model's: no line of it may begin where the quotation has none, or speak as another.
    text = _TEMPLATE_MARKS.sub(r"< |\1| >", _LINE_ENDS.sub(" ", text.replace("\r\n", "\n")))
    text = PASSWORD.sub("developer-[removed]", text.encode(errors="replace").decode())
    lines = [part.rstrip() for part in text.strip().split("\n") if part.strip()]
    return f"[{code}] " + "\n".join(lines)


def clean(text: str) -> str:
    """A text without what is not seen, what ends a speaker's turn, and any code word of the developer's."""
    text = text.encode(errors="replace").decode()  # lone surrogates
    text = _UNSEEN.sub("\ufffd", text)
    text = _TEMPLATE_MARKS.sub(r"< |\1| >", text)
    return PASSWORD.sub("developer-[removed]", text)
