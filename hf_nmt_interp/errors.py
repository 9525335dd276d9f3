"""Errors whose cause is the caller's input: the message names the argument, the value and the remedy."""


class InputError(ValueError):
    """Bad user input; the command line prints it as one line and exits with code 2."""
