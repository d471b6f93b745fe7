"""What all tests share: PoCL may run on CPUs it does not know, here and in processes started here."""

import os

from ansor.knobs import POCL_CPU
from ansor.runtime.device.pocl import cpu_flags, known_name

os.environ.setdefault(POCL_CPU, known_name(cpu_flags()))
