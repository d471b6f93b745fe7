"""From the words of a command line to a task: `matmul 512 512 512`, `net.py:layer 64 relu=true`."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from ansor.errors import AnsorError, DefinitionError, TargetError
from ansor.task.alternatives import Call
from ansor.task.registry import BUILTIN_PREFIX, register_workload, registered_workloads, workload_function
from ansor.task.target import Target
from ansor.workloads import get_workload
from search.search_task import SearchTask
from search.templates.task import TemplateTask
from sketches.templates.function import TEMPLATES, Template

Workload = Callable[..., Any]
_NEGATIVE: Final = re.compile(r"-\.?\d[\w.+-]*")
_HIDDEN: Final = "\0"
_BY_POSITION: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def layout_option(command: Any) -> Any:
    """Give a command the option that becomes the task's layout option."""
    return click.option(
        "--layout-rewrite-option",
        "layouts",
        type=click.IntRange(0, 2),
        help="Layout of constants: 0 as they are, 1 programs copy them, 2 the caller brings them.",
    )(command)


@dataclass(frozen=True, slots=True)
class Asked:
    """
    What the words of a command line name: a workload, called with arguments, for a target.

    Attributes
    ----------
    words
        First a name of the catalogue or `file.py:function` (a workload or a template), then the arguments:
        numbers, strings, JSON lists, or `name=value`. A catalogue name alone stands for its benchmark size.
    name, args
        The registered workload, and the arguments as Python values.
    target
        Target text.
    """

    words: tuple[str, ...]
    name: str
    args: tuple[Any, ...]
    target: str

    @classmethod
    def of(cls, words: Sequence[str], target: str) -> Asked:
        """
        Find the workload, once: a file is loaded for it.

        Raises
        ------
        DefinitionError
            If there is no such workload or the arguments do not fit it.
        """
        name, function = find_workload(words[0])
        if len(words) == 1 and name.startswith(BUILTIN_PREFIX):
            args: Sequence[Any] = get_workload(name).default_args
        else:
            args = bind_arguments(words[0], function, words[1:])
        return cls(tuple(words), name, tuple(args), target)

    def task(self, layouts: int = 0, alternatives: Sequence[Call] = ()) -> SearchTask:
        """
        Make the task.

        Parameters
        ----------
        layouts
            The layout option (`LayoutRewriteOption`).
        alternatives
            Other algorithms, as `SearchTask` takes them; a template has none.

        Raises
        ------
        DefinitionError
            If the workload cannot be made of these arguments, or an alternative is none.
        TargetError
            If the target cannot be used.
        """
        target = _target(self.target)
        try:
            if self.name in TEMPLATES:
                return TemplateTask(self.name, self.args, target=target, layout_rewrite_option=layouts)
            return SearchTask(
                func=self.name,
                args=self.args,
                target=target,
                layout_rewrite_option=layouts,
                alternatives=alternatives,
            )
        except (Exception, SystemExit) as error:  # The user's function: whatever it raises is the answer.
            if isinstance(error, AnsorError):
                pairs = zip(self.words[1:], self.args, strict=False)
                whole = [(word, arg) for word, arg in pairs if _is_whole_float(arg)]
                if whole and "float" in str(error):
                    word, arg = whole[0]
                    error.add_note(f"{word} is a float; write {int(arg)}")
                raise
            call = f"{self.words[0]}({', '.join(map(repr, self.args))})"
            failure = DefinitionError(f"{call} fails: {type(error).__name__}: {error}{_origin(error)}")
            for note in getattr(error, "__notes__", ()):
                failure.add_note(note)
            raise failure from error


def _target(text: str) -> Target:
    """The target of an option; what its text makes of this machine has causes of its own."""
    try:
        return Target(text)
    except TargetError as error:
        raise TargetError(f"--target {text!r}: {error}") from None


def _is_whole_float(value: object) -> bool:
    return isinstance(value, float) and value.is_integer()


class WorkloadCommand(click.Command):
    """A command whose arguments may be negative numbers, which are no options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        takes_value = {
            name
            for param in self.params
            if isinstance(param, click.Option) and not param.is_flag and not param.count
            for name in param.opts
        }
        before = ["", *args]
        hidden = [
            f"{_HIDDEN}{word}" if _NEGATIVE.fullmatch(word) and previous not in takes_value else word
            for previous, word in zip(before, args, strict=False)
        ]
        return super().parse_args(ctx, hidden)


def show_numbers(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Callback of a `WorkloadCommand`'s ARGS: negative numbers as they were written."""
    return tuple(word.removeprefix(_HIDDEN) for word in value)


def find_workload(word: str) -> tuple[str, Workload]:
    """Find the registered name and the function that `word` means."""
    path, colon, attribute = word.rpartition(":")
    if colon and path:
        function = _function_of_file(Path(path), attribute)
        if isinstance(function, Template):
            return function.name, partial(function.function, None)  # The configuration is no argument.
        return _registered_name(function, attribute), function
    if word.endswith(".py"):
        raise DefinitionError(f"{word!r} is a file; say which function of it: {word}:FUNCTION")
    try:
        entry = get_workload(word)
    except DefinitionError as error:
        raise DefinitionError(f"{error}; a function of your own is written file.py:function") from None
    return entry.registered_name, entry.function


def bind_arguments(word: str, function: Workload, words: Sequence[str]) -> list[Any]:
    """Order values as the function's parameters are; defaults fill the gaps before named ones."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for text in words:
        name, equals, value = text.partition("=")
        if equals and name.isidentifier():
            named[name] = parse_value(value)
        else:
            positional.append(parse_value(text))
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*positional, **named)
    except TypeError as error:
        raise DefinitionError(f"{word}: {error}; it is called as {usage(word, function)}") from None
    if not named:
        return positional
    positions = [name for name, parameter in signature.parameters.items() if parameter.kind in _BY_POSITION]
    if lost := [name for name in named if name not in positions]:
        raise DefinitionError(f"{word}: {', '.join(lost)} cannot be given by position, so no record can")
    bound.apply_defaults()
    last = max(map(positions.index, named))
    return list(bound.args[: max(last + 1, len(positional))])


def parse_value(text: str) -> Any:
    """Read a word as a JSON value if it is one (lists become tuples), else take it as text."""
    try:
        return _tuples(json.loads(text))
    except (ValueError, RecursionError):
        return {"True": True, "False": False, "None": None}.get(text, text)


def usage(word: str, function: Workload) -> str:
    """How a workload is written on a command line: ``matmul n m k [dtype=float32]``."""
    parts = [word]
    for parameter in inspect.signature(function).parameters.values():
        has_default = parameter.default is not inspect.Parameter.empty
        parts.append(f"[{parameter.name}={parameter.default}]" if has_default else parameter.name)
    return " ".join(parts)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _function_of_file(path: Path, attribute: str) -> Workload:
    if not path.is_file():
        raise DefinitionError(f"there is no file {str(path)!r} to take the function {attribute!r} from")
    spec = importlib.util.spec_from_file_location(f"ansor_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise DefinitionError(f"{str(path)!r} is not a Python file; write file.py:function")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    folder = str(path.parent.resolve())
    if folder not in sys.path:  # And there it stays, as for a script: functions import when they are called.
        sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # The user's program: whatever it raises is the answer.
        raise DefinitionError(
            f"{path} cannot be loaded: {type(error).__name__}: {error}{_origin(error)}"
        ) from error
    function = getattr(module, attribute, None)
    if not callable(function):
        own = [name for name, value in vars(module).items() if _is_defined_in(module.__name__, value)]
        raise DefinitionError(
            f"{path} has no function {attribute!r}; it defines {', '.join(own) or 'no function'}"
        )
    return function  # type: ignore[no-any-return]


def _is_defined_in(module: str, value: object) -> bool:
    """Whether a module's name stands for a function or a template of its own."""
    function = value.function if isinstance(value, Template) else value
    return inspect.isfunction(function) and function.__module__ == module


def _registered_name(function: Workload, attribute: str) -> str:
    """
    Find the name of a registered function; one that its file did not register gets that of its attribute.

    Functions that a factory makes share what they call themselves, and must not share records.
    """
    for name in registered_workloads():
        if workload_function(name) is function:
            return name
    register_workload(attribute, function, override=True)
    return attribute


def _origin(error: BaseException) -> str:
    """Where an exception came from: " (net.py, line 12)"."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
