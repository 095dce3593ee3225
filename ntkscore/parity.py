"""Moved to `ntkscore.verify.parity`."""

from ntkscore.verify.parity import KERNELS as KERNELS
from ntkscore.verify.parity import Reference as Reference
from ntkscore.verify.parity import load_parity as load_parity
from ntkscore.verify.parity import space_of as space_of
