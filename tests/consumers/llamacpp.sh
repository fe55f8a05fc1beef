# Models as GGUF in llama.cpp.

# The likeliest text in llama.cpp, or with quantised weights that there is some: it computes
# with rounded activations then.
llama_text() { # MODEL PASSES DTYPE TOKENS PROMPT
    local model
    model=$(compressed "$1" "$2") || return 1
    "$COMPRESS" convert "$model" "$work/model.gguf" --dtype "$3" --quiet || return 1
    case $3 in q*) node "$modules/llamacpp.mjs" runs "$work/model.gguf" "$4" "$5"; return ;; esac
    "$COMPRESS" generate "$model" --prompt "$5" --max-tokens "$4" >"$work/text" &&
        node "$modules/llamacpp.mjs" text "$work/model.gguf" "$work/text" "$4" "$5"
}

# How many tokens of our likeliest text are llama.cpp's, from quantised weights as they are.
llama_agrees() { # MODEL PASSES SHARE TOKENS PROMPT
    local model
    model=$(compressed "$1" "$2") || return 1
    "$COMPRESS" convert "$model" "$work/model.gguf" --quiet &&
        "$COMPRESS" generate "$model" --prompt "$5" --max-tokens "$4" >"$work/text" &&
        node "$modules/llamacpp.mjs" agrees "$work/model.gguf" "$work/text" "$3" "$5"
}

# The vector of a text in llama.cpp, whose GELU is the one by tanh, in f16.
llama_vector() { # MODEL PASSES [TOLERANCE]
    local model text='The cat sat on the mat.'
    model=$(compressed "$1" "$2") || return 1
    "$COMPRESS" convert "$model" "$work/model.gguf" --quiet &&
        node "$modules/llamacpp.mjs" tokens "$work/model.gguf" "$work/in.safetensors" "$text" &&
        "$COMPRESS" run "$model" --input "$work/in.safetensors" --output "$work/out.safetensors" --quiet &&
        node "$modules/llamacpp.mjs" embedding "$work/model.gguf" "$work/out.safetensors" "${3:-1e-3}" "$text"
}

heads='prune_heads: {score: magnitude, ranking: global, keep_ratio: 0.6}'
blocks='remove_block: {block: attention, drop: [0, 2]}, remove_block: {block: ffn, drop: [1]}'
line "llama.cpp: drawn llama" llama_text "$work/llama" '' f32 60 'The cat'
line "llama.cpp: drawn llama with biases" llama_text "$work/biased" '' f32 60 'The cat'
line "llama.cpp: drawn llama, blocks removed" llama_text "$work/llama" "$blocks" f32 60 'The cat'
line "llama.cpp: drawn llama with biases, unequal heads" llama_text "$work/biased" "$heads" f32 60 'The cat'
line "llama.cpp: drawn llama, q4_0" llama_text "$work/llama" '' q4_0 60 'The cat'
for model in mistral_whole qwen2_whole qwen3; do
    line "llama.cpp: drawn $model" llama_text "$work/$model" '' f32 60 'The cat'
done
line "llama.cpp: drawn gpt2" llama_text "$work/gpt2" '' f32 60 'The cat'
if [ -n "$released" ]; then
    stories=$released/stories15M
    prune='prune_heads: {score: magnitude, ranking: global, keep_ratio: 0.6}, prune_ffn: {score: magnitude, ranking: global, keep_ratio: 0.5}'
    prompt='Once upon a time'
    for type in f32 f16 q8_0 q4_0; do
        line "llama.cpp: stories15M, $type" llama_text "$stories" '' $type 200 "$prompt"
    done
    for bits in int8 'int8, activations: int8' int4 'int4, group: 32, asymmetric: true'; do
        line "llama.cpp: stories15M, $bits" llama_agrees "$stories" "quantize: {dtype: $bits}" 0.95 200 "$prompt"
    done
    line "llama.cpp: stories15M, unequal heads and units" llama_text "$stories" "$prune" f32 200 "$prompt"
    line "llama.cpp: stories15M, blocks removed" llama_text "$stories" "$blocks" f32 200 "$prompt"
    line "llama.cpp: stories15M, a layer removed" llama_text "$stories" 'remove_layer: {drop: [3]}' f32 200 "$prompt"
    for model in minilm-l6-v2 gte-small; do
        line "llama.cpp: $model" llama_vector "$released/$model" ''
    done
    for bits in int8 int4; do
        line "llama.cpp: gte-small, $bits" llama_vector "$released/gte-small" "quantize: {dtype: $bits}" 1e-2
    done
    line "llama.cpp: gte-small, a layer removed" llama_vector "$released/gte-small" 'remove_layer: {drop: [5]}'
fi
