"""`XGBModel`: the interface of the learned cost model.

What is here: collecting training data from rounds and logs, saving and loading it, and the place in a search
where it is asked. What is not here yet: learning. Until the feature table and the trees exist its scores are
`RandomModel`'s, its `informative` is false, and a search with it is random search. It loads no xgboost.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from ansor.errors import LogFormatError
from ansor.schedule.state import State
from ansor.task.task import Task
from costmodel.model import CostModel, FloatArray
from costmodel.random_model import RandomModel
from measure import MeasureInput, MeasureResult, dump_record_to_string, load_record_from_string, load_records

_FORMAT: Final = "ansor.XGBModel"


class XGBModel(CostModel):
    """
    The model that will learn from measurements; for now it remembers them and scores at random.

    Parameters
    ----------
    verbose_eval, num_warmup_sample, adaptive_training
        Accepted under the reference's names for the learned part to come; without effect until then.
    seed
        Seed of the scores.
    model_file
        A file written by `save` to start from.
    """

    def __init__(
        self,
        verbose_eval: int = 25,
        num_warmup_sample: int = 100,
        seed: int | None = None,
        model_file: str | Path | None = None,
        adaptive_training: bool = False,
    ) -> None:
        self.verbose_eval = verbose_eval
        self.num_warmup_sample = num_warmup_sample
        self.adaptive_training = adaptive_training
        self._scores = RandomModel(0 if seed is None else seed)
        self._records: dict[str, None] = {}
        if model_file is not None:
            self.load(model_file)

    @property
    def informative(self) -> bool:
        """False: nothing is learned yet."""
        return False

    @property
    def num_records(self) -> int:
        """Measurements collected as training data."""
        return len(self._records)

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Collect measurements, failures included."""
        self._collect(zip(inputs, results, strict=True))

    def update_from_file(self, file_name: str | Path, n_lines: int | None = None) -> None:
        """Collect the records of a log, or its first `n_lines` ones.

        Raises
        ------
        LogFormatError
            If a line of the log cannot be understood.
        """
        self._collect(islice(load_records(str(file_name)), n_lines))

    def predict(self, task: Task, states: Sequence[State]) -> FloatArray:
        """Score the states; for now a fixed random number each, shape ``(len(states),)``."""
        return self._scores.predict(task, states)

    def save(self, file_name: str | Path) -> None:
        """Write the seed and the training data as JSON."""
        data = {"format": _FORMAT, "version": 0, "seed": self._scores.seed, "records": list(self._records)}
        Path(file_name).write_text(json.dumps(data) + "\n", encoding="utf-8")

    def load(self, file_name: str | Path) -> None:
        """Replace seed and training data by a saved model's.

        Raises
        ------
        LogFormatError
            If the file is not one that `save` wrote.
        """
        try:
            data = json.loads(Path(file_name).read_text(encoding="utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise LogFormatError(f"{file_name}: not a saved XGBModel: {error}") from error
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise LogFormatError(f"{file_name}: not a saved XGBModel; write one with XGBModel.save")
        records = dict.fromkeys(map(str, data["records"]))
        for record in records:
            load_record_from_string(record)
        self._scores = RandomModel(int(data["seed"]))
        self._records = records

    def _collect(self, pairs: Iterable[tuple[MeasureInput, MeasureResult]]) -> None:
        """Keep records in order, each once: a log that is read twice teaches nothing new."""
        self._records |= dict.fromkeys(dump_record_to_string(inp, res) for inp, res in pairs)
