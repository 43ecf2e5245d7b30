"""Wrong inputs of every command: one sentence, exit code 2, nothing trained, nothing touched."""

from __future__ import annotations

import copy
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import made
import pytest

from ilkd_bench.__main__ import VERBS, main
from ilkd_bench.jobs import job, plan
from ilkd_bench.plumbing import processes

pytestmark = pytest.mark.usefixtures("logging_as_it_was")

LONG = "n" * 300

WORDS = [
    ("seed", "type key=value"),
    ("run", "type key=value"),
    ("method pkd", "type key=value"),
    ("--seed=1", "unrecognized arguments: --seed=1"),
    ("--seed 1", "unrecognized arguments: --seed"),
    ("-seed=1", "unrecognized arguments: -seed=1"),
    ("-x", "unrecognized arguments: -x"),
    ("--nosuch", "unrecognized arguments"),
    ("==", "is no key"),
    ("=3", "=3 is no setting"),
    ("seed==1", "the value cannot be read"),
    ("seed|=1", "'seed|' is no key"),
    ("seed=[0,1", "a list is [1,2]"),
    ("seed={a", "a group of settings {a: 1"),
    ("seed=0)", "the value cannot be read"),
    ("seed=(0", "the value cannot be read"),
    ("data_dir='abc", "the value cannot be read"),
    ('data_dir="abc', "the value cannot be read"),
    ("data_dir=it's", "data_dir='it\\'s'"),
    ("data_dir=aéb", "data_dir='aéb'"),
    ("data_dir=a#b", "data_dir='a#b'"),
    ("data_dir=a&b", "data_dir='a&b'"),
    ("data_dir=a=b", "data_dir='a=b'"),
    ("data_dir=a(b", "data_dir='a(b'"),
    ("data_dir=a;b", "data_dir='a;b'"),
    ("data_dir=a,b", "data_dir='a,b'"),
    ("data_dir=~nobody-here/x", "there is no home folder ~nobody-here"),
    ("seed=int(x)", "invalid literal"),
    ("lr=float(abc)", "could not convert"),
    ("seed=nosuch(1)", "Unknown function"),
    ("seed=choice()", "empty choice"),
    ("-m seed=range(0)", "gives no value at all"),
    ("-m method=glob(zzz*)", "gives no value at all: allowed are alp"),
    ("-m lr=interval(1,2)", "there is no end of values"),
    ("-m seed=0,,1", "the value cannot be read"),
    ("-m seed=0,", "the value cannot be read"),
    ("seed=0 seed=1", "seed is given twice, seed=0 and seed=1"),
    ("seed=0 seed=0", "seed is given twice"),
    ("-m seed=0 seed=1,2", "seed is given twice"),
    ("method=pkd method=alp", "method is given twice"),
    ("-m method=pkd method=alp,ckd", "method is given twice"),
    ("method.temperature=1 method.temperature=2", "method.temperature is given twice"),
    ("data_dir=a data_dir=b", "data_dir is given twice"),
    ("+sweeps=alp +sweeps=controls", "sweeps is given twice"),
    ("++lr=1", "settings are neither added nor removed"),
    ("+lr=1", "settings are neither added nor removed"),
    ("+x=1", "settings are neither added nor removed"),
    ("~lr", "settings are neither added nor removed"),
    ("~lr=1", "settings are neither added nor removed"),
    ("~x", "settings are neither added nor removed"),
    ("method@x=pkd", "type method=VALUE"),
    ("+method@x=pkd", "type method=VALUE"),
    ("Seed=1", "did you mean seed?"),
    ("METHOD=pkd", "METHOD is no setting"),
    ("Method.temperature=1", "did you mean method?"),
    ("epoch=3", "did you mean epochs?"),
    ("learning_rate=1", "is no setting"),
    ("nosuch.key=1", "nosuch.key is no setting"),
    ("student/x=1", "is no setting"),
    ("method=PKD", "method=PKD is unknown"),
    ("method=pdk", "did you mean pkd?"),
    ("method=", "method= is unknown"),
    ("method=null", "method=None is unknown"),
    ("method={}", "is unknown"),
    ("method=[pkd,alp]", "is unknown"),
    ("method={name: pkd}", "is unknown"),
    ("method=../method/pkd", "is unknown"),
    (f"method={LONG}", "is unknown"),
    ("-m method=pkd,nosuch", "method=nosuch is unknown"),
    ("task=null", "task=None is unknown"),
    ("trainer=null", "trainer=None is unknown"),
    ("trainer=fast", "trainer=fast is unknown"),
    ("logger=null", "did you mean none?"),
    ("logger=tensorboard", "logger=tensorboard is unknown"),
    ("teacher=tiny6", "teacher=tiny6 is unknown"),
    ("student=tiny12", "student=tiny12 is unknown"),
    ("method=pkd method.name=alp", "type method=alp"),
    ("teacher.name=bert_base", "type teacher=bert_base"),
    ("sweeps=rail_table2", "typed +sweeps=NAME"),
    ("+sweeps=rail_tabel2", "did you mean rail_table2"),
    ("-m +sweeps=alp,controls", "one for all runs"),
    ("-m protocol=full,select_then_repeat", "one value for all of them"),
    ("-m results_dir=a,b", "one value for all of them"),
    ("-m keep_student=best,all", "one value for all of them"),
    ("-m trainer.workers=0,1", "one value for all of them"),
    ("-m plugins=/a,/b", "one folder for all runs"),
    ("plugins=/no/such", "there is no folder /no/such/conf"),
    ("plugins=", "plugins=: allowed is a folder"),
    ("seed=0,1", "add -m"),
    ("method=pkd,alp", "add -m"),
    ("seed=range(3)", "add -m"),
    ("method=glob(pkd*)", "add -m"),
    ("--config-name=nosuch", "--config-name has no effect here"),
    ("--config-name nosuch", "--config-name has no effect here"),
    ("-cn nosuch", "--config-name has no effect here"),
    ("--config-dir=.", "plugins=DIR"),
    ("-cd .", "plugins=DIR"),
    ("--config-path=.", "plugins=DIR"),
    ("-cp .", "plugins=DIR"),
    ("--experimental-rerun x", "has no effect here"),
    ("--run", "without -m there is one run"),
    ("-r", "without -m there is one run"),
    ("--package x", "goes with --cfg"),
    ("--resolve", "goes with --cfg"),
    ("--cfg nosuch", "invalid choice"),
    ("--cfg", "expected one argument"),
    ("--cfg job --info", "give one of them"),
    ("--cfg job -m seed=0,1", "give one of them"),
    ("--cfg job method=nosuch", "method=nosuch is unknown"),
    ("--info nosuch", "invalid choice"),
    ("--help method=nosuch", "method=nosuch is unknown"),
    ("--help extra", "type key=value"),
    ("hydra=1", "hydra/launcher=NAME"),
    ("hydra.run.dir=x", "results_dir=DIR"),
    ("hydra.sweep.dir=x", "results_dir=DIR"),
    ("hydra.job.chdir=true", "hydra/launcher=NAME"),
    ("hydra.output_subdir=x", "hydra/launcher=NAME"),
    ("hydra.mode=MULTIRUN", "hydra/launcher=NAME"),
    ("hydra.searchpath=[x]", "hydra/launcher=NAME"),
    ("hydra.sweeper.params={seed: 0}", "hydra/launcher=NAME"),
    ("+hydra.sweeper.params.seed=0", "hydra/launcher=NAME"),
    ("hydra/sweeper=basic", "hydra/launcher=NAME"),
    ("hydra/job_logging=default", "hydra/launcher=NAME"),
    ("hydra/launcher=nosuch", "hydra/launcher=nosuch is unknown"),
    ("-m hydra/launcher=basic,basic", "one for all runs"),
    ("hydra.launcher.n_jobs=2", "no effect without hydra/launcher"),
]
"""Refused by their words: what follows `run`, split at blanks, and a part of the message."""

VALUES = [
    ("seed=-1", "seed=-1: allowed is a whole number"),
    ("seed=1.5", "seed=1.5: allowed is a whole number"),
    ("seed=true", "seed=True: allowed is a whole number"),
    ("seed=null", "seed=null: allowed is a whole number"),
    ("seed=", "seed=: allowed is a whole number"),
    ("seed=nan", "seed=nan: allowed is a whole number"),
    ("seed='0'", "seed=0: allowed is a whole number"),
    (f"seed={2**70}", "at most 4294967295"),
    ("-m seed=0,1,x", "seed=x: allowed is a whole number"),
    ("lr=", "lr=: allowed is a number above 0"),
    ("lr=0", "lr=0: allowed is a number above 0"),
    ("lr=-1e-5", "lr=-1e-05: allowed is a number above 0"),
    ("lr=nan", "lr=nan: allowed is a number above 0"),
    ("lr=inf", "lr=inf: allowed is a number above 0"),
    ("lr=1e-400", "lr=0.0: allowed is a number above 0"),
    ("lr=1e400", "lr=inf: allowed is a number above 0"),
    ("lr=[1e-3]", "lr=[0.001]: allowed is a number above 0"),
    ("lr={a: 1}", "lr={'a': 1}: allowed is a number above 0"),
    ("lr=best", "lr=best: no run of method=rail_l"),
    ("lr.x=1", "lr.x is no setting"),
    ("batch_size=0", "batch_size=0: allowed is a whole number of at least 1"),
    (f"batch_size={2**70}", "at most 2147483647"),
    ("epochs=0", "epochs=0: allowed is a whole number of at least 1"),
    ("epochs=1e3", "epochs=1000.0: allowed is a whole number"),
    (f"epochs={2**40}", "at most 2147483647"),
    ("epochs=best", "epochs=best: allowed is a whole number"),
    ("max_length=3", "max_length=3: allowed is a whole number of at least 4"),
    ("patience=0", "patience=0: allowed is a whole number of at least 1, or null"),
    ("warmup_ratio=1", "allowed is a number from 0 to below 1"),
    ("weight_decay=-1", "weight_decay=-1: allowed is a number from 0"),
    ("gradient_clip=nan", "gradient_clip=nan: allowed is a number above 0"),
    ("precision=64", "precision=64: allowed is one of auto"),
    ("limit_train=true", "limit_train=True: allowed is a whole number"),
    ("limit_eval=1.5", "limit_eval=1.5: allowed is a whole number"),
    ("data_dir=2024", "typed in quotes"),
    ("cache_dir=2024", "typed in quotes"),
    ("results_dir=1e5", "typed in quotes"),
    ("data_dir=''", "data_dir=: allowed is a folder, or null"),
    ("cache_dir=", "cache_dir=: allowed is a folder"),
    ("results_dir=null", "results_dir=null: allowed is a folder"),
    ("results_dir=[a]", "allowed is a folder"),
    (f"results_dir={LONG}", "cannot be written"),
    ("data_dir=${nosuch}", "has no value: Interpolation key 'nosuch' not found"),
    ("data_dir=${nosuch:x}", "has no value: Unsupported interpolation type nosuch"),
    ("data_dir=no/such task=mrpc", "data_dir=no/such is no folder"),
    ("bank=maybe", "bank=maybe: allowed is one of auto, on, off"),
    ("bank_dtype=int8", "bank_dtype=int8: allowed is one of float16"),
    ("compile=1", "compile=1: allowed is true or false"),
    ("force=yes", "force=yes: allowed is true or false"),
    ("keep_student=some", "keep_student=some: allowed is one of best"),
    ("parallel=0", "parallel=0: allowed is auto, or a whole number from 1"),
    ("-m parallel=1,2", "it makes no other run, so allowed is one value for all of them"),
    ("-m hydra/launcher=joblib parallel=2", "parallel has no effect on another launcher"),
    ("protocol=half", "protocol=half: allowed is one of full"),
    ("protocol=select_then_repeat", "needs several seeds"),
    ("trainer.workers=-1", "trainer.workers=-1: allowed is a whole number"),
    ("trainer.accelerator=tpu", "allowed is one of auto, cpu, gpu"),
    ("trainer.nosuch=1", "trainer.nosuch is no setting for trainer=default"),
    ("trainer.name=null", "trainer.name=null: allowed is a word"),
    ("logger.mode=online", "logger.mode is no setting for logger=none"),
    ("logger=wandb logger.mode=x", "logger.mode=x: allowed is one of auto"),
    ("logger=wandb logger.timeout=0", "logger.timeout=0: allowed is a number above 0"),
    (f"teacher.name={LONG}", "allowed is a word of letters, digits and . _ + -, up to 100"),
    ("teacher.name=../up", "allowed is a word of letters"),
    ("teacher.name=null", "teacher.name=null: allowed is a word"),
    ("teacher.recipe=null", "teacher.recipe=null: allowed is a group of settings"),
    ("teacher.recipe=3", "teacher.recipe=3: allowed is a group of settings"),
    ("teacher.recipe.epochs=0", "teacher.recipe.epochs=0: allowed is a whole number"),
    ("teacher.recipe.nosuch=1", "teacher.recipe.nosuch is no setting"),
    ("teacher.allow_weak=1", "teacher.allow_weak=1: allowed is true or false"),
    ("teacher.checkpoint=3", "teacher.checkpoint=3: allowed is a folder or a hub id"),
    ("teacher.checkpoint=[a]", "allowed is a folder or a hub id"),
    ("teacher.checkpoint=/no/such", "no model folder at /no/such"),
    ("teacher.checkpoint=results", "has no weights"),
    ("teacher.checkpoint=/no/such@main", "no model folder at /no/such@main"),
    ("teacher=bert_base teacher.path=3", "teacher.path=3: allowed is a folder or a hub id"),
    ("student=bert_3 student.path=null", "student.path=null: allowed is a folder or a hub id"),
    ("student=bert_3 student.revision=3", "student.revision=3: allowed is a word, or null"),
    ("student=bert_3 student.keep_layers=3", "student.keep_layers=3: allowed is a list of layers"),
    ("student=bert_3 student.keep_layers=[]", "student.keep_layers=[]: allowed is a list"),
    ("student=bert_3 student.keep_layers=[a]", "student.keep_layers=['a']: allowed is a list"),
    ("student=bert_3 student.layers=3", "student.layers is no setting for student=bert_3"),
    ("student.keep_layers=3", "student.keep_layers is no setting for student=tiny6"),
    ("student.teacher_layers=[0]", "student.teacher_layers=[0]: allowed is a list of layers"),
    ("student.teacher_layers=[true]", "student.teacher_layers=[True]: allowed is a list"),
    ("student.teacher_layers=3", "student.teacher_layers=3: allowed is a list"),
    ("student.recommended=null", "lr=${student.recommended.lr} has no value"),
    ("student.recommended=null lr=1 epochs=1", "student.recommended=null: allowed is a group"),
    ("student.recommended.lr=0", "lr=0: allowed is a number above 0"),
    ("method.weights=null", "method.weights=null: allowed is a group of settings"),
    ("method.weights=[1,2]", "allowed is a group of settings, as in method.weights.NAME=VALUE"),
    ("method.weights=1", "method.weights=1: allowed is a group of settings"),
    ("method.weights={nosuch: 1}", "method.weights.nosuch is no setting for method=rail_l"),
    ("method.weights.nosuch=1", "method.weights.nosuch is no setting"),
    ("method.weights.kd=nan", "method.weights.kd=nan: allowed is a number from 0"),
    ("method.weights.kd=inf", "method.weights.kd=inf: allowed is a number from 0"),
    ("method.weights.kd=-1", "method.weights.kd=-1: allowed is a number from 0"),
    ("method.weights.kd=null", "method.weights.kd=null: allowed is a number from 0"),
    ("method.weights.kd.x=1", "method.weights.kd.x is no setting"),
    ("method=finetune method.weights.ce=0", "a number above 0 for at least one term"),
    ("method=vanilla method.weights={ce: 0, kd: 0}", "a number above 0 for at least one term"),
    ("method.temprature=3", "did you mean temperature?"),
    ("method.Temperature=3", "did you mean temperature?"),
    ("method=takd method.assistants=nosuch", "no student is called nosuch"),
    ("method.temperature=nan", "method.temperature=nan: allowed are finite numbers"),
    ("method.temperature=inf", "method.temperature=inf: allowed are finite numbers"),
    ("method=annealing method.label_share=nan", "method.label_share=nan: allowed are finite"),
    ("student.dropout=nan", "student.dropout=nan: allowed are finite numbers"),
    ("student.residual_scale=-inf", "student.residual_scale=-inf: allowed are finite numbers"),
    ("task=demo_similarity task.score_range=[0,nan]", "allowed is [LEAST,GREATEST], two numbers"),
    ("task.splits=null", "task.splits=null: allowed is a group of settings"),
    ("task.splits.test=null", "task.splits.test=null"),
    ("task.hidden=test", "task.hidden=test: allowed is a list"),
    ("task.labels=[no]", "two or more different names"),
    ("task.labels=3", "task.labels=3: allowed is a list"),
    ("task.text_columns=sentence", "a list of one or two columns"),
    ("task.metric=loss", "task.metric=loss: allowed for task=demo_sentiment"),
    ("task.ood=3", "task.ood=3: allowed is a group of settings"),
    ("task=scitail", "for evaluation only"),
    ("task=custom", "has no source of its own"),
]
"""Refused by their values."""

OTHERS = [
    ("nosuch", "nosuch is no verb"),
    ("Run", "did you mean run?"),
    ("--nosuch", "is no verb"),
    ("--completion zsh", "allowed is bash"),
    ("runs --nosuch", "unrecognized arguments"),
    ("runs --status nosuch", "--status nosuch: allowed are done"),
    ("runs --failed --status done", "leave --status out"),
    ("runs --failed --command x", "not allowed with"),
    ("runs --format xml", "invalid choice"),
    ("runs --command nosuch", "no run in results/runs"),
    ("runs --results-dir no/such", "no runs in no/such"),
    ("runs --results-dir=", "argument --results-dir: a path is not empty"),
    ("runs --results-dir=~nobody-here/x", "there is no home folder"),
    ("runs --missing --nosuch", "--nosuch after --missing"),
    ("runs --missing seed=x", "seed=x: allowed is a whole number"),
    ("runs --missing seed=0 seed=1", "seed is given twice"),
    ("runs --missing method=nosuch", "method=nosuch is unknown"),
    ("runs --results-dir results --missing seed=0", "type results_dir=results at the end"),
    ("tables --table nosuch", "--table nosuch is unknown"),
    ("tables --results-dir no/such", "no runs in no/such"),
    ("tables --results-dir=~nobody-here/x", "there is no home folder"),
    ("tables extra", "unrecognized arguments: extra"),
    ("general", "the following arguments are required"),
    ("general student=tiny6", "student=tiny6 has no general stage"),
    ("general student=tiny6_general seed=0,1", "seed"),
    ("general student=tiny6_general -m", "unrecognized arguments"),
    ("general student=tiny6_general teacher=bert_tiny", "teacher=bert_tiny has no part in this"),
    ("general student=minilm_l3_general teacher.path=/no/such", "no model folder at /no/such"),
    ("general student=tiny6_general nosuch=1", "nosuch"),
    ("general student=tiny6_general student.general.lr=0", "allowed is a number above 0"),
    ("general student=tiny6_general student.general.teacher=x", "general.teacher=x: allowed are"),
    ("general student=tiny6_general student.general.corpus.tasks=[]", "corpus is empty"),
    ("general student=tiny6_general student.general.corpus.folder=no/such", "no/such is no folder"),
    ("figures --figure nosuch", "invalid choice"),
    ("figures --results-dir no/such", "no runs in no/such"),
    ("figures --jpg", "unrecognized arguments"),
    ("report --results-dir no/such", "no runs in no/such"),
    ("report extra", "unrecognized arguments"),
    ("banks prune", "prune what?"),
    ("banks --max-size 3", "type prune before them"),
    ("banks prune --max-size x", "allowed is a number from 0"),
    ("banks prune --older-than nan", "allowed is a number from 0"),
    ("banks prune --older-than -1", "-1: allowed is a number from 0"),
    ("banks remove", "invalid choice"),
    ("banks --cache-dir=~nobody-here/x", "there is no home folder"),
    ("analyse nosuch", "no run in results/runs"),
    ("analyse --rows 1", "allowed is a whole number from 2"),
    ("analyse --seed x", "allowed is a whole number from 0"),
    ("analyse --data-dir=~nobody-here/x", "there is no home folder"),
    ("export", "required: RUN_ID, DIR"),
    ("export nosuch out", "no run in results/runs"),
    ("export ID out --license=?", "allowed is an id of the hub"),
    ("export ID out --language english", "a code of two or three letters"),
    ("export ID ~nobody-here/x", "there is no home folder"),
    ("submit --batch-size 0", "allowed is a whole number of at least 1"),
    ("submit --accelerator tpu", "invalid choice"),
    ("submit --run nosuch", "no run in results/runs"),
    ("submit --out=~nobody-here/x", "there is no home folder"),
    ("submit --data-dir=~nobody-here/x", "there is no home folder"),
    ("dashboard --nosuch", "unrecognized arguments"),
]
"""Of the other commands, with their verb."""

LATER = [
    ("student.heads=0", "heads"),
    ("student.heads=3", "heads"),
    ("student.heads=-1", "heads"),
    ("student.width=0", "width"),
    ("student.width=-1", "width"),
    ("student.width=63", "width"),
    ("student.layers=0", "layers"),
    ("student.layers=x", "layers"),
    ("student.layers=null", "layers"),
    ("student.intermediate=0", "intermediate"),
    ("student.positions=0", "positions"),
    ("student.dropout=2", "dropout"),
    ("student.initializer_range=-1", "initializer_range"),
    ("student.teacher_layers=[13]", "student.teacher_layers=[13]: allowed are distinct"),
    ("student.teacher_layers=[1,2]", "teacher_layers"),
    ("teacher.layers=1.5", "teacher.layers=1.5: allowed is"),
    ("student.layers=100000000", "student.layers=100000000: allowed is"),
    ("student.initializer_range=1e38", "student.initializer_range=1e+38: allowed is"),
    ("method=finetune method.weights.ce=1e299", "method.weights.ce=1e+299: with it"),
    ("teacher.width=text", "width"),
    ("max_length=129", "max_length=129"),
    ("student.positions=16", "max_length=128"),
    ("precision=16-mixed trainer.accelerator=cpu", "precision=16-mixed needs a GPU"),
    ("method.temperature=0", "method.temperature=0"),
    ("method.temperature=-1", "method.temperature=-1"),
    ("method.temperature=text", "method.temperature=text"),
    ("method.temperature=null", "method.temperature=null"),
    ("method.projection_width=0", "method.projection_width=0"),
    ("method.resample=batch", "method.resample=batch is not one of"),
    ("method=alp method.include_last=1", "method.include_last=1 is not one of"),
    ("method=codir method.momentum=1", "method.momentum=1"),
    ("method=rco method.anchors=[1]", "method.anchors=[1]"),
    ("method=takd method.assistants=[]", "method.assistants=[]"),
    ("method=vanilla_checkpoint method.teacher_at=2", "method.teacher_at=2"),
    ("method=pro_kd epochs=1", "needs at least 2 epochs"),
    ("method=tinybert epochs=1", "needs at least 2 epochs"),
    ("method=annealing epochs=1", "needs at least 2 epochs"),
    ("task.text_columns=[nosuch]", "no column nosuch"),
    ("task.label_column=nosuch", "no column nosuch"),
    ("task.splits.dev=nosuch", "nosuch"),
    ("task.splits.test=nosuch", "nosuch"),
    ("task.hidden=[nosuch]", "task.hidden"),
    ("task.labels=[good,bad]", "label"),
    ("task.ood.demo_sentiment_ood.collapse=nosuch", "collapse"),
    ("task.ood.demo_sentiment_ood.label_map={x: y}", "label_map"),
    ("task.ood.demo_sentiment_ood.text_columns=[nosuch]", "no column nosuch"),
    ("task.ood.demo_sentiment_ood.splits.test=nosuch", "nosuch"),
]
"""Refused once models, methods and rows have been looked at, still before anything is trained."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which somebody has results."""
    root = tmp_path_factory.mktemp("earlier")
    made.write(root / "results", made.seeds([0.8, 0.7]))
    (root / ".cache").mkdir()
    (root / ".cache" / "hashes").mkdir()
    return root


@pytest.fixture(scope="module")
def composed() -> Callable[..., Any]:
    """Hydra's `compose`, which takes a tenth of a second, once for each choice of groups."""
    compose = plan.compose

    @functools.cache
    def once(overrides: tuple[str, ...], more: tuple[tuple[str, Any], ...]) -> Any:
        return compose("config", overrides=list(overrides), **dict(more))

    return lambda _, overrides, **more: copy.deepcopy(once(tuple(overrides), tuple(more.items())))


@pytest.fixture
def refused(
    folder: Path,
    composed: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[Callable[..., str]]:
    """`refused(words)`: the one line that a command says, which leaves all as it was."""

    def here(work: Callable[..., None], *given: Any) -> int:
        """Stands in for `processes.alone`, for all but a run."""
        if work is job.attempt:
            pytest.fail("a run has begun")
        try:
            work(*given)
        except SystemExit as ended:
            return int(ended.code or 0)
        return 0

    monkeypatch.setattr(processes, "alone", here)
    monkeypatch.setattr(plan, "compose", composed)
    monkeypatch.setattr(sys, "argv", ["ilkd-bench"])
    monkeypatch.chdir(folder)

    def said(words: list[str]) -> str:
        before = tree(folder)
        try:
            code = main(words)
        except SystemExit as ended:  # of argparse
            code = ended.code
        out, err = capfd.readouterr()
        assert code == 2, err
        assert out == "" and "Traceback" not in err
        assert tree(folder) == before
        return err

    yield said


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every path below a folder, with its time and content."""
    return {
        path.relative_to(folder).as_posix(): (
            path.stat().st_mtime_ns * path.is_file(),
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(folder.rglob("*"))
    }


def split(words: str) -> list[str]:
    """The words of a case: at blanks, where a new word begins."""
    joined: list[str] = []
    for word in words.split(" "):
        inside = joined and joined[-1].count("{") > joined[-1].count("}")
        if inside:
            joined[-1] += f" {word}"
        else:
            joined.append(word)
    return joined


@pytest.mark.parametrize(("words", "part"), WORDS, ids=lambda v: v[:50])
def test_a_wrong_word_is_refused(words: str, part: str, refused: Callable[..., str]) -> None:
    check(refused(["run", *split(words)]), part)


@pytest.mark.parametrize(("words", "part"), VALUES, ids=lambda v: v[:50])
def test_a_wrong_value_is_refused(words: str, part: str, refused: Callable[..., str]) -> None:
    check(refused(["run", *split(words)]), part)


@pytest.mark.parametrize("group", ["student", "teacher", "method"])
def test_code_is_no_setting_that_is_offered(group: str, refused: Callable[..., str]) -> None:
    said = refused(["run", f"{group}.nosuch=1"])
    assert f"{group}.nosuch is no setting" in said and "Allowed are " in said
    assert "_target_" not in said


@pytest.mark.parametrize(("words", "part"), OTHERS, ids=lambda v: v[:50])
def test_other_commands_refuse_too(words: str, part: str, refused: Callable[..., str]) -> None:
    said = refused(split(words))
    assert part in said


@pytest.mark.parametrize(("words", "part"), LATER, ids=lambda v: v[:50])
@pytest.mark.runs
def test_what_models_and_rows_forbid_is_refused(
    words: str, part: str, refused: Callable[..., str]
) -> None:
    check(refused(["run", *split(words)]), part)


def check(said: str, part: str) -> None:
    """Require one line that has a part."""
    assert said.startswith("ilkd_bench: ") and said.count("\n") == 1
    assert part in said


def test_there_are_two_hundred_cases_and_every_command_has_some() -> None:
    assert len(WORDS) + len(VALUES) + len(OTHERS) >= 200
    assert {words.partition(" ")[0] for words, _ in OTHERS} >= VERBS.keys() - {"run"}
    for verb in VERBS:
        assert callable(importlib.import_module(f"ilkd_bench.{verb}").main)
