"""Targets: what parses, what is printed, and what is refused by name."""

import copy
import pickle
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansor.errors import TargetError
from ansor.task.target import KINDS, Target


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("llvm", "llvm -keys=cpu"),
        ("llvm -mcpu=core-avx2", "llvm -keys=cpu -mcpu=core-avx2"),
        ("llvm -keys=cpu ", "llvm -keys=cpu"),
        (
            "llvm -num-cores=2 -mtriple=aarch64-linux-gnu -mattr=+neon,-sve -mcpu cortex-a72",
            "llvm -keys=cpu -mattr=+neon,-sve -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu -num-cores=2",
        ),
        ("llvm -device=arm_cpu", "llvm -keys=arm_cpu,cpu -device=arm_cpu"),
        ("cuda", "cuda -keys=cuda,gpu -max_num_threads=1024 -thread_warp_size=32"),
        (
            "cuda -arch=sm_80 -max_shared_memory_per_block=49152",
            "cuda -keys=cuda,gpu -arch=sm_80 -max_num_threads=1024 -max_shared_memory_per_block=49152 "
            "-thread_warp_size=32",
        ),
        ("llvm '-model=Xeon Gold'", "llvm -keys=cpu -model='Xeon Gold'"),
        ('llvm -device "a b" -model="a\'b"', """llvm -keys='a b,cpu' -device='a b' -model='a'"'"'b'"""),
        (r"llvm -model='a\b'", r"llvm -keys=cpu -model='a\b'"),
        ("llvm -model=#~$(*)", "llvm -keys=cpu -model=#~$(*)"),
    ],
)
def test_canonical_text(text: str, canonical: str) -> None:
    assert str(Target(text)) == canonical
    assert Target(canonical) == Target(text)
    assert str(Target.parse(canonical)) == canonical


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_of_every_kind_is_a_fixed_point(kind: str) -> None:
    target = Target(kind)
    assert Target(str(target)) == target == Target.parse(str(target))
    assert target.kind == kind
    assert target.is_gpu == (kind not in ("llvm", "c"))


def test_fields() -> None:
    target = Target("llvm -mcpu=znver4 -mattr=+avx2,+fma -mtriple=x86_64-linux-gnu -num-cores=2")
    assert (target.kind, target.mcpu, target.mattr) == ("llvm", "znver4", ("+avx2", "+fma"))
    assert (target.mtriple, target.num_cores, target.keys) == ("x86_64-linux-gnu", 2, ("cpu",))
    bare = Target("llvm")
    assert (bare.mcpu, bare.mattr, bare.mtriple, bare.num_cores) == (None, (), None, None)
    assert Target("cuda -arch=sm_90").arch == "sm_90"
    assert Target("cuda").arch is None
    assert Target("cuda").thread_warp_size == 32


def test_a_target_knows_what_its_author_said() -> None:
    said = Target("opencl -max_num_threads=256")
    assert said == Target("opencl")
    for copied in (said, Target(said), pickle.loads(pickle.dumps(said)), copy.deepcopy(said)):
        assert copied.states("max_num_threads", "arch")
        assert not copied.states("thread_warp_size", "keys")
    assert not Target("opencl").states("max_num_threads")
    changed = Target("opencl").with_attrs(thread_warp_size=1)
    assert changed.states("thread_warp_size")
    assert not changed.states("max_num_threads")
    assert not changed.with_attrs(thread_warp_size=None).states("thread_warp_size")
    full = Target(str(Target("opencl -max_num_threads=64")))
    assert full.states("max_num_threads")
    assert not full.states("thread_warp_size")


def test_a_target_is_a_value() -> None:
    target = Target("llvm -num-cores=2")
    assert target == Target(target) == pickle.loads(pickle.dumps(target)) == copy.deepcopy(target)
    assert len({target, Target("llvm -num-cores=2")}) == 1
    assert target != "llvm -keys=cpu -num-cores=2"
    with pytest.raises(AttributeError, match="immutable"):
        target.kind = "cuda"  # type: ignore[misc]
    with pytest.raises(TypeError):
        target.attrs["mcpu"] = "x"  # type: ignore[index]


@given(st.text(min_size=1))
def test_a_value_may_have_any_characters(value: str) -> None:
    target = Target(f"llvm -model={shlex.quote(value)} -device={shlex.quote(value)}")
    for same in (Target(str(target)), Target.parse(str(target)), pickle.loads(pickle.dumps(target))):
        assert same == target
        assert (same.model, same.device, same.keys) == (value, value, target.keys)
    assert target.with_attrs(num_cores=2).model == value


def test_with_attrs() -> None:
    target = Target("llvm -mcpu=znver4")
    assert str(target.with_attrs(num_cores=3, mcpu=None)) == "llvm -keys=cpu -num-cores=3"
    assert str(Target("cuda").with_attrs(max_num_threads=512)).count("max_num_threads=512") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the target is empty"),
        ("llmv", "unknown kind 'llmv'; use one of llvm, c, cuda"),
        ("llvm -mcp=x", "unknown option -mcp; did you mean -mcpu.*knows .*-num-cores"),
        ("llvm -mcpu=", "-mcpu has no value; write -mcpu=VALUE"),
        ("llvm -mcpu", "-mcpu has no value"),
        ("llvm -libs=,", "-libs has no value; write -libs=VALUE"),
        ("llvm -mattr=' , '", "-mattr has no value"),
        ("llvm -num-cores=two", "-num-cores needs an integer, found 'two'"),
        ("llvm -num-cores=0", "-num-cores must be at least 1, found 0"),
        ("opencl -max_num_threads=0", "'opencl .*=0': -max_num_threads must be at least 1, found 0"),
        ("opencl -max_num_threads=-5", "-max_num_threads must be at least 1, found -5"),
        ("cuda -max_threads_per_block=0", "-max_threads_per_block must be at least 1, found 0"),
        ("cuda -max_threads_per_block", "-max_threads_per_block has no value"),
        ("llvm -mattr=avx2", r"'avx2' in -mattr has no sign; write \+avx2 or -avx2"),
        ("llvm -mcpu=a -mcpu=b", "gives -mcpu twice"),
        ("llvm mcpu=a", "expected an option such as -mcpu=..., found 'mcpu=a'"),
        ("llvm -mcpu='a", "cannot be split"),
    ],
)
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        Target(text)


def test_an_option_that_changes_nothing_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    text = "llvm -vector-width=512 -mcpu=znver4"
    assert Target(text) == Target(text) == Target.parse(text)
    (record,) = [record for record in caplog.records if "vector-width" in record.getMessage()]
    assert "-vector-width is read and changes nothing; what does is" in record.getMessage()
    assert "-mcpu -model -mtriple -num-cores" in record.getMessage()
    Target("llvm -keys=cpu -device=x -num-cores=2 -mattr=+avx2 -mtriple=x86_64-linux-gnu -model=unknown")
    Target.parse("llvm -opt-level=2")
    assert len(caplog.records) == 1


def test_options_of_gpus_that_change_nothing_are_warned_of_where_they_are_stated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    full = str(Target("opencl -max_threads_per_block=64"))
    assert "-texture_spatial_limit=16384" in full
    Target(full).with_attrs(thread_warp_size=8)
    logged = Target.parse("cuda -arch=sm_75 -max_function_args=9 -registers_per_block=65536 -mystery=1")
    logged.with_attrs(mystery=None, arch="sm_90")
    Target(
        "cuda -keys=cuda,gpu -device=x -model=y -arch=sm_90 -l2_cache_size_bytes=9 -max_num_threads=64 "
        "-max_threads_per_block=64 -max_shared_memory_per_block=9 -max_local_memory_per_block=9 "
        "-thread_warp_size=32"
    )
    Target("rocm -mcpu=gfx906 -mattr=+x")
    assert not caplog.records
    Target("cuda -registers_per_block=65536")
    Target("opencl").with_attrs(max_function_args=9)
    Target("opencl -texture_spatial_limit=16384")
    Target("opencl -texture_spatial_limit=16384")
    said = [
        record.getMessage().partition(" is read and changes nothing; what does is -arch")[0]
        for record in caplog.records
    ]
    assert said == [
        "target kind 'cuda': -registers_per_block",
        "target kind 'opencl': -max_function_args",
        "target kind 'opencl': -texture_spatial_limit",
    ]


def test_only_texts_are_targets() -> None:
    with pytest.raises(TargetError, match="found int"):
        Target(3)  # type: ignore[arg-type]


def test_the_architecture_of_logs_that_had_none_is_left_out() -> None:
    made = Target.parse("cuda -keys=cuda,gpu -arch=sm_50 -max_num_threads=1024 -thread_warp_size=32")
    assert made == Target("cuda")
    named = Target("cuda -arch=sm_50 -host=llvm -tag=x")
    assert named.arch == "sm_50"
    for copied in (pickle.loads(pickle.dumps(named)), copy.deepcopy(named)):
        assert (copied, copied.attrs) == (named, named.attrs)


def test_logs_of_any_age_parse() -> None:
    text = "llvm -keys=cpu -link-params=0 -mystery=7 -system-lib"
    assert str(Target.parse(text)) == "llvm -keys=cpu -link-params=0 -mystery=7 -system-lib=1"
    odd = Target.parse("llvm '-what is=this'")
    assert Target.parse(str(odd)) == odd
    with pytest.raises(TargetError, match="unknown option -mystery"):
        Target(text)
    assert Target.parse("opencl -max_num_threads=0").attrs["max_num_threads"] == 0
    with pytest.raises(TargetError, match="unknown kind"):
        Target.parse("abacus")


words = st.text("abcxyz0189_", min_size=1, max_size=6)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "mcpu": words,
            "mtriple": words,
            "num-cores": st.integers(1, 999),
            "mattr": st.lists(st.tuples(st.sampled_from("+-"), words).map("".join), min_size=1).map(",".join),
        },
    )
)
def test_text_and_target_are_inverse(options: dict[str, object]) -> None:
    target = Target("llvm " + " ".join(f"-{name}={value}" for name, value in options.items()))
    assert Target(str(target)) == target
    assert target.num_cores == options.get("num-cores")
