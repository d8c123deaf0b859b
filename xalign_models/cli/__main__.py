"""``python -m xalign_models.cli``: the command line without its script, e.g. under ``accelerate launch -m``."""

import os
import sys


def leave_working_folder() -> None:
    """Remove the working folder, which ``-m`` puts first on the search path, unless the package itself is in it.

    So no module of the user's, such as ``tasks.py`` or ``lmdb.py``, runs in place of an installed one.
    """
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH120, PTH100
    if not sys.flags.safe_path and sys.path[0] == os.getcwd() != here:  # noqa: PTH109
        del sys.path[0]


if __name__ == "__main__":
    leave_working_folder()
    from xalign_models.cli import main

    main()
