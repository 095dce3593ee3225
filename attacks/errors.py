"""The error of an attack that cannot be made, or not of what it is given."""


class AttackError(ValueError):
    """An attack is none, or is not for these images, labels or classes.

    Attributes:
        expected: what should have come.
        got: what came.
        remedy: what to do.
    """

    def __init__(self, expected: str, got: object, remedy: str) -> None:
        super().__init__(expected, got, remedy)
        self.expected, self.got, self.remedy = expected, got, remedy

    def __str__(self) -> str:
        return f"expected {self.expected}, got {self.got}; {self.remedy}"
