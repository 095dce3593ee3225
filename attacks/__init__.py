"""Attacks on images, as functions of a gradient or of logits."""

from attacks.core import NORMS as NORMS
from attacks.core import Attack as Attack
from attacks.core import Norm as Norm
from attacks.core import check_radius as check_radius
from attacks.core import direction as direction
from attacks.core import fgsm as fgsm
from attacks.core import pgd as pgd
from attacks.core import project as project
from attacks.core import project_to_sphere as project_to_sphere
from attacks.core import twice as twice
from attacks.core import uniform_in_ball as uniform_in_ball
from attacks.square import SquareAttack as SquareAttack
