"""The prompts: Jinja templates of templates/prompts; a file of the same name in a user's folder replaces one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.agent.chat.untrusted import data
from kforge.agent.tools.confined import inside, is_file
from kforge.errors import UsageError
from kforge.kernel.sources import read_source
from kforge.resources import templates_dir

if TYPE_CHECKING:
    from jinja2 import Environment

SUFFIX = ".md.j2"


def known() -> list[str]:
    """The names of the prompts, without their suffix."""
    return sorted(path.name.removesuffix(SUFFIX) for path in (templates_dir() / "prompts").glob(f"*{SUFFIX}"))


class Prompts:
    """Renders prompts. folder: the user's, None for kforge's own alone.

    UsageError, before anything is asked, for a folder that is absent, a file there that is no prompt, or a template
    that Jinja cannot read.
    """

    def __init__(self, folder: Path | None = None) -> None:
        from jinja2 import FunctionLoader, StrictUndefined
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        self.folder = folder
        own = templates_dir() / "prompts"
        self._places = [own] if folder is None else [folder, own]
        # A folder of prompts may come with somebody's repository: it can say what it likes, and call nothing.
        self._environment: Environment = ImmutableSandboxedEnvironment(
            loader=FunctionLoader(self._load),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=False,
        )
        filters: dict[str, Callable[..., str]] = {"data": data}
        self._environment.filters.update(filters)
        self.overridden = self._check(folder)

    def _check(self, folder: Path | None) -> list[str]:
        """The user's templates by name, each of them read once."""
        if folder is None:
            return []
        if not folder.is_dir():
            raise UsageError(f"prompts: there is no folder {folder}", 'kforge.toml: prompts = "DIR"')
        names = sorted(path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}"))
        strange = [name for name in names if name not in known()]
        if strange:
            raise UsageError(f"{folder}: {strange[0]}{SUFFIX} is no prompt of kforge", "prompts: " + ", ".join(known()))
        for name in names:
            self._get(name)
            self._check_names(folder, name)
        return names

    def _load(self, name: str) -> tuple[str, str, Callable[[], bool]] | None:
        """A prompt's text by its file name. No link out of its folder is followed: what it says goes to an endpoint."""
        if name.removesuffix(SUFFIX) not in known():
            return None
        for place in self._places:
            path = inside(place.resolve(), name)
            if path is None:
                raise UsageError(f"{place / name} leads out of its folder", "a prompt is a file, no link")
            if is_file(path):
                return read_source(path), str(place / name), lambda: True
        return None

    def _check_names(self, folder: Path, name: str) -> None:
        """What a template names must exist: other prompts, and values that some prompt is given."""
        from jinja2 import meta

        own = Prompts()
        values = {value for prompt in known() for value in meta.find_undeclared_variables(own._parsed(prompt))}
        parsed = self._parsed(name)
        strange = sorted(meta.find_undeclared_variables(parsed) - values - set(self._environment.globals))
        if strange:
            words = f"{folder / name}{SUFFIX}: no prompt is given a value {strange[0]!r}"
            raise UsageError(words, "values: " + ", ".join(sorted(values)))
        for other in meta.find_referenced_templates(parsed):
            if other is not None and other.removesuffix(SUFFIX) not in known():
                raise UsageError(f"{folder / name}{SUFFIX}: {other!r} is no prompt", "prompts: " + ", ".join(known()))

    def _parsed(self, name: str) -> Any:
        loader = self._environment.loader
        assert loader is not None
        return self._environment.parse(loader.get_source(self._environment, name + SUFFIX)[0])

    def _get(self, name: str) -> Any:
        from jinja2 import TemplateError, TemplateSyntaxError

        try:
            return self._environment.get_template(name + SUFFIX)
        except TemplateSyntaxError as error:
            raise UsageError(f"{error.filename}:{error.lineno}: {error.message}", "mend the template") from error
        except (TemplateError, UnicodeDecodeError, OSError) as error:
            raise UsageError(f"the prompt {name}{SUFFIX} cannot be read: {error}") from error

    def render(self, name: str, **values: Any) -> str:
        """One prompt. The filter `data("label")` marks a text as data. UsageError where the template fails."""
        from jinja2 import TemplateError

        try:
            return str(self._get(name).render(**values)).strip()
        except (
            TemplateError, TypeError, ValueError, ArithmeticError, LookupError, MemoryError, RecursionError
        ) as error:  # fmt: skip
            where = f"{self.folder}/" if name in self.overridden else ""
            why = str(error) or type(error).__name__
            raise UsageError(f"the prompt {where}{name}{SUFFIX} fails: {why}", "mend the template") from error
