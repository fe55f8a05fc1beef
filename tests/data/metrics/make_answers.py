"""Writes answers.jsonl: pairs of answers with SQuAD's normal form, exact match and F1, by
Python's own string functions as the definition has them: lower case; ASCII punctuation
(string.punctuation) left out; the words a, an, the replaced by a space; white space
split. F1 of the words as multisets; where one has none, whether both have none.

    python3 tests/data/metrics/make_answers.py > tests/data/metrics/answers.jsonl
"""
import collections
import json
import random
import re
import string


def normal(text):
    kept = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def compare(answer, right):
    ours, theirs = normal(answer).split(), normal(right).split()
    common = sum((collections.Counter(ours) & collections.Counter(theirs)).values())
    if not ours or not theirs:
        f1 = float(ours == theirs)
    elif common == 0:
        f1 = 0.0
    else:
        precision, recall = common / len(ours), common / len(theirs)
        f1 = 2 * precision * recall / (precision + recall)
    return float(normal(answer) == normal(right)), f1


PIECES = ["the", "The", "a", "an", "AN", "cat", "Cat", "cat's", "theory", "anthem", "1876",
          "1,876", "(1876)", "-", "--", "a-b", "U.S.", "A.", "é", "É", "naïve", "東京",
          "ΑΒΓ", "a–b", "the–end", "$5", "50%", "\"quoted\"", "x_y", "\t", "\n", "  ",
          "\u00a0", "a\u0301", "¿", "«the»", "Straße", "o'clock", "an.", "thé"]
FIXED = [("", ""), ("the", ""), ("a", "an"), ("cat", "cats"), ("The cat!", "cat"),
         ("...", "the"), ("cat cat", "cat"), ("a a a", "b"), ("New-York", "New York")]


def main():
    draw = random.Random(7)
    cases = list(FIXED)
    while len(cases) < 200:
        words = [draw.choice(PIECES) for _ in range(draw.randint(0, 6))]
        other = [w for w in words if draw.random() < 0.7]
        other += [draw.choice(PIECES) for _ in range(draw.randint(0, 2))]
        draw.shuffle(other)
        join = lambda parts: draw.choice([" ", " ", ""]).join(parts)
        cases.append((join(words), join(other)))
    for answer, right in cases:
        exact, f1 = compare(answer, right)
        print(json.dumps({"answer": answer, "right": right, "normal": normal(answer),
                          "exact": exact, "f1": f1}))


main()
