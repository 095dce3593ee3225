"""Attacks on images, and ensembles of them, as functions of what a network answers."""

from attacks.apgd import APGD as APGD
from attacks.apgd import PGD as PGD
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
from attacks.ensemble import Robustness as Robustness
from attacks.ensemble import attack_all as attack_all
from attacks.errors import AttackError as AttackError
from attacks.fab import FAB as FAB
from attacks.fab import FMN as FMN
from attacks.losses import Oracle as Oracle
from attacks.losses import Victim as Victim
from attacks.losses import loss as loss
from attacks.square import SquareAttack as SquareAttack
from attacks.steps import Stepwise as Stepwise
from attacks.versions import autoattack as autoattack
