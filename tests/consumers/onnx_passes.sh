# The models that others exported to ONNX and the Hugging Face folders of the same models,
# through every pass: what a pass makes of both computes the same, and what refuses one
# refuses the other for the same reason. Weights are rounded to f16 first, as the folders
# have them: gte-small's are then the same, of MiniLM some have the other neighbour.

# Steps of every pass, one row each; the data set `texts` is there for those that want one.
pass_rows() {
    cat <<END
cast: {dtype: bf16}
remove_layer: {drop: [1, 4]}
remove_block: {block: attention, drop: [2]}
remove_block: {block: ffn, drop: [3]}
remove_attention
fold_token_type
factor_embedding: {rank: 64}
prune_heads: {keep: 7, score: magnitude}
prune_heads: {ranking: global, keep_ratio: 0.75, score: magnitude}
prune_ffn: {keep_ratio: 0.5, score: magnitude}
prune_ffn: {ranking: global, keep_ratio: 0.7, score: magnitude}
weight_multiplex: {group: 2, mixing: none, position: none}
weight_multiplex: {group: 2, position: none}
attention_to_t2r: {feature_size: 16}
attention_to_t2r: {feature_size: 16}, merge_t2r
snapshot: {name: start}, prune_ffn: {keep_ratio: 0.5, score: magnitude}, distill: {teacher: "snapshot:start", prediction: 0, attention: 1, hidden: 1, data: texts, steps: 2, batch_size: 4}
diagnose: {data: texts}
importance: {data: texts}
add_exits
calibrate_exits: {data: texts, flops: 0.5}
finetune: {data: texts, steps: 2, batch_size: 4}
evaluate: {data: texts}
estimate_posterior: {data: texts, samples: 2, steps: 2}
reset_weights
END
}

# Runs steps on a model. A refusal leaves its message without the model's name in `OUT.why`.
pass_on() { # MODEL FOLDER STEPS OUT
    cat >"$work/pass.yaml" <<END
version: 1
seed: 1
model: $1
data:
  texts: {format: text, path: $root/recipes/data/authors/train.tsv, tokenizer: $2/tokenizer.json,
          labels: [shakespeare, wells, tatoeba], limit: 8, max_length: 24}
passes: [{cast: {dtype: f16}, allow_unchanged: true}, $3]
END
    rm -f "$4" "$4.why"
    "$COMPRESS" --recipe "$work/pass.yaml" --output "$4" --quiet >"$4.log" 2>&1 && return 0
    grep -m1 error: "$4.log" | sed 's/^.*error: //' >"$4.why"
}

exported_pass() { # NAME FOLDER TOLERANCE STEPS
    fetch_exported || return 1
    pass_on "$2" "$2" "$4" "$work/one.h5"
    pass_on "$exported/$1/onnx/model.onnx" "$2" "$4" "$work/two.h5"
    if [ -f "$work/one.h5.why" ]; then
        echo "of the folder: $(cat "$work/one.h5.why")"
        echo "of the export: $(cat "$work/two.h5.why")"
        cmp -s "$work/one.h5.why" "$work/two.h5.why" && echo "both refused: $(cut -c1-90 "$work/one.h5.why")"
        return
    fi
    [ -f "$work/two.h5" ] || { cat "$work/two.h5.log"; return 1; }
    same_outputs "$work/one.h5" "$work/two.h5" "$3"
}

if [ -n "$released" ]; then
    while IFS= read -r steps; do
        line "through every pass, gte-small: $steps" \
            exported_pass gte-small "$released/gte-small" 1e-6 "$steps"
        line "through every pass, MiniLM: $steps" \
            exported_pass all-MiniLM-L6-v2 "$released/minilm-l6-v2" 1e-4 "$steps"
    done < <(pass_rows)
fi
