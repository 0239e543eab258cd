"""The line to one OpenAI-compatible endpoint: streaming, retries with back-off, its refusals in one clear line each.

The only module that imports openai, and only when a model is first asked. It knows nothing of budgets, logs or tools.
"""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kforge.agent.chat.bounded import TooMuch, bound
from kforge.agent.chat.model import Model
from kforge.agent.chat.reader import TICK, Broken, Patience, Reader
from kforge.agent.chat.stream import Assembly, Usage
from kforge.agent.chat.tokens import estimate
from kforge.errors import ContextOverflow, KforgeError, ModelError, UsageError

if TYPE_CHECKING:
    import openai

STEERED = "steered"  # finish of an answer that was cut off because the developer spoke
MOST_SIGNS, MOST_SIGNS_ASIDE = 64, 4096  # characters of an answer for each token that was asked for, and besides
_TOO_LONG = (
    "context_length_exceeded", "context length", "context window", "maximum context", "too many tokens", "context size"
)  # fmt: skip

_NO_TOOLS = re.compile(r"\btools?\b.*(support|requires|recogni|unknown|enabled|allowed)|support\w* \W*tools?\b", re.I)


@dataclass(frozen=True)
class Answer:
    """One complete answer. message: as it is sent back; finish: stop, tool_calls, length, content_filter ..."""

    message: dict[str, Any]
    usage: Usage
    finish: str
    seconds: float
    refused: bool = False


class Endpoint:
    """Asks one model. Thread-safe is nothing but what `check` does."""

    def __init__(self, model: Model, patience: Patience | None = None) -> None:
        self.model, self.patience = model, patience or Patience()
        self._client: openai.OpenAI | None = None
        self._limit = "max_completion_tokens" if "api.openai.com" in model.base_url else "max_tokens"
        self._without: set[str] = set()  # fields that this endpoint refused

    def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        output: int,
        call: int = 0,
        check: Callable[[], None] = lambda: None,
        cut: Callable[[], bool] = lambda: False,
        on_text: Callable[[str], None] = lambda piece: None,
        on_retry: Callable[[str], None] = lambda words: None,
        on_lost: Callable[[Usage], None] = lambda usage: None,
    ) -> Answer:
        """One answer. output: the most tokens of it. check is called every 0.1 s; what it raises ends the call.
        cut too: once it is true what has arrived is the answer, without its calls, and its finish is STEERED.

        on_lost: told the usage that an endpoint reported of an attempt that broke. ModelError (exit code 3),
        ContextOverflow or UsageError when there is no answer to be had.
        """
        for attempt in range(self.patience.attempts):
            try:
                return self._attempt(messages, tools, output, call, check, cut, on_text)
            except Broken as broken:
                if broken.usage is not None:
                    on_lost(broken.usage)
                wait = self.patience.wait(attempt) if broken.wait is None else broken.wait
                if attempt + 1 == self.patience.attempts:
                    raise ModelError(
                        f"{self.model.host} gave no answer in {attempt + 1} attempts: {broken}",
                        "`kforge resume` goes on when it does",
                    ) from broken
                if wait > self.patience.longest:
                    raise ModelError(
                        f"{self.model.host} asks to wait {wait:.0f} s: {broken}", "`kforge resume` goes on later"
                    ) from broken
                on_retry(f"{self.model.host}: {broken}; asking again in {wait:.1f} s")
                _sleep(wait, check)
        raise AssertionError("the last attempt returns or raises")

    def probe(self, check: Callable[[], None] = lambda: None) -> Usage:
        """Ask for one token: that the address, the key and the name are right shows in nothing cheaper.

        A list of models is open to everybody on some endpoints and lacks names that work on others.
        """
        return self.complete([{"role": "user", "content": "ok?"}], output=1, check=check).usage

    def names(self) -> list[str]:
        """The models that the endpoint lists; empty where it does not say."""
        import openai

        try:
            return sorted(str(model.id)[:80] for model in self._open().models.list(timeout=10.0).data)
        except (openai.OpenAIError, ValueError, TypeError):
            return []

    # inside

    def _open(self) -> openai.OpenAI:
        if self._client is None:
            import openai

            timeout = openai.Timeout(self.patience.silence, connect=min(15.0, self.patience.silence))
            # No redirect is followed, no proxy stands between this machine and itself: the route is as was said.
            plain = openai.DefaultHttpxClient(
                follow_redirects=False,
                trust_env=not self.model.is_local,
                headers={"Accept-Encoding": "identity"},
                event_hooks={"response": [bound]},
            )
            self._client = openai.OpenAI(
                api_key=self.model.key.reveal(),
                base_url=self.model.base_url,
                max_retries=0,
                timeout=timeout,
                http_client=plain,
            )
        return self._client

    def _attempt(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        output: int,
        call: int,
        check: Callable[[], None],
        cut: Callable[[], bool],
        on_text: Callable[[str], None],
    ) -> Answer:
        begin = time.monotonic()
        assembly = Assembly(on_text, most=MOST_SIGNS * output + MOST_SIGNS_ASIDE)

        cut_off = [False]  # a steer that cuts may be taken back or read by then: it has cut all the same

        def cut_now() -> bool:
            cut_off[0] = cut_off[0] or (not assembly.finish and cut())  # one that is complete is taken as it is
            return cut_off[0]

        while True:
            check()
            reader = Reader(self._open(), self._request(messages, tools, output))
            try:
                for chunk in reader.chunks(check, cut_now, self.patience):
                    if not assembly.add(chunk):
                        break  # it goes on beyond what was asked for: hung up, as if cut off by the endpoint
                break
            except Exception as error:
                if self._adapts(error) and not assembly.size:
                    continue
                raise self._told(error, assembly) from error
            finally:
                reader.close()
        if not assembly.finish and cut_now():
            assembly.finish, assembly.calls = STEERED, []
        if not assembly.finish:
            if not assembly.begun and reader.said:
                raise ModelError(
                    f"{self.model.host} answers with {reader.said} and no stream of events",
                    "is it an OpenAI-compatible endpoint, and does --base-url end in /v1?",
                )
            raise Broken("the stream ended in the middle", usage=assembly.usage)
        message = assembly.message(call)
        usage = assembly.usage or Usage(0, estimate(" " * assembly.size), 0, estimated=True)
        refused = bool(assembly.refusal) or assembly.finish == "content_filter"
        return Answer(message, usage, assembly.finish, round(time.monotonic() - begin, 3), refused)

    def _request(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], output: int
    ) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self.model.name,
            "messages": [sendable(message) for message in messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            self._limit: output,
        }
        if tools:
            request["tools"] = list(tools)
        if self.model.temperature is not None:
            request["temperature"] = self.model.temperature
        return {name: value for name, value in request.items() if name not in self._without}

    def _adapts(self, error: Exception) -> bool:
        """Whether the endpoint refused a field that it can do without, or that has another name; each only once."""
        import openai

        if not isinstance(error, openai.BadRequestError | openai.UnprocessableEntityError):
            return False
        said = str(error).lower()
        if self._limit in said and f"_{self._limit}" not in said.replace(f"'{self._limit}'", ""):
            other = "max_tokens" if self._limit == "max_completion_tokens" else "max_completion_tokens"
            if f"swapped:{other}" not in self._without:
                self._without.add(f"swapped:{self._limit}")
                self._limit = other
                return True
        for name in ("stream_options", "temperature"):
            if name in said and name not in self._without:
                self._without.add(name)
                return True
        return False

    def _told(self, error: Exception, assembly: Assembly) -> Exception:
        """What an attempt's failure means: an error of ours, or Broken where asking again may help."""
        import openai

        if isinstance(error, KforgeError | Broken):
            return error
        if isinstance(error, openai.APIStatusError):
            return self._status(error, assembly)
        said = self._clean(str(error) or type(error).__name__)
        if isinstance(error, openai.APITimeoutError):
            return Broken("no answer in time", usage=assembly.usage)
        if isinstance(error.__cause__, TooMuch) or isinstance(error, TooMuch):
            what = error if isinstance(error, TooMuch) else error.__cause__
            return ModelError(f"{self.model.host}: {what}", "that is no answer of a chat model; check --base-url")
        if isinstance(error, openai.APIConnectionError) or _is_transport(error):
            cause = self._clean(str(error.__cause__ or error))
            return Broken(f"the connection failed: {cause}", usage=assembly.usage)
        if isinstance(error, openai.OpenAIError | ValueError):  # an error event or no JSON in the middle of a stream
            return Broken(f"the stream broke: {said}", usage=assembly.usage)
        return error

    def _status(self, error: Any, assembly: Assembly) -> Exception:
        code, said, host, name = error.status_code, self._clean(_words(error)), self.model.host, self.model.name
        if code in (401, 403):
            if not self.model.key:
                return ModelError(f"{host} wants a key ({code})", "set KFORGE_API_KEY")
            return ModelError(
                f"{host} refused the key ({code}): {said}", "check KFORGE_API_KEY, or the keyring's entry"
            )
        if code == 402 or _is_quota(error):
            return ModelError(f"{host}: nothing is left on this account: {said}", "add credit, or choose another model")
        if code == 404:
            listed = self.names()
            hint = "it has: " + ", ".join(listed[:12]) if listed else "check the name and --base-url (it ends in /v1)"
            return UsageError(f"{host} has no model {name!r}: {said}", hint)
        if code == 429 or code >= 500 or code in (408, 409, 425):
            return Broken(f"{code}: {said}", _retry_after(error.response.headers), assembly.usage)
        if any(words in said.lower() for words in _TOO_LONG) or getattr(error, "code", "") in _TOO_LONG or code == 413:
            return ContextOverflow(
                f"{host}: the request is too long for {name}: {said}", f'[models."{name}"] window = ...'
            )
        if _NO_TOOLS.search(said):
            return UsageError(
                f"{name} at {host} takes no tools: {said}", f'kforge.toml: [models."{name}"] tools = false'
            )
        if 300 <= code < 400:
            place = self._clean(error.response.headers.get("location", "nowhere"))
            return ModelError(f"{host} redirects to {place} ({code})", "no redirect is followed; is that --base-url?")
        return ModelError(f"{host} refused the request ({code}): {said}")

    def _clean(self, text: str) -> str:
        return " ".join(self.model.key.redact(text).split())[:300]


def sendable(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message without what is only for ourselves; an answer without words as endpoints take it back."""
    sent = {name: value for name, value in message.items() if not name.startswith("kforge_")}
    if sent["role"] == "assistant" and not sent.get("content"):
        sent["content"] = None if sent.get("tool_calls") else "(nothing)"
    return sent


def _sleep(seconds: float, check: Callable[[], None]) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        check()
        time.sleep(min(TICK, left))


def _is_transport(error: Exception) -> bool:
    """Whether an error is the HTTP library's, which some releases of openai let through from a stream."""
    return type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2")


def _words(error: Any) -> str:
    body = error.body
    if isinstance(body, Mapping):
        inner = body.get("error", body)
        if isinstance(inner, Mapping) and inner.get("message"):
            return str(inner["message"])
    return str(error)


def _is_quota(error: Any) -> bool:
    return error.status_code == 429 and getattr(error, "code", None) == "insufficient_quota"


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that Retry-After asks for, written as seconds or as a date; None where it says nothing readable."""
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError):
            return None
    return max(0.0, seconds) if seconds == seconds else None
