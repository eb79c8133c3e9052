"""Errors for the person who did not write the code: each says where, what was found, and what would have been right."""


class CrosslightError(Exception):
    """Something the user can mend; the commands print its message without a traceback and exit with status 2."""


class ConfigError(CrosslightError):
    """The configuration cannot work; the message names the key."""


class DataError(CrosslightError):
    """A file, a dataset or a line cannot be used; the message names it."""


class RunError(CrosslightError):
    """A run folder or a checkpoint cannot be used; the message names it."""


class ExpectationError(CrosslightError):
    """The run ended well, but its score is below what its recipe promises; the commands exit with status 1."""
