"""The runtime checker of annotations, as `pyproject.toml` names it to jaxtyping."""

from beartype import BeartypeConf, beartype

# An int is a float to every reader, as to a type checker.
check = beartype(conf=BeartypeConf(is_pep484_tower=True))
