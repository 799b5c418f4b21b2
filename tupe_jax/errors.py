"""The one exception that means "the user can mend this"."""


class UserError(ValueError):
    """A wrong setting or input, told in one line: what, where, and what to do.

    The command line prints the line and exits with code 2; everything else keeps its traceback.
    """


USER_ERROR_EXIT_CODE = 2
