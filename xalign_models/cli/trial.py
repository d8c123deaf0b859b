"""``xalign try``."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from xalign_models.cli.common import check_inputs, check_output, print_json, print_rows, say, set_data, tell
from xalign_models.cli.options import Device, Json
from xalign_models.errors import DataError
from xalign_models.paths import expanded


def try_(
    model: Annotated[str, Argument(help="Registered backbone, directory or hub id.")],
    text: Annotated[Path, Argument(help="Folder of parallel text, or of queries and documents in BEIR's layout.")],
    output: Annotated[Path, Option("--output", "-o", help="Folder to write the report and the model to.")] = Path(
        "trial"
    ),
    device: Device = None,
    json: Json = False,
) -> None:
    """Find out whether alignment helps a model on your own text.

    The command splits the text into halves, chooses an alignment on one and scores it on the other. It writes a
    report, report.html, the aligned model, the results, and a baseline for `xalign gate`.
    """
    if not expanded(text).exists():
        raise DataError(f"{text}: no such folder.")
    check_output(output / "model")
    check_inputs(model, method="centered", corpora=[f"own:test:{text}"])
    from xalign_models.boards.trial import trial_data, try_text
    from xalign_models.page.trial import answer, write_trial

    set_data(trial_data(text))
    trial = try_text(model, text, output, device=device, tell=tell)
    write_trial(trial, output / "report.html")
    if json:
        print_json(asdict(trial))
        return
    rows = [
        {
            "score": score.name,
            "before": f"{100 * score.before:.1f}",
            "after": f"{100 * score.after:.1f}",
            "95% interval of the change": f"[{100 * score.interval[0]:+z.1f}, {100 * score.interval[1]:+z.1f}]",
        }
        for score in trial.scores
    ]
    print_rows(rows, right=("before", "after"))
    say(answer(trial))
    say(f"wrote {output / 'report.html'}, {trial.model or 'no model'} and {output / 'results' / 'baseline.json'}")
