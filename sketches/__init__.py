"""Program sketches and complete programs: what the search chooses from.

Rules derive *sketches* (loop structures with holes) from a computation; sampling fills the holes. Reading order:
`rule`, the rules (`inline`, `tiling`, `caching`, `rfactor`, `const_tensor`), `derive`; then `factors`, `locations`,
`annotate`, `family`, `sample`.
"""

from sketches.derive import CPU_RULES, Sketch, SkipStage, generate_sketches
from sketches.params import SketchParams
from sketches.rule import Derivation, SketchContext, SketchRule, Verdict

__all__ = [
    "CPU_RULES",
    "Derivation",
    "Sketch",
    "SketchContext",
    "SketchParams",
    "SketchRule",
    "SkipStage",
    "Verdict",
    "generate_sketches",
]
