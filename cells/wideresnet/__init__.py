"""Wide residual networks, by depth and width of each stage."""

from cells.wideresnet.space import WideResNet as WideResNet
from cells.wideresnet.stages import Stages as Stages
