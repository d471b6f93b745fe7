"""Running compiled programs: threads, loading, calling, timing, exporting."""

from ansor.runtime.arguments import aligned_empty
from ansor.runtime.device.arrays import DeviceArray, device_array, device_empty
from ansor.runtime.device.module import DeviceModule
from ansor.runtime.export import load_module
from ansor.runtime.module import Module
from ansor.runtime.pool import get_num_threads, set_num_threads
from ansor.runtime.signature import Argument, Signature
from ansor.runtime.timing import TimeResult

__all__ = [
    "Argument",
    "DeviceArray",
    "DeviceModule",
    "Module",
    "Signature",
    "TimeResult",
    "aligned_empty",
    "device_array",
    "device_empty",
    "get_num_threads",
    "load_module",
    "set_num_threads",
]
