"""Search spaces and their networks; the names here need no JAX."""

from cells.darts.space import Darts as Darts
from cells.nasbench201.space import NASBench201 as NASBench201
from cells.residual.networks import Residual as Residual
from cells.residual.networks import ResidualConvolutional as ResidualConvolutional
from cells.wideresnet.space import WideResNet as WideResNet
