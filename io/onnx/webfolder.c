/* Folders that transformers.js loads: config.json and tokenizer beside onnx/model.onnx,
 * or the two files of an encoder-decoder model.
 *
 * It knows caches by names that follow from config.json, and takes their shapes from the
 * file. Keys and values of layers that keep them are as in any decoder; layers without
 * them are such of a model type with recurrent layers, whose state is of whatever shape
 * the file declares. So a model with linear attention is told to be of that type. */
#include "io/files/folder.h"
#include "io/files/json.h"
#include "io/files/outfolder.h"
#include "io/files/path.h"
#include "io/formats/assets.h"
#include "io/formats/model_config.h"
#include "io/onnx/onnx_read.h"
#include "io/onnx/write/onnx_file.h"
#include "io/tokenizers/tokenizer.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define CONFIG_FILE      "config.json"
#define TOKENIZER_FILE   "tokenizer.json"
#define TOKENIZER_CONFIG "tokenizer_config.json"
#define GRAPHS           "onnx/"

/* The model type with recurrent layers. */
#define RECURRENT_TYPE  "qwen3_next"
#define RECURRENT_CLASS "Qwen3NextForCausalLM"

static bool is_ours(const char *name) {
    if (asset_is_known(name) || strcmp(name, CONFIG_FILE) == 0) return true;
    if (strncmp(name, GRAPHS, strlen(GRAPHS)) != 0) return false;
    const char *graph = name + strlen(GRAPHS);
    if (strchr(graph, '/')) return false;
    return !*graph || strncmp(graph, "model", 5) == 0 ||
           strncmp(graph, "encoder_model", 13) == 0 ||
           strncmp(graph, "decoder_model", 13) == 0;
}

/* ---- config.json ---- */

/* Whether a layer of a text decoder has a recurrent state. */
static bool is_recurrent(const Graph *graph, int layer) {
    for (const Node *node = graph->first; node; node = node->next)
        if (node->layer == layer && (strcmp(node->op->name, "lstm") == 0 ||
                                     (strcmp(node->op->name, "linear_attention") == 0 &&
                                      node_flag(node, "causal"))))
            return true;
    return false;
}

/* Makes the configuration that of a model with recurrent layers, if there are any. */
static void put_layer_types(Arena *arena, Tree *config, const Graph *graph) {
    const int layers = graph_layer_count(graph, graph_main_stack(graph));
    const bool length = onnx_length_layer(graph) >= 0;
    bool any = false;
    for (int layer = 0; layer < layers; layer++) any = any || is_recurrent(graph, layer);
    if (!any) return;
    const Tree *type = tree_get_nonnull(config, "model_type");
    if (type && type->kind == TREE_STRING)
        tree_put_string(arena, config, "compressed_model_type", type->string);
    tree_put_string(arena, config, "model_type", RECURRENT_TYPE);
    tree_add_string(arena, tree_put_list(arena, config, "architectures"),
                    RECURRENT_CLASS);
    Tree *types = tree_put_list(arena, config, "layer_types");
    for (int layer = 0; layer < layers + length; layer++)
        tree_add_string(arena, types,
                        layer < layers && is_recurrent(graph, layer) ? "linear_attention"
                                                                     : "full_attention");
    tree_put_int(arena, config, "num_hidden_layers", layers + length);
}

/* The numbers of the tokens that begin, end and fill a text, where the configuration
 * lacks them: transformers.js asks it, not the tokenizer, when a text is at its end. */
static void put_token_numbers(Arena *arena, Tree *config, const Model *model) {
    Diag *aside = diag_create(); /* whoever reads the tokenizer will say what is wrong */
    Tokenizer *tokenizer;
    if (tokenizer_of_model(model) &&
        tokenizer_read_model(&tokenizer, model, "tokenizer", aside) == STATUS_OK) {
        const SpecialIds *ids = tokenizer_specials(tokenizer);
        const char *const keys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
        const int32_t numbers[] = {ids->bos, ids->eos, ids->pad};
        for (int i = 0; i < 3; i++)
            if (numbers[i] >= 0 && !tree_get_nonnull(config, keys[i]))
                tree_put_int(arena, config, keys[i], numbers[i]);
        tokenizer_destroy(tokenizer);
    }
    diag_destroy(aside);
}

static Status write_config(const Model *model, const char *folder,
                           const OnnxOptions *options, bool beside, Arena *arena,
                           Diag *diag) {
    Tree *config = tree_copy(arena, model_config_now(arena, model));
    const Graph *graph = model->graph;
    if (graph_find_input(graph, INPUT_TARGET_IDS))
        tree_put_bool(arena, config, "is_encoder_decoder", true);
    if (task_predicts_tokens(graph_task(graph))) put_token_numbers(arena, config, model);
    if (onnx_is_cached(graph, options)) put_layer_types(arena, config, graph);
    config_put_task(arena, config, graph);
    if (beside)
        tree_put_bool(arena, tree_put_map(arena, config, "transformers.js_config"),
                      "use_external_data_format", true);
    return json_write(config, path_join(arena, folder, CONFIG_FILE), diag);
}

/* ---- tokenizer_config.json ---- */

/* Tokens with a part to play, by the names that tokenizers give them. */
static const struct {
    const char *content, *key;
} SPECIAL[] = {
    {"[PAD]", "pad_token"}, {"<pad>", "pad_token"},         {"[CLS]", "cls_token"},
    {"[SEP]", "sep_token"}, {"[MASK]", "mask_token"},       {"<mask>", "mask_token"},
    {"[UNK]", "unk_token"}, {"<unk>", "unk_token"},         {"<s>", "bos_token"},
    {"</s>", "eos_token"},  {"<|endoftext|>", "eos_token"},
};

static void put_missing(Arena *arena, Tree *config, const char *key, const char *value) {
    if (!tree_get(config, key)) tree_put_string(arena, config, key, value);
}

/* What tokenizer.json tells of them: texts of unequal length need one to pad with. */
static void put_special_tokens(Arena *arena, Tree *config, const Tree *tokenizer) {
    const Tree *pad = tree_get(tree_get_nonnull(tokenizer, "padding"), "pad_token");
    if (pad && pad->kind == TREE_STRING)
        put_missing(arena, config, "pad_token", pad->string);
    const Tree *tokens = tree_get_nonnull(tokenizer, "added_tokens");
    for (const Tree *token = tokens ? tokens->first : NULL; token; token = token->next) {
        const Tree *content = tree_get(token, "content");
        for (size_t i = 0; i < sizeof SPECIAL / sizeof *SPECIAL; i++)
            if (content && content->kind == TREE_STRING &&
                strcmp(content->string, SPECIAL[i].content) == 0)
                put_missing(arena, config, SPECIAL[i].key, content->string);
    }
}

static void warn_of_tokenizer(const char *found, Diag *diag) {
    diag_warn(diag, LOC_NONE, NULL, "transformers.js reads a tokenizer.json, and %s",
              found);
}

/* Makes a tokenizer.json of the model's vocab.txt, if that is its tokenizer. Of another
 * one none is made, and a warning says so. */
static bool make_tokenizer(Text *out, const Model *model, Diag *diag) {
    Tokenizer *tokenizer = NULL;
    Diag *aside = diag_create(); /* whoever reads the tokenizer will say what is wrong */
    bool made = false;
    if (model_asset(model, "vocab.txt") && !model_asset(model, "vocab.json") &&
        tokenizer_read_model(&tokenizer, model, "", aside) == STATUS_OK)
        made = tokenizer_vocab_json(out, tokenizer);
    tokenizer_destroy(tokenizer);
    diag_destroy(aside);
    if (!made && tokenizer_of_model(model))
        warn_of_tokenizer("the model's tokenizer is in other files, which go along as "
                          "they are",
                          diag);
    if (!made && model_asset(model, SOURCE_TOKENIZER))
        warn_of_tokenizer("the model has two, which go along as they are", diag);
    return made;
}

/* A file of the model as a map, NULL where it is none. */
static Tree *read_map(Arena *arena, const ModelAsset *file) {
    Diag *aside = diag_create(); /* whoever reads the tokenizer will say what is wrong */
    Tree *map = NULL;
    const Status status =
        json_parse_wide(&map, arena, file->name, file->data, file->length, aside);
    diag_destroy(aside);
    return status == STATUS_OK && map->kind == TREE_MAP ? map : NULL;
}

/* transformers.js reads this file with every tokenizer; a checkpoint may lack it, or what
 * is read there. Of a vocab.txt the class is BERT's where the model reads token types,
 * which it makes. */
static Status write_tokenizer_config(const Model *model, const Tree *tokenizer,
                                     const char *folder, Arena *arena, Diag *diag) {
    const ModelAsset *own = model_asset(model, TOKENIZER_CONFIG);
    const bool types =
        model_asset(model, "vocab.txt") && graph_find_input(model->graph, INPUT_TYPES);
    Tree *config = own ? read_map(arena, own) : tree_new(arena, TREE_MAP, LOC_NONE);
    if (!config) return STATUS_OK; /* it stays as it is */
    const int before = config->count;
    put_missing(arena, config, "tokenizer_class",
                types ? "BertTokenizer" : "PreTrainedTokenizerFast");
    put_special_tokens(arena, config, tokenizer);
    if (own && config->count == before) return STATUS_OK;
    const Tree *length = tree_get(model->config, "max_position_embeddings");
    if (length && length->kind == TREE_INT && !tree_get(config, "model_max_length"))
        tree_put_int(arena, config, "model_max_length", length->integer);
    return json_write(config, path_join(arena, folder, TOKENIZER_CONFIG), diag);
}

/* What transformers.js reads and the model's own files, which are there, lack. */
static Status complete_tokenizer(const Model *model, const char *folder, Arena *arena,
                                 Diag *diag) {
    Text made = {0};
    const ModelAsset *own = model_asset(model, TOKENIZER_FILE);
    Status status = STATUS_OK;
    if (!own && !make_tokenizer(&made, model, diag)) return STATUS_OK;
    const ModelAsset document = {TOKENIZER_FILE, made.data, made.length, NULL};
    const Tree *tokenizer = read_map(arena, own ? own : &document);
    if (tree_is_string(tree_get(tree_get_nonnull(tokenizer, "model"), "type"),
                       "Characters"))
        warn_of_tokenizer("does not know one of characters, as the model's is", diag);
    if (!own)
        status = file_write(path_join(arena, folder, TOKENIZER_FILE), made.data,
                            made.length, diag);
    if (status == STATUS_OK)
        status = write_tokenizer_config(model, tokenizer, folder, arena, diag);
    text_free(&made);
    return status;
}

/* ---- the format ---- */

static Status check(const Model *model, const WriteOptions *options, Diag *diag) {
    const OnnxOptions *own = onnx_options(options);
    TRY(onnx_check(model, own, diag));
    const Graph *graph = model->graph;
    if (!graph_find_input(graph, INPUT_TARGET_IDS)) return STATUS_OK;
    if (own->cache) TRY(onnx_check_states(graph, diag));
    if (!(graph_output(graph, OUTPUT_ENCODER_STATES) &&
          graph_output(graph, OUTPUT_LOGITS))) {
        diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                  "expected the outputs " OUTPUT_ENCODER_STATES " and " OUTPUT_LOGITS
                  " to part encoder and decoder");
        diag_hint(diag, "an .onnx file holds the model in one");
        return STATUS_MODEL;
    }
    return STATUS_OK;
}

static Status write_graphs(Model *model, const char *folder, const WriteOptions *options,
                           bool *beside, Arena *arena, Diag *diag) {
    const OnnxOptions *own = onnx_options(options);
    const bool half = onnx_in_half(options);
    const char *suffix = half ? "_fp16" : "";
    const char *decoder = own->cache ? "decoder_model_merged" : "decoder_model";
    Written written = {0};
    if (!graph_find_input(model->graph, INPUT_TARGET_IDS)) {
        TRY(onnx_file_write(
            model, ONNX_WHOLE,
            arena_printf(arena, "%s/" GRAPHS "model%s.onnx", folder, suffix), true, half,
            own, &written, diag));
        *beside = written.files > 1;
        return STATUS_OK;
    }
    TRY(onnx_file_write(
        model, ONNX_ENCODER,
        arena_printf(arena, "%s/" GRAPHS "encoder_model%s.onnx", folder, suffix), true,
        half, own, &written, diag));
    TRY(onnx_file_write(
        model, ONNX_DECODER,
        arena_printf(arena, "%s/" GRAPHS "%s%s.onnx", folder, decoder, suffix), true,
        half, own, &written, diag));
    *beside = written.files > 2;
    return STATUS_OK;
}

static Status fill_folder(Model *model, const char *folder, const WriteOptions *options,
                          Arena *arena, Diag *diag) {
    bool beside = false;
    int64_t bytes = 0;
    int files = 0;
    const char *graphs = arena_printf(arena, "%s/" GRAPHS, folder);
    if (mkdir(graphs, 0777) != 0)
        return diag_fail(diag, STATUS_IO, LOC_FILE(graphs), NULL,
                         "cannot create the folder: %s", strerror(errno));
    TRY(write_graphs(model, folder, options, &beside, arena, diag));
    TRY(write_config(model, folder, onnx_options(options), beside, arena, diag));
    TRY(assets_write(model, folder, &bytes, &files, diag));
    return complete_tokenizer(model, folder, arena, diag);
}

static Status write(Model *model, const char *path, const WriteOptions *options,
                    Written *written, Diag *diag) {
    Arena *arena = arena_create();
    OutFolder *out;
    const char *temporary;
    Status status = outfolder_open(&out, &temporary, path, is_ours, diag);
    if (status == STATUS_OK) {
        status = fill_folder(model, temporary, options, arena, diag);
        outfolder_measure(out, &written->bytes, &written->files);
        status = outfolder_end(out, status, diag);
    }
    arena_destroy(arena);
    return status;
}

/* ---- reading ---- */

/* Where the graphs of a folder lie, as transformers.js or as Hugging Face's exporter has
 * them, and what is read: a model, or a decoder beside which its encoder is found. */
static const char *const PARTS[] = {GRAPHS, ""};
static const char *const NAMES[] = {"model", "decoder_model_merged", "decoder_model"};
enum { PART_COUNT = 2, NAME_COUNT = 3 };

static const char *find_plain(Arena *arena, const char *folder) {
    static const char *const SUFFIXES[] = {"", "_fp16"};
    for (int part = 0; part < PART_COUNT; part++)
        for (size_t suffix = 0; suffix < 2; suffix++)
            for (int i = 0; i < NAME_COUNT; i++) {
                const char *path = arena_printf(arena, "%s/%s%s%s.onnx", folder,
                                                PARTS[part], NAMES[i], SUFFIXES[suffix]);
                if (path_is_file(path)) return path;
            }
    return NULL;
}

/* Names of the ONNX files in a part of a folder, ended by NULL. */
static const char **list_graphs(Arena *arena, const char *folder, const char *part) {
    const char **names, **graphs;
    int64_t count, found = 0;
    const char *path = path_join(arena, folder, part);
    Diag *aside = diag_create(); /* a folder that cannot be listed has none */
    if (!path_is_folder(path) ||
        folder_names(&names, &count, arena, path, aside) != STATUS_OK)
        count = 0;
    diag_destroy(aside);
    graphs = ARENA_ARRAY(arena, const char *, (size_t)count + 1);
    for (int64_t i = 0; i < count; i++)
        if (text_ends_with(names[i], ".onnx") &&
            path_is_file(path_join(arena, path, names[i])))
            graphs[found++] = names[i];
    return graphs;
}

/* Whether a file is what a name stands for in another form: "model_quantized.onnx". */
static bool is_form(const char *file, const char *name) {
    const size_t length = strlen(name);
    return strncmp(file, name, length) == 0 && file[length] == '_';
}

/* A form of the first name that has any, and how many it has; NULL = none has. */
static const char *find_form(Arena *arena, const char *folder, int *forms) {
    *forms = 0;
    for (int part = 0; part < PART_COUNT; part++) {
        const char *const *graphs = list_graphs(arena, folder, PARTS[part]);
        for (int i = 0; i < NAME_COUNT; i++) {
            const char *found = NULL;
            for (const char *const *graph = graphs; *graph; graph++) {
                if (!is_form(*graph, NAMES[i])) continue;
                found = *graph;
                ++*forms;
            }
            if (found) return arena_printf(arena, "%s/%s%s", folder, PARTS[part], found);
        }
    }
    return NULL;
}

/* The file of a folder that holds its graph, or the decoder's. NULL = none, or which one
 * is not said. */
static const char *find_graph(Arena *arena, const char *folder) {
    int forms;
    const char *plain = find_plain(arena, folder);
    const char *form = plain ? NULL : find_form(arena, folder, &forms);
    return form && forms == 1 ? form : plain;
}

/* Whether there are graphs where they are looked for, be it under other names. */
static bool has_graphs(Arena *arena, const char *folder) {
    int forms;
    return find_plain(arena, folder) || find_form(arena, folder, &forms) ||
           *list_graphs(arena, folder, GRAPHS);
}

static Status no_graph(Arena *arena, const char *folder, Diag *diag) {
    enum { NAMED = 8 };
    Text found = {0};
    int64_t count = 0;
    for (int part = 0; part < PART_COUNT; part++)
        for (const char *const *g = list_graphs(arena, folder, PARTS[part]); *g; g++)
            if (count++ < NAMED)
                text_add(&found, "%s%s%s", count > 1 ? ", " : "", PARTS[part], *g);
    if (count > NAMED) text_add(&found, " and %lld more", (long long)(count - NAMED));
    diag_fail(
        diag, STATUS_FORMAT, LOC_FILE(folder), NULL,
        "expected model.onnx, decoder_model_merged.onnx or decoder_model.onnx in the "
        "folder or its " GRAPHS ", or one of them in a single other form, as "
        "model_quantized.onnx; found %s",
        found.data ? found.data : "none");
    diag_hint(diag, "give the path of the file that is to be read");
    text_free(&found);
    return STATUS_FORMAT;
}

/* A folder with weights of another kind is read from those. */
static bool probe(const char *path) {
    static const char *const WEIGHTS[] = {
        "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
        "pytorch_model.bin.index.json"};
    if (!path_is_folder(path)) return false;
    Arena *arena = arena_create();
    bool others = false;
    for (size_t i = 0; i < sizeof WEIGHTS / sizeof *WEIGHTS; i++)
        others = others || path_is_file(path_join(arena, path, WEIGHTS[i]));
    const bool found = !others && has_graphs(arena, path);
    arena_destroy(arena);
    return found;
}

static Status read_format(Model **out, const char *path, const HfOptions *options,
                          const OpTable *ops, bool verify, Diag *diag) {
    (void)options, (void)verify;
    Arena *arena = arena_create();
    const char *graph = find_graph(arena, path);
    const Status status =
        graph ? onnx_read(out, graph, ops, diag) : no_graph(arena, path, diag);
    arena_destroy(arena);
    return status;
}

const ModelFormat model_format_webfolder = {
    .name = "transformers.js",
    .what = "a folder for transformers.js",
    .ending = ".onnx/",
    .summary =
        "ONNX files with configuration and tokenizer, as transformers.js loads them",
    .probe = probe,
    .read = read_format,
    .is_ours = is_ours,
    .fields = ONNX_FIELDS,
    .options_size = sizeof(OnnxOptions),
    .defaults = &ONNX_DEFAULTS,
    .dtypes = "keep|f32|f16",
    .check = check,
    .write = write,
};
