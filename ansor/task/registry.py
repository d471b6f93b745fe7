"""Workloads by name: from a function and its arguments to a key that logs can carry, and back.

A workload is a function that takes plain arguments and returns its tensors, inputs and outputs. Registered
under a name, each call of it has a *key*, the JSON list `["name", args...]`, which is what a log record holds
and from which any later process makes the same graph again, if it has registered the function. Arguments may
also be tensors, of which only shape and dtype count; a key writes them as `["TENSOR", [shape], "dtype"]`.

A graph that no function makes can be registered as a list of tensors under a key of its own
(`register_workload_tensors`); such keys are in `ansor.schedule.structure`.

The workloads of `ansor.workloads` are registered as `"ansor.NAME"`. Names that start so are reserved; their
module is loaded when one is first asked for.
"""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, TypeVar, overload

from ansor.errors import AnsorError, DefinitionError
from ansor.schedule.dag import ComputeDAG
from ansor.te.define import placeholder
from ansor.te.expr import Expr, int_value
from ansor.te.tensor import Tensor, format_shape

WorkloadFunction = Callable[..., Any]
FunctionT = TypeVar("FunctionT", bound=WorkloadFunction)
Plain = int | float | str | bool | None
Argument = Plain | tuple["Argument", ...]

BUILTIN_PREFIX: Final = "ansor."
_BUILTIN_MODULE: Final = "ansor.workloads"
_TENSOR: Final = "TENSOR"

_FUNCTIONS: Final[dict[str, WorkloadFunction]] = {}
_TENSORS: Final[dict[str, tuple[Tensor, ...]]] = {}


# -- registering -------------------------------------------------------------------------------------


@overload
def register_workload(func_name: FunctionT, f: None = None, override: bool = False) -> FunctionT: ...


@overload
def register_workload(
    func_name: str, f: None = None, override: bool = False
) -> Callable[[FunctionT], FunctionT]: ...


@overload
def register_workload(func_name: str, f: FunctionT, override: bool = False) -> FunctionT: ...


def register_workload(
    func_name: str | WorkloadFunction, f: WorkloadFunction | None = None, override: bool = False
) -> WorkloadFunction | Callable[[WorkloadFunction], WorkloadFunction]:
    """Make a function known by name, so that records of its tuning find it again.

    A decorator, with a name or without, or a plain call.

    Parameters
    ----------
    func_name
        The name, or the function itself, whose `__qualname__` is then its name.
    f
        The function, if this is not used as a decorator. Called with plain arguments (numbers, strings,
        tuples of them), it returns a list or tuple of tensors: inputs and outputs.
    override
        Replace another function of that name.

    Raises
    ------
    DefinitionError
        If the name is not a string, or is taken by another function and `override` is false.

    Examples
    --------
    >>> @register_workload
    ... def vector_add(n): ...
    >>> @register_workload("adds")
    ... def vector_add(n): ...
    """
    if callable(func_name) and not isinstance(func_name, str):
        return _register(_qualified_name(func_name), func_name, override)
    if not isinstance(func_name, str):
        raise DefinitionError(
            f"a workload is registered under a string, found {func_name!r} of type {type(func_name).__name__}"
        )
    name = func_name
    if f is not None:
        return _register(name, f, override)
    return lambda function: _register(name, function, override)


def _register(name: str, function: WorkloadFunction, override: bool) -> WorkloadFunction:
    if not callable(function):
        raise DefinitionError(f"workload {name!r} must be a function, found {function!r}")
    known = _FUNCTIONS.get(name)
    if known is not None and not _is_same(known, function) and not override:
        raise DefinitionError(
            f"workload {name!r} is registered already, as {known!r}; "
            "give another name, or override=True to replace it"
        )
    if name.startswith(BUILTIN_PREFIX) and not getattr(function, "__module__", "").startswith(
        _BUILTIN_MODULE
    ):
        raise DefinitionError(f"workload {name!r}: names that start with {BUILTIN_PREFIX!r} are ansor's own")
    _FUNCTIONS[name] = function
    return function


def _is_same(one: object, other: object) -> bool:
    """Whether two functions are one; each look at a method makes a new object."""
    return one is other or (inspect.ismethod(one) and inspect.ismethod(other) and one == other)


def _qualified_name(function: WorkloadFunction) -> str:
    name: object = getattr(function, "__qualname__", None)
    if not isinstance(name, str):
        raise DefinitionError(f"{function!r} has no name; register it as register_workload('name', ...)")
    return name


def register_workload_tensors(workload_key: str, tensors: Sequence[Tensor], override: bool = True) -> str:
    """Make `workload_key` stand for a list of tensors, inputs and outputs; gives the key back.

    Raises
    ------
    DefinitionError
        If `tensors` is not a list of tensors, or the key stands for another computation and `override` is
        false.
    """
    checked = _checked_result(f"register_workload_tensors of key {workload_key!r}", tensors)
    if not override:
        wanted, known = ComputeDAG(checked), _TENSORS.get(workload_key)
        if known is not None and ComputeDAG(known).workload_key() != wanted.workload_key():
            raise DefinitionError(
                f"workload key {workload_key!r} stands for another computation already, {list(known)}, whose "
                "records would count for this one; give this one a key of its own, or call "
                "ansor.register_workload_tensors(key, tensors, override=True) if the other is done with"
            )
    _TENSORS[workload_key] = checked
    return workload_key


def registered_workloads() -> tuple[str, ...]:
    """The names of all registered functions, sorted, ansor's own included."""
    import_module(_BUILTIN_MODULE)
    return tuple(sorted(_FUNCTIONS))


def workload_function(name: str) -> WorkloadFunction:
    """The function registered as `name`.

    Raises
    ------
    DefinitionError
        If there is none; the message says what to import or register.
    """
    if name not in _FUNCTIONS and name.startswith(BUILTIN_PREFIX):
        import_module(_BUILTIN_MODULE)
    if name not in _FUNCTIONS:
        raise DefinitionError(
            f"no workload is registered as {name!r}{_near(name)}; decorate its function with "
            "@ansor.register_workload, or import the module that does"
        )
    return _FUNCTIONS[name]


def _near(name: str) -> str:
    """Name the registered workloads that `name` may have meant, or all of them."""
    known = registered_workloads()
    plain = {entry.removeprefix(BUILTIN_PREFIX): entry for entry in known}
    near = difflib.get_close_matches(name.removeprefix(BUILTIN_PREFIX), plain, n=3)
    if near:
        return f"; did you mean {' or '.join(repr(plain[entry]) for entry in near)}?"
    return f" (registered: {', '.join(known)})"


# -- keys --------------------------------------------------------------------------------------------


def make_workload_key(func: str | WorkloadFunction, args: Sequence[Any] | Any = ()) -> str:
    """The key of the call `func(*args)`: the JSON list `["name", args...]`.

    Parameters
    ----------
    func
        A registered function, or its name.
    args
        Its arguments: numbers, strings, booleans, None, tensors, and lists or tuples of these. Anything but a
        list or tuple is the only argument.

    Raises
    ------
    DefinitionError
        If the function is not registered or an argument cannot be written.
    """
    if isinstance(func, str):
        name = func
        workload_function(name)
    elif callable(func):
        names = [known for known, function in _FUNCTIONS.items() if _is_same(function, func)]
        if not names:
            raise DefinitionError(
                f"the function {_qualified_name(func)!r} is not registered; "
                "decorate it with @ansor.register_workload"
            )
        name = names[0]
    else:
        raise DefinitionError(f"a workload is a registered function or its name, found {func!r}")
    given = args if isinstance(args, (list, tuple)) else (args,)
    return json.dumps([name, *(_serialize(name, arg) for arg in given)])


def _serialize(name: str, arg: object) -> Argument:
    if isinstance(arg, Tensor):
        shape = tuple(int_value(extent) for extent in arg.shape)
        if None in shape:
            raise DefinitionError(
                f"an argument of workload {name!r} is the tensor {arg.name!r} of symbolic shape "
                f"{format_shape(arg.shape)}; a key needs numbers"
            )
        return (_TENSOR, shape, arg.dtype)
    if isinstance(arg, (list, tuple)):
        return tuple(_serialize(name, item) for item in arg)
    if isinstance(arg, Expr):
        value = int_value(arg)
        if value is not None:
            return value
    elif arg is None or isinstance(arg, (bool, int, float, str)):
        return arg
    item = getattr(arg, "item", None)  # A numpy scalar.
    if callable(item) and getattr(arg, "shape", None) == ():
        value = item()
        if type(value) is not type(arg):  # As numpy's long double is, which Python has no number for.
            return _serialize(name, value)
    raise DefinitionError(
        f"an argument of workload {name!r} is {arg!r} of type {type(arg).__name__}; "
        "a key holds numbers, strings, booleans, None, tensors, and lists of these"
    )


def decode_workload_key(workload_key: str) -> tuple[str, tuple[Argument, ...]] | None:
    """Name and arguments of a key `["name", args...]`, lists as tuples; None for any other text."""
    try:
        items = json.loads(workload_key)
    except json.JSONDecodeError:
        return None
    if not isinstance(items, list) or not items or not isinstance(items[0], str):
        return None
    return items[0], tuple(_as_tuples(item) for item in items[1:])


def _as_tuples(item: Any) -> Argument:
    return tuple(_as_tuples(part) for part in item) if isinstance(item, list) else item


def workload_key_to_tensors(workload_key: str) -> list[Tensor]:
    """The tensors that a key stands for: registered ones, or what its function returns.

    Each call of a function makes new tensors; `["TENSOR", shape, dtype]` arguments become placeholders.

    Raises
    ------
    DefinitionError
        If the key cannot be read, its function is not registered, or what the function returns is not a list
        of tensors.
    """
    if workload_key in _TENSORS:
        return list(_TENSORS[workload_key])
    decoded = decode_workload_key(workload_key)
    if decoded is None:
        raise DefinitionError(
            f'{workload_key!r} is neither a registered key nor of the form ["name", args...]; '
            "register the tensors it stands for with register_workload_tensors"
        )
    name, args = decoded
    function = workload_function(name)
    call = f"{name}({', '.join(map(repr, args))})"
    _check_call(name, function, args)
    return list(_checked_result(f"workload {call}", function(*(_deserialize(arg) for arg in args))))


def recorded_dag(workload_key: str) -> ComputeDAG:
    """
    The computation that a key out of a log stands for.

    Raises
    ------
    DefinitionError
        If it is none here. Whatever the key's function raises is a reason: it may have changed since, or be
        another one of that name.
    """
    try:
        return ComputeDAG(workload_key_to_tensors(workload_key))
    except AnsorError:
        raise
    except (Exception, SystemExit) as error:  # a file of the user's may end the process
        why = f"{type(error).__name__}: {error}"
        raise DefinitionError(f"the recorded workload {workload_key} cannot be made here: {why}") from error


def _check_call(name: str, function: WorkloadFunction, args: Sequence[object]) -> None:
    """Refuse arguments that are too few or too many for a function."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # It does not tell.
        return
    try:
        signature.bind(*args)
    except TypeError as error:
        raise DefinitionError(
            f"workload {name!r} called with {list(args)}: {error}; its arguments are {signature}"
        ) from None


def _deserialize(arg: Argument) -> Any:
    match arg:
        case (kind, tuple() as shape, str() as dtype) if kind == _TENSOR:
            return placeholder(shape, dtype)
        case tuple():
            return tuple(_deserialize(item) for item in arg)
        case _:
            return arg


def _checked_result(what: str, result: object) -> tuple[Tensor, ...]:
    """`result` as a tuple of tensors, or an error that starts with `what`."""
    found: Sequence[object]
    match result:
        case Tensor():
            found = (result,)
        case list() | tuple() if result:
            found = result
        case _:
            raise DefinitionError(
                f"{what} gives {result!r}; return a list of tensors, the inputs and the outputs"
            )
    tensors = tuple(tensor for tensor in found if isinstance(tensor, Tensor))
    if len(tensors) != len(found):
        wrong = next(item for item in found if not isinstance(item, Tensor))
        raise DefinitionError(f"{what} gives a list that holds {wrong!r}, which is not a tensor")
    return tensors
