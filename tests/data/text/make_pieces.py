"""Makes the Unigram and SentencePiece fixtures: small models trained here, the
tokenizer.json files that say the same, and what SentencePiece makes of the texts.

    /usr/bin/python3 tests/data/text/make_pieces.py CORPUS   # then node record_cases.mjs

CORPUS is any English text (recorded with H. G. Wells's The Time Machine). Needs Debian's
sentencepiece and python3-sentencepiece (0.1.97).
"""

import base64, json, os, re, struct, subprocess, sys, tempfile
import sentencepiece

HERE = os.path.dirname(os.path.abspath(__file__))

# What the small normalizer replaces: control characters, white space, ligatures,
# full-width letters, letters with accents that follow, and one with two.
RULES = {
    "\u0001": "", "\u007f": "", "\u200b": " ", "\t": " ", "\n": " ", "\r": " ", "\u00a0": " ",
    "\u3000": " ", "\ufeff": " ", "\u2026": "...", "\ufb01": "fi", "\ufb02": "fl",
    "\u2122": "TM", "\u00bd": "1\u20442", "e\u0301": "\u00e9", "a\u030a": "\u00e5",
    "\u212b": "\u00e5", "u\u0308\u0304": "\u01d6", "\uff21": "A", "\uff22": "B", "\uff01": "!",
    "\uac00\u11a8": "\uac01", "\ufdfa": "\u0635\u0644\u0649 \u0627\u0644\u0644\u0647",
}

TEXTS = [
    "", " ", "   ", "a", "The Time Traveller", "  leading", "trailing  ", " both ",
    "many     spaces   inside", "tab\tseparated", "line\nbreaks\n\n\nmany", "CRLF\r\nline\r\n",
    "I don't can't we've she's I'd", "na\u00efve caf\u00e9 r\u00e9sum\u00e9", "cafe\u0301 e\u0301\u0323 a\u030a \u212b",
    "u\u0308\u0304 u\u0308 u\u0304\u0308", "\ufb01nd \ufb02at \ufb01\u0301x", "\uff21\uff22\uff01\uff23", "\u00bd \u2122 \u2026",
    "\u6771\u4eac\u306f\u65e5\u672c\u306e\u9996\u90fd\u3067\u3059\u3002", "\uc11c\uc6b8 \uac00\u11a8 \uac01", "\u0645\u0631\u062d\u0628\u0627 \ufdfa",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0915\u094d\u0937", "\u041f\u0440\u0438\u0432\u0435\u0442 \u0439 \u0438\u0306", "\u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac",
    "\U0001f600\U0001f603 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f", "1234567890 3.14 1,000",
    "http://example.com/a?b=1&c=%20", "....!!!???", "\u201cquoted\u201d \u2014 \u2018x\u2019", "a" * 120, "!" * 60,
    "\u6f22" * 30, " " * 20 + "x", "x" + " " * 20, "\u00a0n\u3000i\u200bz\ufeffb", "\u0001\u0002\u007f\u0085", "\u2581a\u2581\u2581b\u2581",
    "\u2581", "x\u2581 \u2581y", "\u0301x", "\u200dx", "x\u0301\u0301\u0301", "\ufffd", "the\u0301 the\u030a", "\U0001d49c\U0010ffff",
    "<s>", "</s>", "<unk> in <pad>", "time </s> more <s>time", "time</s>time", "<mask>a<mask> b <mask> c", "a <x> b<x>c",
    "<extra_id_0> the <extra_id_1>the", "<0x0A><0x41>", "def f(x):\n    return x", "antidisestablishmentarianism",
    "ALL CAPS MiXeD", "time machine time machine time", "\u0130I\u0131 \u00df \u1e9e", "e\u0301", " e\u0301 ", "\r", "\r\n",
]


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
        else:
            size, at = varint(data, at) if tag & 7 == 2 else ({1: 8, 5: 4}[tag & 7], at)
            value = data[at : at + size]
            at += size
        yield tag >> 3, value


def load(path):
    """Pieces [text, score], and the normalizer's map, of a SentencePiece model."""
    pieces, charsmap = [], b""
    for field, value in fields(open(path, "rb").read()):
        if field == 1:
            piece = dict(fields(value))
            pieces.append([piece[1].decode(), struct.unpack("<f", piece[2])[0]])
        elif field == 3:
            charsmap = dict(fields(value)).get(2, b"")
    return pieces, charsmap


def train(corpus, name, *flags):
    with tempfile.TemporaryDirectory() as folder:
        rules = os.path.join(folder, "rules.tsv")
        with open(rules, "w") as out:
            for source, target in RULES.items():
                hexes = [" ".join("%x" % ord(c) for c in text) for text in (source, target)]
                out.write("\t".join(hexes) + "\n")
        target = os.path.join(folder, "m")
        subprocess.run(
            ["spm_train", "--input=" + corpus, "--model_prefix=" + target, "--hard_vocab_limit=false",
             *(["--normalization_rule_tsv=" + rules] if "bpe" not in name else []), *flags], check=True, stderr=subprocess.DEVNULL)
        path = os.path.join(HERE, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.replace(target + ".model", path)
    return path


def added(pieces, names, **flags):
    numbers = {text: i for i, (text, _) in enumerate(pieces)}
    usual = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    return [dict(usual, id=numbers[name], content=name, **(flags if name == "<mask>" else {})) for name in names]


def template(pieces, single, pair):
    numbers = {text: i for i, (text, _) in enumerate(pieces)}

    def part(name):
        if name in "AB":
            return {"Sequence": {"id": name, "type_id": 0}}
        return {"SpecialToken": {"id": name, "type_id": 0}}

    names = sorted(set(single.split() + pair.split()) - {"A", "B"})
    return {"type": "TemplateProcessing", "single": [part(p) for p in single.split()],
            "pair": [part(p) for p in pair.split()],
            "special_tokens": {n: {"id": n, "ids": [numbers[n]], "tokens": [n]} for n in names}}


def write(name, **parts):
    os.makedirs(os.path.join(HERE, name), exist_ok=True)
    whole = dict(version="1.0", truncation=None, padding=None, added_tokens=[], normalizer=None,
                 pre_tokenizer=None, post_processor=None, decoder=None)
    whole.update(parts)
    with open(os.path.join(HERE, name, "tokenizer.json"), "w") as out:
        text = json.dumps(whole, ensure_ascii=False, indent=1)
        out.write(re.sub(r'\[\s+("(?:[^"\\]|\\.)*"),\s+(-?[0-9.e-]+)\s+\]', r"[\1, \2]", text) + "\n")


def metaspace(**more):
    return dict(type="Metaspace", replacement="\u2581", **more)


def like_t5(model):
    pieces, charsmap = load(model)
    pieces += [["<extra_id_%d>" % i, 0.0] for i in (1, 0)]
    steps = [{"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()},
             {"type": "Strip", "strip_left": False, "strip_right": True},
             {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"}]
    scheme = metaspace(prepend_scheme="always", split=True)
    write("unigram", model=dict(type="Unigram", unk_id=2, vocab=pieces, byte_fallback=False),
          normalizer={"type": "Sequence", "normalizers": steps}, pre_tokenizer=scheme, decoder=scheme,
          post_processor=template(pieces, "A </s>", "A </s> B </s>"),
          added_tokens=added(pieces, ["<pad>", "</s>", "<unk>", "<extra_id_1>", "<extra_id_0>"]))


def like_xlm_roberta(model):
    pieces = load(model)[0]
    pieces = [[n, 0.0] for n in ("<s>", "<pad>", "</s>", "<unk>")] + pieces[3:] + [["<mask>", 0.0]]
    steps = [{"type": t} for t in ("Nmt", "NFKC", "StripAccents", "Lowercase")]
    words = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace(prepend_scheme="always", split=True)]}
    decoders = [{"type": "ByteFallback"}, metaspace(prepend_scheme="always", split=True)]
    write("unigram_bytes", model=dict(type="Unigram", unk_id=3, vocab=pieces, byte_fallback=True),
          normalizer={"type": "Sequence", "normalizers": steps}, pre_tokenizer=words,
          decoder={"type": "Sequence", "decoders": decoders},
          post_processor=template(pieces, "<s> A </s>", "<s> A </s> </s> B </s>"),
          added_tokens=added(pieces, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], lstrip=True))


def record(model):
    """What SentencePiece itself makes of the texts that hold no special token."""
    encoder = sentencepiece.SentencePieceProcessor(model_file=model)
    cases = []
    for text in TEXTS:
        if any(encoder.is_control(i) or encoder.is_unknown(i) for i in range(encoder.vocab_size())
               if encoder.id_to_piece(i) in text):
            continue
        ids = encoder.encode(text)
        known = [i for i in ids if not encoder.is_unknown(i)]  # special tokens are left out
        cases.append({"text": text, "ids": ids, "decoded": encoder.decode(known)})
    with open(os.path.join(os.path.dirname(model), "cases.json"), "w") as out:
        out.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]\n")


corpus = sys.argv[1]
t5 = train(corpus, "spm_unigram/spiece.model", "--model_type=unigram", "--vocab_size=300", "--pad_id=0",
           "--eos_id=1", "--unk_id=2", "--bos_id=-1", "--user_defined_symbols=<x>,time machine")
bytes_ = train(corpus, "spm_bytes/tokenizer.model", "--model_type=unigram", "--vocab_size=500", "--byte_fallback",
               "--remove_extra_whitespaces=false")
llama = train(corpus, "spm_bpe/tokenizer.model", "--model_type=bpe", "--vocab_size=560", "--byte_fallback",
              "--normalization_rule_name=identity", "--remove_extra_whitespaces=false", "--user_defined_symbols=<x>,\u2581\u2581\u2581\u2581")
like_t5(t5)
like_xlm_roberta(bytes_)
for model in (t5, bytes_, llama):
    record(model)
with open(os.path.join(HERE, "pieces_texts.json"), "w") as out:
    json.dump(TEXTS, out, ensure_ascii=False, indent=0)
