"""The documentation site: `make site` builds it, and every warning is an error."""

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))

import ntkscore  # noqa: E402

project = "ntkscore"
author = "The ntkscore authors"
version = release = ntkscore.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"ntkscore {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
# Two hyphens are the beginning of an option.
smartquotes = False
myst_heading_anchors = 3
default_role = "code"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = True
# Attributes of a class are documented once, in its docstring.
napoleon_use_ivar = True
napoleon_custom_sections = [("Source", "Notes")]
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# The notebook runs wherever the table that it looks into is at hand; an error in it is one here.
data = Path(os.environ.get("NTKSCORE_DATA") or ROOT.parent / "shared" / "data")
has_table = (data / "nas-robbench-201").is_dir()
if has_table:
    os.environ["NTKSCORE_DATA"] = str(data)
else:
    print("the notebook is shown as it is, not run: no table of accuracies here")
nb_execution_mode = "force" if has_table else "off"
nb_execution_raise_on_error = True
nb_execution_timeout = 300

GENERATED = DOCS / "generated"
PAGES = {
    "REPORT": "report",
    "THEORY": "theory-run",
    "TRAINING": "training-run",
    "DARTS": "darts-run",
    "PREDICTION": "prediction-run",
    "TARGETS": "targets-run",
}
"""Pages that `python -m experiments` writes, by their names on the site."""


def gather(app: Any) -> None:
    """Put the recordings' pages, the commands and the public names where Sphinx reads."""
    shutil.rmtree(GENERATED, ignore_errors=True)
    shutil.copytree(ROOT / "experiments" / "figures", GENERATED / "figures")
    for name, page in PAGES.items():
        shutil.copy(ROOT / "experiments" / f"{name}.md", GENERATED / f"{page}.md")
    shutil.copy(ROOT / "ntkscore" / "recorded" / "README.md", GENERATED / "recorded.md")
    shutil.copy(ROOT / "CHANGELOG.md", GENERATED / "changes.md")
    (GENERATED / "commands.md").write_text(commands(), encoding="utf-8")
    (GENERATED / "api.md").write_text(names(), encoding="utf-8")


def commands() -> str:
    """Every command with its options, from the program itself."""
    import typer.main

    from ntkscore.cli.app import app
    from ntkscore.spaces import SPACES

    parts = [
        "# Commands",
        "",
        "`ntkscore --version` prints versions and devices. The options of a space other",
    ]
    parts += ["than NAS-Bench-201 are in the help: `ntkscore rank --space residual --help`.", ""]
    group: Any = typer.main.get_command(app(SPACES["nasbench201"]))
    for name, command in sorted(group.commands.items()):
        subcommands = getattr(command, "commands", None)
        for title, each in (
            [(f"{name} {sub}", one) for sub, one in subcommands.items()]
            if subcommands
            else [(name, command)]
        ):
            parts += [f"## {title}", "", (each.help or "").replace("\n\n", "\n").strip(), ""]
            parts += ["| option | |", "|---|---|"]
            for parameter in each.params:
                if parameter.name == "help":
                    continue
                flags = (
                    "/".join([*parameter.opts, *parameter.secondary_opts])
                    if parameter.param_type_name == "option"
                    else (parameter.metavar or parameter.name.upper())
                )
                text = str(getattr(parameter, "help", "") or "").replace("|", r"\|")
                flags = flags.replace("|", r"\|")
                parts.append(f"| `{flags}` | {text} |")
            parts.append("")
    return "\n".join(parts)


def names() -> str:
    """Every public name, from its docstring."""
    import inspect

    parts = ["# API", "", "Everything that `import ntkscore` offers.", ""]
    for name in sorted(ntkscore.__all__, key=str.lower):
        value = getattr(ntkscore, name)
        kind = "class" if inspect.isclass(value) else "function"
        parts += [f"## {name}", "", "```{eval-rst}", f".. auto{kind}:: ntkscore.{name}"]
        if kind == "class":
            parts.append("   :members:")
        parts += ["```", ""]
    return "\n".join(parts)


def relink(app: Any, docname: str, source: list[str]) -> None:
    """Lead links between the repository's pages to their places on the site."""
    text, up = source[0], "../" if docname.startswith("generated/") else ""
    for name, page in PAGES.items():
        text = re.sub(rf"\]\((\.\./experiments/)?{name}\.md", f"]({up}generated/{page}.md", text)
    text = text.replace("](../experiments/figures/", f"]({up}generated/figures/")
    text = re.sub(r"\]\(docs/", f"]({up}", text)
    if docname.startswith("generated/"):
        text = text.replace(f"]({up}generated/", "](")
        text = re.sub(r"\]\([\w./-]+\.parquet\)", "](report.md)", text)
    source[0] = text


def plain(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Keep bars, stars and underscores of formulas from being read as markup."""
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            lines[i] = re.sub(r"(?<!`)([|*])", r"\\\1", line)


def passed_over(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Fields of tuples stand in the class's docstring already."""
    return True if (getattr(obj, "__doc__", "") or "").startswith("Alias for field") else None


def setup(app: Any) -> None:
    app.connect("builder-inited", gather)
    app.connect("source-read", relink)
    app.connect("autodoc-skip-member", passed_over)
    # Before napoleon adds markup of its own.
    app.connect("autodoc-process-docstring", plain, priority=400)
