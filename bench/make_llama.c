/* A llama with pseudo-random weights in bfloat16, as a Hugging Face folder in shards: a
 * model of any size to measure what reads and writes models, on disks and in memory that
 * real ones do not fit.
 *
 *     make_llama FOLDER HIDDEN FFN LAYERS VOCABULARY SHARD_MB
 *
 * Keeps 4 MiB of weights at a time. The same arguments give the same bytes. */
#include "ir/random.h"
#include "ir/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { NAME_BYTES = 96, TENSORS_MAX = 4096, BLOCK = 1 << 21 };

typedef struct Weight {
    char name[NAME_BYTES];
    long long rows, columns; /* 0 columns: a vector of ones */
    int shard;
} Weight;

typedef struct Llama {
    const char *folder;
    long long hidden, ffn, layers, vocabulary, shard_bytes;
    Weight weights[TENSORS_MAX];
    int count, shards;
} Llama;

static long long weight_bytes(const Weight *weight) {
    return 2 * weight->rows * (weight->columns ? weight->columns : 1);
}

static void die(const char *what) {
    fprintf(stderr, "make_llama: cannot write %s: %s\n", what, strerror(errno));
    exit(1);
}

static void add(Llama *llama, const char *name, long long rows, long long columns) {
    if (llama->count == TENSORS_MAX) die("more weights");
    Weight *weight = &llama->weights[llama->count++];
    snprintf(weight->name, NAME_BYTES, "%s", name);
    weight->rows = rows;
    weight->columns = columns;
}

static void add_layer(Llama *llama, int layer) {
    static const char *const SQUARE[] = {"self_attn.q_proj", "self_attn.k_proj",
                                         "self_attn.v_proj", "self_attn.o_proj"};
    static const char *const NORMS[] = {"input_layernorm", "post_attention_layernorm"};
    const long long d = llama->hidden, f = llama->ffn;
    char name[NAME_BYTES];
#define NAME(part)                                                                       \
    (snprintf(name, NAME_BYTES, "model.layers.%d.%s.weight", layer, part), name)
    for (int i = 0; i < 4; i++) add(llama, NAME(SQUARE[i]), d, d);
    add(llama, NAME("mlp.gate_proj"), f, d);
    add(llama, NAME("mlp.up_proj"), f, d);
    add(llama, NAME("mlp.down_proj"), d, f);
    for (int i = 0; i < 2; i++) add(llama, NAME(NORMS[i]), d, 0);
}

/* Lists the weights and deals them to shards in order. */
static void list_weights(Llama *llama) {
    long long bytes = 0;
    add(llama, "model.embed_tokens.weight", llama->vocabulary, llama->hidden);
    for (int layer = 0; layer < llama->layers; layer++) add_layer(llama, layer);
    add(llama, "model.norm.weight", llama->hidden, 0);
    add(llama, "lm_head.weight", llama->vocabulary, llama->hidden);
    for (int i = 0; i < llama->count; i++) {
        const long long own = weight_bytes(&llama->weights[i]);
        if (bytes > 0 && bytes + own > llama->shard_bytes) llama->shards++, bytes = 0;
        llama->weights[i].shard = llama->shards;
        bytes += own;
    }
    llama->shards++;
}

/* Random signs, bits of the mantissa and two of the exponent: 2^-8 to 2^-5, finite. */
static void write_weight(FILE *file, const Weight *weight) {
    static uint16_t block[BLOCK];
    const uint64_t key = random_key_name(7, weight->name);
    const long long total = weight_bytes(weight) / 2;
    for (long long at = 0; at < total; at += BLOCK) {
        const long long n = total - at < BLOCK ? total - at : BLOCK;
        for (long long i = 0; i < n; i += 4) {
            const uint64_t bits = random_u64(key, (uint64_t)(at + i));
            for (long long k = i; k < i + 4 && k < n; k++)
                block[k] = weight->columns
                               ? (uint16_t)(((bits >> 16 * (k - i)) & 0x81ff) | 0x3b80)
                               : 0x3f80;
        }
        fwrite(block, 2, (size_t)n, file);
    }
}

static FILE *open_in(const Llama *llama, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", llama->folder, name);
    FILE *file = fopen(path, "wb");
    if (!file) die(path);
    return file;
}

static void finish(FILE *file, const char *name) {
    const int failed = ferror(file);
    if (fclose(file) != 0 || failed) die(name);
}

static void shard_name(const Llama *llama, int shard, char *out) {
    snprintf(out, NAME_BYTES, "model-%05d-of-%05d.safetensors", shard + 1, llama->shards);
}

static void write_shard(const Llama *llama, int shard) {
    char name[NAME_BYTES];
    Text header = {0};
    long long at = 0;
    shard_name(llama, shard, name);
    text_add(&header, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = 0; i < llama->count; i++) {
        const Weight *weight = &llama->weights[i];
        if (weight->shard != shard) continue;
        text_add(&header, ",\"%s\":{\"dtype\":\"BF16\",\"shape\":[%lld", weight->name,
                 weight->rows);
        if (weight->columns) text_add(&header, ",%lld", weight->columns);
        text_add(&header, "],\"data_offsets\":[%lld,%lld]}", at,
                 at + weight_bytes(weight));
        at += weight_bytes(weight);
    }
    text_add(&header, "}");
    while (header.length % 8) text_add(&header, " ");
    const uint64_t length = header.length; /* little-endian, as x86 and ARM are */
    FILE *file = open_in(llama, name);
    fwrite(&length, sizeof length, 1, file);
    fwrite(header.data, 1, header.length, file);
    for (int i = 0; i < llama->count; i++)
        if (llama->weights[i].shard == shard) write_weight(file, &llama->weights[i]);
    finish(file, name);
    text_free(&header);
}

static void write_index(const Llama *llama) {
    FILE *file = open_in(llama, "model.safetensors.index.json");
    fprintf(file, "{\"metadata\": {}, \"weight_map\": {");
    for (int i = 0; i < llama->count; i++) {
        char name[NAME_BYTES];
        shard_name(llama, llama->weights[i].shard, name);
        fprintf(file, "%s\"%s\": \"%s\"", i ? ", " : "", llama->weights[i].name, name);
    }
    fprintf(file, "}}\n");
    finish(file, "the index");
}

static void write_config(const Llama *llama) {
    FILE *file = open_in(llama, "config.json");
    const long long heads = llama->hidden / 64;
    fprintf(file,
            "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"],\n"
            " \"hidden_size\": %lld, \"intermediate_size\": %lld,\n"
            " \"num_hidden_layers\": %lld, \"num_attention_heads\": %lld,\n"
            " \"num_key_value_heads\": %lld, \"vocab_size\": %lld,\n"
            " \"max_position_embeddings\": 512, \"hidden_act\": \"silu\",\n"
            " \"rms_norm_eps\": 1e-05, \"tie_word_embeddings\": false,\n"
            " \"torch_dtype\": \"bfloat16\"}\n",
            llama->hidden, llama->ffn, llama->layers, heads, heads, llama->vocabulary);
    finish(file, "config.json");
}

int main(int argc, char **argv) {
    static Llama llama;
    long long *const sizes[] = {&llama.hidden, &llama.ffn, &llama.layers,
                                &llama.vocabulary, &llama.shard_bytes};
    bool sound = argc == 7;
    for (int i = 0; sound && i < 5; i++) {
        *sizes[i] = atoll(argv[i + 2]);
        sound = *sizes[i] > 0;
    }
    if (!sound || llama.hidden % 64 != 0) {
        fprintf(stderr, "usage: make_llama FOLDER HIDDEN FFN LAYERS VOCABULARY SHARD_MB\n"
                        "HIDDEN: a multiple of 64\n");
        return 2;
    }
    llama.folder = argv[1];
    llama.shard_bytes *= 1000000;
    if (mkdir(llama.folder, 0777) != 0 && errno != EEXIST) die(llama.folder);
    list_weights(&llama);
    for (int shard = 0; shard < llama.shards; shard++) write_shard(&llama, shard);
    write_index(&llama);
    write_config(&llama);
    return 0;
}
