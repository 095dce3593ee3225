"""The commands that compare, look up, show and fetch."""

from pathlib import Path
from typing import Annotated

import typer

import ntkscore
from ntkscore.cli import options as o
from ntkscore.cli.display import front_title, print_frame, stderr
from ntkscore.cli.sheets import AGAINST, compact_agreement
from ntkscore.data.downloads import SOURCES
from ntkscore.errors import InputError
from ntkscore.paths import data_home
from ntkscore.run import devices
from ntkscore.spaces import DEFAULT, default_space, space_class


def correlate(
    directory: Annotated[
        str,
        typer.Argument(
            help=f"{o.RUN}, `recorded` for the package's own, or a table whose own metrics to "
            "correlate.",
            metavar=o.PLACE,
        ),
    ],
    table: o.TableOption = None,
    dataset: o.Dataset = "cifar10",
    metric: Annotated[
        str,
        typer.Option(
            help="Accuracy to correlate with: clean, fgsm3, pgd8, autoattack, or a table's name."
        ),
    ] = "val_pgd_8_acc",
    at_rho: o.AtRho = None,
    top: o.Top = None,
    plot: o.Plot = None,
    resamples: Annotated[int, typer.Option(help="Bootstrap resamples.")] = 1000,
    space: o.SpaceName = None,
    format: o.OutputFormat = "table",
) -> None:
    """Correlate scores with measured accuracy, beside the parameter count and the FLOPs."""
    from ntkscore.analysis import comparison
    from ntkscore.explore.pictures import agreement_picture, check_picture
    from ntkscore.spaces import space_in

    check_picture(plot)
    if table is None:
        raise InputError(
            "a table of accuracies",
            "none",
            "name one with --table, such as the folder that `ntkscore fetch "
            "nas-robbench-201` prints, or a .csv file of your own",
        )
    scores, source = comparison.scores_in(directory, dataset, o.radius_of(at_rho))
    where = space_in(directory, space_class(space) if space else None) or default_space()
    accuracies = comparison.in_keys_of(where, table, dataset)
    frame = ntkscore.correlate(
        scores, accuracies, dataset, metric, space=where, resamples=resamples
    )
    note = (
        f"{source}; accuracy from {accuracies.name}; 95 % intervals by bootstrap, which draws "
        "networks of one function together; "
        "top by accuracy"
    )
    if absent := len(scores) - int((frame["n"] + frame["excluded"]).max()):
        note += f"; {absent} networks that the table has no results for are left out"
    printed = frame
    if format == "table" or top is not None:
        strength = frame["spearman"].abs().sort_values(ascending=False, kind="stable")
        printed = frame.loc[strength.index].head(25 if top is None else top)
    if format == "table":
        if hidden := len(frame) - len(printed):
            note += f"; {hidden} more with --top {len(frame)}"
        printed = compact_agreement(printed, where.smaller)
        if printed["better"].str.contains(AGAINST).any():
            note += (
                f"\n{AGAINST}: here the correlation is opposite to the direction that the score "
                "declares, by which the best network is chosen"
            )
    print_frame(printed, format, f"Agreement with {metric} on {dataset}, {len(scores)} cells", note)
    if plot is not None:
        # Costs and counts were not in the scores.
        costs = [name for name in frame["score"] if name not in scores and "+" not in name]
        agreement_picture(frame, costs, f"{metric} on {dataset}", plot)
        stderr.print(f"drawn in {plot}", soft_wrap=True)


def predict(
    directory: Annotated[
        str, typer.Argument(help=f"{o.RUN}, or `recorded` for the package's own.", metavar=o.PLACE)
    ],
    table: Annotated[
        Path,
        typer.Option(
            help="Accuracies of some of its networks, as fractions: a .csv file whose first column "
            "names networks, or a benchmark table."
        ),
    ],
    metric: Annotated[
        str | None, typer.Option(help="Column of the accuracies; not needed where there is one.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Data set of the accuracies; the run's if left out.")
    ] = None,
    minimise: Annotated[
        bool, typer.Option("--minimise", help="Less is better, as of errors.")
    ] = False,
    suggest: Annotated[
        int | None,
        typer.Option(min=1, help="How many networks to train next to print, instead of all."),
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(
            help="What accuracies may rise or fall with before any is known: a score or a sum as "
            "for `rank --by`; none for nothing. The space's default order if left out."
        ),
    ] = None,
    known: Annotated[
        Path | None,
        typer.Option(
            help="Numbers that are inputs beside the run's, such as accuracies of another training "
            "or latencies: a .csv file of networks and numbers, for nine tenths of them at least."
        ),
    ] = None,
    pareto: o.Pareto = None,
    at_rho: o.AtRho = None,
    top: o.Top = None,
    plot: o.Plot = None,
    space: o.SpaceName = None,
    format: o.OutputFormat = "table",
) -> None:
    """Predict every network's accuracy from those of a few, and say which to train next."""
    from ntkscore.api.prediction import Campaign
    from ntkscore.explore.pictures import check_picture, front_picture, prediction_picture
    from ntkscore.spaces import space_in

    check_picture(plot)
    campaign = Campaign.of(
        directory,
        table,
        metric,
        dataset=dataset,
        minimise=minimise,
        space=space_in(directory, space_class(space)) if space else None,
        rho=o.radius_of(at_rho),
        prior=prior,
        known=known,
    )
    beside, what = o.names_in(pareto), f"predicted {campaign.metric}"
    if top is None and format == "table" and not suggest and not beside:
        top = 20
    frame = campaign.frame(suggest or 0, top, beside)
    predictor, told = campaign.predictor, len(campaign.predictor.measured)
    note = (
        f"from {told} accuracies and {predictor.inputs.shape[1]} measures and counts, "
        f"starting from {predictor.follows}; "
        f"{len(predictor.left_out)} more were constant, redundant or missing; low and high: "
        "90 % of measured accuracies should lie between them"
    )
    if failed := len(predictor.networks) - len(predictor.inputs):
        note += f"; {failed} networks most of whose measures failed have no prediction"
    if campaign.unknown:
        note += f"; {campaign.unknown} accuracies are of networks that are not in {directory}"
    if plot is not None and beside:
        every, front = (
            of.rename(columns={"mean": what}) for of in (campaign.beside(beside), frame)
        )
        names = list(campaign.space.names(campaign.space.parse(every.index[0])))
        front_picture(every, front, what, beside, names, plot)
    elif plot is not None:
        prediction_picture(campaign.predictions, campaign.metric, plot)
    if plot is not None:
        stderr.print(f"drawn in {plot}", soft_wrap=True)
    heading = f"To train next, of {campaign.metric}" if suggest else f"Predicted {campaign.metric}"
    heading = front_title(len(frame), what, beside) if beside else heading
    print_frame(frame, format, heading, note)


def lookup(
    cells: o.Cells,
    table: o.TablePath,
    dataset: Annotated[
        str | None, typer.Option(help="Data set; all of the table's if left out.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Training seed; their mean if left out.")] = None,
    space: o.SpaceName = None,
    format: o.OutputFormat = "table",
) -> None:
    """Look up measured accuracies, as fractions."""
    accuracies = ntkscore.load_table(table, dataset)
    where = space_class(space)() if space else None
    frame = ntkscore.lookup(cells, accuracies, dataset, seed=seed, space=where)
    which = "mean of seeds" if seed is None else f"seed {seed}"
    print_frame(frame, format, f"{accuracies.name}, {which}")


def verify(
    files: Annotated[list[Path], typer.Argument(help="Parity files (.npz).", metavar="FILE…")],
    x64: Annotated[bool, typer.Option("--x64", help="Compute in float64.")] = False,
    space: o.SpaceName = None,
    format: o.OutputFormat = "table",
) -> None:
    """Check this machine's backend against float64 reference values; exit 1 if any differs."""
    cls = space_class(space or DEFAULT)
    references = [cls.reference(path) for path in files]  # all are read before anything is computed

    import pandas as pd

    from ntkscore.verify.checks import verify as verify_file

    devices.keep_compiled()
    failed, found = 0, []
    for path, reference in zip(files, references, strict=True):
        with stderr.status(f"checking {path}"):
            checks = list(verify_file(reference, x64))
        failed += sum(not check.passed for check in checks)
        frame = pd.DataFrame(
            {
                "file": path.name,
                "quantity": check.quantity,
                "error": check.error,
                "tolerance": check.tolerance,
                "kink bound": check.kink_bound,
                "result": "pass" if check.passed else "FAIL",
            }
            for check in checks
        )
        if format == "table":
            print_frame(frame.drop(columns="file"), format, str(path))
        found.append(frame)
    if format != "table":
        print_frame(pd.concat(found, ignore_index=True), format)
    if failed:
        stderr.print(f"{failed} quantities are beyond their tolerance")
        raise typer.Exit(1)


def fetch(
    name: Annotated[str, typer.Argument(help=f"Data set or table: {', '.join(SOURCES)}.")],
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder to download to; else $NTKSCORE_DATA, else the user cache."),
    ] = None,
) -> None:
    """Download a data set or a benchmark table, checked by its checksum where one is published."""
    path = ntkscore.fetch(name, data_home(data_dir))
    stderr.print(f"{name} is in {path}", soft_wrap=True)


def explore(
    directories: Annotated[
        list[str],
        typer.Argument(
            help="Result directories or URLs of one space, one or more; `recorded` for the "
            "package's own.",
            metavar=f"{o.PLACE}…",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The page, an .html file.")],
    table: o.TableOption = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="Data set of a .csv that does not name it; the run's if left out."),
    ] = None,
    predict: Annotated[
        bool,
        typer.Option(
            "--predict",
            help="Also show accuracies predicted from those of --table, as `predict` does, from "
            "the first directory's scores.",
        ),
    ] = False,
    metric: Annotated[
        str | None,
        typer.Option(help="Column of the accuracies for --predict; not needed where there is one."),
    ] = None,
    at_rho: o.AtRho = None,
    costs: o.Costs = None,
    title: Annotated[
        str | None, typer.Option(help="Its heading; the folders' names if left out.")
    ] = None,
    space: o.SpaceName = None,
) -> None:
    """Make one page to look at results in a browser: scatter, filters, ranking."""
    from ntkscore.explore import write_page

    if predict and table is None:
        raise InputError("--table beside --predict", "none", "name the accuracies")
    cls = space_class(space) if space else None
    runs = [ntkscore.open_run(each, cls) for each in directories]
    dataset = dataset or str(runs[0].results.configuration["dataset"])
    if costs is not None:
        measured = ntkscore.load_costs(costs, dataset)
        runs = [run.with_costs(measured) for run in runs]
    accuracies = ntkscore.load_table(table, dataset) if table else None
    predicted = None
    if predict:
        from ntkscore.api.prediction import Campaign

        how = {"dataset": dataset, "space": runs[0].space, "rho": o.radius_of(at_rho)}
        campaign = Campaign.of(directories[0], table, metric, **how)
        predicted = campaign.predictor.predict()
    elif metric is not None or at_rho is not None:
        beside = "--at-rho" if metric is None else "--metric"
        raise InputError(f"--predict beside {beside}", "none", "add it")
    write_page(runs, out, accuracies, title=title, predicted=predicted)
    size = out.stat().st_size / 1e6
    stderr.print(f"{out}, {size:.1f} MB; open it in a browser", soft_wrap=True)
