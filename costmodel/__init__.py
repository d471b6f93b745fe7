"""Cost models: what a search believes of programs that it has not measured.

Reading order: `model` (the protocol), `candidates` (what is scored), `random_model`; then how models learn:
`rows`, `labels`, `dataset`, `losses`, `learned` (the base for models of your own), `boosting`, `xgb`;
`metrics` says how good they are.
"""

from costmodel import metrics
from costmodel.candidates import Candidates, Programs
from costmodel.dataset import Collector, Dataset
from costmodel.learned import LearnedModel
from costmodel.model import CostModel, FloatArray
from costmodel.random_model import RandomModel
from costmodel.rows import FeatureSource, PackedRows
from costmodel.sk import SklearnModel
from costmodel.xgb import XGBModel

__all__ = [
    "Candidates",
    "Collector",
    "CostModel",
    "Dataset",
    "FeatureSource",
    "FloatArray",
    "LearnedModel",
    "PackedRows",
    "Programs",
    "RandomModel",
    "SklearnModel",
    "XGBModel",
    "metrics",
]
