#!/bin/bash
# Models before and after compression of each kind, written as ONNX and run by onnxruntime
# against `compress run`.
#
#     onnx_compressed.sh COMPRESS NODE_FOLDER MODELS [NAME...]
#
# COMPRESS is the program, NODE_FOLDER has node_modules with onnxruntime-node, MODELS the
# folder of ready models (recipes/models); a line below whose model is a path that is not
# there is left out. Names choose lines. Prints one line each; exits with 1 if one failed.
set -u
compress=$(realpath "$1"); node=$(realpath "$2"); models=$(realpath "$3"); shift 3
here=$(dirname "$(realpath "$0")")
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
export OMP_WAIT_POLICY=passive
ln -s "$node/node_modules" "$work/node_modules"
cp "$here"/*.mjs "$work"
failed=0 run=0
check() { # NAME MODEL PASSES
    local name=$1 model=$2 passes=$3 wanted
    [ -e "$model" ] || return
    [ -z "$only" ] || case " $only " in *" $name "*) ;; *) return ;; esac
    run=$((run + 1))
    if [ -n "$passes" ]; then
        printf 'version: 1\nseed: 1\nmodel: %s\ndata:\n  train: %s\npasses: [%s]\noutput: %s\n' \
            "$model" "$images" "$passes" "$work/model.h5" >"$work/r.yaml"
        "$compress" --recipe "$work/r.yaml" --quiet >"$work/log" 2>&1 || { echo "FAILED $name: $(tail -2 "$work/log")"; failed=1; return; }
        model=$work/model.h5
    fi
    "$compress" ir "$model" 2>/dev/null | node "$work/random_inputs.mjs" "$work/in" &&
        "$compress" run "$model" --input "$work/in" --output "$work/out" --quiet >"$work/log" 2>&1 &&
        "$compress" convert "$model" "$work/model.onnx" --quiet >"$work/log" 2>&1 &&
        wanted=$(cd "$work" && node ort_outputs.mjs model.onnx in out 2>&1)
    if [ $? = 0 ]; then echo "ok     $name: $(echo "$wanted" | tr '\n' ' ')"; else echo "FAILED $name: $(tail -3 "$work/log") ${wanted:-}"; failed=1; fi
}
only="$*"
# A few steps of training give values to what starts with zeros: tables of positions, biases
# of the mixing, convolutions.
images="{format: idx, images: $models/../data/fashion/train-images-idx3-ubyte.gz, labels: $models/../data/fashion/train-labels-idx1-ubyte.gz, mean: [0.286], std: [0.353], limit: 64}"
train='finetune: {data: train, steps: 8, batch_size: 8, lr: 2.0e-2}'
bert=$models/bert_authors.h5 llama=$models/llama_shakespeare.h5 swin=$models/swin_fashion.h5
vit=$models/vit_fashion.h5 marian=$models/transformer_tatoeba.h5 rnn=$models/rnn_tatoeba.h5
check bert "$bert" ''
check bert_heads "$bert" 'prune_heads: {score: magnitude, ranking: global, keep_ratio: 0.6}'
check bert_no_heads "$bert" 'prune_heads: {score: random, ranking: global, keep_ratio: 0.3, allow_empty: true}'
check bert_units "$bert" 'prune_ffn: {score: magnitude, ranking: global, keep_ratio: 0.4}'
check bert_layers "$bert" 'remove_layer: {drop: [1]}'
check bert_blocks "$bert" 'remove_block: {block: attention, drop: [0]}, remove_block: {block: ffn, drop: [1]}'
check bert_factored "$bert" 'factor_embedding: {rank: 16}'
check bert_shared "$bert" 'weight_multiplex: {group: 2, init: mean, mixing: both, mixing_init: trunc_normal, mixing_bias: true, position: none, pooling: keep}'
check bert_exits "$bert" 'add_exits: {head: tanh, init: copy}'
check bert_types "$bert" 'fold_token_type'
check bert_f16 "$bert" 'cast: {dtype: f16}'
check bert_bf16 "$bert" 'cast: {dtype: bf16}'
check llama "$llama" ''
check llama_units "$llama" 'prune_ffn: {score: magnitude, ranking: global, keep_ratio: 0.5}'
check llama_blocks "$llama" 'remove_block: {block: attention, drop: [1]}'
check llama_factored "$llama" 'factor_embedding: {rank: 16}'
check llama_t2r "$llama" 'attention_to_t2r: {feature_size: 8}'
check llama_t2r_elu1 "$llama" 'attention_to_t2r: {feature: elu1, scale_query: false}'
check llama_t2r_positive "$llama" 'attention_to_t2r: {feature: positive, keep_softmax: [0]}'
check llama_t2r_merged "$llama" 'attention_to_t2r: {feature_size: 8, rotary: drop, keep_every: 2}, merge_t2r'
check vit "$vit" ''
check vit_shared "$vit" "weight_multiplex: {group: 2, init: lsq, mixing: both, mixing_init: trunc_normal, mixing_bias: true, position: contextual, mlp_transform: norm_conv, pooling: keep}, $train"
check vit_mean "$vit" "weight_multiplex: {group: 3, init: first, mixing: after, position: contextual, mlp_transform: conv, pooling: mean}, $train"
check vit_pruned "$vit" 'prune_heads: {score: magnitude, keep: 1}, prune_ffn: {score: magnitude, keep: 32}, remove_layer: {drop: [2]}'
check swin "$swin" ''
check swin_shared "$swin" "weight_multiplex: {layers_left: [1, 2], init: mean, mixing: both, mixing_init: trunc_normal, mixing_bias: true, position: contextual, mlp_transform: norm_conv}, $train"
check swin_pruned "$swin" 'prune_heads: {score: magnitude, ranking: global, keep_ratio: 0.6}, prune_ffn: {score: magnitude, keep_ratio: 0.5}'
check marian "$marian" ''
check marian_pruned "$marian" 'prune_heads: {score: magnitude, keep_ratio: 0.5}, prune_ffn: {score: magnitude, keep_ratio: 0.5}, remove_block: {block: cross_attention, drop: [0]}'
check marian_t2r "$marian" 'attention_to_t2r: {feature_size: 4}'
check rnn "$rnn" ''
check rnn_mean "$rnn" 'remove_attention'
for folder in ${REAL_MODELS:-}; do # folders of checkpoints, as they are and pruned
    name=$(basename "$folder")
    check "$name" "$folder" ''
    check "${name}_pruned" "$folder" 'prune_heads: {score: magnitude, ranking: global, keep_ratio: 0.7}, prune_ffn: {score: magnitude, ranking: global, keep_ratio: 0.5}'
done
echo "$run run"
[ $run -gt 0 ] && [ $failed = 0 ]
