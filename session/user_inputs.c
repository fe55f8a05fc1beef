/* User inputs: see user_inputs.h. */
#include "session/user_inputs.h"

#include "io/datasets/preprocess.h"
#include "io/files/json.h"
#include "io/files/lines.h"
#include "io/tokenizers/unicode.h"
#include "io/tokenizers/word_split.h"
#include "ir/model_parts.h"
#include "passes/nodes.h"

#include <string.h>

static const size_t JSONL_BYTES_MAX = (size_t)256 << 20;

/* ---- texts ---- */

void user_texts_of(UserTexts *out, Arena *arena, const StringList *texts) {
    out->items = ARENA_ARRAY(arena, UserText, (size_t)texts->count);
    out->count = texts->count;
    for (int i = 0; i < texts->count; i++)
        out->items[i] = (UserText){.first = {texts->items[i], strlen(texts->items[i])},
                                   .at = LOC_FILE("--text")};
}

/* One line of JSON Lines. */
static Status read_line(UserText *out, Arena *arena, const Line *line, Diag *diag) {
    Tree *map;
    TRY(json_parse_line(&map, arena, line->at.file, line->at.line, line->text.text,
                        line->text.length, diag));
    const Tree *first = tree_get_nonnull(map, "text"),
               *second = tree_get_nonnull(map, "text_pair");
    *out = (UserText){.at = line->at, .pair = second != NULL};
    if (!first || first->kind != TREE_STRING || (second && second->kind != TREE_STRING))
        return diag_fail(diag, STATUS_FORMAT, out->at, NULL,
                         "expected a map with \"text\", and \"text_pair\" for the second "
                         "one of a pair");
    out->first = (TextSpan){first->string, strlen(first->string)};
    if (second) out->second = (TextSpan){second->string, strlen(second->string)};
    return STATUS_OK;
}

Status user_texts_read(UserTexts *out, Arena *arena, const char *path, Diag *diag) {
    Line *lines;
    int count;
    TRY(lines_read(&lines, &count, NULL, arena, path, JSONL_BYTES_MAX, diag));
    *out = (UserTexts){.items = ARENA_ARRAY(arena, UserText, (size_t)count + 1)};
    for (; out->count < count; out->count++)
        TRY(read_line(&out->items[out->count], arena, &lines[out->count], diag));
    if (out->count > 0) return STATUS_OK;
    return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                     "expected a map with \"text\" on every line, found none");
}

Status user_tokenizer_read(Tokenizer **out, const char *path, const Model *model,
                           const char *name, Diag *diag) {
    if (path) return tokenizer_read(out, path, diag);
    if (tokenizer_of_model(model)) return tokenizer_read_model(out, model, name, diag);
    if (model_asset(model, SOURCE_TOKENIZER))
        return tokenizer_read_asset(out, model, SOURCE_TOKENIZER, name, diag);
    return diag_fail(diag, STATUS_USAGE, LOC_NONE, "tokenizer",
                     "expected the path of one: %s has no tokenizer", name);
}

static void put_integers(Arena *arena, Tree *map, const char *key, const int32_t *values,
                         size_t count) {
    Tree *list = tree_put_list(arena, map, key);
    for (size_t i = 0; i < count; i++) tree_add_int(arena, list, values[i]);
}

static void put_tokens(Arena *arena, Tree *map, const Encoding *encoding, bool pair,
                       const Tokenizer *tokenizer) {
    put_integers(arena, map, "input_ids", encoding->ids, encoding->length);
    if (pair)
        put_integers(arena, map, "token_type_ids", encoding->types, encoding->length);
    Tree *tokens = tree_put_list(arena, map, "tokens");
    for (size_t i = 0; i < encoding->length; i++)
        tree_add_string(arena, tokens, tokenizer_token(tokenizer, encoding->ids[i]));
}

Status user_text_tokens(Tree **out, Arena *arena, const UserText *text,
                        const Tokenizer *tokenizer, Diag *diag) {
    Encoding encoding = {0};
    Tree *map = *out = tree_new(arena, TREE_MAP, LOC_NONE);
    const Status status =
        tokenizer_encode(tokenizer, &encoding, text->first,
                         text->pair ? &text->second : NULL, 0, text->at, diag);
    if (status == STATUS_OK) put_tokens(arena, map, &encoding, text->pair, tokenizer);
    encoding_free(&encoding);
    return status;
}

/* Checks that the model takes nothing but what there is; the names end with NULL. */
static Status check_inputs(const Graph *graph, const char *const *known, const char *what,
                           Diag *diag) {
    if (!graph_find_input(graph, known[0]))
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, known[0],
                         "the model has no such input: it does not take %s", what);
    for (const Node *node = graph->first; node; node = node->next) {
        bool found = !node->name;
        for (int i = 0; known[i] && !found; i++)
            found = strcmp(node->name, known[i]) == 0;
        if (!found)
            return diag_fail(diag, STATUS_MODEL, LOC_NONE, node->name,
                             "the model has this input, too: it does not take %s alone",
                             what);
    }
    return STATUS_OK;
}

/* Texts as rows of tokens. */
typedef struct TokenRows {
    Arena *arena;
    int32_t **ids, **types; /* [count][length] */
    size_t *length;
    size_t longest;
} TokenRows;

/* Finds the words of a text. */
static Status cut_words(UserText *text, Arena *arena, Diag *diag) {
    size_t begin = 0, end = 0, count = 0;
    const TextSpan span = text->first;
    if (text->pair)
        return diag_fail(diag, STATUS_USAGE, text->at, NULL,
                         "expected one text, as the model labels words, found a pair");
    if (utf8_check(span.text, span.length) < span.length)
        return diag_fail(diag, STATUS_FORMAT, text->at, NULL, "invalid UTF-8");
    for (; word_next(SPLIT_WORDS, span.text, span.length, &begin, &end); begin = end)
        count++;
    text->words = ARENA_ARRAY(arena, UserWord, count + 1);
    for (begin = end = 0; word_next(SPLIT_WORDS, span.text, span.length, &begin, &end);
         begin = end)
        text->words[text->word_count++] =
            (UserWord){{span.text + begin, end - begin}, -1};
    return STATUS_OK;
}

/* Encodes the words of a text and notes where their first tokens are. */
static Status encode_words(Encoding *encoding, UserText *text, const Tokenizer *tokenizer,
                           size_t most, Arena *arena, Diag *diag) {
    const size_t count = (size_t)text->word_count;
    TextSpan *words = ARENA_ARRAY(arena, TextSpan, count + 1);
    for (size_t w = 0; w < count; w++) words[w] = text->words[w].text;
    TRY(tokenizer_encode_words(tokenizer, encoding, words, count, most, text->at, diag));
    for (size_t t = encoding->length; t-- > 0;)
        if (encoding->words[t] >= 0) text->words[encoding->words[t]].token = (int64_t)t;
    return STATUS_OK;
}

/* Encodes a text to at most `most` tokens, 0 = any number. */
static Status encode_text(Encoding *encoding, UserText *text, const Tokenizer *tokenizer,
                          size_t most, Arena *arena, Diag *diag) {
    if (text->words) return encode_words(encoding, text, tokenizer, most, arena, diag);
    return tokenizer_encode(tokenizer, encoding, text->first,
                            text->pair ? &text->second : NULL, most, text->at, diag);
}

/* Finds the second text of a pair among the tokens: it has types 1, or stands between two
 * separators and a last one, as RoBERTa has it. */
static void find_second(UserText *text, const Encoding *encoding, int32_t sep) {
    const size_t last = encoding->length > 0 ? encoding->length - 1 : 0;
    size_t begin = 0;
    while (begin < last && encoding->types[begin] == 0) begin++;
    for (size_t i = 1; begin == last && i < last; i++)
        if (encoding->ids[i - 1] == sep && encoding->ids[i] == sep) begin = i + 1;
    text->second_begin = text->pair ? begin : last;
    text->second_end = last;
}

static Status encode_texts(TokenRows *rows, UserTexts *texts, const Tokenizer *tokenizer,
                           size_t most, bool words, Diag *diag) {
    Encoding encoding = {0};
    Status status = STATUS_OK;
    for (int i = 0; i < texts->count && status == STATUS_OK; i++) {
        UserText *text = &texts->items[i];
        if (words) status = cut_words(text, rows->arena, diag);
        if (status == STATUS_OK)
            status = encode_text(&encoding, text, tokenizer, 0, rows->arena, diag);
        if (status == STATUS_OK && most > 0 && encoding.length > most) {
            diag_warn(diag, text->at, NULL,
                      "text %d has %zu tokens: cut to the model's %zu positions", i + 1,
                      encoding.length, most);
            for (int w = 0; w < text->word_count; w++) text->words[w].token = -1;
            status = encode_text(&encoding, text, tokenizer, most, rows->arena, diag);
        }
        if (status != STATUS_OK) break;
        const size_t bytes = encoding.length * sizeof(int32_t);
        rows->length[i] = encoding.length;
        rows->ids[i] = ARENA_ARRAY(rows->arena, int32_t, encoding.length);
        rows->types[i] = ARENA_ARRAY(rows->arena, int32_t, encoding.length);
        if (bytes > 0) memcpy(rows->ids[i], encoding.ids, bytes);
        if (bytes > 0) memcpy(rows->types[i], encoding.types, bytes);
        if (encoding.length > rows->longest) rows->longest = encoding.length;
        text->ids = rows->ids[i];
        find_second(text, &encoding, tokenizer_specials(tokenizer)->sep);
    }
    encoding_free(&encoding);
    if (status == STATUS_OK && rows->longest == 0)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "expected a text with at least one token");
    return status;
}

/* Adds an input of integers, zeroed, if the model has one of this name. */
static Status add_input(Checkpoint *into, const Graph *graph, const char *name, int rank,
                        const int64_t *dim, void **data, Diag *diag) {
    const Node *node = graph_find_input(graph, name);
    *data = NULL;
    if (!node) return STATUS_OK;
    NamedTensor *named = &into->tensors[into->count];
    named->name = node->name;
    TRY(tensor_create(&named->tensor, node->type.dtype, rank, dim, diag));
    into->count++;
    return tensor_writable(&named->tensor, data, diag);
}

static Status fill_tokens(Checkpoint *into, const TokenRows *rows, int count, int32_t pad,
                          const Graph *graph, Diag *diag) {
    const int64_t dim[] = {count, (int64_t)rows->longest};
    void *ids, *mask, *types;
    TRY(add_input(into, graph, INPUT_IDS, 2, dim, &ids, diag));
    TRY(add_input(into, graph, INPUT_MASK, 2, dim, &mask, diag));
    TRY(add_input(into, graph, INPUT_TYPES, 2, dim, &types, diag));
    for (int i = 0; i < count; i++)
        for (size_t j = 0; j < rows->longest; j++) {
            const size_t at = (size_t)i * rows->longest + j;
            const bool inside = j < rows->length[i];
            ((int32_t *)ids)[at] = inside ? rows->ids[i][j] : pad;
            if (mask) ((int32_t *)mask)[at] = inside;
            if (types) ((int32_t *)types)[at] = inside ? rows->types[i][j] : 0;
        }
    checkpoint_sort(into);
    return STATUS_OK;
}

Status user_inputs_of_texts(Checkpoint **out, UserTexts *texts,
                            const Tokenizer *tokenizer, const Model *model, Diag *diag) {
    static const char *const KNOWN[] = {INPUT_IDS, INPUT_MASK, INPUT_TYPES, NULL};
    const Graph *graph = model->graph;
    const int32_t pad = tokenizer_specials(tokenizer)->pad;
    const size_t count = (size_t)texts->count;
    TRY(check_inputs(graph, KNOWN, "texts", diag));
    Checkpoint *into = checkpoint_create("texts", 3);
    TokenRows rows = {.arena = into->arena,
                      .ids = ARENA_ARRAY(into->arena, int32_t *, count),
                      .types = ARENA_ARRAY(into->arena, int32_t *, count),
                      .length = ARENA_ARRAY(into->arena, size_t, count)};
    Status status = encode_texts(&rows, texts, tokenizer, (size_t)graph_positions(graph),
                                 graph_task(graph) == TASK_LABEL_TOKENS, diag);
    if (status == STATUS_OK)
        status = fill_tokens(into, &rows, texts->count, pad < 0 ? 0 : pad, graph, diag);
    if (status == STATUS_OK)
        *out = into;
    else
        checkpoint_destroy(into);
    return status;
}

/* ---- images ---- */

static Status read_preprocess(Preprocess *out, Arena *arena, const char *path,
                              const Model *model, Diag *diag) {
    static const char NAME[] = "preprocessor_config.json";
    const ModelAsset *asset = model_asset(model, NAME);
    if (path) return preprocess_read(out, path, arena, diag);
    if (asset)
        return preprocess_parse(out, NAME, (const char *)asset->data, asset->length,
                                arena, diag);
    return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                     "expected --preprocessor PATH: the model has no %s", NAME);
}

/* Prepares one image as values [channels, rows, cols]. */
static Status read_image(float *out, const char *path, const Preprocess *preprocess,
                         const int64_t *dim, Diag *diag) {
    const ImageOptions options = {.color = dim[1] == 1 ? IMAGE_GRAY : IMAGE_RGB,
                                  .background = preprocess->background,
                                  .pixels = IMAGE_PIXELS_MAX};
    Image file = {0}, image = {0};
    TRY(image_read(&file, path, &options, diag));
    Status status = preprocess_image(&image, &file, preprocess, path, diag);
    image_free(&file);
    if (status != STATUS_OK) return status;
    if (image.channels != dim[1] || image.rows != dim[2] || image.cols != dim[3])
        status = diag_fail(
            diag, STATUS_MODEL, LOC_FILE(path), INPUT_PIXELS,
            "expected %lld x %lld pixels of %lld channels, prepared %lld x "
            "%lld of %lld",
            (long long)dim[2], (long long)dim[3], (long long)dim[1],
            (long long)image.rows, (long long)image.cols, (long long)image.channels);
    const int64_t pixels = image.rows * image.cols;
    for (int64_t c = 0; c < image.channels && status == STATUS_OK; c++)
        for (int64_t p = 0; p < pixels; p++)
            out[c * pixels + p] =
                preprocess_value(preprocess, c, image.pixels[p * image.channels + c]);
    image_free(&image);
    return status;
}

Status user_inputs_of_images(Checkpoint **out, const StringList *paths,
                             const char *preprocessor, const Model *model, Diag *diag) {
    static const char *const KNOWN[] = {INPUT_PIXELS, NULL};
    const Graph *graph = model->graph;
    Preprocess preprocess;
    void *values;
    TRY(check_inputs(graph, KNOWN, "images", diag));
    const Type *type = &graph_find_input(graph, INPUT_PIXELS)->type;
    const int64_t dim[] = {paths->count, type->dim[1], type->dim[2], type->dim[3]};
    if (type->rank != 4 || type->dtype != DTYPE_F32 || dim[1] < 1 || dim[2] < 1 ||
        dim[3] < 1)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, INPUT_PIXELS,
                         "expected a model of images with one size");
    Checkpoint *into = checkpoint_create("images", 1);
    Status status = read_preprocess(&preprocess, into->arena, preprocessor, model, diag);
    if (status == STATUS_OK)
        status = add_input(into, graph, INPUT_PIXELS, 4, dim, &values, diag);
    for (int i = 0; i < paths->count && status == STATUS_OK; i++)
        status = read_image((float *)values + i * dim[1] * dim[2] * dim[3],
                            paths->items[i], &preprocess, dim, diag);
    if (status == STATUS_OK)
        *out = into;
    else
        checkpoint_destroy(into);
    return status;
}
