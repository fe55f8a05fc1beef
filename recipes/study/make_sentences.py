#!/usr/bin/python3
"""Sentences without labels for recipes/study/embeddings.yaml: make_sentences.py SST2/train.tsv
MRPC/msr_paraphrase_train.txt writes sentences.txt: 3,000 phrases of four words or more and 2,000
sentences, drawn with a fixed seed."""
import random, sys

draw = random.Random(1)
phrases = [line.split("\t")[0].strip() for line in open(sys.argv[1], encoding="utf-8").read().splitlines()[1:]]
phrases = sorted({p for p in phrases if len(p.split()) >= 4})
pairs = [line.split("\t")[3:5] for line in open(sys.argv[2], encoding="utf-8-sig").read().splitlines()[1:]]
sentences = sorted({s.strip() for pair in pairs for s in pair})
with open("sentences.txt", "w", encoding="utf-8") as out:
    out.write("".join(s + "\n" for s in draw.sample(phrases, 3000) + draw.sample(sentences, 2000)))
