"""Templates: sketches written by hand.

A template is a function of a configuration and plain arguments that defines a computation and schedules it,
leaving some decisions open::

    @ansor.template
    def matmul(cfg, n): ...             # cfg.define_split(...), cfg["tile"].apply(s, C, i), ...
        return s, [A, B, C]

What it makes of a configuration is a list of ordinary steps, so a template's programs are measured, recorded,
printed and resumed as any other. Its name and arguments are a registered workload: the same records serve
templates and sketches, and the automatic search can be run on the same task.

Source: AutoTVM (Chen et al., "Learning to optimize tensor programs", NeurIPS 2018); names as there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Union, overload

import numpy as np

from ansor.errors import AnsorError, DefinitionError, ScheduleError
from ansor.plugins import blaming
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.manual import Schedule
from ansor.schedule.state import State
from ansor.schedule.steps import Step
from ansor.schedule.structure import structure_hash
from ansor.task.registry import make_workload_key, register_workload
from ansor.te.tensor import Tensor
from sketches.templates.choices import AnyEntity
from sketches.templates.config import Config, ConfigEntity, ConfigSpace
from sketches.templates.reading import Reading, ReadingConfig, Wanted

TemplateFunction = Callable[..., tuple[Schedule, Sequence[Tensor]]]
Choice = Mapping[str, AnyEntity]

TEMPLATES: Final[dict[str, Template]] = {}
"""Every template by its name."""


_LOOKUPS: Final[list[Callable[[str], State | None]]] = []


def set_best_lookup(lookup: Callable[[str], State | None]) -> None:
    """Say how a template that is simply called finds the best program of a workload key, if one is known."""
    _LOOKUPS[:] = [lookup]


_ATTEMPTS: Final = 64
"""Configurations that are tried, after the first, until the function refuses one no more."""
_NEAR: Final = 1000
"""Configurations that filters are asked about to find one that they let through."""


@dataclass(frozen=True, slots=True)
class _First:
    """What is left open, the computation, and a configuration that the function takes.

    The filters take it, too, if any such was found.
    """

    space: ConfigSpace
    dag: ComputeDAG
    choice: Choice


class Template:
    """
    A function that schedules a computation and leaves decisions open; made by `template`.

    Parameters
    ----------
    name
        Name of the workload.
    function
        Called with a `Config` and plain arguments; returns a schedule and the tensors, inputs and outputs.
    override
        Replace a template or workload of that name.
    """

    def __init__(self, name: str, function: TemplateFunction, override: bool = False) -> None:
        self._signature = inspect.signature(function)
        if not self._signature.parameters:
            raise DefinitionError(
                f"template {name!r} takes no argument; the first must be the configuration: def f(cfg, ...)"
            )
        self.name = name
        self.function = function
        register_workload(name, self.tensors, override=override)
        TEMPLATES[name] = self
        self._known: dict[str, _First] = {}

    def workload_key(self, args: Sequence[Any]) -> str:
        """Key of the records of a call with these arguments."""
        return make_workload_key(self.name, tuple(args))

    def tensors(self, *args: Any) -> list[Tensor]:
        """Define the computation alone."""
        return list(self._first(args).dag.tensors)

    def space(self, *args: Any) -> ConfigSpace:
        """
        Collect what is left open for these arguments.

        Raises
        ------
        DefinitionError
            If the template is written wrongly, or does not take these arguments. What the function raises for
            the first configuration and for others, drawn at random, is raised as it is.
        """
        return self._first(args).space

    def _first(self, args: Sequence[Any]) -> _First:
        """What running the function tells, with the first configuration or one that it does not refuse."""
        key = self.workload_key(args)
        if key not in self._known:
            config, made, tensors = self._run_any(args)
            space = config.space
            choice: Choice = config.chosen
            again, _ = self._run(Config(choice=choice), args)
            one, other = ([step.to_json() for step in each.state.steps] for each in (made, again))
            if one != other:
                raise DefinitionError(
                    f"template {self.name!r} makes another program of a configuration each time; leave what "
                    "it draws itself open instead: cfg.define_knob(name, values)"
                )
            if not space.accepts(choice):
                choice = self._accepted(space, args, choice)
            self._known[key] = _First(space, ComputeDAG(tensors), choice)
        return self._known[key]

    def _accepted(self, space: ConfigSpace, args: Sequence[Any], otherwise: Choice) -> Choice:
        """Find a configuration that the filters accept and the function does not refuse."""
        rng = np.random.default_rng(0)
        drawn = (space.index_of(rng.integers(space.dims).tolist()) for _ in range(_NEAR))
        for indices in (range(min(space.size, _NEAR)), drawn):
            accepted = (index for index in indices if space.accepts(index))
            for index in islice(accepted, _ATTEMPTS):
                try:
                    self._run(Config(choice=space[index]), args)
                except DefinitionError:
                    raise
                except Exception:  # The function refuses it, as it may.
                    continue
                return dict(space[index])
        return otherwise

    def _run_any(self, args: Sequence[Any]) -> tuple[Config, Schedule, list[Tensor]]:
        """Run with the first configuration; if that is refused, with others until one is not."""
        config, refusal = Config(), None
        rng = np.random.default_rng(0)
        for _ in range(1 + _ATTEMPTS):
            try:
                return config, *self._run(config, args)
            except DefinitionError:
                raise
            except Exception as error:
                refusal = refusal or error
                if not config.space.dimensions:  # There is nothing else to choose.
                    break
                config = Config(draw=lambda choices: choices[int(rng.integers(len(choices.entities)))])
        assert refusal is not None
        raise refusal

    def schedule(self, args: Sequence[Any], config: Choice | None = None) -> tuple[Schedule, list[Tensor]]:
        """
        Schedule the computation by a configuration, default the first, or another that will do.

        Raises
        ------
        ScheduleError
            If the configuration makes an illegal schedule, or the template raises an error for it.
        DefinitionError
            If it changes the computation, or the template does not take these arguments.
        """
        first = self._first(args)
        return self._scheduled(args, first.choice if config is None else config, first.dag)

    def state(self, args: Sequence[Any], config: Choice, dag: ComputeDAG) -> State:
        """
        Make the program of a configuration, over a given definition of the computation.

        Raises
        ------
        ScheduleError
            If the configuration makes an illegal schedule, or the template raises an error for it.
        DefinitionError
            If it changes the computation.
        """
        return State.replay(dag, self._scheduled(args, config, dag)[0].state.steps)

    def _scheduled(
        self, args: Sequence[Any], choice: Choice, dag: ComputeDAG
    ) -> tuple[Schedule, list[Tensor]]:
        """Run with a configuration, which must not make another computation than `dag`.

        Another configuration has run by then: what the function raises now, this one brings about.
        """
        config = Config(self.space(*args), choice)
        try:
            made, tensors = self._run(config, args)
        except AnsorError:
            raise
        except Exception as error:
            what = f"{type(error).__name__}: {error}".rstrip(": ")
            raise ScheduleError(f"template {self.name!r} raises {what}") from error
        ops = made.state.dag.ops
        mine, wanted = [op.name for op in ops], [op.name for op in dag.ops]
        if mine != wanted:
            raise DefinitionError(
                f"template {self.name!r} schedules the operations {', '.join(mine)}, and the tensors that it "
                f"returns are made of {', '.join(wanted)}; configurations must not change the computation, "
                "and outputs are returned in the order in which create_schedule gets them"
            )
        strange = [tensor.name for tensor in tensors if tensor.op not in ops]
        if strange:
            raise DefinitionError(
                f"template {self.name!r} returns {', '.join(strange)}, which its schedule does not make or "
                "read; return the tensors of the operations that create_schedule gets"
            )
        if structure_hash(tensors, ops) != dag.structure_hash:
            raise DefinitionError(
                f"template {self.name!r} called with {list(args)}: the configuration {config} makes a "
                "computation of other sizes, elements or arguments than the first one; configurations must "
                "not change the computation"
            )
        return made, tensors

    def __call__(self, *args: Any) -> tuple[Schedule, list[Tensor]]:
        """Schedule the computation by its best record in ``with apply_history_best(log)``.

        Without such a context, or if it has no record, by the first configuration, or another that will do.
        """
        key = self.workload_key(args)
        for lookup in _LOOKUPS:
            state = lookup(key)
            if state is not None:
                return Schedule(state), list(state.dag.tensors)
        return self.schedule(args)

    def find(self, args: Sequence[Any], steps: Sequence[Step]) -> ConfigEntity | None:
        """
        Find the configuration that makes these steps, so that records need not hold it.

        Choices are read off the steps that they make. Where the function only looks at one, it is guessed:
        one after the other, that looked at last first, takes what makes more steps agree, until all do.

        Returns
        -------
        ConfigEntity
            The configuration; None if no such was found, as for programs that another search made.
        """
        first, wanted = self._first(args), Wanted.of(steps)
        space = first.space
        begun = space[space.index_of(space.coordinates_of(first.choice))]
        best = self._read(args, begun, frozenset(), wanted)
        while not best.complete:
            better = (one for one in self._others(args, best, wanted) if one.agreement > best.agreement)
            found = next(better, None)
            if found is None:
                return None
            best = found
        config = space[space.index_of(space.coordinates_of(best.choice))]
        try:
            made, _ = self.schedule(args, config)
        except ScheduleError:
            return None
        return config if wanted.is_made_by(made.state.steps) else None

    def _others(self, args: Sequence[Any], best: Reading, wanted: Wanted) -> Iterator[Reading]:
        """Guess otherwise: first what was read since, then another choice of one dimension."""
        yield self._read(args, best.choice, best.fixed, wanted)
        for name in reversed(best.guessed):
            for entity in self.space(*args).dimensions[name].entities:
                if entity != best.choice[name]:
                    yield self._read(args, {**best.choice, name: entity}, best.fixed | {name}, wanted)

    def _read(self, args: Sequence[Any], choice: Choice, fixed: frozenset[str], wanted: Wanted) -> Reading:
        """Run against the steps of a program, with a choice for what cannot be read off them."""
        config = ReadingConfig(self.space(*args), choice, fixed, wanted)
        try:
            made, _ = self._run(config, args)
        except Exception:  # It differs, or the function refuses the choice, as it may.
            return config.reading(None)
        return config.reading(made.state.steps)

    def _run(self, config: Config, args: Sequence[Any]) -> tuple[Schedule, list[Tensor]]:
        try:
            self._signature.bind(config, *args)
        except TypeError as error:
            _, *after = self._signature.parameters.values()
            taken = ", ".join(map(str, after))
            raise DefinitionError(
                f"template {self.name!r} called with {list(args)}: {error}; after the configuration it takes "
                f"({taken})"
            ) from None
        with blaming(f"template {self.name!r} was called with {tuple(args)} and the configuration {config}"):
            made = self.function(config, *args)
        match made:
            case (Schedule() as s, (list() | tuple()) as tensors) if tensors:
                return s, list(tensors)
            case _:
                raise DefinitionError(
                    f"template {self.name!r} returns {made!r}; it must return a schedule and the list of the "
                    "tensors, inputs and outputs: return s, [A, B, C]"
                )

    def __repr__(self) -> str:
        return f"<template {self.name}>"


@overload
def template(name: TemplateFunction) -> Template: ...


@overload
def template(name: str, *, override: bool = False) -> Callable[[TemplateFunction], Template]: ...


def template(
    name: Union[str, TemplateFunction], *, override: bool = False
) -> Union[Template, Callable[[TemplateFunction], Template]]:
    """
    Make a template of a function; a decorator, with a name or without.

    Parameters
    ----------
    name
        The name that records carry; default the function's.
    override
        Replace a template or workload of that name.

    Raises
    ------
    DefinitionError
        If the name is taken, or the function takes no configuration.
    """
    if not isinstance(name, str):
        return Template(name.__qualname__, name)
    return lambda function: Template(name, function, override)
