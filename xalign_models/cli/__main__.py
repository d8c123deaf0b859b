"""``python -m xalign_models.cli``: the command line without its script, e.g. under ``accelerate launch -m``."""

from xalign_models.cli import main

if __name__ == "__main__":
    main()
