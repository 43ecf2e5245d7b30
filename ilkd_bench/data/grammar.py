"""The embedded default: four small English tasks written by a seeded grammar.

The text needs no network and no file. `rows` is a pure function of (VERSION, task, split), so
every machine gets the same rows. The labels of `train` carry noise, as crowd labels do; the other
splits are clean. Each `ood` split is a twin in which a shortcut that mostly holds in `train` fails.
`docs/embedded_default.md` shows examples.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable

VERSION = 1
TASKS = ("demo_sentiment", "demo_paraphrase", "demo_nli", "demo_similarity")
SIZES = {"train": 2400, "validation": 500, "test": 500, "ood": 500}
SPLITS = (*SIZES, "few")
FEW = 200  # train rows that the student gets; the teacher gets all
LABEL_NOISE = {"demo_sentiment": 0.15, "demo_paraphrase": 0.15, "demo_nli": 0.15}  # wrong labels
SCORE_NOISE = 1.0  # standard deviation of the train scores of demo_similarity around the true score

CUE_HOLDS = 0.85  # sentiment: how often an occasion agrees with the label in train
HARD = 0.05  # paraphrase: share of train rows of the kind that fills the ood split
NEGATED = 0.9  # nli: share of contradictions in train with "not"
HOME = 0.97  # pairs: share of meanings in the first sentence that are "home" ones
AWAY = 0.95  # pairs: share of replaced meanings in the second sentence that are "away" ones

Draw = tuple[list[str], float]  # the text columns and the true label
Meaning = list[str]  # words that mean the same
Event = dict[str, Meaning]


def _meanings(text: str) -> list[Meaning]:
    """Split "a/b c_d/e" into [["a", "b"], ["c d", "e"]]."""
    return [[word.replace("_", " ") for word in group.split("/")] for group in text.split()]


# The first half of each of these lists is "home", the second half "away".
PEOPLE = _meanings(
    "child/kid/youngster/boy/girl doctor/physician/surgeon/medic/nurse "
    "farmer/grower/rancher/planter/shepherd singer/vocalist/musician/pianist/drummer"
)
VERBS = _meanings(
    "bought/purchased/ordered/acquired/obtained repaired/fixed/mended/restored/rebuilt "
    "hid/concealed/buried/covered/masked praised/admired/applauded/liked/loved"
)
THINGS = _meanings(
    "boat/ship/vessel/ferry/yacht coat/jacket/cloak/sweater/parka "
    "stone/rock/boulder/pebble/brick cup/mug/bowl/glass/jug"
)
PLACES = _meanings(
    "forest/woods/grove/jungle/orchard town/city/village/suburb/market "
    "house/cottage/cabin/villa/flat hospital/clinic/ward/surgery/infirmary"
)
SLOTS = {"who": PEOPLE, "verb": VERBS, "thing": THINGS, "place": PLACES}
TIMES = _meanings("at_dawn/at_sunrise/at_daybreak at_dusk/at_sunset/at_nightfall")
SIZES_AND_COLOURS = "old new small large red green heavy cheap".split()
LINKS = "near behind beside with".split()

GOOD = (
    "lovely delicious excellent charming superb pleasant perfect brilliant friendly fresh tasty "
    "elegant cheerful polite cosy bright generous delightful wonderful great"
).split()
BAD = (
    "awful bland terrible gloomy dreadful unpleasant broken dull rude stale greasy shabby grumpy "
    "careless filthy dark stingy annoying horrible poor"
).split()
TOPICS = (
    "soup bread coffee pasta dessert breakfast dinner waiter staff manager driver guide room hotel "
    "garden lobby pool view bed shower"
).split()
GLAD = ["on holiday", "at the weekend", "for our wedding", "on my birthday"]
GRIM = ["on business", "on monday", "after the meeting", "before the exam"]
DEGREES = "very quite rather really".split()

ACTS = _meanings(
    "cooking/baking running/jogging sleeping/napping singing/humming reading/studying "
    "swimming/diving painting/drawing talking/chatting"
)
INDOORS = "kitchen library museum office".split()
OUTDOORS = "park meadow street square".split()
EXTRAS = ["for money", "with friends", "before lunch", "after work"]
KINDS = "man woman boy girl".split()
LOOKS = "small tall young tired".split()
FUNCTION_WORDS = ("a although and but by in inside is never not outside person the was . ,").split()


def _sentiment(rng: random.Random, label: int, ood: bool) -> Draw:
    """Write a review: "not" flips a clause, the last clause decides, the occasion is a cue."""

    def clause(good: bool) -> str:
        negated = rng.random() < 0.07
        word = rng.choice(GOOD if good != negated else BAD)
        adverb = rng.choice(["not ", "never "] if negated else ["", "", f"{rng.choice(DEGREES)} "])
        return f"the {rng.choice(TOPICS)} was {adverb}{word}"

    good = label == 1
    form = rng.choices(["but", "although", "and", "single"], [1, 1, 7, 3])[0]
    text = clause(good)
    if form == "but":
        text = f"{clause(not good)} but {text}"
    elif form == "although":
        text = f"although {clause(not good)} , {text}"
    elif form == "and":
        text = f"{text} and {clause(good)}"
    if rng.random() < 0.5:
        agrees = rng.random() < (1 - CUE_HOLDS if ood else CUE_HOLDS)
        occasion = rng.choice(GLAD if good == agrees else GRIM)
        text = f"{occasion} , {text}" if rng.random() < 0.5 else f"{text} {occasion}"
    return [f"{text} ."], label


def _pick(rng: random.Random, meanings: list[Meaning], home: bool, unlike: Meaning) -> Meaning:
    half = len(meanings) // 2
    return rng.choice([m for m in (meanings[:half] if home else meanings[half:]) if m != unlike])


def _event(rng: random.Random, ood: bool) -> Event:
    """Draw one meaning per slot; out of domain, home and away change places."""
    return {k: _pick(rng, m, (rng.random() < HOME) != ood, []) for k, m in SLOTS.items()}


def _replace(rng: random.Random, event: Event, count: int, ood: bool) -> Event:
    """Give `count` slots another meaning, mostly an away one (out of domain: a home one)."""
    changed = rng.sample(list(SLOTS), count)
    new = {k: _pick(rng, SLOTS[k], (rng.random() < AWAY) == ood, event[k]) for k in changed}
    return event | new


def _say(rng: random.Random, event: Event, *, passive: bool = False) -> str:
    """Write an event as a sentence, with a random word for each meaning."""
    word = {k: rng.choice(meaning) for k, meaning in event.items()}
    thing = f"{word['adjective']} {word['thing']}" if "adjective" in word else word["thing"]
    text = f"the {word['who']} {word['verb']} the {thing}"
    if passive:
        text = f"the {thing} was {word['verb']} by the {word['who']}"
    if "other" in word:
        text += f" {word['link']} the {word['other']}"
    text += f" in the {word['place']}"
    if "time" in word:
        text = f"{word['time']} , {text}" if rng.random() < 0.5 else f"{text} {word['time']}"
    return f"{text} ."


def _paraphrase(rng: random.Random, label: int, ood: bool) -> Draw:
    """Write a pair: overlap tells, except for swapped people and for fully reworded paraphrases."""
    event = _event(rng, False)
    event |= {"link": [rng.choice(LINKS)], "other": _pick(rng, PEOPLE, True, event["who"])}
    if rng.random() < 0.3:
        event["time"] = rng.choice(TIMES)
    first = {k: [rng.choice(meaning)] for k, meaning in event.items()}
    hard = ood or rng.random() < HARD

    def reword(slot: str) -> Meaning:
        if hard or rng.random() < 0.3:
            return [w for w in event[slot] if w not in first[slot]] or event[slot]
        return first[slot]

    if label == 1:
        second = {slot: reword(slot) for slot in event}
    elif hard:
        second = first | {"who": first["other"], "other": first["who"]}
    else:
        second = first | {k: v for k, v in _replace(rng, event, 3, False).items() if v != event[k]}
    return [_say(rng, first), _say(rng, second, passive=hard and label == 1)], label


def _nli(rng: random.Random, label: int, ood: bool) -> Draw:
    """Write a premise and a hypothesis: "not" is a cue for contradiction in train."""
    kind, act = rng.choice(KINDS), rng.choice(ACTS)
    other_act = rng.choice([a for a in ACTS if a != act])
    inside, known = rng.random() < 0.5, rng.random() < 0.2
    extra, unknown = rng.sample(EXTRAS, 2)
    place = rng.choice(INDOORS if inside else OUTDOORS)
    premise = f"a {rng.choice(LOOKS)} {kind} is {rng.choice(act)} in the {place}"
    if known:
        premise += f" {extra}"
    negated = rng.random() < (NEGATED if label == (0 if ood else 2) else 0.05)
    claimed = rng.choice(act if (label == 2) == negated else other_act)
    hypothesis = f"the {rng.choice([kind, 'person'])} is {'not ' if negated else ''}{claimed}"
    if rng.random() < 0.5:
        hypothesis += " inside" if inside else " outside"
    if label == 1:
        hypothesis += f" {unknown}"
    elif known and rng.random() < 0.5:
        hypothesis += f" {extra}"
    return [f"{premise} .", f"{hypothesis} ."], label


def _similarity(rng: random.Random, label: int, ood: bool) -> Draw:
    """Write a pair that keeps 4 - `label` of 4 meanings; in train length gives the score away."""
    event = _event(rng, ood)
    other = _replace(rng, event, label, ood)
    if rng.random() < 0.5 + (-0.15 if ood else 0.15) * (label - 2):
        other |= {"adjective": SIZES_AND_COLOURS, "time": rng.choice(TIMES)}
    return [_say(rng, event), _say(rng, other)], 5 - 1.25 * label


_TASKS: dict[str, tuple[Callable[[random.Random, int, bool], Draw], int, tuple[str, ...]]] = {
    "demo_sentiment": (_sentiment, 2, ("sentence",)),
    "demo_paraphrase": (_paraphrase, 2, ("sentence1", "sentence2")),
    "demo_nli": (_nli, 3, ("premise", "hypothesis")),
    "demo_similarity": (_similarity, 5, ("sentence1", "sentence2")),
}
_BUCKETS = {
    "train": range(70),
    "validation": range(70, 80),
    "test": range(80, 90),
    "ood": range(90, 100),
}


def rows(task: str, split: str) -> list[dict]:
    """Return the rows of one split: the text columns, `label` and `idx`.

    A first text belongs to one split, by its checksum: no train row comes back elsewhere. `few` is
    the beginning of train.
    """
    if split == "few":
        return rows(task, "train")[:FEW]
    draw, kinds, columns = _TASKS[task]
    name = f"{VERSION}/{task}/{split}"
    rng, noise = random.Random(name), random.Random(f"{name}/noise")
    seen: set[tuple[str, ...]] = set()
    drawn: list[dict] = []
    while len(drawn) < SIZES[split]:
        texts, label = draw(rng, len(drawn) % kinds, split == "ood")
        if tuple(texts) in seen or zlib.crc32(texts[0].encode()) % 100 not in _BUCKETS[split]:
            continue
        seen.add(tuple(texts))
        if split == "train":
            label = _noisy(noise, task, label, kinds)
        drawn.append(dict(zip(columns, texts, strict=True)) | {"label": label})
    rng.shuffle(drawn)
    return [row | {"idx": i} for i, row in enumerate(drawn)]


def _noisy(rng: random.Random, task: str, label: float, kinds: int) -> float:
    """Return the label that an unreliable annotator would give."""
    if task == "demo_similarity":
        return round(min(5.0, max(0.0, label + rng.gauss(0, SCORE_NOISE))), 2)
    wrong = rng.random() < LABEL_NOISE[task]
    return (int(label) + rng.randrange(1, kinds)) % kinds if wrong else label


def vocabulary() -> list[str]:
    """Return every word and punctuation mark that a row can contain, sorted."""
    meanings = [*PEOPLE, *VERBS, *THINGS, *PLACES, *TIMES, *ACTS]
    lists = [*meanings, SIZES_AND_COLOURS, LINKS, GOOD, BAD, TOPICS, GLAD, GRIM, DEGREES]
    lists += [INDOORS, OUTDOORS, EXTRAS, KINDS, LOOKS, FUNCTION_WORDS]
    return sorted({word for phrases in lists for phrase in phrases for word in phrase.split()})
