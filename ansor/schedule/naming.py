"""Names of loops in the style of schedule code: `i_o_i`, `i_j_fused`.

States call the parts of a loop `i.0 i.1 i.2`; schedule code, and the axes that rfactor makes, follow the
older custom of `_o` (outer) and `_i` (inner), which records of other tools rely on.
"""

from __future__ import annotations

from ansor.schedule.stages import FuseRelation, Stage


def code_names(stage: Stage) -> dict[str, str]:
    """The schedule-code name of every loop that the stage has or has had, by its state name."""
    names: dict[str, str] = {}
    if not stage.is_placeholder:
        op = stage.compute
        names = {axis.name: axis.name for axis in (*op.axis, *op.reduce_axis)}
    for relation in stage.relations:
        if isinstance(relation, FuseRelation):
            merged = names[relation.parents[0]]
            for parent in relation.parents[1:]:
                merged = f"{merged}_{names[parent]}_fused"
            names[relation.fused] = merged
        else:
            base, last = names[relation.parent], len(relation.parts) - 1
            for k, part in enumerate(relation.parts):
                if relation.inner_to_outer:
                    suffix = "_o" * last if k == 0 else "_o" * (last - k) + "_i"
                else:
                    suffix = "_i" * last if k == last else "_i" * k + "_o"
                names[part] = base + suffix
    return {name: text.replace(".", "_").replace("@", "_") for name, text in names.items()}
