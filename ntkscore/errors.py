"""The one error that a user of ntkscore is meant to read."""


class InputError(ValueError):
    """Something given from outside cannot be used.

    The message is one sentence that says what was expected, what came and what to do;
    the command line prints it and exits with code 2.
    """
