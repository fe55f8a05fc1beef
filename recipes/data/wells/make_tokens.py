#!/usr/bin/python3
"""Words of "The Time Machine" with the capitals and punctuation that they lost, as CoNLL
columns: make_tokens.py timemachine.txt TRAIN_WORDS TEST_WORDS writes train.conll and test.conll
(0 0: all words, the last tenth for the test)."""
import re, sys

PAUSE, STOP = set(",;:-\u2014"), set(".?!")


def words_of(text):
    """(word in lower case, its label) of every word."""
    text = text.replace("\u2019", "'").replace("_", " ").replace("--", " - ")
    for word, behind in re.findall(r"([A-Za-z]+(?:'[A-Za-z]+)*)([^A-Za-z]*)", text):
        marks = [c for c in behind if c in STOP or c in PAUSE]
        parts = ["cap"] if word[0].isupper() else []
        if any(c in STOP for c in marks):
            parts.append("stop")
        elif marks and not (behind == "-"):
            parts.append("pause")
        yield word.lower(), "S-" + "-".join(parts) if parts else "O"


def write(path, words):
    """Windows of 24 words, wherever sentences end."""
    with open(path, "w") as out:
        for i in range(0, len(words) - 23, 24):
            out.write("".join(f"{w}\t{t}\n" for w, t in words[i : i + 24]) + "\n")


source, train, test = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
text = open(source, encoding="utf-8").read()
words = list(words_of(text[text.index("The Time Traveller (for so") :]))
test = test or len(words) // 10
train = train or len(words) - test
write("train.conll", words[:train])
write("test.conll", words[len(words) - test :])
