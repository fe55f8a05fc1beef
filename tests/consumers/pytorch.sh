# Hugging Face folders in PyTorch, where a python has it.

# Outputs of a Hugging Face folder, computed by PyTorch from nothing but the folder.
torch_outputs() { # MODEL PASSES MORE_OF_THE_OUTPUT
    printf 'version: 1\nseed: 1\nmodel: %s\npasses: [%s]\noutput: {path: %s/%s}\n' \
        "$1" "$2" "$work/folder" "$3" >"$work/recipe.yaml"
    rm -rf "$work/folder"
    "$COMPRESS" --recipe "$work/recipe.yaml" --quiet >/dev/null || return 1
    "$COMPRESS" ir "$work/folder" | node "$modules/random_inputs.mjs" "$work/in.safetensors" 7 2 &&
        "$COMPRESS" run "$work/folder" --input "$work/in.safetensors" --output "$work/out.safetensors" --quiet &&
        "$torch" tests/consumers/hf_torch.py "$work/folder" "$work/in.safetensors" "$work/out.safetensors"
}

# The first python that has PyTorch; none.
torch=
for python in python3 /usr/bin/python3; do
    [ -z "$torch" ] && "$python" -c 'import torch' 2>/dev/null && torch=$python
done

folder() { # NAME MODEL PASSES [MORE_OF_THE_OUTPUT]
    if [ -n "$torch" ]; then line "PyTorch from a folder: $1" torch_outputs "$2" "$3" "${4:-}"; fi
}

smaller='remove_layer: {drop: [1]}, prune_ffn: {keep: 24, score: magnitude}'
for model in bert bert_mlm distilbert gpt2 llama vit deit; do
    folder "reference $model" "$root/tests/data/reference/$model" ''
    folder "reference $model, smaller" "$root/tests/data/reference/$model" "$smaller" ', shard_bytes: 4000'
done
folder "drawn llama with biases, heads" "$work/biased" 'prune_heads: {score: magnitude, keep: 4}'
folder "bert, units in f16" "$bert" 'prune_ffn: {keep_ratio: 0.5, score: magnitude}' ', dtype: f16'
folder "bert, factors multiplied out" "$bert" 'factor_embedding: {rank: 24}' ', densify: true'
folder "bert, shared layers for each" "$bert" \
    'weight_multiplex: {group: 2, mixing: none, position: none}' ', densify: true'
if [ -n "$released" ]; then
    folder "gte-small, a layer removed, f16" "$released/gte-small" 'remove_layer: {drop: [3]}' ', dtype: f16'
    folder "stories15M, heads" "$released/stories15M" 'prune_heads: {keep: 4, score: magnitude}'
fi
