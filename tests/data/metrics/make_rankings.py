#!/usr/bin/python3
"""Expected numbers of ranking metrics, 200 random cases, for tests/passes/test_ranking.c.

Average precision, accuracies and F1 by scikit-learn (Debian's python3-sklearn), places by
SciPy's ranks (python3-scipy). Run in this folder: rankings.jsonl.
"""
import json, random, warnings
from scipy import stats
from sklearn import metrics

warnings.simplefilter("ignore")


def ranking_case(rng):
    n, share = rng.choice([1, 2, 5, 17, 30]), rng.choice([0.1, 0.5, 0.9])
    # quarters, so that scores coincide, or numbers that do not
    score = [rng.choice([round(rng.gauss(0, 1), 3), rng.randint(-3, 3) / 4]) for _ in range(n)]
    positive = [int(rng.random() < share) for _ in range(n)]
    cuts = [max(score) + 1] + sorted(set(score))
    best = lambda f, **how: max(float(f(positive, [int(s >= cut) for s in score], **how)) for cut in cuts)
    match = rng.randrange(n)
    return {
        "score": score, "positive": positive, "match": match,
        "average_precision": float(metrics.average_precision_score(positive, score)) if any(positive) else 0.0,
        "accuracy": best(metrics.accuracy_score), "f1": best(metrics.f1_score, zero_division=0),
        "place": int(stats.rankdata([-s for s in score], method="max")[match]),
    }


rng = random.Random(21)
with open("rankings.jsonl", "w") as out:
    for _ in range(200):
        case = ranking_case(rng)
        case = {k: float(f"{v:.12g}") if isinstance(v, float) else v for k, v in case.items()}
        out.write(json.dumps(case, separators=(",", ":")) + "\n")
