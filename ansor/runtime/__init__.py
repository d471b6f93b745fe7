"""Running compiled programs: threads, loading, calling, timing, exporting.

What is for devices is imported at its first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from ansor.runtime.export import load_module
from ansor.runtime.module import Module
from ansor.runtime.pool import get_num_threads, set_num_threads
from ansor.runtime.signature import Argument, Signature
from ansor.runtime.timing import TimeResult

if TYPE_CHECKING:
    from ansor.runtime.device.arrays import DeviceArray, device_array, device_empty, from_dlpack
    from ansor.runtime.device.module import DeviceModule

_ON_DEVICES: Final = {
    "DeviceArray": "arrays",
    "DeviceModule": "module",
    "device_array": "arrays",
    "device_empty": "arrays",
    "from_dlpack": "arrays",
}

__all__ = [
    "Argument",
    "DeviceArray",
    "DeviceModule",
    "Module",
    "Signature",
    "TimeResult",
    "device_array",
    "device_empty",
    "from_dlpack",
    "get_num_threads",
    "load_module",
    "set_num_threads",
]

if not TYPE_CHECKING:  # See `ansor`.

    def __getattr__(name: str) -> object:
        """Import a public thing for devices."""
        if name not in _ON_DEVICES:
            raise AttributeError(f"module 'ansor.runtime' has no attribute {name!r}")
        return getattr(import_module(f"ansor.runtime.device.{_ON_DEVICES[name]}"), name)
