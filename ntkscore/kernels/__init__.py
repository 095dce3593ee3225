"""Kernels of any network at any points: Gram matrices, joint kernels, and their scores."""

from ntkscore.kernels.gram import ntk as ntk
from ntkscore.kernels.gram import ntk_and_logits as ntk_and_logits
from ntkscore.kernels.implementations import IMPLEMENTATIONS as IMPLEMENTATIONS
from ntkscore.kernels.joint import KERNELS as KERNELS
from ntkscore.kernels.joint import joint_kernel as joint_kernel
from ntkscore.kernels.parameters import PARAMETER_SETS as PARAMETER_SETS
from ntkscore.kernels.readouts import READOUTS as READOUTS
from ntkscore.kernels.scores import SCORES as SCORES
from ntkscore.kernels.scores import add_score as add_score
from ntkscore.kernels.scores import measure as measure
from ntkscore.kernels.stack import Stack as Stack
from ntkscore.kernels.stack import stack as stack
