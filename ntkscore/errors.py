"""The one error that a user of ntkscore is meant to read."""

from cells.errors import InputError as InputError
