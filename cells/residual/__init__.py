"""The residual networks of the theory, fully connected and convolutional, as search spaces."""

from cells.residual.activations import ACTIVATIONS as ACTIVATIONS
from cells.residual.networks import Residual as Residual
from cells.residual.networks import ResidualConvolutional as ResidualConvolutional
from cells.residual.networks import Skips as Skips
