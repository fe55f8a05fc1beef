#!/usr/bin/python3
"""Expected numbers of metrics, 200 random cases each, for tests/passes/test_label_metrics.c.

Labels by scikit-learn (Debian's python3-sklearn), correlations by SciPy (python3-scipy).
Entities by the published rules: by default those of the CoNLL-2000 script as tables of
(tag before, tag), which seqeval's default mode follows; in strict mode as patterns that a
whole entity matches. Run in this folder: labels.jsonl, correlations.jsonl, entities.jsonl.
"""
import json, random, re, warnings
import numpy as np
from scipy import stats
from sklearn import metrics

warnings.simplefilter("ignore")


def short(value):
    """Twelve digits of every number."""
    if isinstance(value, dict):
        return {key: short(item) for key, item in value.items()}
    if isinstance(value, list):
        return [short(item) for item in value]
    return float(f"{value:.12g}") if isinstance(value, float) else value


def write(name, cases):
    with open(name, "w") as out:
        for case in cases:
            out.write(json.dumps(short(case), separators=(",", ":")) + "\n")


def label_case(rng):
    samples, labels = rng.randint(1, 9), rng.randint(1, 3)
    share = rng.choice([0.0, 0.2, 0.5, 0.9, 1.0])
    truth = np.array([[int(rng.random() < share) for _ in range(labels)] for _ in range(samples)])
    # quarters, so that scores coincide; 0 and above are predicted
    score = np.array([[rng.randint(-8, 8) for _ in range(labels)] for _ in range(samples)])
    found = (score >= 0).astype(int)
    best = []
    for l in range(labels):
        cuts = sorted(set(score[:, l]))
        best.append(max(metrics.f1_score(truth[:, l], score[:, l] >= cut, zero_division=0) for cut in cuts))
    mean = dict(average="micro", zero_division=0)
    if labels == 1:  # a single column would be read as classes
        mean = dict(zero_division=0)
    each = lambda f: [float(f(truth[:, l], found[:, l], zero_division=0)) for l in range(labels)]
    return {
        "truth": truth.tolist(), "score": score.tolist(), "best": best,
        "f1": each(metrics.f1_score), "precision": each(metrics.precision_score),
        "recall": each(metrics.recall_score), "f1_micro": float(metrics.f1_score(truth, found, **mean)),
        "f1_macro": float(metrics.f1_score(truth, found, average="macro", zero_division=0)) if labels > 1
        else float(metrics.f1_score(truth, found, zero_division=0)),
        "accuracy": float(metrics.accuracy_score(truth, found)),
    }


def correlation_case(rng):
    n, kind = rng.randint(2, 9), rng.randint(0, 3)
    draw = [lambda: rng.gauss(0, 1), lambda: float(rng.randint(0, 3)), lambda: 1e6 + rng.random(),
            lambda: rng.gauss(0, 1) * 1e-5][kind]
    x = [round(draw(), 3 + 5 * (kind == 3)) for _ in range(n)]
    y = [round(rng.choice([-1, 0, 1]) * v + draw(), 3 + 5 * (kind == 3)) for v in x]
    number = lambda r: 0.0 if np.isnan(r) else float(r)
    return {"x": x, "y": y, "pearson": number(stats.pearsonr(x, y)[0]),
            "spearman": number(stats.spearmanr(x, y)[0]),
            "mse": float(metrics.mean_squared_error(x, y))}


def cut(tag):
    return ("O", "") if tag == "O" else (tag[0], tag[2:])


ENDS = {("B", "B"), ("B", "S"), ("B", "O"), ("I", "B"), ("I", "S"), ("I", "O")}
STARTS = {("E", "E"), ("E", "I"), ("S", "E"), ("S", "I"), ("O", "E"), ("O", "I")}


def chunks(tags):
    """The rules of conlleval, word by word."""
    found, before, start = set(), ("O", ""), None
    for i, tag in enumerate([cut(t) for t in tags] + [("O", "")]):
        other = before[1] != tag[1]
        end = before[0] in "ES" or (before[0], tag[0]) in ENDS or (before[0] != "O" and other)
        begin = tag[0] in "BS" or (before[0], tag[0]) in STARTS or (tag[0] != "O" and other)
        if end and before[0] != "O":
            found.add((before[1], start, i - 1))
        if begin:
            start = i
        before = tag
    return found


def strict(tags, scheme):
    """Whole entities of one type, as a pattern over the prefixes of a run of that type."""
    pattern = re.compile("BI*" if scheme == "iob2" else "S|BI*E")
    found = set()
    for type in {cut(t)[1] for t in tags if t != "O"}:
        line = "".join(cut(t)[0] if t != "O" and cut(t)[1] == type else "." for t in tags)
        found |= {(type, m.start(), m.end() - 1) for m in pattern.finditer(line)}
    return found


def runs(tags):
    found, start = set(), 0
    for i in range(1, len(tags) + 1):
        if i == len(tags) or tags[i] != tags[start]:
            if tags[start] != "O":
                found.add((tags[start], start, i - 1))
            start = i
    return found


def scores(truth, found):
    hits, r = len(truth & found), {}
    p = hits / len(found) if found else 0.0
    q = hits / len(truth) if truth else 0.0
    r["precision"], r["recall"] = p, q
    r["f1"] = 2 * p * q / (p + q) if p + q else 0.0
    each = []
    for type in sorted({e[0] for e in truth | found}, key=str):
        a, b = {e for e in truth if e[0] == type}, {e for e in found if e[0] == type}
        both = len(a) + len(b)
        each.append(2 * len(a & b) / both if both else 0.0)
    r["f1_macro"] = sum(each) / len(each) if each else 0.0
    return r


def entity_case(rng):
    scheme = rng.choice(["iob2", "iobes", "plain"])
    types = ["PER", "LOC", "a-b"][: rng.randint(1, 3)]
    prefixes = {"iob2": "BI", "iobes": "BIES", "plain": ""}[scheme]
    names = ["O"] + ([f"{p}-{t}" for t in types for p in prefixes] if prefixes else types)
    sentences, tags = [], []
    entities = {"default": [set(), set()], "strict": [set(), set()]}
    for s in range(rng.randint(1, 3)):
        n = rng.randint(1, 9)
        truth = [rng.randrange(len(names)) for _ in range(n)]
        found = [t if rng.random() < 0.7 else rng.randrange(len(names)) for t in truth]
        sentences.append([truth, found])
        for side, line in enumerate((truth, found)):
            line = [names[t] for t in line]
            for mode in entities:
                of = runs(line) if scheme == "plain" else chunks(line) if mode == "default" else strict(line, scheme)
                entities[mode][side] |= {e + (s,) for e in of}
    return {"scheme": scheme, "names": names, "sentences": sentences,
            **{mode: scores(*sides) for mode, sides in entities.items()}}


rng = random.Random(20)
write("labels.jsonl", [label_case(rng) for _ in range(200)])
write("correlations.jsonl", [correlation_case(rng) for _ in range(200)])
write("entities.jsonl", [entity_case(rng) for _ in range(200)])
