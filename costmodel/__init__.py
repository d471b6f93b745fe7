"""Cost models: what a search believes of programs that it has not measured.

`model.py` holds the protocol and the base for users' own models, `random_model.py` the one that knows
nothing, `xgb.py` the interface of the learned one.
"""

from costmodel.model import CostModel, FloatArray
from costmodel.random_model import RandomModel
from costmodel.xgb import XGBModel

__all__ = ["CostModel", "FloatArray", "RandomModel", "XGBModel"]
