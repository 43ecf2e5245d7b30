"""What all verbs share: how they begin, how they end, and the lines that they tell a user to type.

A verb is a parser and a `main(argv)` that returns the exit code; it raises `BadInput` or `OSError`
where it cannot go on.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import importlib
import math
import os
import re
import resource
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ilkd_bench.plumbing.interrupts import again, exit_code, ignore, not_lost, terminable
from ilkd_bench.plumbing.streams import OutputLost, abandon_output, open_streams
from ilkd_bench.plumbing.text import block, word
from ilkd_bench.types import BadInput

Main = Callable[[Sequence[str]], int]
"""Words of a command line -> exit code."""

SCRIPT = "ilkd-bench"
FIRST_WORDS = ("-m", "method=rail_l,pkd,alp", "seed=0,1,2,3,4")
"""Of the run that a user without records is told to type."""


# ------------------------------------------------------------------------------------ the beginning


def version() -> str:
    """Return our name and version, as `--version` prints them."""
    from importlib import metadata  # only here: it takes a while

    try:
        return f"ilkd_bench {metadata.version('ilkd_bench')}"
    except metadata.PackageNotFoundError:  # a checkout on the path
        return "ilkd_bench of an unknown version: it is not installed"


class _Version(argparse.Action):
    """Print the version and exit; argparse's own action must know it beforehand."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        print(version())
        parser.exit()


def parser(verb: str, description: str, *, on_results: bool = True) -> argparse.ArgumentParser:
    """Return the parser of a verb, with the options that verbs share.

    Args:
        on_results: the verb reads a results folder.
    """
    typed = f"{SCRIPT} {verb}" if Path(sys.argv[0]).name == SCRIPT else _module(verb)
    result = argparse.ArgumentParser(prog=typed, description=description)
    result.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    if on_results:
        result.add_argument(
            "--results-dir",
            type=folder,
            default=Path("results"),
            metavar="DIR",
            help="where runs/ lies (results)",
        )
    return result


def whole_number(least: int) -> Callable[[str], int]:
    """Return the type of an option that is a whole number from `least`."""

    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text}: allowed is a whole number from {least}")
        return int(text)

    return number


def amount(text: str) -> float:
    """Return the value of an option that is a number from 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number >= 0:
        raise argparse.ArgumentTypeError(f"{text}: allowed is a number from 0")
    return number


def home(path: str) -> str:
    """Return a path in which `~` at the beginning is the home folder, and `~NAME` that of a user.

    Raises:
        BadInput: there is no such user.
    """
    try:
        return str(Path(path).expanduser()) if path.startswith("~") else path
    except RuntimeError as error:
        name = path.partition("/")[0]
        raise BadInput(
            f"{path}: there is no home folder {name}; a folder of that name is typed ./{path}"
        ) from error


def folder(typed: str) -> Path:
    """Return the value of an option that names a folder or file."""
    if not typed:
        raise argparse.ArgumentTypeError("a path is not empty; leave the option out")
    try:
        return Path(home(typed))
    except BadInput as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def nearest(wrong: str, allowed: Iterable[str]) -> str:
    """Return what to type in place of a word that is not allowed."""
    names = list(allowed)
    close = difflib.get_close_matches(wrong, names, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{hint}Allowed are {', '.join(names)}"


def main_of(verb: str) -> Main:
    """Import a verb and return its `main`."""
    main: Main = importlib.import_module(f"ilkd_bench.{verb}").main
    return main


def begin(verb: str) -> NoReturn:
    """Do what `python -m ilkd_bench.VERB` asks for; a verb's file calls this before its imports."""
    cli(lambda argv: main_of(verb)(argv))


# ------------------------------------------------------------------------------------------ the end


def complain(message: object) -> None:
    """Print a line about what is wrong."""
    print(block(f"ilkd_bench: {message}"), file=sys.stderr)


def say(message: object) -> None:
    """Print what a verb has to tell, whatever the names in it."""
    print(block(str(message)))


def verb(main: Main) -> Main:
    """Make what a user can mend one line on stderr and exit code 2.

    That is `BadInput`, `OSError`, and a name that cannot be written as UTF-8.
    """

    @functools.wraps(main)
    def ended(argv: Sequence[str]) -> int:
        try:
            with not_lost():
                return main(argv)
        except BrokenPipeError:
            raise
        except (BadInput, OSError) as error:
            complain(reason(error))
            return 2
        except UnicodeEncodeError as error:  # a name whose bytes are no letters here
            complain(
                f"{error.object[:100]!a} is no UTF-8: rename it, or type PYTHONUTF8=1 before the "
                "command"
            )
            return 2

    return ended


def reason(error: Exception) -> str:
    """Return what is wrong for a person: of a file, which one and what about it."""
    if isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return f"{where}{error.strerror}"
    return str(error)


def named(error: Exception) -> str:
    """Return an error for a person who has to know its kind."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def limits() -> str:
    """Return what keeps memory short; empty where nothing is known to."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return ""
    return f". `ulimit -v` is {limit // 1024} kB here: type `ulimit -v unlimited`, or ask for more"


def cli(main: Main, argv: Sequence[str] | None = None) -> NoReturn:
    """Exit with what a verb returns for the words that were typed.

    A reader that has read enough (`| head`) ends it without a word; Ctrl-C, SIGTERM, output that
    cannot be written, a working directory that is gone and too little memory by one line. Letters
    that the terminal's encoding lacks are printed as escapes.
    """
    open_streams()
    sys.unraisablehook = again
    code: Any = 0
    try:
        with terminable():
            try:
                with not_lost():  # while libraries are imported, too
                    code = main(sys.argv[1:] if argv is None else argv) if _has_folder() else 2
            except SystemExit as ended:  # what was printed has yet to reach its reader
                code = ended.code
            sys.stdout.flush()
    except BrokenPipeError:
        abandon_output()
    except OutputLost as error:
        abandon_output()
        complain(f"what was to be printed is lost: standard output: {error}")
        code = 1
    except (MemoryError, ImportError) as error:
        if not limits():
            raise
        complain(f"{named(error)}{limits()}")
        code = 2
    except KeyboardInterrupt as interrupt:  # OpenBLAS sends one where it gets no threads
        ignore()
        complain(f"stopped{limits()}")
        code = exit_code(interrupt)
    ignore()
    sys.exit(code)


def _has_folder() -> bool:
    """Tell whether there is a working directory, and say so if not."""
    try:
        os.getcwd()
    except OSError as error:
        complain(f"the working directory is gone ({reason(error)}): type `cd DIR` first")
        return False
    return True


# ------------------------------------------------------------------------------------ lines to type


def _module(verb: str) -> str:
    return f"python -m ilkd_bench.{verb}"


def setting(value: str, *, always: bool = False) -> str:
    """Return a text as Hydra reads it in `key=value`: in quotes where it needs them.

    Args:
        always: also where it needs none.
    """
    plain = re.fullmatch(r"[A-Za-z_./-][\w./@+-]*", value, re.ASCII) is not None
    if plain and not always and not _reads_as_a_value(value):
        return value
    text = re.sub(r"(\\*)'", r"\1\1\\'", value)  # a \ counts only before a quote
    text = re.sub(r"\\+$", lambda end: end[0] * 2, text)
    return "'" + text.replace("${", "\\${") + "'"


def _reads_as_a_value(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text.lower() in ("null", "true", "false")
    return True


def line(verb: str, *words: object) -> str:
    """Return a command as a user types it, quoted for a shell."""
    return " ".join([_module(verb), *(word(str(part)) for part in words)])


SETTING = re.compile(r"(?!hydra)[A-Za-z][\w.]*=", re.ASCII)


def typable(words: Iterable[str]) -> list[str]:
    """Return those of a record's words that may be typed again: settings, and no place of code."""
    return [part for part in words if SETTING.match(part) and "_target_" not in part]


def run_line(words: Iterable[object], *more: str) -> str:
    """Return the line that runs some words, quoted for a shell.

    Args:
        more: words at its end, `key=value`, that replace those of the same key.
    """
    replaced = tuple(f"{part.partition('=')[0]}=" for part in more)
    kept = [part for part in map(str, words) if not part.startswith(replaced)]
    return line("run", *kept, *more)


def no_runs(results_dir: Path) -> BadInput:
    """Return the error of a verb that finds no records."""
    return BadInput(
        f"no runs in {results_dir}: give --results-dir DIR, or run something first, e.g. "
        f"{run_line(FIRST_WORDS)}"
    )
