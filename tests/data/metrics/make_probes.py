#!/usr/bin/python3
"""Expected results of probes for tests/passes/test_probe.c, by scikit-learn (Debian's
python3-sklearn) and NumPy: probes.jsonl, 24 random cases.

Features are unit rows in eighths of a number before they are normalised by the test, so
that the file is short; the linear classifier is LogisticRegression with C = 1 / (n l2),
converged; neighbours vote with exp(cosine / temperature).
"""
import json, random, warnings
import numpy as np
from sklearn.linear_model import LogisticRegression

warnings.simplefilter("ignore")


def unit(x):
    x = np.array(x, float)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def draw(rng, n, width, classes):
    rows, labels = [], []
    for i in range(n):
        label = i % classes
        rows.append([round(8 * (rng.gauss(0, 1) + (c == label))) or 1 for c in range(width)])
        labels.append(label)
    return rows, labels


def case(rng):
    width, classes = rng.choice([3, 5]), rng.choice([2, 3])
    fit, fit_labels = draw(rng, 12, width, classes)
    test, _ = draw(rng, 6, width, classes)
    k, t, l2 = rng.choice([1, 3, 20]), rng.choice([0.07, 0.5]), rng.choice([0.1, 0.01])
    x, q, y = unit(fit), unit(test), np.array(fit_labels)
    model = LogisticRegression(C=1 / (len(x) * l2), tol=1e-12, max_iter=100000, multi_class="multinomial")
    model.fit(x, y)
    near = []
    for row in q:
        cos = x @ row
        best = np.argsort(-cos, kind="stable")[:k]
        votes = [np.exp(cos[best][y[best] == c] / t).sum() for c in range(classes)]
        near.append(int(np.argmax(votes)))
    # two classes: scikit-learn has one vector, of which ours are the halves
    w, b = model.coef_, model.intercept_
    if classes == 2:
        w, b = np.concatenate([-w, w]), np.concatenate([-b, b])
    p = model.predict_proba(x)
    return {"fit": fit, "labels": fit_labels, "test": test, "classes": classes, "neighbours": k,
            "temperature": t, "l2": l2, "nearest": near, "linear": [int(c) for c in model.predict(q)],
            "loss": float(-np.log(p[np.arange(len(y)), y]).mean())}


rng = random.Random(22)
with open("probes.jsonl", "w") as out:
    for _ in range(24):
        c = case(rng)
        c["loss"] = float(f"{c['loss']:.9g}")
        out.write(json.dumps(c, separators=(",", ":")) + "\n")
