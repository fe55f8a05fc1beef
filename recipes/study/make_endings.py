#!/usr/bin/python3
"""Paragraphs of stories with four sentences to end them: make_endings.py stories.txt writes
endings.jsonl. A paragraph of three sentences or more is the text without its last one; the three
other endings are those of other paragraphs."""
import json, random, re, sys

draw = random.Random(1)
texts = []
for paragraph in open(sys.argv[1], encoding="utf-8").read().split("\n\n"):
    sentences = re.split(r"(?<=[.!?][\"'])\s+|(?<=[.!?])\s+", " ".join(paragraph.split()))
    if len(sentences) >= 3 and len(sentences[-1]) >= 20:
        texts.append((" ".join(sentences[:-1]), sentences[-1]))
with open("endings.jsonl", "w", encoding="utf-8") as out:
    for context, ending in texts:
        choices = draw.sample([e for _, e in texts if e != ending], 3)
        label = draw.randrange(4)
        choices.insert(label, ending)
        out.write(json.dumps({"context": context, "endings": choices, "label": label}) + "\n")
print(len(texts), "texts")
