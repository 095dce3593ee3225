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
    "experiments/RESULTS.md": "results",
    "experiments/frozen/README.md": "frozen",
    "experiments/frozen/targets/targets.md": "targets-run",
    "ntkscore/recorded/README.md": "recorded",
    "CHANGELOG.md": "changes",
}
"""Pages outside of `docs/`, by their names on the site."""
FOLDERS = {"experiments/figures": "figures", "experiments/tables": "tables"}
"""Folders that these pages lead into, by their names on the site."""


def gather(app: Any) -> None:
    """Put the recordings' pages, the commands and the public names where Sphinx reads."""
    shutil.rmtree(GENERATED, ignore_errors=True)
    GENERATED.mkdir()
    for folder, name in FOLDERS.items():
        if (ROOT / folder).is_dir():
            shutil.copytree(ROOT / folder, GENERATED / name)
    for path, name in PAGES.items():
        shutil.copy(ROOT / path, GENERATED / f"{name}.md")
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
    parts += ["than NAS-Bench-201 are in the help: `ntkscore score --space residual --help`.", ""]
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
    """Every public name and the search spaces, from their docstrings."""
    import inspect

    import cells
    from ntkscore import regression

    of_kernels = [(regression, name) for name in ("KernelRegression", "alignment", "distance")]
    spaces = [name for name, value in vars(cells).items() if inspect.isclass(value)]
    public = [(ntkscore, name) for name in ntkscore.__all__] + [(cells, name) for name in spaces]
    public = sorted(public + of_kernels, key=lambda each: each[1].lower())
    parts = [
        "# API",
        "",
        "What `import ntkscore` and `ntkscore.regression` offer, and the spaces of `cells`.",
        "",
    ]
    parts += ["| name | |", "|---|---|"]
    for module, name in public:
        first, *_ = (inspect.getdoc(getattr(module, name)) or "").split("\n\n")
        parts.append(f"| [`{name}`](#{name.lower()}) | {' '.join(first.split())} |")
    parts.append("")
    for module, name in public:
        value = getattr(module, name)
        of = "class" if inspect.isclass(value) else "function" if callable(value) else "data"
        parts += [f"## {name}", "", "```{eval-rst}", f".. auto{of}:: {module.__name__}.{name}"]
        if of == "class":
            parts.append("   :members:")
        parts += ["```", ""]
    return "\n".join(parts)


def on_site(path: str) -> str:
    """Where a file of the repository is on the site, or itself, from `docs/`.

    Example:
        >>> on_site("experiments/frozen/theory-width"), on_site("docs/theory.md")
        ('generated/frozen.md', 'theory.md')
    """
    if path in PAGES:
        return f"generated/{PAGES[path]}.md"
    folder, _, name = path.rpartition("/")
    if folder in FOLDERS:
        return f"generated/{FOLDERS[folder]}/{name}"
    if folder == "experiments/frozen":
        return "generated/frozen.md"
    return os.path.relpath(ROOT / path, DOCS)


def relink(app: Any, docname: str, source: list[str]) -> None:
    """Lead links between the repository's pages to their places on the site."""
    origins = {f"generated/{name}": path for path, name in PAGES.items()}
    folder = Path(origins.get(docname, f"docs/{docname}")).parent

    def place(match: re.Match[str]) -> str:
        there = on_site(os.path.normpath(folder / match["path"]))
        return match["before"] + os.path.relpath(there, Path(docname).parent)

    # Links in the text, and their definitions below it.
    link = r"(?P<before>\]\(|^\[[^]]+\]: )(?P<path>(?!https?:)[^#)\s]+)"
    source[0] = re.sub(link, place, source[0], flags=re.MULTILINE)


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
