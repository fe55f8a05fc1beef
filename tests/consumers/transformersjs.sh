# Models in transformers.js: the texts that they write.

transformersjs_text() { # MODEL PASSES PROMPT TOKENS
    local model
    model=$(compressed "$1" "$2") || return 1
    rm -rf "$work/folder.onnx"
    "$COMPRESS" generate "$model" --prompt "$3" --max-tokens "$4" >"$work/text" &&
        "$COMPRESS" convert "$model" "$work/folder.onnx/" --quiet &&
        node "$modules/tjs_generate.mjs" "$work/folder.onnx" "$4" "$3" "$work/text"
}

writes() { # NAME MODEL [PASSES]
    line "transformers.js: $1" transformersjs_text "$2" "${3:-}" "$prompt" 60
}

# Decisions of a classifier on the sentences of a table: FOLDER's first column.
decides() { # MODEL PASSES TABLE
    local model
    model=$(compressed "$1" "$2") || return 1
    rm -rf "$work/folder.onnx"
    node -e 'const fs = require("fs"); for (const line of fs.readFileSync(process.argv[1], "utf8").split("\n").slice(1)) if (line) console.log(JSON.stringify({ text: line.split("\t")[0] }))' "$3" >"$work/texts.jsonl" &&
        "$COMPRESS" convert "$model" "$work/folder.onnx/" --quiet &&
        "$COMPRESS" run "$model" --jsonl "$work/texts.jsonl" --output "$work/out.safetensors" --quiet &&
        node "$modules/tjs_classify.mjs" "$work/folder.onnx" "$work/texts.jsonl" "$work/out.safetensors"
}

prompt='The cat'
writes "drawn llama" "$work/llama"
writes "drawn llama, T2R" "$work/llama" 'attention_to_t2r: {feature_size: 16}'
if [ -n "$released" ]; then
    prompt='Once upon a time'
    stories=$released/stories15M
    writes "stories15M" "$stories"
    writes "stories15M, unequal heads and units" "$stories" 'prune_heads: {score: magnitude, ranking: global, keep_ratio: 0.8}, prune_ffn: {score: magnitude, ranking: global, keep_ratio: 0.8}'
    writes "stories15M, T2R" "$stories" 'attention_to_t2r: {feature_size: 32, init: identity}'
    writes "stories15M, T2R, a block removed" "$stories" 'attention_to_t2r: {feature: elu1, layers: [1, 4]}, remove_block: {block: attention, drop: [2]}'
fi
