"""The embedded default: four small English tasks written by a seeded grammar.

The text needs no network and no file. `rows` is a pure function of (VERSION, task, split), so every machine gets
the same rows. The labels of `train` carry noise, as crowd labels do; the other splits are clean. Each `ood` split is
a twin in which a shortcut that mostly holds in `train` fails. `docs/embedded_default.md` shows examples.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Callable
from functools import cache

VERSION = 1
TASKS = ("demo_sentiment", "demo_paraphrase", "demo_nli", "demo_similarity")
SIZES = {"train": 3000, "validation": 500, "test": 500, "ood": 500}
LABEL_NOISE = {
    "demo_sentiment": 0.2,
    "demo_paraphrase": 0.2,
    "demo_nli": 0.2,
}  # share of wrong train labels
SCORE_NOISE = 0.6  # standard deviation of the train scores of demo_similarity around the true score
HOLDS = 0.85  # how often a cue of the training text agrees with the label

Draw = tuple[list[str], float]  # the text columns and the true label


def _groups(text: str) -> list[list[str]]:
    """Split "a/b c/d" into groups of words that mean the same."""
    return [[word.replace("_", " ") for word in group.split("/")] for group in text.split()]


import os

K = int(os.environ.get("GK", "2"))
PEOPLE = _groups(
    "child/kid/youngster/boy/girl doctor/physician/surgeon/medic/nurse farmer/grower/rancher/planter/shepherd "
    "singer/vocalist/musician/pianist/drummer"
)[:K]
VERBS = _groups(
    "bought/purchased/ordered/acquired/obtained repaired/fixed/mended/restored/rebuilt "
    "hid/concealed/buried/covered/masked praised/admired/applauded/liked/loved"
)[:K]
THINGS = _groups(
    "boat/ship/vessel/ferry/yacht coat/jacket/cloak/sweater/parka stone/rock/boulder/pebble/brick "
    "cup/mug/bowl/glass/jug"
)[:K]
PLACES = _groups(
    "forest/woods/grove/jungle/orchard town/city/village/suburb/market house/cottage/cabin/villa/flat "
    "hospital/clinic/ward/surgery/infirmary"
)[:K]
TIMES = _groups(
    "at_dawn/at_sunrise/at_daybreak/this_morning at_dusk/at_sunset/at_nightfall/this_evening"
)
ADJECTIVES = "old new small large red green heavy cheap".split()
LINKS = "near behind beside with".split()

GOOD = (
    "lovely delicious excellent charming superb pleasant perfect brilliant friendly fresh tasty elegant cheerful "
    "polite cosy bright generous delightful wonderful great"
).split()
BAD = (
    "awful bland terrible gloomy dreadful unpleasant broken dull rude stale greasy shabby grumpy careless filthy "
    "dark stingy annoying horrible poor"
).split()
TOPICS = (
    "soup bread coffee pasta dessert breakfast dinner waiter staff manager driver guide room hotel garden lobby "
    "pool view bed shower"
).split()
GLAD_OCCASIONS = ["on holiday", "at the weekend", "for our wedding", "on my birthday"]
GRIM_OCCASIONS = ["on business", "on monday", "after the meeting", "before the exam"]
DEGREES = "very quite rather really".split()

ACTS = _groups(
    "cooking/baking running/jogging sleeping/napping singing/humming reading/studying swimming/diving "
    "painting/drawing talking/chatting"
)
INDOORS = "kitchen library museum office".split()
OUTDOORS = "park meadow street orchard".split()
EXTRAS = _groups("for_money with_friends before_lunch after_work")
KINDS = "man woman boy girl".split()


def _sentiment(rng: random.Random, label: int, shift: bool) -> Draw:
    """Negation flips a clause, and of two clauses the main or last one decides; occasions are the cue."""

    def clause(positive: bool) -> str:
        negated = rng.random() < 0.1
        word = rng.choice(GOOD if positive != negated else BAD)
        adverb = rng.choice(["not ", "never "] if negated else ["", "", rng.choice(DEGREES) + " "])
        return f"the {rng.choice(TOPICS)} was {adverb}{word}"

    good = label == 1
    form = rng.choices(range(5), [1, 1, 1, 4, 1])[0]
    text = clause(good)
    if form == 0:
        text = f"{clause(not good)} but {text}"
    elif form == 1:
        text = f"although {clause(not good)} , {text}"
    elif form == 2:
        text = f"{text} although {clause(not good)}"
    elif form == 3:
        text = f"{text} and {clause(good)}"
    if rng.random() < 0.5:
        agrees = rng.random() < (1 - HOLDS if shift else HOLDS)
        occasion = rng.choice(GLAD_OCCASIONS if good == agrees else GRIM_OCCASIONS)
        text = f"{occasion} , {text}" if rng.random() < 0.5 else f"{text} {occasion}"
    return [text + " ."], label


def _other(rng: random.Random, groups: list[list[str]], group: list[str]) -> list[str]:
    return rng.choice([g for g in groups if g is not group])


def _event(rng: random.Random, e: dict[str, list[str]], passive: bool = False) -> str:
    w = {k: rng.choice(v) for k, v in e.items()}
    thing = f"{w['adjective']} {w['thing']}" if "adjective" in w else w["thing"]
    text = (
        f"the {thing} was {w['verb']} by the {w['who']}"
        if passive
        else f"the {w['who']} {w['verb']} the {thing}"
    )
    if "link" in w:
        text += f" {w['link']} the {w['other']}"
    if "place" in w:
        text += f" in the {w['place']}"
    if "time" in w:
        text = f"{w['time']} , {text}" if rng.random() < 0.5 else f"{text} {w['time']}"
    return text + " ."


def _new_event(rng: random.Random) -> dict[str, list[str]]:
    who, other = rng.sample(PEOPLE, 2)
    e = {
        "who": who,
        "verb": rng.choice(VERBS),
        "thing": rng.choice(THINGS),
        "link": [rng.choice(LINKS)],
        "other": other,
        "place": rng.choice(PLACES),
    }
    if rng.random() < 0.3:
        e["time"] = rng.choice(TIMES)
    if rng.random() < 0.3:
        e["adjective"] = [rng.choice(ADJECTIVES)]
    return e


def _paraphrase(rng: random.Random, label: int, shift: bool) -> Draw:
    e = _new_event(rng)
    first = {k: [rng.choice(v)] for k, v in e.items()}
    if label == 1:
        reword = shift or rng.random() < 0.1
        f = {
            k: ([w for w in v if w not in first[k]] or v)
            if reword or rng.random() < 0.3
            else first[k]
            for k, v in e.items()
        }
        return [_event(rng, first), _event(rng, f, passive=reword)], 1
    f = dict(first)
    if shift or rng.random() < 0.1:
        f["who"], f["other"] = f["other"], f["who"]
        return [_event(rng, first), _event(rng, f)], 0
    for k, groups in rng.sample(
        [("who", PEOPLE), ("verb", VERBS), ("thing", THINGS), ("place", PLACES)], 3
    ):
        f[k] = _other(rng, groups, e[k])
    return [_event(rng, first), _event(rng, f)], 0


def _nli(rng: random.Random, label: int, shift: bool) -> Draw:
    kind, act = rng.choice(KINDS), rng.choice(ACTS)
    inside = rng.random() < 0.5
    place = rng.choice(INDOORS if inside else OUTDOORS)
    extra = rng.choice(EXTRAS)[0]
    known = rng.random() < 0.4
    premise = f"a {rng.choice(ADJECTIVES[:4])} {kind} is {rng.choice(act)} in the {place}" + (
        f" {extra}" if known else ""
    )
    who = rng.choice([kind, "person"])
    p_cue = {0: 0.8 if shift else 0.1, 1: 0.1, 2: 0.1 if shift else 0.8}[label]
    negated = rng.random() < p_cue
    wrong = _other(rng, ACTS, act)
    if label == 2:
        a = rng.choice(act) if negated else rng.choice(wrong)
    else:
        a = rng.choice(wrong if negated else act)
    hypothesis = f"the {who} is {'not ' if negated else ''}{a}"
    if rng.random() < 0.5:
        hypothesis += " inside" if inside else " outside"
    if label == 1:
        hypothesis += " " + rng.choice([x[0] for x in EXTRAS if x[0] != extra])
    elif known and rng.random() < 0.5:
        hypothesis += f" {extra}"
    return [premise + " .", hypothesis + " ."], label


def _similarity(rng: random.Random, label: int, shift: bool) -> Draw:
    e = _new_event(rng)
    for k in ("adjective", "time", "link", "other"):
        e.pop(k, None)
    changed = label
    f = dict(e)
    for k, groups in rng.sample(
        [("who", PEOPLE), ("verb", VERBS), ("thing", THINGS), ("place", PLACES)], changed
    ):
        f[k] = _other(rng, groups, e[k])
    lengthen = rng.random() < 0.5 + (0.3 if not shift else -0.3) * (changed / 2 - 1)
    if lengthen:
        f |= {"adjective": ADJECTIVES, "time": rng.choice(TIMES)}
    a, b = _event(rng, e), _event(rng, f)
    return [a, b] if rng.random() < 0.5 else [b, a], 5 - 5 * changed / 3


_DRAW: dict[str, tuple[Callable[[random.Random, int, bool], Draw], int, tuple[str, ...]]] = {
    "demo_sentiment": (_sentiment, 2, ("sentence",)),
    "demo_paraphrase": (_paraphrase, 2, ("sentence1", "sentence2")),
    "demo_nli": (_nli, 3, ("premise", "hypothesis")),
    "demo_similarity": (_similarity, 4, ("sentence1", "sentence2")),
}
_SHARE = {
    "train": range(0, 70),
    "validation": range(70, 80),
    "test": range(80, 90),
    "ood": range(90, 100),
}


def rows(task: str, split: str) -> list[dict]:
    """Return the rows of one split: the text columns, `label` and `idx`."""
    draw, classes, columns = _DRAW[task]
    rng = random.Random(f"{VERSION}/{task}/{split}")
    noise = random.Random(f"{VERSION}/{task}/{split}/noise")
    seen: set[str] = set()
    out: list[dict] = []
    while len(out) < SIZES[split]:
        texts, label = draw(rng, len(out) % classes, split == "ood")
        key = " ".join(texts)
        if key in seen or zlib.crc32(texts[0].encode()) % 100 not in _SHARE[split]:
            continue
        seen.add(key)
        if split == "train":
            label = _noisy(noise, task, label, classes)
        out.append(dict(zip(columns, texts, strict=True)) | {"label": label})
    random.Random(f"{VERSION}/{task}/{split}/order").shuffle(out)
    return [row | {"idx": i} for i, row in enumerate(out)]


def _noisy(rng: random.Random, task: str, label: float, classes: int) -> float:
    if task == "demo_similarity":
        return round(min(5.0, max(0.0, label + rng.gauss(0, SCORE_NOISE))), 2)
    return (
        (int(label) + rng.randrange(1, classes)) % classes
        if rng.random() < LABEL_NOISE[task]
        else label
    )


@cache
def _words() -> tuple[str, ...]:
    found: set[str] = set()
    for value in list(globals().values()):
        pass
    return tuple(sorted(found))


def vocabulary() -> list[str]:
    words = set()
    for t in TASKS:
        for s in SIZES:
            for r in rows(t, s):
                for v in r.values():
                    if isinstance(v, str):
                        words.update(re.findall(r"\w+|[^\w\s]", v.lower()))
    return sorted(words)
