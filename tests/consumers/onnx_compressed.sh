#!/bin/bash
# Models before and after compression of each kind, written as ONNX and run by onnxruntime
# against `compress run`.
#
#     onnx_compressed.sh COMPRESS NODE_FOLDER MODELS [NAME...]
#
# COMPRESS is the program, NODE_FOLDER has node_modules with onnxruntime-node, MODELS the
# folder of ready models (recipes/models). Names choose lines. REAL_MODELS: folders of
# further checkpoints, which are run as they are and pruned; REAL_DECODERS: of language
# models with a tokenizer, whose text in transformers.js is compared. Where python3-onnx is,
# its checker reads every file. Prints one line each; exits with 1 if one failed.
set -u
compress=$(realpath "$1"); node=$(realpath "$2"); models=$(realpath "$3"); shift 3
here=$(dirname "$(realpath "$0")")
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
export OMP_WAIT_POLICY=passive
ln -s "$node/node_modules" "$work/node_modules"
cp "$here"/*.mjs "$work"
failed=0 run=0
standard() { # what onnx.checker says of a file
    /usr/bin/python3 -c 'import onnx' 2>/dev/null || return 0
    /usr/bin/python3 -c 'import sys, onnx.checker as c; c.check_model(sys.argv[1], full_check=True)' "$1" >"$work/log" 2>&1
}
check() { # NAME MODEL PASSES
    local name=$1 model=$2 passes=$3 wanted
    [ -z "$only" ] || case " $only " in *" $name "*) ;; *) return ;; esac
    run=$((run + 1))
    compressed "$name" "$model" "$passes" || return
    model=$work/model.h5
    "$compress" ir "$model" 2>/dev/null | node "$work/random_inputs.mjs" "$work/in" &&
        "$compress" run "$model" --input "$work/in" --output "$work/out" --quiet >"$work/log" 2>&1 &&
        "$compress" convert "$model" "$work/model.onnx" --quiet >"$work/log" 2>&1 &&
        standard "$work/model.onnx" &&
        wanted=$(cd "$work" && node ort_outputs.mjs model.onnx in out 2>&1)
    if [ $? = 0 ]; then echo "ok     $name: $(echo "$wanted" | tr '\n' ' ')"; else echo "FAILED $name: $(tail -3 "$work/log") ${wanted:-}"; failed=1; fi
}
# Token by token, with states, by the folder that transformers.js would load.
steps() { # NAME MODEL PASSES
    local name=$1 model=$2 passes=$3 said
    [ -z "$only" ] || case " $only " in *" $name "*) ;; *) return ;; esac
    run=$((run + 1))
    compressed "$name" "$model" "$passes" || return
    "$compress" ir "$work/model.h5" 2>/dev/null | node "$work/random_inputs.mjs" "$work/in" 9 1 &&
        "$compress" run "$work/model.h5" --input "$work/in" --output "$work/out" --quiet >"$work/log" 2>&1 &&
        "$compress" convert "$work/model.h5" "$work/folder.onnx/" --quiet >"$work/log" 2>&1 &&
        said=$(cd "$work" && node ort_steps.mjs folder.onnx in out 2>&1)
    if [ $? = 0 ]; then echo "ok     $name: $(echo "$said" | tail -1)"; else echo "FAILED $name: $(tail -3 "$work/log") ${said:-}"; failed=1; fi
    rm -rf "$work/folder.onnx"
}
# The text that transformers.js writes is ours.
writes() { # NAME MODEL PASSES
    local name=$1 said
    [ -z "$only" ] || case " $only " in *" $name "*) ;; *) return ;; esac
    run=$((run + 1))
    compressed "$@" || return
    "$compress" generate "$work/model.h5" --prompt 'Once upon a time' --max-tokens 60 >"$work/text" 2>"$work/log" &&
        "$compress" convert "$work/model.h5" "$work/folder.onnx/" --quiet >"$work/log" 2>&1 &&
        said=$(cd "$work" && node tjs_generate.mjs folder.onnx 60 'Once upon a time' text 2>&1)
    if [ $? = 0 ]; then echo "ok     $name: $(echo "$said" | tail -1)"; else echo "FAILED $name: $(tail -3 "$work/log") ${said:-}"; failed=1; fi
    rm -rf "$work/folder.onnx"
}
# Nested exits leave where `compress run --leave-early` does.
leaves() { # NAME MODEL
    local name=$1 data early=0 tokens said
    [ -z "$only" ] || case " $only " in *" $name "*) ;; *) return ;; esac
    run=$((run + 1))
    data="{format: text, path: $models/../data/authors/train.tsv, tokenizer: $models/../data/authors/vocab.txt, labels: [shakespeare, wells, tatoeba], limit: 300}"
    printf 'version: 1\nseed: 1\nmodel: %s\ndata:\n  dev: %s\npasses:\n%s\noutput: [%s, {path: %s, exits: nested}]\n' "$2" "$data" \
        '  [add_exits: {init: copy}, finetune: {data: dev, steps: 30, batch_size: 16}, calibrate_exits: {data: dev, flops: 0.5}]' \
        "$work/model.h5" "$work/model.onnx" >"$work/r.yaml"
    "$compress" --recipe "$work/r.yaml" --quiet >"$work/log" 2>&1 || { echo "FAILED $name: $(tail -2 "$work/log")"; failed=1; return; }
    for tokens in 4 6 8 11 15 20 27 35 48 64; do
        "$compress" ir "$work/model.h5" | node "$work/random_inputs.mjs" "$work/in" $tokens 1 &&
            "$compress" run "$work/model.h5" --input "$work/in" --output "$work/out" --leave-early >"$work/log" 2>&1 &&
            said=$(cd "$work" && node ort_outputs.mjs model.onnx in out 2>&1) ||
            { echo "FAILED $name: $(tail -3 "$work/log") ${said:-}"; failed=1; return; }
        grep -q 'mean depth 6.00 of 6' "$work/log" || early=$((early + 1))
    done
    [ $early -gt 0 ] || { echo "FAILED $name: no sample left early"; failed=1; return; }
    echo "ok     $name: 10 samples, of which $early left early"
}
compressed() { # NAME MODEL PASSES: makes $work/model.h5
    if [ -n "$3" ]; then
        printf 'version: 1\nseed: 1\nmodel: %s\ndata:\n  train: %s\npasses: [%s]\noutput: %s\n' \
            "$2" "$images" "$3" "$work/model.h5" >"$work/r.yaml"
        "$compress" --recipe "$work/r.yaml" --quiet >"$work/log" 2>&1
    else
        "$compress" convert "$2" "$work/model.h5" --quiet >"$work/log" 2>&1
    fi || { echo "FAILED $1: $(tail -2 "$work/log")"; failed=1; return 1; }
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
leaves bert_leaves "$bert"
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
steps llama_steps "$llama" ''
steps llama_t2r_steps "$llama" 'attention_to_t2r: {feature_size: 8, keep_softmax: [1]}'
steps llama_elu1_steps "$llama" 'attention_to_t2r: {feature: elu1}'
steps llama_pruned_steps "$llama" 'remove_block: {block: attention, drop: [1]}, prune_ffn: {score: magnitude, keep_ratio: 0.5}'
steps marian_steps "$marian" ''
steps marian_pruned_steps "$marian" 'prune_heads: {score: magnitude, ranking: global, keep_ratio: 0.6}'
steps marian_t2r_steps "$marian" 'attention_to_t2r: {feature_size: 4}'
steps rnn_steps "$rnn" ''
steps rnn_mean_steps "$rnn" 'remove_attention'
for folder in ${REAL_DECODERS:-}; do
    name=$(basename "$folder")
    writes "${name}_text" "$folder" ''
    writes "${name}_pruned_text" "$folder" 'prune_heads: {score: magnitude, ranking: global, keep_ratio: 0.8}, prune_ffn: {score: magnitude, ranking: global, keep_ratio: 0.8}'
    writes "${name}_t2r_text" "$folder" 'attention_to_t2r: {feature_size: 32, init: identity}'
    writes "${name}_mixed_text" "$folder" 'attention_to_t2r: {feature: elu1, layers: [1, 4]}, remove_block: {block: attention, drop: [2]}'
done
for folder in ${REAL_MODELS:-}; do # folders of checkpoints, as they are and pruned
    name=$(basename "$folder")
    check "$name" "$folder" ''
    check "${name}_pruned" "$folder" 'prune_heads: {score: magnitude, ranking: global, keep_ratio: 0.7}, prune_ffn: {score: magnitude, ranking: global, keep_ratio: 0.5}'
done
echo "$run run"
[ $run -gt 0 ] && [ $failed = 0 ]
