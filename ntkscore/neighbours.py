"""Public names of the packages beside this one, for its own public face."""

from attacks import fgsm as fgsm
from attacks import pgd as pgd
from attacks import twice as twice
from cells import Cell as Cell
from cells import Space as Space
from cells import Task as Task
from cells import option as option
from cells.nasbench201.space import NASBench201 as NASBench201
from cells.residual import Residual as Residual
