"""The evaluation protocols as mteb tasks, one file per protocol: the first plug-in of ``xalign_models``."""


def register_with_mteb() -> None:
    """Make every registered task, benchmark and model known to mteb's own functions by name.

    Opens no text, no weights and no network connection.
    """
    from xalign_models.models.mteb import register_with_mteb as register  # not needed for lists

    register()
