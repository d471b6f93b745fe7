"""`AnalyticModel`: seconds from first principles, with nothing to train.

A roofline per statement. The instructions that the feature table counts take time on the core's ports, chains
of dependent ones take latency, and the bytes that move between cache levels take time per level. A statement
takes as long as the longest of these, and a part of the others, which do not overlap perfectly. A program
takes as long as its statements together, each on the cores that it keeps busy.

Pressure on registers: vectors of a register tile that find none (`tile_pressure` above 1) are stored and
loaded again in each step of the reduction. LLVM chooses accumulators for that, so that each step waits until
one has been through memory (`spilled_latency`): with 16 registers a tile of 7 x 2 vectors takes 13 cycles a
step on a Zen 3, one of 6 x 2 takes 6. Where the accumulators alone are too many there is no tile: the emitter
leaves the elements in memory (`RegisterLimits`), and each step pays for a load and a store of every one
(`accumulator_moves`) and waits for them (`memory_latency`).

What is known of the machine itself, vector width, registers, cache sizes and ways, number of cores, is in the
features already; `CoreRates` holds what is not, for a wide out-of-order core. The absolute time is rough (a
factor of two). The order is what counts: it drafts candidates for a learned model and makes the first round
good. Kernels of a GPU have a roofline of their own (`analytic_device`).

Source: Williams, Waterman, Patterson, "Roofline", CACM 2009, with one roof per cache level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ansor.checks import check_fields
from ansor.errors import DefinitionError
from ansor.runtime.multiply_adds import known_fma_ports
from ansor.task.hardware import HardwareParams
from ansor.task.task import Task
from costmodel.analytic_device import USED as USED_OF_DEVICE
from costmodel.analytic_device import DeviceRates, device_parts
from costmodel.candidates import Candidates
from costmodel.extraction.extract import core_of
from costmodel.features.table import unscale
from costmodel.model import CostModel, FloatArray
from costmodel.rows import PackedRows, extract_rows
from costmodel.statements import StatementFeatures
from costmodel.storage import read_model, refusing, write_model
from measure import MeasureInput, MeasureResult

Raw = Mapping[str, NDArray[np.float64]]
"""Columns of the feature table in their own units."""

_USED: Final = (
    "work",
    "math",
    "loads_contiguous",
    "loads_broadcast",
    "loads_scattered",
    "accumulator_moves",
    "accumulator_vectors",
    "stores_scattered",
    "branches",
    "chain",
    "index_div",
    "tile",
    "tile_registers",
    "tile_pressure",
    "tile_steps",
    "tile_code",
    "parallel_launches",
    "parallel_balance",
    "parallel_cores",
    "L1_traffic",
    "L2_traffic",
    "L3_traffic",
    "L1_pieces",
    "L2_pieces",
    "streams",
    "stream_begins",
    "footprint",
    "streamed",
    "lanes",
    "alloc_outer_prod",
)


@dataclass(frozen=True, slots=True)
class CoreRates:
    """
    What a core does in a cycle, and what things cost.

    Parameters
    ----------
    hertz
        Cycles per second.
    arithmetic, loads, stores
        Instructions of each kind per cycle; of arithmetic no more than the CPU has ports for multiply-adds.
    issue_per_port
        Instructions in all per cycle and port for multiply-adds, of those that count (`arithmetic`): cores
        with more of these are wider elsewhere, too, and one that takes a vector in halves has half as many.
    filling
        Cycles of a load or store of an accumulator, with which a visit of a tile begins and ends, that its
        arithmetic does not hide.
    latency
        Cycles from an operand to its result, in a register.
    memory_latency
        The same through a store and a load.
    spilled_latency
        Cycles of a multiply-add whose accumulator is loaded before it and stored after it, until the next can
        load it.
    window
        Instructions that the core looks ahead: short chains one after the other overlap within it.
    math
        Cycles of an intrinsic function on one register.
    scattered
        Further instructions that one lane of a scattered access takes, or a load or shuffle of a near one.
    division
        Cycles of a division of integers in an index; most are hoisted.
    branch
        Cycles of one more iteration of a loop.
    code, growth
        Instructions of a loop body up to which it runs at full speed, and the part that each doubling costs.
    l2, l3
        Bytes per cycle that one core gets from its second and third cache.
    memory
        Bytes per cycle that all cores together get from memory.
    l2_piece, l3_piece
        Cycles that every contiguous piece takes beyond its bytes.
    begin, line
        Cycles that a core waits for memory where a contiguous stream begins, before what it needs is fetched
        ahead of it, and where it reads one line.
    streams
        How many streams side by side are fetched ahead best; their begins overlap.
    launch
        Cycles to enter a parallel loop.
    overlap
        Part of the shorter times that hides behind the longest, at most 1.
    l3_overlap
        The same, if that is less, of what comes from the third cache and what the core does with it, as its
        latency is long; what memory takes longer hides the rest. A product of 2048 on an Emerald Rapids, in
        tiles of 11 x 32 with 50 ms of arithmetic: 44 ms of such traffic beside it made 77 in all, 23 ms 61,
        12 ms 54, where this says 68, 60 and 55.

    Raises
    ------
    DefinitionError
        If a number is negative, or a rate is 0.
    """

    hertz: float = 3.0e9
    arithmetic: float = 2.0
    loads: float = 2.0
    stores: float = 0.6
    issue_per_port: float = 1.6
    filling: float = 2.0
    latency: float = 4.5
    memory_latency: float = 6.0
    spilled_latency: float = 13.0
    window: float = 260.0
    math: float = 4.0
    scattered: float = 1.0
    division: float = 0.02
    branch: float = 1.2
    code: float = 64.0
    growth: float = 0.17
    l2: float = 25.0
    l3: float = 12.0
    memory: float = 10.0
    l2_piece: float = 2.5
    l3_piece: float = 10.0
    begin: float = 2700.0
    line: float = 12.0
    streams: float = 8.0
    launch: float = 11000.0
    overlap: float = 0.95
    l3_overlap: float = 0.6

    def __post_init__(self) -> None:
        check_fields(self, *self.__slots__, low=0)
        check_fields(self, *_RATES, above=0)
        if self.overlap > 1:
            raise DefinitionError(f"CoreRates(overlap={self.overlap}): it is a part, at most 1")


_RATES: Final = (
    *("hertz", "arithmetic", "loads", "stores", "issue_per_port", "window", "code"),
    *("l2", "l3", "memory", "streams"),
)


_OF_A_CORE: Final = ("ports", "latency", "L2")
"""What a core does itself, while it does not wait for what all of them share."""
_KIND: Final = "AnalyticModel"
_FORMULAS: Final = 5
"""Another number for every change of what is made of features and rates."""


class AnalyticModel(CostModel):
    """
    Scores programs by estimated time; it knows no measurement.

    Parameters
    ----------
    rates
        A core's constants.
    device_rates
        The constants of a GPU's multiprocessors.

    Raises
    ------
    DefinitionError
        If they are none.
    """

    def __init__(self, rates: CoreRates | None = None, device_rates: DeviceRates | None = None) -> None:
        if rates is not None and not isinstance(rates, CoreRates):
            raise DefinitionError(f"AnalyticModel({rates!r}): it must be a costmodel.analytic.CoreRates")
        if device_rates is not None and not isinstance(device_rates, DeviceRates):
            raise DefinitionError(
                f"AnalyticModel(device_rates={device_rates!r}): it must be a "
                "costmodel.analytic_device.DeviceRates"
            )
        self.rates = rates or CoreRates()
        self.device_rates = device_rates or DeviceRates()

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Nothing is learned."""

    def save(self, file_name: str | Path) -> None:
        """Write the rates: there is nothing else to this model."""
        write_model(
            file_name, _KIND, {"rates": asdict(self.rates), "device_rates": asdict(self.device_rates)}
        )

    def load(self, file_name: str | Path) -> None:
        """
        Take over the rates of a saved model.

        Raises
        ------
        LogFormatError
            If the file is not one that `save` wrote.
        """
        with refusing(file_name, _KIND):
            saved = read_model(file_name, _KIND)
            rates, device_rates = CoreRates(**saved["rates"]), DeviceRates(**saved["device_rates"])
        self.rates, self.device_rates = rates, device_rates

    @property
    def version(self) -> str:
        """Changes with what estimates are made of: formulas and rates."""
        rates = repr((self.rates, self.device_rates))
        return f"{_FORMULAS}-{blake2b(rates.encode(), digest_size=6).hexdigest()}"

    @property
    def tells_plans_apart(self) -> bool:
        """True: no column that it uses is about anything else than the loops that are compiled."""
        return True

    def predict(self, task: Task, candidates: Candidates) -> FloatArray:
        """Give minus the logarithm of the estimated seconds; ``-inf`` for a program that is illegal."""
        seconds = self.seconds(task, candidates)
        return np.where(np.isfinite(seconds), -np.log(np.maximum(seconds, 1e-30)), -np.inf)

    def seconds(self, task: Task, candidates: Candidates) -> FloatArray:
        """Estimate the run time of each candidate [s]; infinite for a program that is illegal."""
        return self.seconds_of(task, extract_rows(StatementFeatures(), task, candidates))

    def seconds_of(self, task: Task, features: PackedRows) -> FloatArray:
        """Estimate run times [s] from feature rows; infinite for a program without rows."""
        total = np.full(len(features), np.inf)
        filled = np.diff(features.offsets) > 0
        if filled.any():
            used = _USED if core_of(task).device is None else USED_OF_DEVICE
            rows = self.parts(task, unscale(features.values, used))["seconds"]
            total[filled] = np.add.reduceat(rows, features.offsets[:-1][filled])
        return total

    def parts(self, task: Task, raw: Raw) -> dict[str, FloatArray]:
        """
        Estimate the times of statements.

        Parameters
        ----------
        task
            For which machine.
        raw
            Columns of the feature table in their own units.

        Returns
        -------
        dict[str, FloatArray]
            Seconds per statement, by what takes them; "seconds" is their combination.
        """
        rates, core = self.rates, core_of(task)
        if core.device is not None:
            return device_parts(self.device_rates, core.device, raw)
        parallel = raw["parallel_launches"] > 0
        share = np.where(parallel, core.cores * raw["parallel_balance"], 1.0)
        spread = np.where(parallel, np.maximum(raw["parallel_cores"], 1.0), 1.0)
        cold = np.maximum(raw["footprint"], task.compute_dag.traffic_bytes) > core.caches[-1][0]
        times = {
            "ports": self._ports(raw, core.hardware, known_fma_ports(core.hardware, task.target)) / share,
            "latency": self._latency(raw) * spread / share,
            "L2": (raw["L1_traffic"] / rates.l2 + raw["L1_pieces"] * rates.l2_piece) / share,
            "L3": (raw["L2_traffic"] / rates.l3 + raw["L2_pieces"] * rates.l3_piece) / share,
            "memory": self._memory(raw, cold) + cold * self._waiting(raw, core.line) / share,
        }
        longest = np.maximum.reduce(list(times.values()))
        rest = np.sum(list(times.values()), axis=0) - longest
        own = np.maximum.reduce([times[name] for name in _OF_A_CORE])
        shown = max(0.0, rates.overlap - rates.l3_overlap) * np.minimum(own, times["L3"])
        exposed = np.maximum(np.maximum(own, times["L3"]) + shown - longest, 0.0)
        times["launch"] = self._launches(raw) * rates.launch
        times["seconds"] = longest + (1.0 - rates.overlap) * rest + exposed + times["launch"]
        return {name: cycles / rates.hertz for name, cycles in times.items()}

    def _launches(self, raw: Raw) -> FloatArray:
        """How often a statement starts a parallel loop; one that another stage's starts is that one's.

        Scratch of a stage that is computed inside a parallel loop lies inside it, too.
        """
        launches = raw["parallel_launches"]
        return np.where(raw["alloc_outer_prod"] > launches, 0.0, launches)

    def _memory(self, raw: Raw, cold: NDArray[np.bool_]) -> FloatArray:
        """Cycles of what all cores together move to and from memory.

        What a statement touches comes from memory, once at least, if that, or all that the program is given
        and gives back, is more than the last cache holds: then others have taken its place since the last
        call. So does scratch, of which there is little.

        A store through the caches fetches the line and writes it back later, which the traffic counts as two;
        one that passes them by writes the line, whether or not the caches had room for it.
        """
        streamed = np.where((raw["lanes"] > 1) & (raw["stores_scattered"] == 0), raw["streamed"], 0.0)
        passing = np.where(cold, np.maximum(raw["L3_traffic"] - streamed, streamed), streamed)
        return np.asarray(passing / self.rates.memory)

    def _waiting(self, raw: Raw, line: int) -> FloatArray:
        """Cycles that a core waits for lines of memory that nobody fetched ahead.

        Those with which a stream begins are waited for one by one until it has been recognised: all lines of
        short pieces, and of long ones as many, whatever their length. Streams side by side wait together;
        too many crowd each other out.
        """
        rates, streams = self.rates, np.maximum(raw["streams"], 1.0)
        apart = np.maximum(1.0 / streams, streams / rates.streams**2)
        begins = raw["stream_begins"] * rates.begin * apart
        lines = raw["L3_traffic"] / line * rates.line
        return np.asarray(begins * lines / np.maximum(begins + lines, 1.0))

    def _ports(self, raw: Raw, hardware: HardwareParams, fma_ports: int) -> FloatArray:
        """Cycles of all instructions on one core, none waiting for another.

        What does not fit the registers goes through the first cache: a store and a load per vector and step.
        """
        rates = self.rates
        arithmetic = min(rates.arithmetic, fma_ports)
        spilled = (
            hardware.vector_registers
            * np.maximum(raw["tile_pressure"] - 1.0, 0.0)
            / np.maximum(raw["tile_registers"], 1.0)
        )
        spilled = spilled * raw["work"]  # as many vectors are updated, one by each operation
        loads = raw["loads_contiguous"] + raw["loads_broadcast"]
        scattered = rates.scattered * (raw["loads_scattered"] + raw["stores_scattered"])
        cycles = np.maximum.reduce(
            [
                (raw["work"] - raw["math"]) / arithmetic + raw["math"] * rates.math,
                (loads + raw["loads_scattered"] + spilled) / rates.loads,
                (raw["accumulator_moves"] + spilled) / rates.stores,
                (raw["work"] + loads + scattered + raw["accumulator_moves"] + 2.0 * spilled)
                / (rates.issue_per_port * arithmetic),
            ]
        )
        cycles = cycles + raw["branches"] * rates.branch + raw["index_div"] * rates.division
        cycles = cycles + np.where(raw["tile"] > 0, raw["accumulator_vectors"], 0.0) * rates.filling
        doublings = np.log2(np.maximum(raw["tile_code"] / rates.code, 1.0))
        return np.asarray(cycles * (1.0 + rates.growth * doublings))

    def _latency(self, raw: Raw) -> FloatArray:
        """Cycles of dependent operations; visits of the tile overlap as far as the core looks ahead."""
        rates = self.rates
        in_tile = np.where(raw["tile_pressure"] > 1, rates.spilled_latency, rates.latency)
        chain = raw["chain"] * np.where(raw["tile"] > 0, in_tile, rates.memory_latency)
        visit = 2.0 * raw["tile_steps"] * np.maximum(raw["tile_registers"], 1.0)
        return np.asarray(chain / np.clip(rates.window / visit, 1.0, 8.0))
