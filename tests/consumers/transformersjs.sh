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

# Decisions on SST-2's sentences of a classifier that was pruned and trained for a moment.
decides() { # MODEL SST2
    cat >"$work/recipe.yaml" <<END
version: 1
seed: 1
model: {path: $1, architectures: [BertForSequenceClassification], num_labels: 2}
data:
  train: {format: text, path: $2/train.tsv, tokenizer: $1, limit: 640}
passes: [remove_layer: {keep: [0, 2, 5]}, prune_ffn: {keep_ratio: 0.5, score: magnitude},
         finetune: {data: train, steps: 40, batch_size: 16}]
output: [$work/classifier.h5, $work/classifier.onnx/]
END
    "$COMPRESS" --recipe "$work/recipe.yaml" --quiet || return 1
    tail -n +2 "$2/test.tsv" | node -e 'require("fs").readFileSync(0, "utf8").split("\n").filter(Boolean).forEach((line) => console.log(JSON.stringify({ text: line.split("\t")[0] })))' >"$work/texts.jsonl" &&
        "$COMPRESS" run "$work/classifier.h5" --jsonl "$work/texts.jsonl" --output "$work/out.safetensors" --quiet &&
        node "$modules/tjs_classify.mjs" "$work/classifier.onnx" "$work/texts.jsonl" "$work/out.safetensors"
}

prompt='The cat'
writes "drawn llama" "$work/llama"
for model in $relatives; do
    writes "drawn $model" "$work/$model"
done
writes "drawn llama, T2R" "$work/llama" 'attention_to_t2r: {feature_size: 16}'
writes "drawn llama, T2R with a window" "$work/llama" 'attention_to_t2r: {feature: hedgehog, window: 8}'
if [ -n "$released" ]; then
    prompt='Once upon a time'
    stories=$released/stories15M
    writes "stories15M" "$stories"
    writes "stories15M, unequal heads and units" "$stories" 'prune_heads: {score: magnitude, ranking: global, keep_ratio: 0.8}, prune_ffn: {score: magnitude, ranking: global, keep_ratio: 0.8}'
    writes "stories15M, T2R" "$stories" 'attention_to_t2r: {feature_size: 32, init: identity}'
    writes "stories15M, T2R with a window" "$stories" 'attention_to_t2r: {feature: hedgehog, scale_query: false, window: 16}'
    writes "stories15M, T2R, a block removed" "$stories" 'attention_to_t2r: {feature: elu1, layers: [1, 4]}, remove_block: {block: attention, drop: [2]}'
    line "transformers.js: MiniLM, pruned and trained, SST-2" decides "$released/minilm-l6-v2" "$COMPRESS_DATA/sst2-glue"
fi
