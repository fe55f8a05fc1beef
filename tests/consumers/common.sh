# What the checks of scripts/test-consumers share; read by it, not run.
#   COMPRESS, modules (folder with node_modules), root, word (of the lines to run), half (of
#   them, 0 or 1), work (a folder that is removed at the end) are set.
bert=$root/recipes/models/bert_authors.h5
vit=$root/recipes/models/vit_fashion.h5
swin=$root/recipes/models/swin_fashion.h5
llama=$root/recipes/models/llama_shakespeare.h5
marian=$root/recipes/models/transformer_tatoeba.h5
rnn=$root/recipes/models/rnn_tatoeba.h5
released=${COMPRESS_DATA:+$COMPRESS_DATA/models}
failed=0
count=0
lines=0

# One line: runs a check, whose last line tells what it saw.
line() { # NAME COMMAND...
    local name=$1 outcome=equal
    shift
    [[ "$name" == *"$word"* ]] || return 0
    lines=$((lines + 1))
    [ $((lines % 2)) = "$half" ] || return 0
    count=$((count + 1))
    "$@" >"$work/log" 2>&1 || { outcome=DIFFERS; failed=$((failed + 1)); }
    printf '%-58s %-8s %s\n' "$name" $outcome "$(tail -1 "$work/log")"
    [ $outcome = equal ] || sed 's/^/    /' "$work/log"
}

# The model that passes (YAML, in one line) make of another; the same without any. A data set
# `train` of images is there for passes that train.
compressed() { # MODEL PASSES
    local images=$root/recipes/data/fashion
    if [ -z "$2" ]; then
        echo "$1"
        return
    fi
    cat >"$work/recipe.yaml" <<END
version: 1
seed: 1
model: $1
data:
  train: {format: idx, images: $images/train-images-idx3-ubyte.gz, limit: 64, mean: [0.286],
          labels: $images/train-labels-idx1-ubyte.gz, std: [0.353]}
passes: [$2]
END
    "$COMPRESS" --recipe "$work/recipe.yaml" --output "$work/compressed.h5" --quiet >"$work/recipe.log" 2>&1 ||
        { cat "$work/recipe.log" >&2; return 1; }
    echo "$work/compressed.h5"
}

# A language model with drawn weights and a tokenizer of the tests: FOLDER.
drawn() { # FOLDER CONFIGURATION TOKENIZER SPECIALS
    printf 'version: 1\nseed: 3\nmodel: {%s, initializer_range: 0.3}\npasses: []\n' "$2" >"$work/drawn.yaml"
    "$COMPRESS" --recipe "$work/drawn.yaml" --output "$1/" --quiet >/dev/null 2>&1
    cp "tests/data/text/$3/tokenizer.json" "$1" && echo "{$4}" >"$1/tokenizer_config.json"
}

sizes='model_type: llama, vocab_size: 427, hidden_size: 64, intermediate_size: 96, num_hidden_layers: 4'
sizes="$sizes, num_attention_heads: 8, num_key_value_heads: 2, max_position_embeddings: 256"
drawn "$work/llama" "$sizes" fallback '"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"'
sizes="$sizes, num_key_value_heads: 8, attention_bias: true, mlp_bias: true, tie_word_embeddings: true"
drawn "$work/biased" "${sizes/num_key_value_heads: 2, /}" fallback '"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"'

# Relatives of Llama, with windows that are shorter than the texts.
relative() { # NAME KEYS [MODEL_TYPE]
    drawn "$work/$1" "model_type: ${3:-$1}, vocab_size: 427, hidden_size: 64, intermediate_size: 96, num_hidden_layers: 4, num_attention_heads: 8, num_key_value_heads: 2, $2" fallback '"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"'
}
relative mistral 'sliding_window: 7'
relative mistral_whole 'sliding_window: null' mistral
relative qwen2 'use_sliding_window: true, sliding_window: 9, max_window_layers: 2'
relative qwen2_whole 'tie_word_embeddings: true' qwen2
relative qwen3 'head_dim: 16'
relative gemma 'head_dim: 16'
relative gemma2 'head_dim: 16, sliding_window: 6, query_pre_attn_scalar: 24, attn_logit_softcapping: 5.0, final_logit_softcapping: 9.0'
relative phi3 'partial_rotary_factor: 0.5, sliding_window: 8, pad_token_id: null'
relative llama_yarn 'rope_scaling: {rope_type: yarn, factor: 4.0, original_max_position_embeddings: 32}' llama
relatives='mistral qwen2 qwen3 gemma gemma2 phi3 llama_yarn'
sizes='model_type: gpt2, vocab_size: 357, n_embd: 64, n_inner: 160, n_layer: 3, n_head: 4, n_positions: 128'
drawn "$work/gpt2" "$sizes" bytes '"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"'
