"""The one command: `ilkd-bench VERB ...`, and `python -m ilkd_bench VERB ...`, which is the same.

Only the verb that is asked for is imported.
"""

from __future__ import annotations

from collections.abc import Sequence

from ilkd_bench.plumbing import command
from ilkd_bench.types import BadInput

VERBS = {
    "run": "train and score students: one run, or a sweep with -m",
    "runs": "list the runs: done, failed and why, missing of a sweep",
    "tables": "write tables from the records",
    "figures": "draw figures from the records",
    "report": "write all results as one HTML page",
    "general": "distil a student on plain text, before any task",
    "analyse": "compare stored students with their teachers, layer by layer",
    "banks": "list what is stored once for all runs, and remove what is old",
    "export": "write a student as a folder for the model hub",
    "submit": "write the zip for the GLUE server",
    "dashboard": "make the comparison of methods at Weights & Biases",
}
"""Verb -> what it does."""

COMPLETION = """\
_ilkd_bench() {
    local line=${COMP_LINE:0:COMP_POINT} choices
    local word=${line##* } typed=${line#*[[:space:]]run[[:space:]]}
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        compopt +o nospace 2> /dev/null
        choices="VERBS --help --version"
    elif [[ ${COMP_WORDS[1]} == run ]]; then
        choices=$(COMP_LINE="run $typed" "$1" run -sc query=bash 2> /dev/null)
    fi
    COMPREPLY=($(compgen -W "$choices" -- "$word"))
    if [[ $COMP_WORDBREAKS == *=* && $word == *=* ]]; then  # only what follows the = is replaced
        COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*=}"}"}")
    fi
}
complete -o default -o nospace -F _ilkd_bench SCRIPT
"""
"""For bash. Hydra says what may follow `run`; elsewhere files are completed."""


def listing() -> str:
    """Return the help: every verb with what it does."""
    verbs = "\n".join(f"  {verb:<10} {what}" for verb, what in VERBS.items())
    return f"""\
usage: {command.SCRIPT} VERB ...

Compare knowledge-distillation methods for BERT-like teachers and smaller students.

{verbs}

{command.SCRIPT} VERB --help tells more of a verb; python -m ilkd_bench.VERB is the same command.

  --version          print the version and exit
  --completion bash  print what completes words with the tab key:
                     eval "$({command.SCRIPT} --completion bash)\""""


@command.verb
def main(argv: Sequence[str]) -> int:
    """Do what the verb does, and return its exit code.

    Raises:
        BadInput: there is no such verb.
    """
    first = argv[0] if argv else "--help"
    if first in ("-h", "--help"):
        print(listing())
    elif first == "--version":
        print(command.version())
    elif first == "--completion":
        print(_completion(argv[1:]), end="")
    elif first not in VERBS:
        raise BadInput(f"{first} is no verb: {command.nearest(first, VERBS)}")
    else:
        return command.main_of(first)(argv[1:])
    return 0


def _completion(shells: Sequence[str]) -> str:
    if list(shells) != ["bash"]:
        raise BadInput(f"--completion {' '.join(shells)}: allowed is bash")
    return COMPLETION.replace("VERBS", " ".join(VERBS)).replace("SCRIPT", command.SCRIPT)


def cli() -> None:
    """Entry point of the installed command."""
    command.cli(main)


if __name__ == "__main__":
    cli()
