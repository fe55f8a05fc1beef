# Models before and after compression of each kind in onnxruntime: outputs of drawn inputs,
# and what writes texts token by token with its states.

# All tokens at once. Where python3-onnx is, its checker reads the file.
onnx_outputs() { # MODEL PASSES [TOLERANCE] [ACTIVATIONS]
    local model size
    model=$(compressed "$1" "$2") || return 1
    onnx_file "$model" "${4:-}" || return 1
    if /usr/bin/python3 -c 'import onnx.checker' 2>/dev/null; then
        /usr/bin/python3 -c 'import sys, onnx.checker as c; c.check_model(sys.argv[1], full_check=True)' "$work/model.onnx" || return 1
    fi
    for size in "7 2" "11 3"; do
        # shellcheck disable=SC2086
        "$COMPRESS" ir "$model" | node "$modules/random_inputs.mjs" "$work/in.safetensors" $size &&
            "$COMPRESS" run "$model" --input "$work/in.safetensors" --output "$work/out.safetensors" --quiet &&
            node "$modules/ort_outputs.mjs" "$work/model.onnx" "$work/in.safetensors" "$work/out.safetensors" "${3:-1e-4}" || return 1
    done
}

# A model as ONNX; values of 8 bits are rounded as its writer's option says.
onnx_file() { # MODEL [ACTIVATIONS]
    printf 'version: 1\nseed: 1\nmodel: %s\npasses: []\noutput: {path: %s%s}\n' "$1" "$work/model.onnx" \
        "${2:+, activations: $2}" >"$work/write.yaml"
    "$COMPRESS" --recipe "$work/write.yaml" --quiet >"$work/write.log" 2>&1 || { cat "$work/write.log" >&2; return 1; }
}

# Token by token, by the folder that transformers.js would load.
onnx_steps() { # MODEL PASSES
    local model
    model=$(compressed "$1" "$2") || return 1
    rm -rf "$work/folder.onnx"
    "$COMPRESS" ir "$model" | node "$modules/random_inputs.mjs" "$work/in.safetensors" 9 1 &&
        "$COMPRESS" run "$model" --input "$work/in.safetensors" --output "$work/out.safetensors" --quiet &&
        "$COMPRESS" convert "$model" "$work/folder.onnx/" --quiet &&
        node "$modules/ort_steps.mjs" "$work/folder.onnx" "$work/in.safetensors" "$work/out.safetensors"
}

onnx() { # NAME MODEL [PASSES]
    line "onnxruntime: $1" onnx_outputs "$2" "${3:-}"
}
steps() { # NAME MODEL [PASSES]
    line "onnxruntime, token by token: $1" onnx_steps "$2" "${3:-}"
}

# Nested exits leave where `compress run --leave-early` does.
onnx_leaves() { # MODEL
    local data=$root/recipes/data/authors early=0 tokens
    cat >"$work/recipe.yaml" <<END
version: 1
seed: 1
model: $1
data:
  dev: {format: text, path: $data/train.tsv, tokenizer: $data/vocab.txt,
        labels: [shakespeare, wells, tatoeba], limit: 300}
passes: [add_exits: {init: copy}, finetune: {data: dev, steps: 30, batch_size: 16},
         calibrate_exits: {data: dev, flops: 0.5}]
output: [$work/exits.h5, {path: $work/exits.onnx, exits: nested}]
END
    "$COMPRESS" --recipe "$work/recipe.yaml" --quiet || return 1
    for tokens in 4 6 8 11 15 20 27 35 48 64; do
        "$COMPRESS" ir "$work/exits.h5" | node "$modules/random_inputs.mjs" "$work/in.safetensors" $tokens 1 &&
            "$COMPRESS" run "$work/exits.h5" --input "$work/in.safetensors" --output "$work/out.safetensors" --leave-early >"$work/shapes" 2>"$work/left" &&
            node "$modules/ort_outputs.mjs" "$work/exits.onnx" "$work/in.safetensors" "$work/out.safetensors" || return 1
        grep -q 'mean depth 6.00 of 6' "$work/left" || early=$((early + 1))
    done
    echo "10 samples, of which $early left early"
    [ $early -gt 0 ]
}

# The time that is left of a model at half of the work.
onnx_time() { # MODEL PASSES
    local smaller
    "$COMPRESS" convert "$1" "$work/whole.onnx" --quiet && smaller=$(compressed "$1" "$2") &&
        "$COMPRESS" convert "$smaller" "$work/half.onnx" --quiet &&
        "$COMPRESS" ir "$1" | node "$modules/random_inputs.mjs" "$work/in.safetensors" 128 1 &&
        node "$modules/ort_time.mjs" "$work/whole.onnx" "$work/half.onnx" "$work/in.safetensors" 1000
}

line "onnxruntime: drawn models of all families" node "$modules/onnx_grid.mjs" "$COMPRESS"
for model in bert bert_mlm distilbert gpt2 llama marian bart bart_scaled t5 t5_gated vit deit dinov2 dinov2_features swin swin_padded; do
    onnx "reference $model" "$root/tests/data/reference/$model"
done

for model in $relatives; do
    onnx "drawn $model" "$work/$model"
    steps "drawn $model" "$work/$model"
done

# A few steps of training give values to what starts with zeros: tables of positions, biases of
# the mixing, convolutions.
train='finetune: {data: train, steps: 8, batch_size: 8, lr: 2.0e-2}'
onnx "bert" "$bert"
onnx "bert, heads" "$bert" 'prune_heads: {score: magnitude, ranking: global, keep_ratio: 0.6}'
onnx "bert, no heads" "$bert" 'prune_heads: {score: random, ranking: global, keep_ratio: 0.3, allow_empty: true}'
onnx "bert, units" "$bert" 'prune_ffn: {score: magnitude, ranking: global, keep_ratio: 0.4}'
onnx "bert, layers" "$bert" 'remove_layer: {drop: [1]}'
onnx "bert, blocks" "$bert" 'remove_block: {block: attention, drop: [0]}, remove_block: {block: ffn, drop: [1]}'
onnx "bert, factored" "$bert" 'factor_embedding: {rank: 16}'
onnx "bert, shared" "$bert" 'weight_multiplex: {group: 2, init: mean, mixing: both, mixing_init: trunc_normal, mixing_bias: true, position: none, pooling: keep}'
onnx "bert, exits" "$bert" 'add_exits: {head: tanh, init: copy}'
onnx "bert, types" "$bert" 'fold_token_type'
onnx "bert, f16" "$bert" 'cast: {dtype: f16}'
onnx "bert, bf16" "$bert" 'cast: {dtype: bf16}'
onnx "llama" "$llama"
onnx "llama, units" "$llama" 'prune_ffn: {score: magnitude, ranking: global, keep_ratio: 0.5}'
onnx "llama, blocks" "$llama" 'remove_block: {block: attention, drop: [1]}'
onnx "llama, factored" "$llama" 'factor_embedding: {rank: 16}'
onnx "llama, t2r" "$llama" 'attention_to_t2r: {feature_size: 8}'
onnx "llama, t2r elu1" "$llama" 'attention_to_t2r: {feature: elu1, scale_query: false}'
onnx "llama, t2r window" "$llama" "attention_to_t2r: {feature: hedgehog, scale_query: false, window: 5}"
steps "llama, t2r window" "$llama" "attention_to_t2r: {feature: hedgehog, scale_query: false, window: 5}"
steps "llama, t2r window, gate by score" "$llama" "attention_to_t2r: {feature: hedgehog, window: 5, gate: score}"
steps "llama, t2r window, softmax kept" "$llama" 'attention_to_t2r: {feature_size: 8, window: 1, keep_softmax: [0]}'
onnx "llama, t2r positive" "$llama" 'attention_to_t2r: {feature: positive, keep_softmax: [0]}'
onnx "llama, t2r merged" "$llama" 'attention_to_t2r: {feature_size: 8, rotary: drop, keep_every: 2}, merge_t2r'
onnx "vit" "$vit"
onnx "vit, shared" "$vit" "weight_multiplex: {group: 2, init: lsq, mixing: both, mixing_init: trunc_normal, mixing_bias: true, position: contextual, mlp_transform: norm_conv, pooling: keep}, $train"
onnx "vit, mean" "$vit" "weight_multiplex: {group: 3, init: first, mixing: after, position: contextual, mlp_transform: conv, pooling: mean}, $train"
onnx "vit, pruned" "$vit" 'prune_heads: {score: magnitude, keep: 1}, prune_ffn: {score: magnitude, keep: 32}, remove_layer: {drop: [2]}'
onnx "swin" "$swin"
onnx "swin, shared" "$swin" "weight_multiplex: {layers_left: [1, 2], init: mean, mixing: both, mixing_init: trunc_normal, mixing_bias: true, position: contextual, mlp_transform: norm_conv}, $train"
onnx "swin, pruned" "$swin" 'prune_heads: {score: magnitude, ranking: global, keep_ratio: 0.6}, prune_ffn: {score: magnitude, keep_ratio: 0.5}'
onnx "marian" "$marian"
onnx "marian, pruned" "$marian" 'prune_heads: {score: magnitude, keep_ratio: 0.5}, prune_ffn: {score: magnitude, keep_ratio: 0.5}, remove_block: {block: cross_attention, drop: [0]}'
onnx "marian, t2r" "$marian" 'attention_to_t2r: {feature_size: 4}'
onnx "rnn" "$rnn"
onnx "rnn, mean" "$rnn" 'remove_attention'
# Weights of few bits: with activations as they are outputs are ours. Where activations have 8
# bits, `rows` is what this program computes until a last bit makes a step of a number, `dynamic`
# has one scale for all of them.
for model in bert llama vit marian; do
    file=${!model}
    for bits in 'int8' 'int4, group: 32' 'int4, group: 64, asymmetric: true' 'int8, embeddings: float'; do
        line "onnxruntime: $model, $bits" onnx_outputs "$file" "quantize: {dtype: $bits}"
    done
    line "onnxruntime: $model, int8 rows" onnx_outputs "$file" 'quantize: {dtype: int8, activations: int8}' 0.01 rows
    line "onnxruntime: $model, int8 dynamic" onnx_outputs "$file" 'quantize: {dtype: int8, activations: int8}' 0.15 dynamic
    ! grep -qE 'avx512_vnni|avx_vnni' /proc/cpuinfo ||
        line "onnxruntime: $model, int8 rows, signed" onnx_outputs "$file" 'quantize: {dtype: int8, activations: int8}' 0.01 'rows, bytes: signed'
done
line "onnxruntime: bert, exits, int4" onnx_outputs "$bert" 'add_exits: {init: copy}, quantize: {dtype: int4}'
line "onnxruntime: llama, t2r, int8" onnx_outputs "$llama" 'attention_to_t2r: {feature_size: 8}, quantize: {dtype: int8}'
line "onnxruntime: bert, shared, int4" onnx_outputs "$bert" 'weight_multiplex: {group: 2, mixing: none, position: none}, quantize: {dtype: int4}'
line "onnxruntime: bert, nested exits" onnx_leaves "$bert"
steps "llama" "$llama"
steps "llama, int8" "$llama" 'quantize: {dtype: int8}'
steps "llama, int4" "$llama" 'quantize: {dtype: int4, asymmetric: true}'
steps "marian, int8" "$marian" 'quantize: {dtype: int8}'
steps "llama, t2r" "$llama" 'attention_to_t2r: {feature_size: 8, keep_softmax: [1]}'
steps "llama, elu1" "$llama" 'attention_to_t2r: {feature: elu1}'
steps "llama, pruned" "$llama" 'remove_block: {block: attention, drop: [1]}, prune_ffn: {score: magnitude, keep_ratio: 0.5}'
steps "marian" "$marian"
steps "marian, pruned" "$marian" 'prune_heads: {score: magnitude, ranking: global, keep_ratio: 0.6}'
steps "marian, t2r" "$marian" 'attention_to_t2r: {feature_size: 4}'
steps "rnn" "$rnn"
steps "rnn, mean" "$rnn" 'remove_attention'
if [ -n "$released" ]; then
    prune='prune_heads: {score: magnitude, ranking: global, keep_ratio: 0.7}, prune_ffn: {score: magnitude, ranking: global, keep_ratio: 0.5}'
    for model in minilm-l6-v2 gte-small stories15M; do
        onnx "$model" "$released/$model"
        onnx "$model, pruned" "$released/$model" "$prune"
    done
    halved='prune_heads: {score: magnitude, keep: 6}, prune_ffn: {score: magnitude, keep_ratio: 0.5}'
    for bits in int8 int4; do onnx "gte-small, $bits" "$released/gte-small" "quantize: {dtype: $bits}"; done
    line "onnxruntime: gte-small, int8 rows" onnx_outputs "$released/gte-small" 'quantize: {dtype: int8, activations: int8}' 0.1 rows
    line "onnxruntime: gte-small, int8 dynamic" onnx_outputs "$released/gte-small" 'quantize: {dtype: int8, activations: int8}' 0.2 dynamic
    line "onnxruntime: gte-small, time at half the work" onnx_time "$released/gte-small" "$halved"
fi
