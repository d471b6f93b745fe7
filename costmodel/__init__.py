"""Cost models: what a search believes of programs that it has not measured.

`model.py` holds the protocol and the base for users' own models, `candidates.py` what is scored,
`random_model.py` the model that knows nothing, `xgb.py` the learned one.
"""

from costmodel.candidates import Candidates, Programs
from costmodel.model import CostModel, FloatArray
from costmodel.random_model import RandomModel
from costmodel.xgb import XGBModel

__all__ = ["Candidates", "CostModel", "FloatArray", "Programs", "RandomModel", "XGBModel"]
