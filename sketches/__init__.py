"""Program sketches and complete programs: what a search chooses from.

Rules derive *sketches* (loop structures with holes) from a computation; sampling fills the holes. Reading
order: `rule`, `rules`, `derive`; then `factors`, `columns`, `locations`, `annotate`, `annotators`,
`streaming`, `prefetching`, `family`, `population`, `sample`; for GPUs `launch`, `threads`, `fetch`,
`buffering`, `padding`, `limits`. By hand: `templates`.
"""

from sketches.annotate import DERIVE
from sketches.annotators import CPU_ANNOTATORS, GPU_ANNOTATORS, Annotator, Draft
from sketches.columns import Column, ColumnKind
from sketches.derive import (
    CPU_EXTRA_RULES,
    CPU_RULES,
    GPU_EXTRA_RULES,
    GPU_RULES,
    Sketch,
    SkipStage,
    generate_sketches,
)
from sketches.family import Family
from sketches.params import SketchParams
from sketches.population import Population
from sketches.rule import Derivation, SketchContext, SketchRule, Verdict
from sketches.rules.packing import AddPackedRead
from sketches.sample import ProgramSpace, Sample, sample_programs
from sketches.templates.choices import AnnotateEntity, KnobEntity, ReorderEntity, SplitEntity
from sketches.templates.config import Config, ConfigEntity, ConfigSpace
from sketches.templates.function import Template, template

__all__ = [
    "CPU_ANNOTATORS",
    "CPU_EXTRA_RULES",
    "CPU_RULES",
    "DERIVE",
    "GPU_ANNOTATORS",
    "GPU_EXTRA_RULES",
    "GPU_RULES",
    "AddPackedRead",
    "AnnotateEntity",
    "Annotator",
    "Column",
    "ColumnKind",
    "Config",
    "ConfigEntity",
    "ConfigSpace",
    "Derivation",
    "Draft",
    "Family",
    "KnobEntity",
    "Population",
    "ProgramSpace",
    "ReorderEntity",
    "Sample",
    "Sketch",
    "SketchContext",
    "SketchParams",
    "SketchRule",
    "SkipStage",
    "SplitEntity",
    "Template",
    "Verdict",
    "generate_sketches",
    "sample_programs",
    "template",
]
