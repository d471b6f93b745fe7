"""What a program is compiled for: `Target`, read from and printed as TVM's target strings.

A target is a kind ("llvm", "cuda", ...) and options. Its text form is the one that logs carry:
`llvm -keys=cpu -mcpu=core-avx2 -num-cores=4`, that is the kind, the keys, then the other options by name.
Two ways in: `Target(text)` is for people and refuses an option that the kind does not know;
`Target.parse(text)` is for logs of any age and keeps what it does not know. An option that TVM has and that
changes nothing here, such as `-opt-level`, is kept and warned of, once.

Options of kind "llvm", all optional:

- `-mtriple` LLVM triple; default: this machine's. Another architecture makes a cross compilation.
- `-mcpu` LLVM CPU name; default: this machine's CPU when the triple is this machine's, else "generic".
- `-mattr` features to add or remove, `+avx2,-fma`, on top of the CPU's.
- `-num-cores` threads that parallel loops are scheduled for; default: what this process may use.

Source: how TVM 0.16 prints targets in its logs.
"""

from __future__ import annotations

import difflib
import logging
import re
import shlex
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Union

from ansor.errors import TargetError

if TYPE_CHECKING:
    from ansor.intrinsics import WarpIntrinsic

_note = logging.getLogger(__name__)

AttrValue = Union[str, int, tuple[str, ...]]

_COMMON: Final = {
    "keys": "list",
    "device": "str",
    "model": "str",
    "libs": "list",
    "host": "str",
    "tag": "str",
    "from_device": "int",
}
_LLVM: Final = {
    "mcpu": "str",
    "mattr": "list",
    "mtriple": "str",
    "mabi": "str",
    "mfloat-abi": "str",
    "num-cores": "int",
    "opt-level": "int",
    "fast-math": "int",
    "vector-width": "int",
    "cl-opt": "list",
    "runtime": "str",
    "system-lib": "int",
    "link-params": "int",
}
_HEEDED: Final = frozenset(("keys", "device", "model", "tag", "host", "mcpu", "mattr"))
_LLVM_HEEDED: Final = _HEEDED | {"mtriple", "num-cores"}
"""The options of a CPU target that change something; the others are TVM's, and only kept in the text."""

_COUNTS: Final = frozenset(("num-cores", "max_num_threads", "max_threads_per_block"))
"""Options of which there is at least one; 0 does not stand for no limit."""

_GPU: Final = {
    "max_num_threads": "int",
    "max_threads_per_block": "int",
    "max_shared_memory_per_block": "int",
    "max_local_memory_per_block": "int",
    "max_function_args": "int",
    "thread_warp_size": "int",
    "registers_per_block": "int",
    "l2_cache_size_bytes": "int",
    "arch": "str",
    "mcpu": "str",
    "mattr": "list",
    "mtriple": "str",
    "texture_spatial_limit": "int",
}
_GPU_HEEDED: Final = _HEEDED | {
    "max_num_threads",
    "max_threads_per_block",
    "max_shared_memory_per_block",
    "max_local_memory_per_block",
    "thread_warp_size",
    "l2_cache_size_bytes",
    "arch",
}
"""Those of a GPU target."""


@dataclass(frozen=True, slots=True)
class TargetKind:
    """One family of targets: default keys, known options by value type, options that are always printed."""

    keys: tuple[str, ...]
    options: Mapping[str, str]
    defaults: Mapping[str, AttrValue] = field(default_factory=dict)


KINDS: Final[Mapping[str, TargetKind]] = {
    "llvm": TargetKind(("cpu",), _LLVM),
    "c": TargetKind(
        ("cpu",), {**_LLVM, "march": "str", "executor": "str", "workspace-byte-alignment": "int"}
    ),
    "cuda": TargetKind(("cuda", "gpu"), _GPU, {"max_num_threads": 1024, "thread_warp_size": 32}),
    "nvptx": TargetKind(("cuda", "gpu"), _GPU, {"max_num_threads": 1024, "thread_warp_size": 32}),
    "rocm": TargetKind(
        ("rocm", "gpu"),
        _GPU,
        {"max_num_threads": 256, "max_shared_memory_per_block": 65536, "thread_warp_size": 64},
    ),
    "opencl": TargetKind(
        ("opencl", "gpu"),
        _GPU,
        {"max_num_threads": 256, "texture_spatial_limit": 16384, "thread_warp_size": 1},
    ),
    "metal": TargetKind(("metal", "gpu"), _GPU, {"max_num_threads": 256, "thread_warp_size": 16}),
    "vulkan": TargetKind(("vulkan", "gpu"), _GPU, {"max_num_threads": 256, "thread_warp_size": 1}),
}
"""Known kinds. Only those with a code generator can be built; the others parse, print and tune on records."""

_NOT_PLAIN: Final = re.compile(r"""[ \t\r\n'"\\]""")
"""The characters by which `shlex.split` divides words and quotes them."""

UNSAID_ARCH: Final = "sm_50"
"""What logs say, TVM's among them, where nobody named an architecture and no GPU was seen."""


class Target:
    """An immutable compilation target; equal, and hashed, by its canonical text.

    Parameters
    ----------
    text
        Kind and options, e.g. ``"llvm -mcpu=znver4 -num-cores=2"``. A `Target` stands for itself.

    Raises
    ------
    TargetError
        If the kind or an option is unknown, an option has no or a malformed value, or is given twice, and for
        fewer than one core or thread.
    """

    __slots__ = ("_attrs", "_kind", "_stated", "_text")

    _kind: str
    _attrs: Mapping[str, AttrValue]
    _stated: frozenset[str]
    _text: str

    def __init__(self, text: str | Target) -> None:
        if isinstance(text, Target):
            self._set(text._kind, dict(text._attrs), text._stated)
        else:
            self._set(*_parse(text, strict=True))
            _warn_of_idle_options(self._kind, self._stated)

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read a target from a log: unknown options are kept as they stand, an unknown kind is refused.

        The architecture `UNSAID_ARCH` is left out.
        """
        made = cls.__new__(cls)
        kind, attrs = _parse(text, strict=False)
        if attrs.get("arch") == UNSAID_ARCH:
            del attrs["arch"]
        made._set(kind, attrs)
        return made

    def _set(self, kind: str, attrs: dict[str, AttrValue], stated: frozenset[str] | None = None) -> None:
        info = KINDS[kind]
        object.__setattr__(self, "_stated", _stated(info, attrs) if stated is None else stated)
        keys = list(_as_list(attrs.get("keys", ())))
        if "device" in attrs:
            keys.extend(_items(str(attrs["device"])))
        attrs["keys"] = tuple(dict.fromkeys((*keys, *info.keys)))
        for name, value in info.defaults.items():
            attrs.setdefault(name, value)
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "_attrs", MappingProxyType(dict(sorted(attrs.items()))))
        object.__setattr__(self, "_text", _format(kind, attrs))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Target is immutable; make another one instead of setting {name!r}")

    @property
    def kind(self) -> str:
        return self._kind

    @property
    def attrs(self) -> Mapping[str, AttrValue]:
        """All options with a value, defaults included, by name without the dash (read-only)."""
        return self._attrs

    @property
    def stated(self) -> frozenset[str]:
        """The options that its author gave; the defaults of its kind are in every target's text.

        A text with all of these, as `str` and logs give it, does not tell who said what is as by default:
        such an option does not count as given.
        """
        return self._stated

    def states(self, *names: str) -> bool:
        """Whether its author gave one of these options, see `stated`."""
        return not self._stated.isdisjoint(names)

    @property
    def keys(self) -> tuple[str, ...]:
        """Families that the target belongs to, the most specific first, e.g. ``("cuda", "gpu")``."""
        return _as_list(self._attrs["keys"])

    @property
    def is_gpu(self) -> bool:
        return "gpu" in self.keys

    @property
    def mcpu(self) -> str | None:
        return self._string("mcpu")

    @property
    def mtriple(self) -> str | None:
        return self._string("mtriple")

    @property
    def mattr(self) -> tuple[str, ...]:
        """Feature switches, each with its sign, e.g. ``("+avx2", "-fma")``."""
        return _as_list(self._attrs.get("mattr", ()))

    @property
    def num_cores(self) -> int | None:
        return self._integer("num-cores")

    @property
    def device(self) -> str | None:
        return self._string("device")

    @property
    def model(self) -> str | None:
        return self._string("model")

    @property
    def arch(self) -> str | None:
        return self._string("arch")

    def has_warp_intrinsic(self, intrinsic: WarpIntrinsic) -> bool:
        """Whether the NVIDIA GPU that `arch` names has an intrinsic; not if none is named."""
        number = capability_of(self.arch) if self.kind == "cuda" else None
        return number is not None and number >= intrinsic.capability

    @property
    def thread_warp_size(self) -> int | None:
        return self._integer("thread_warp_size")

    def with_attrs(self, **changes: AttrValue | None) -> Target:
        """Copy the target with options set, or removed by None; ``num_cores`` means ``num-cores``."""
        attrs = dict(self._attrs)
        stated = set(self._stated)
        for key, value in changes.items():
            dashed = key.replace("_", "-")
            name = dashed if dashed in KINDS[self._kind].options else key
            if value is None:
                attrs.pop(name, None)
                stated.discard(name)
            else:
                attrs[name] = value
                stated.add(name)
        made = Target.__new__(Target)
        made._set(*_parse(_format(self._kind, attrs), strict=True), frozenset(stated))
        _warn_of_idle_options(self._kind, stated - self._stated)
        return made

    def _string(self, name: str) -> str | None:
        value = self._attrs.get(name)
        return None if value is None else str(value)

    def _integer(self, name: str) -> int | None:
        value = self._attrs.get(name)
        return value if isinstance(value, int) else None

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Target({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[object, tuple[str, dict[str, AttrValue], frozenset[str]]]:
        return (_restored, (self._kind, dict(self._attrs), self._stated))


def _restored(kind: str, attrs: dict[str, AttrValue], stated: frozenset[str]) -> Target:
    """The target that was pickled or copied."""
    made = Target.__new__(Target)
    made._set(kind, attrs, stated)
    return made


def capability_of(arch: str | None) -> int | None:
    """The compute capability of an architecture of NVIDIA's, 90 of "sm_90a"; None if it is no such name."""
    found = re.fullmatch(r"sm_(\d+)[a-z]?", arch or "")
    return None if found is None else int(found[1])


def _stated(kind: TargetKind, attrs: Mapping[str, AttrValue]) -> frozenset[str]:
    """The options that a text with these gives on purpose, see `Target.stated`."""
    unclear: Mapping[str, AttrValue] = kind.defaults if kind.defaults.keys() <= attrs.keys() else {}
    return frozenset(name for name, value in attrs.items() if name not in unclear or value != unclear[name])


def _as_list(value: AttrValue) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else (str(value),)


def _format(kind: str, attrs: Mapping[str, AttrValue]) -> str:
    """Join the kind, the keys, then the other options by name; host and tag are the task's business."""
    names = ["keys", *(name for name in sorted(attrs) if name not in ("keys", "tag", "host"))]
    return " ".join([kind, *(f"-{_quoted(name)}={_quoted(_text_of(attrs[name]))}" for name in names)])


def _text_of(value: AttrValue) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _quoted(text: str) -> str:
    """Put a text in quotes if `shlex.split` would not leave it as it is."""
    return shlex.quote(text) if _NOT_PLAIN.search(text) else text


def _parse(text: str, *, strict: bool) -> tuple[str, dict[str, AttrValue]]:
    if not isinstance(text, str):
        raise TargetError(f"a target is a text such as 'llvm -mcpu=core-avx2', found {type(text).__name__}")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise TargetError(f"target {text!r} cannot be split into words: {error}") from None
    if not words:
        raise TargetError("the target is empty; write a kind and its options, e.g. 'llvm -mcpu=core-avx2'")
    kind, *rest = words
    if kind not in KINDS:
        raise TargetError(f"target {text!r} has the unknown kind {kind!r}; use one of {', '.join(KINDS)}")
    attrs: dict[str, AttrValue] = {}
    position = 0
    while position < len(rest):
        word = rest[position]
        position += 1
        if not word.startswith("-"):
            raise TargetError(f"target {text!r}: expected an option such as -mcpu=..., found {word!r}")
        name, equals, value = word.lstrip("-").partition("=")
        if not equals and position < len(rest) and not rest[position].startswith("-"):
            value, equals = rest[position], "="
            position += 1
        if name in attrs:
            raise TargetError(f"target {text!r} gives -{name} twice; keep one")
        attrs[name] = _value(text, kind, name, value if equals else None, strict=strict)
    return kind, attrs


def _warn_of_idle_options(kind: str, stated: Set[str]) -> None:
    """Say of each option that an author gave, once in a process, if it changes nothing."""
    heeded = _GPU_HEEDED if "gpu" in KINDS[kind].keys else _LLVM_HEEDED
    for name in sorted(stated - heeded):
        _warn_of_idle_option(kind, name, heeded)


@cache
def _warn_of_idle_option(kind: str, name: str, heeded: frozenset[str]) -> None:
    listed = " ".join(f"-{option}" for option in sorted(heeded))
    _note.warning("target kind %r: -%s is read and changes nothing; what does is %s", kind, name, listed)


def _value(text: str, kind: str, name: str, value: str | None, *, strict: bool) -> AttrValue:
    """What an option says, by the type that the kind gives it; `value` is None for a bare switch."""
    value_type = {**_COMMON, **KINDS[kind].options}.get(name)
    if value_type is None:
        if strict:
            raise _unknown_option(text, kind, name)
        return 1 if value is None else value
    if value is None and value_type == "int" and name not in _COUNTS:
        return 1  # as in -system-lib
    said = _items(value) if value and value_type == "list" else value
    if not said:
        raise TargetError(f"target {text!r}: -{name} has no value; write -{name}=VALUE")
    if isinstance(said, tuple):
        if strict and name == "mattr":
            _check_features(text, said)
        return said
    return _integer(text, name, said, strict=strict) if value_type == "int" else said


def _items(value: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in value.split(",") if item.strip())


def _unknown_option(text: str, kind: str, name: str) -> TargetError:
    options = {**_COMMON, **KINDS[kind].options}
    near = difflib.get_close_matches(name, options, 1)
    hint = f"did you mean -{near[0]}? " if near else ""
    known = " ".join(f"-{option}" for option in sorted(options))
    return TargetError(f"target {text!r} has the unknown option -{name}; {hint}kind {kind!r} knows {known}")


def _integer(text: str, name: str, value: str, *, strict: bool) -> int:
    try:
        number = int(value)
    except ValueError:
        raise TargetError(f"target {text!r}: -{name} needs an integer, found {value!r}") from None
    if strict and name in _COUNTS and number < 1:
        raise TargetError(f"target {text!r}: -{name} must be at least 1, found {number}")
    return number


def _check_features(text: str, features: tuple[str, ...]) -> None:
    for feature in features:
        if feature[0] not in "+-":
            raise TargetError(
                f"target {text!r}: the feature {feature!r} in -mattr has no sign; "
                f"write +{feature} or -{feature}"
            )
