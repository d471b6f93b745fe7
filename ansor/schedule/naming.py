"""Names of loops: fresh ones, and those in the style of schedule code: `i_o_i`, `i_j_fused`.

States call the parts of a loop `i.0 i.1 i.2`; schedule code, and the axes that rfactor makes, follow the
older custom of `_o` (outer) and `_i` (inner), which records of other tools rely on. Users may have called an
axis just that, and everything finds loops by name, so a derived name that is taken gets a `_` at its end.
"""

from __future__ import annotations

from ansor.schedule.stages import FuseRelation, Stage


def fresh_name(wanted: str, taken: set[str]) -> str:
    """`wanted`, with as many `_` behind it as make it differ from all that are taken; it is then, too."""
    while wanted in taken:
        wanted += "_"
    taken.add(wanted)
    return wanted


def code_names(stage: Stage) -> dict[str, str]:
    """The schedule-code name of every loop that the stage has or has had, by its state name.

    All differ, except that a loop fused with no other keeps its name.
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for axis in () if stage.is_placeholder else (*stage.compute.axis, *stage.compute.reduce_axis):
        names[axis.name] = fresh_name(axis.name.replace(".", "_").replace("@", "_"), taken)
    for relation in stage.relations:
        if isinstance(relation, FuseRelation):
            merged = names[relation.parents[0]]
            for parent in relation.parents[1:]:
                merged = f"{merged}_{names[parent]}_fused"
            alone = len(relation.parents) == 1
            names[relation.fused] = merged if alone else fresh_name(merged, taken)
        else:
            base, last = names[relation.parent], len(relation.parts) - 1
            for k, part in enumerate(relation.parts):
                if relation.inner_to_outer:
                    suffix = "_o" * last if k == 0 else "_o" * (last - k) + "_i"
                else:
                    suffix = "_i" * last if k == last else "_i" * k + "_o"
                names[part] = fresh_name(base + suffix, taken)
    return names
