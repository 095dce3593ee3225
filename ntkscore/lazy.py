"""JAX under its usual names, imported at its first use, as `attacks.lazy` has it."""

from attacks.lazy import Array as Array
from attacks.lazy import Lazy as Lazy
from attacks.lazy import PyTree as PyTree
from attacks.lazy import as_one as as_one
from attacks.lazy import jax as jax
from attacks.lazy import jnp as jnp
from attacks.lazy import lax as lax
