"""Cost models: what a search believes of programs that it has not measured.

Reading order: `model` (the protocol), `candidates` (what is scored), `random_model`; what a program looks
like to a model: `features` (the table), `extraction`, `rows`; the model that needs no training: `analytic`;
how others learn: `labels`, `dataset`, `losses`, `learned` (the base for models of your own), `boosting`,
`xgb`, `sk`; both together: `drafted`. `metrics` says how good they are.
"""

from costmodel import metrics
from costmodel.analytic import AnalyticModel
from costmodel.candidates import Candidates, Programs
from costmodel.dataset import Collector, Dataset
from costmodel.drafted import DraftedModel
from costmodel.drafts import Drafter
from costmodel.learned import LearnedModel
from costmodel.model import CostModel, FloatArray
from costmodel.random_model import RandomModel
from costmodel.rows import FeatureSource, PackedRows
from costmodel.sk import SklearnModel
from costmodel.xgb import XGBModel

__all__ = [
    "AnalyticModel",
    "Candidates",
    "Collector",
    "CostModel",
    "Dataset",
    "DraftedModel",
    "Drafter",
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
