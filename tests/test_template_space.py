"""Templates: what they leave open, what a choice makes of a schedule, and how mistakes are answered."""

import json
import re
from math import prod
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.errors import DefinitionError, ScheduleError
from sketches import sample_programs
from sketches.templates.choices import KnobEntity, knob_dimension


@ansor.template("tests.template_matmul")
def matmul(cfg: ansor.Config, n: int, m: int, k: int) -> tuple[ansor.Schedule, list[te.Tensor]]:
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = te.create_schedule(c)
    i, j = c.op.axis
    io, ii = cfg.define_split("tile_i", i)
    jo, ji = cfg.define_split("tile_j", j, policy="power2", max_factor=16)
    cfg.define_reorder(
        "order", [io, jo, r, ii, ji], "candidate", candidate=[[io, jo, r, ii, ji], [io, jo, ii, r, ji]]
    )
    cfg.define_annotate("ann", [ii, ji], "try_unroll_vec")
    cfg.define_knob("unroll", [0, 16])
    io, ii = cfg["tile_i"].apply(s, c, i)
    jo, ji = cfg["tile_j"].apply(s, c, j)
    cfg["order"].apply(s, c, [io, jo, r, ii, ji])
    cfg["ann"].apply(s, c, [ii, ji])
    if cfg["unroll"].val:
        s[c].pragma(io, "auto_unroll_max_step", cfg["unroll"].val)
    return s, [a, b, c]


def defined(define: Any) -> ansor.Config:
    cfg = ansor.Config()
    define(cfg)
    return cfg


def values(cfg: ansor.Config, name: str = "x") -> list[Any]:
    return [entity.value for entity in cfg.space.dimensions[name].entities]


def test_the_space_prints_what_is_open() -> None:
    assert str(matmul.space(6, 32, 8)) == (
        "ConfigSpace of 480 configurations\n"
        "  tile_i  split of i: 4 choices, [6, 1] .. [1, 6]\n"
        "  tile_j  split of j: 5 choices, [32, 1] .. [2, 16]\n"
        "  order   order of tile_i.0, tile_j.0, r, tile_i.1, tile_j.1: 2 choices, "
        "[0, 1, 2, 3, 4] .. [0, 1, 3, 2, 4]\n"
        "  ann     annotation of tile_i.1, tile_j.1: 6 choices, ['none', 'none'] .. ['unroll', 'vec']\n"
        "  unroll  value: 2 choices, 0 .. 16"
    )


def test_indices_and_coordinates_are_inverse() -> None:
    space = matmul.space(6, 32, 8)
    assert len(space) == prod(space.dims) == 480
    for index in (0, 1, 4, 77, 479):
        assert space.index_of(space.coordinates(index)) == index
        assert space[index].index == index
    with pytest.raises(IndexError, match="480"):
        space[480]


def test_a_choice_becomes_ordinary_steps() -> None:
    config = matmul.space(6, 32, 8).pick(
        tile_i=[-1, 3], tile_j=[4, 8], order=[0, 1, 2, 3, 4], ann=["unroll", "vec"], unroll=16
    )
    s, args = matmul.schedule((6, 32, 8), config)
    assert str(s).splitlines()[1:] == [
        "C auto_unroll: 16",
        "for i.0 (0,2)",
        "  for j.0 (0,4)",
        "    for r (0,8)",
        "      unroll i.1 (0,3)",
        "        vectorize j.1 (0,8)",
        "          C = ...",
    ]
    a, b = (np.random.default_rng(0).normal(size=shape).astype(np.float32) for shape in ((6, 8), (8, 32)))
    np.testing.assert_allclose(ansor.build(s, args)(a, b), a @ b, rtol=1e-5, atol=1e-5)


def test_a_program_tells_its_configuration() -> None:
    task = ansor.TemplateTask(matmul, (6, 32, 8))
    for index in np.random.default_rng(0).integers(len(task.config_space), size=20):
        state = task.state_of(int(index))
        found = task.config_of(state)
        assert found is not None
        assert task.state_of(found) == state
    foreign = ansor.State.initial(task.compute_dag).fuse(2, [0, 1])
    assert task.config_of(foreign) is None


def _looking(cfg: ansor.Config, n: int) -> tuple[ansor.Schedule, list[te.Tensor]]:
    """Reads choices in every way: before they are applied, afterwards, twice, by hand, and not at all."""
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    r = te.reduce_axis((0, n), name="r")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    d = te.compute((n, n), lambda i, j: c[i, j] + 1, name="D")
    s = te.create_schedule(d)
    cfg.define_split("y", n, num_outputs=4)
    cfg.define_split("x", n, num_outputs=4)
    cfg.define_split("k", r, policy="power2")
    cfg.define_knob("cached", [False, True])
    cfg.define_knob("steps", [0, 16, 64])
    cfg.define_knob("idle", list(range(50)))
    cfg.define_split("idle split", n, num_outputs=3)
    i, j = d.op.axis
    out = s.cache_write(d, "local") if cfg["cached"].val else None
    if cfg["y"].size[1] == 1:
        s[c].reorder(c.op.axis[1], c.op.axis[0], c.op.reduce_axis[0])
    y = cfg["y"].apply(s, d, i)
    x = cfg["x"].apply(s, d, axis=j)
    cfg["y"].apply(s, op=c, axis=c.op.axis[0])
    ko, _ = s[c].split(r, cfg["k"].size[-1])
    loops = [y[2], x[2], x[3], y[3]]
    cfg.define_reorder("order", loops, "all")
    inner = cfg["order"].apply(s, d, loops)
    cfg.define_annotate("ann", inner, "try_unroll_vec")
    cfg["ann"].apply(s, d, inner)
    if cfg["x"].size[2] > 1 and cfg["ann"].anns[0] == "none":
        s[d].unroll(inner[0])
    if cfg["steps"].val:
        s[c].pragma(ko, "auto_unroll_max_step", cfg["steps"].val)
    if out is not None:
        s[out].compute_at(s[d], y[0])
    return s, [a, b, d]


def test_choices_are_read_off_the_steps_that_they_make() -> None:
    task = ansor.TemplateTask(ansor.template("tests.looking", override=True)(_looking), (64,))
    legal = 0
    for index in np.random.default_rng(1).integers(task.config_space.size, size=44).tolist():
        try:
            state = task.state_of(index)
        except ScheduleError:  # A vectorized loop further out.
            continue
        legal += 1
        found = task.config_of(state)
        assert found is not None
        assert task.state_of(found) == state
    assert legal > 20
    for other in sample_programs(task, 3, np.random.default_rng(0)):
        assert task.config_of(other) is None


def test_finding_a_configuration_takes_a_run_for_each_choice_that_must_be_guessed() -> None:
    runs = 0

    @ansor.template("tests.counted", override=True)
    def counted(cfg: ansor.Config, n: int) -> tuple[ansor.Schedule, list[te.Tensor]]:
        nonlocal runs
        runs += 1
        a = te.placeholder((n, n), name="A")
        c = te.compute((n, n), lambda i, j: a[j, i] * 2.0, name="C")
        s = te.create_schedule(c)
        i, j = c.op.axis
        cfg.define_split("y", i, num_outputs=4)
        cfg.define_split("x", j, num_outputs=4)
        cfg.define_knob("vector", [False, True])
        y, x = cfg["y"].apply(s, c, i), cfg["x"].apply(s, c, j)
        cfg.define_reorder("order", [*y, *x], "interleave", spatial=[y, x])
        cfg["order"].apply(s, c, [*y, *x])
        if cfg["vector"].val:
            s[c].vectorize(x[3])
        return s, [a, c]

    task = ansor.TemplateTask(counted, (1024,))
    assert task.config_space.dims == (286, 286, 2, 70)
    for index in np.random.default_rng(0).integers(task.config_space.size, size=10).tolist():
        state = task.state_of(index)
        runs = 0
        found = task.config_of(state)
        assert found is not None
        assert found.index == index
        assert runs <= 6
    for other in sample_programs(task, 3, np.random.default_rng(0)):
        runs = 0
        assert task.config_of(other) is None
        assert runs <= 6


def test_a_configuration_survives_json() -> None:
    space = matmul.space(6, 32, 8)
    config = space[123]
    again = ansor.ConfigEntity.from_json(config.to_json())
    assert again == config
    assert again.index == 123
    assert str(again) == str(config)
    for index in range(0, space.size, 7):
        one = json.loads(json.dumps(space[index].to_json()))
        assert space.index_of(space.coordinates_of(ansor.ConfigEntity.from_json(one))) == index
    knob = knob_dimension("value", [0, 1, False, True])
    assert [knob.position_of(KnobEntity(each)) for each in (0, 1, False, True, 2)] == [0, 1, 2, 3, 0]


def test_a_template_is_no_workload_function() -> None:
    with pytest.raises(DefinitionError, match=r"make its task with ansor\.TemplateTask"):
        ansor.SearchTask(func=matmul, args=(6, 32, 8))


def test_a_knob_of_numpy_s_numbers_has_python_s_own() -> None:
    knob = knob_dimension("value", np.array([1, 2, 4]))
    assert [type(entity.val) for entity in knob.entities] == [int] * 3
    assert [entity.features for entity in knob.entities] == [
        entity.features for entity in knob_dimension("value", [1, 2, 4]).entities
    ]


def test_features_of_a_knob_are_all_of_one_kind() -> None:
    def features(*candidates: object) -> list[tuple[float, ...]]:
        return [entity.features for entity in knob_dimension("value", candidates).entities]

    assert features(0, 16, 0.5, True) == [(0.0,), (16.0,), (0.5,), (1.0,)]
    assert features(64, None, "x") == features(float("nan"), 1, 2) == [(0.0,), (1.0,), (2.0,)]
    assert features(10**400, 7) == [(0.0,), (1.0,)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [(6, 1), (3, 2), (2, 3), (1, 6)]),
        ({"max_factor": 3}, [(6, 1), (3, 2), (2, 3)]),
        ({"policy": "power2"}, [(6, 1), (3, 2), (2, 4)]),
        ({"policy": "power2", "no_tail": True}, [(6, 1), (3, 2)]),
        ({"policy": "verbose"}, [(6, 1), (3, 2), (2, 3), (2, 4), (1, 6)]),
        ({"policy": "candidate", "candidate": [[-1, 4], [1, 6]]}, [(2, 4), (1, 6)]),
        ({"filter": lambda e: e.size[-1] > 2}, [(2, 3), (1, 6)]),
        ({"num_outputs": 1}, [(6,)]),
        (
            {"num_outputs": 3, "filter": lambda e: e.size[0] == 1},
            [(1, 1, 6), (1, 2, 3), (1, 3, 2), (1, 6, 1)],
        ),
    ],
)
def test_split_policies(options: dict[str, Any], expected: list[tuple[int, ...]]) -> None:
    assert values(defined(lambda cfg: cfg.define_split("x", 6, **options))) == expected


@pytest.mark.parametrize(
    ("policy", "options", "count"),
    [
        ("identity", {}, 1),
        ("all", {}, 24),
        ("interval_all", {"interval": (1, 3)}, 2),
        ("candidate", {"candidate": [[3, 2, 1, 0]]}, 1),
        ("interleave", {"spatial": [[0, 1]], "reduce": [[2, 3]]}, 6),
    ],
)
def test_reorder_policies(policy: str, options: dict[str, Any], count: int) -> None:
    def define(cfg: ansor.Config) -> None:
        axes = [*cfg.define_split("a", 4), *cfg.define_split("b", 4)]
        cfg.define_reorder("x", axes, policy, **options)

    orders = values(defined(define))
    assert len(orders) == len(set(orders)) == count
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)
    if policy == "interleave":
        assert all(order.index(0) < order.index(1) and order.index(2) < order.index(3) for order in orders)


def test_annotate_policies() -> None:
    def choices(policy: str) -> list[Any]:
        return values(defined(lambda cfg: cfg.define_annotate("x", cfg.define_split("a", 4), policy)))

    assert choices("none") == [("none", "none")]
    assert choices("unroll") == [("unroll", "unroll")]
    assert choices("try_vec") == [("none", "none"), ("none", "vec")]
    assert ("parallel", "vec") in choices("try_parallel_vec")
    assert not any("parallel" in row[1:] or "vec" in row[:-1] for row in choices("try_parallel_vec"))


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (
            lambda cfg: cfg.define_split("x", 6, policy="divisors"),
            "unknown policy 'divisors'; known are 'factors'",
        ),
        (lambda cfg: cfg.define_split("x", 6, filter=lambda e: False), "nothing to choose from"),
        (lambda cfg: cfg.define_split("x", te.var("n")), "must be a known number"),
        (lambda cfg: cfg.define_split("x", 6, policy="candidate"), "go together"),
        (lambda cfg: cfg.define_split("x", 6, num_outputs=0), "at least 1"),
        (lambda cfg: [cfg.define_knob("x", [1]), cfg.define_knob("x", [1])], "'x' twice"),
        (lambda cfg: cfg.define_reorder("x", list(range(9))), "too many to list"),
        (
            lambda cfg: cfg.define_reorder("x", [0, 1], "candidate", candidate=[[0]]),
            "each of the 2 loops once",
        ),
        (
            lambda cfg: cfg.define_reorder("x", [0, 1], "interleave", spatial=[0, 1]),
            "lists of chains of loops",
        ),
        (lambda cfg: cfg.define_annotate("x", [0], "vectorise"), "'try', 'unroll', 'vec' and 'parallel'"),
        (lambda cfg: [cfg.define_knob("tile_x", [1]), cfg["tile"]], "did you mean 'tile_x'"),
        (lambda cfg: ansor.SplitEntity((4, 0)), "each at least 1"),
        (lambda cfg: cfg.define_knob("depth", []), "'depth': .*nothing to choose from.* one value"),
        (lambda cfg: cfg.define_split("tile", 6, filter=lambda e: False), "'tile': .*nothing to choose from"),
    ],
)
def test_mistakes_are_explained(define: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        defined(define)


def test_what_is_defined_must_not_depend_on_what_is_chosen() -> None:
    @ansor.template("tests.template_dependent", override=True)
    def dependent(cfg: ansor.Config, n: int) -> tuple[ansor.Schedule, list[te.Tensor]]:
        a = te.placeholder((n,), name="A")
        b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
        s = te.create_schedule(b)
        cfg.define_knob("split", [False, True])
        if cfg["split"].val:
            cfg.define_split("tile", b.op.axis[0])
        return s, [a, b]

    with pytest.raises(DefinitionError, match="'tile' for some configurations only"):
        dependent.schedule((8,), dependent.space(8)[1])


def test_the_computation_must_not_depend_on_what_is_chosen() -> None:
    @ansor.template("tests.template_changing", override=True)
    def changing(cfg: ansor.Config, n: int) -> tuple[ansor.Schedule, list[te.Tensor]]:
        cfg.define_knob("twice", [False, True])
        a = te.placeholder((n,), name="A")
        b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
        if cfg["twice"].val:
            b = te.compute((n,), lambda i: b[i] + 1.0, name="C")
        return te.create_schedule(b), [a, b]

    with pytest.raises(DefinitionError, match="must not change the computation"):
        ansor.TemplateTask(changing, (8,)).state_of(1)


@pytest.mark.parametrize(
    ("shape", "body"),
    [
        (lambda n, k: (n, n), lambda a, k: lambda i, j: a[j, i] if k == 2 else a[i, j] * 3.0),
        (lambda n, k: (n * k, n), lambda a, k: lambda i, j: a[i % 8, j]),
        (lambda n, k: (n, n), lambda a, k: lambda i, j: a[i, j] * float(k)),
    ],
    ids=["other elements", "another extent", "another constant"],
)
def test_a_computation_of_equal_names_must_not_depend_on_what_is_chosen(shape: Any, body: Any) -> None:
    @ansor.template("tests.template_other_body", override=True)
    def changing(cfg: ansor.Config, n: int) -> tuple[ansor.Schedule, list[te.Tensor]]:
        cfg.define_knob("k", [1, 2])
        a = te.placeholder((n, n), name="A")
        b = te.compute(shape(n, cfg["k"].val), body(a, cfg["k"].val), name="B")
        return te.create_schedule(b), [a, b]

    task = ansor.TemplateTask(changing, (8,))
    task.state_of(0)
    changing.schedule((8,), task.config_space[0])
    with pytest.raises(DefinitionError, match=r"template_other_body.*k=2.*must not change the computation"):
        task.state_of(1)
    with pytest.raises(DefinitionError, match=r"template_other_body.*k=2.*must not change the computation"):
        changing.schedule((8,), task.config_space[1])


def test_an_exception_inside_a_template_tells_the_configuration() -> None:
    @ansor.template("tests.template_raising", override=True)
    def raising(cfg: ansor.Config, n: int) -> tuple[ansor.Schedule, list[te.Tensor]]:
        cfg.define_knob("k", [1, 2])
        if cfg["k"].val == 2:
            raise ValueError("mine")
        a = te.placeholder((n,), name="A")
        b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
        return te.create_schedule(b), [a, b]

    with pytest.raises(
        ansor.ScheduleError, match=r"template 'tests\.template_raising' raises ValueError: mine"
    ) as caught:
        ansor.TemplateTask(raising, (8,)).state_of(1)
    assert isinstance(caught.value.__cause__, ValueError)
    called = "template 'tests.template_raising' was called with (8,) and the configuration k=2"
    assert caught.value.__cause__.__notes__ == [f"{called} when this was raised"]


@pytest.mark.parametrize("args", [(), (8, 8), (1, 2, 3, 4)])
def test_arguments_that_a_template_does_not_take_are_refused(args: tuple[int, ...]) -> None:
    called = re.escape(f"'tests.template_matmul' called with {list(args)}: ")
    for call in (lambda: ansor.TemplateTask(matmul, args), lambda: matmul.space(*args)):
        with pytest.raises(DefinitionError, match=f"{called}.*after the configuration .*: int, m: int, k"):
            call()


def test_a_template_must_return_a_schedule_and_tensors() -> None:
    @ansor.template("tests.template_empty", override=True)
    def empty(cfg: ansor.Config) -> Any:
        return None

    with pytest.raises(DefinitionError, match="return s, "):
        empty.space()
    with pytest.raises(DefinitionError, match="first must be the configuration"):
        ansor.template("tests.template_nullary")(lambda: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(DefinitionError, match=r"no template; .*tests\.template_matmul"):
        ansor.TemplateTask("tests.no_such_template")


def test_an_illegal_configuration_is_a_schedule_error() -> None:
    @ansor.template("tests.template_illegal", override=True)
    def illegal(cfg: ansor.Config, n: int) -> tuple[ansor.Schedule, list[te.Tensor]]:
        a = te.placeholder((n,), name="A")
        k = te.reduce_axis((0, n), name="k")
        b = te.compute((1,), lambda i: te.sum(a[k], axis=k), name="B")
        s = te.create_schedule(b)
        cfg.define_annotate("ann", [k], "try_vec_parallel")
        cfg["ann"].apply(s, b, [k])
        return s, [a, b]

    task = ansor.TemplateTask(illegal, (8,))
    task.state_of(0)
    with pytest.raises(ScheduleError, match="rfactor"):
        task.state_of(task.config_space.pick(ann=["parallel"]))


def test_a_configuration_is_adapted_to_another_size() -> None:
    small, large = matmul.space(6, 32, 8), matmul.space(48, 32, 8)
    config = small.pick(tile_i=[2, 3], tile_j=[4, 8], ann=["unroll", "vec"], unroll=16)
    adapted = large.adapt(config)
    assert adapted["tile_i"].value == (16, 3)
    assert adapted["tile_j"].value == (4, 8)
    assert adapted["ann"] == config["ann"]
    assert large.adapt({"tile_i": ansor.SplitEntity((1, 5))})["tile_i"].value in {(12, 4), (8, 6)}


def scaled(name: str, fewest: int, at: str) -> ansor.Template:
    """A template that refuses vectors of fewer lanes, by an exception or by a filter."""

    def function(cfg: ansor.Config, n: int) -> tuple[ansor.Schedule, list[te.Tensor]]:
        a = te.placeholder((n,), name="A")
        c = te.compute((n,), lambda i: a[i] * 2.0, name="C")
        s = te.create_schedule(c)
        cfg.define_split("lanes", c.op.axis[0])
        if at == "filter":
            cfg.multi_filter(lambda config: config["lanes"].size[1] >= fewest)
        _, inner = cfg["lanes"].apply(s, c, c.op.axis[0])
        cfg.define_knob("unroll", [0, 16])
        if at == "raise" and cfg["lanes"].size[1] < fewest:
            raise ValueError("too few lanes")
        s[c].vectorize(inner)
        return s, [a, c]

    return ansor.template(f"tests.scaled_{name}", override=True)(function)


@pytest.mark.parametrize("at", ["raise", "filter"])
def test_a_first_configuration_that_is_refused_is_no_hindrance(at: str) -> None:
    made = scaled(at, 4, at)
    task = ansor.TemplateTask(made, (64,))
    assert task.config_space.dims == (7, 2)
    if at == "raise":
        with pytest.raises(ScheduleError, match="ValueError: too few lanes"):
            task.state_of(0)
    schedule, tensors = made(64)  # by a configuration that will do
    assert schedule.state.stages[1].iterators[-1].extent >= 4
    data = np.arange(64, dtype=np.float32)
    np.testing.assert_array_equal(ansor.build(schedule, tensors)(data), 2 * data)


def test_a_template_that_refuses_every_configuration_says_why() -> None:
    with pytest.raises(ValueError, match="too few lanes") as caught:
        ansor.TemplateTask(scaled("never", 100, "raise"), (64,))
    assert any("tests.scaled_never" in note for note in caught.value.__notes__)


def test_a_template_that_makes_another_program_each_time_is_refused() -> None:
    lengths = iter([2, 4, 8, 16])

    def function(cfg: ansor.Config, n: int) -> tuple[ansor.Schedule, list[te.Tensor]]:
        a = te.placeholder((n,), name="A")
        c = te.compute((n,), lambda i: a[i] * 2.0, name="C")
        s = te.create_schedule(c)
        s[c].split(c.op.axis[0], next(lengths))
        return s, [a, c]

    made = ansor.template("tests.fickle", override=True)(function)
    with pytest.raises(DefinitionError, match=r"'tests.fickle' makes another program .*define_knob"):
        ansor.TemplateTask(made, (64,))


def test_programs_of_a_template_that_refuses_its_first_configuration_tell_theirs() -> None:
    def function(cfg: ansor.Config, n: int) -> tuple[ansor.Schedule, list[te.Tensor]]:
        a = te.placeholder((n,), name="A")
        c = te.compute((n,), lambda i: a[i] * 2.0, name="C")
        s = te.create_schedule(c)
        cfg.define_knob("outer", [1, 2, 4])
        cfg.define_knob("inner", [1, 2, 4])
        if 1 in (cfg["outer"].val, cfg["inner"].val):
            raise ValueError("both must be more than one")
        (axis,) = c.op.axis
        _, i = s[c].split(axis, cfg["outer"].val)
        s[c].split(i, cfg["inner"].val)
        return s, [a, c]

    task = ansor.TemplateTask(ansor.template("tests.both", override=True)(function), (64,))
    legal = [at for at in range(9) if not set(task.config_space.coordinates(at)) & {0}]
    assert len(legal) == 4
    for index in legal:
        found = task.config_of(task.state_of(index))
        assert found is not None
        assert found.index == index


def test_a_simple_call_takes_what_filters_and_function_accept() -> None:
    def function(cfg: ansor.Config, n: int) -> tuple[ansor.Schedule, list[te.Tensor]]:
        a = te.placeholder((n,), name="A")
        c = te.compute((n,), lambda i: a[i] * 2.0, name="C")
        s = te.create_schedule(c)
        cfg.define_knob("many", list(range(399)))
        cfg.define_knob("length", [1, 2, 4, 8])
        cfg.multi_filter(lambda config: config["length"].val >= 4 and config["many"].val % 2 == 1)
        if cfg["length"].val == 4 and cfg["many"].val < 399:
            raise ValueError("four is no good")
        s[c].split(c.op.axis[0], cfg["length"].val)
        return s, [a, c]

    schedule, _ = ansor.template("tests.filtered", override=True)(function)(64)
    assert schedule.state.stages[1].iterators[-1].extent == 8


def test_spaces_larger_than_an_integer_may_have_filters() -> None:
    def function(cfg: ansor.Config, n: int) -> tuple[ansor.Schedule, list[te.Tensor]]:
        a = te.placeholder((n,), name="A")
        c = te.compute((n,), lambda i: a[i] * 2.0, name="C")
        for number in range(12):
            cfg.define_knob(f"k{number}", list(range(64)))
        cfg.multi_filter(lambda config: config["k11"].val > 1)
        return te.create_schedule(c), [a, c]

    made = ansor.template("tests.huge", override=True)(function)
    assert made.space(64).size == 64**12
    assert made.space(64).accepts(np.int64(0)) is False  # type: ignore[arg-type]
    made(64)
