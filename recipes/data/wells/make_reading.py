#!/usr/bin/python3
"""Questions about "The Time Machine" whose answers are parts of the text, as SQuAD's JSON, and
sentences to go on with: make_reading.py timemachine.txt writes reading_train.json,
reading_test.json, choices_train.jsonl and choices_test.jsonl (the last paragraphs for the tests).

A question is a sentence in which "what" stands for one to three of its words; its text is that
sentence and its neighbours. Sentences to choose from are the one that follows, and one from
somewhere else in the same part of the book."""
import json, random, re, sys

WORD = r"[A-Za-z]+(?:'[A-Za-z]+)*"
draw = random.Random(1)


def sentences_of(paragraph):
    return [s for s in re.split(r"(?<=[.!?])['\"]?\s+", paragraph) if len(re.findall(WORD, s)) >= 4]


def paragraphs_of(text):
    text = text[text.index("The Time Traveller (for so") :].replace("\u2019", "'").replace("_", "")
    return [" ".join(p.split()) for p in text.split("\n\n") if len(p.split()) >= 12]


def question_of(sentence, context):
    """(question, answer, where it begins) with an answer that stands in the text once."""
    words = [w for w in re.finditer(WORD, sentence)]
    for _ in range(8):
        count = draw.randint(1, 3)
        first = draw.randrange(1, max(2, len(words) - count))
        last = min(first + count, len(words)) - 1
        answer = sentence[words[first].start() : words[last].end()]
        if len(answer) < 4 or len(re.findall(r"(?<!\w)" + re.escape(answer) + r"(?!\w)", context)) != 1:
            continue
        asked = sentence[: words[first].start()] + "what" + sentence[words[last].end() :]
        return asked, answer, re.search(r"(?<!\w)" + re.escape(answer) + r"(?!\w)", context).start()
    return None


def write_reading(path, paragraphs):
    out = []
    for paragraph in paragraphs:
        sentences = sentences_of(paragraph)
        for i, sentence in enumerate(sentences):
            context = " ".join(sentences[max(0, i - 1) : i + 2])
            if not 8 <= len(sentence.split()) <= 28 or len(context.split()) > 70:
                continue
            found = question_of(sentence, context)
            if found:
                answers = [{"text": found[1], "answer_start": found[2]}]
                qas = [{"id": f"{len(out)}", "question": found[0], "answers": answers}]
                out.append({"context": context, "qas": qas})
    json.dump({"version": "1", "data": [{"title": "The Time Machine", "paragraphs": out}]}, open(path, "w"), indent=0)
    return len(out)


def write_choices(path, paragraphs):
    pairs, count = [], 0
    for paragraph in paragraphs:
        sentences = [s for s in sentences_of(paragraph) if len(s.split()) <= 28]
        pairs += list(zip(sentences, sentences[1:]))
    with open(path, "w") as out:
        for text, ending in pairs:
            choices = [ending, draw.choice([e for _, e in pairs if e != ending])]
            label = draw.randrange(2)
            if label:
                choices.reverse()
            out.write(json.dumps({"context": text, "choices": choices, "label": label}) + "\n")
            count += 1
    return count


paragraphs = paragraphs_of(open(sys.argv[1], encoding="utf-8").read())
cut = len(paragraphs) - len(paragraphs) * 16 // 100
for name, part in ("train", paragraphs[:cut]), ("test", paragraphs[cut:]):
    print(name, write_reading(f"reading_{name}.json", part), "questions", end=", ")
    print(write_choices(f"choices_{name}.jsonl", part), "choices")
