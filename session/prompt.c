/* Prompts of language models. */
#include "session/prompt.h"

#include "io/files/json.h"
#include "io/files/path.h"
#include "io/formats/model_vocabulary.h"
#include "passes/nodes.h"

#include <string.h>

static const size_t PROMPTS_BYTES_MAX = (size_t)256 << 20;

static Status read_json_line(Line *prompt, Arena *arena, Diag *diag) {
    const TextSpan line = prompt->text;
    Tree *map;
    TRY(json_parse_line(&map, arena, prompt->at.file, prompt->at.line, line.text,
                        line.length, diag));
    const Tree *text = tree_get_nonnull(map, "prompt");
    if (!text || text->kind != TREE_STRING)
        return diag_fail(diag, STATUS_FORMAT, prompt->at, NULL,
                         "expected a map with \"prompt\", a text");
    prompt->text = (TextSpan){text->string, strlen(text->string)};
    return STATUS_OK;
}

Status prompts_read(Line **out, int64_t *count, int64_t *all, Arena *arena,
                    const char *path, Diag *diag) {
    const bool json = path_is_json_lines(path);
    int lines, in_file;
    TRY(lines_read(out, &lines, &in_file, arena, path, PROMPTS_BYTES_MAX, diag));
    *count = lines;
    *all = in_file;
    for (int i = 0; i < lines && json; i++) TRY(read_json_line(&(*out)[i], arena, diag));
    if (lines > 0) return STATUS_OK;
    return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                     "expected a prompt on each line, found none");
}

Status prompt_tokens(int32_t **tokens, int64_t *count, Arena *arena,
                     const Tokenizer *tokenizer, TextSpan prompt, Loc at, Diag *diag) {
    Encoding encoding = {0};
    const Status status = tokenizer_encode_plain(tokenizer, &encoding, prompt, at, diag);
    const int32_t bos = prompt.length > 0 ? tokenizer_begin(tokenizer)
                                          : tokenizer_specials(tokenizer)->bos;
    *count = 0;
    *tokens = ARENA_ARRAY(arena, int32_t, encoding.length + 1);
    if (bos >= 0) (*tokens)[(*count)++] = bos;
    for (size_t i = 0; i < encoding.length; i++) (*tokens)[(*count)++] = encoding.ids[i];
    encoding_free(&encoding);
    if (status != STATUS_OK || *count > 0) return status;
    return diag_fail(diag, STATUS_USAGE, LOC_NONE, "prompt",
                     "expected text: the vocabulary has no token that begins one");
}

/* Warns of more positions than the configuration says that the model knows. */
static void warn_of_positions(const Model *model, int64_t count, int64_t made,
                              Diag *diag) {
    static const char KEY[] = "max_position_embeddings";
    const Tree *known = tree_get(model->config, KEY);
    if (!known || known->kind != TREE_INT || count + made <= known->integer) return;
    diag_warn(
        diag, LOC_NONE, NULL,
        "a prompt of %lld tokens and %lld to make go beyond the %lld positions that "
        "the model was made for (%s)",
        (long long)count, (long long)made, (long long)known->integer, KEY);
}

Status prompt_check_positions(const Model *model, int64_t count, int64_t made,
                              Diag *diag) {
    const int64_t most = graph_positions(model->graph);
    if (most == 0) warn_of_positions(model, count, made, diag);
    if (most == 0 || count + made <= most) return STATUS_OK;
    Status status = diag_fail(diag, STATUS_MODEL, LOC_NONE, "max_tokens",
                              "expected at most %lld positions, the model's table, found "
                              "a prompt of %lld tokens and %lld to make",
                              (long long)most, (long long)count, (long long)made);
    if (count < most)
        diag_hint(diag, "max_tokens of at most %lld", (long long)(most - count));
    else
        diag_hint(diag, "take a shorter prompt");
    return status;
}

Status prompt_check_vocabulary(const Model *model, int64_t vocabulary,
                               const Tokenizer *tokenizer, Diag *diag) {
    if (vocabulary >= tokenizer_size(tokenizer))
        return vocabulary_check(model, "the model",
                                vocabulary_of(tokenizer, model->arena), "tokenizer",
                                LOC_NONE, diag);
    return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                     "expected a tokenizer of at most the model's %lld tokens, found %d",
                     (long long)vocabulary, (int)tokenizer_size(tokenizer));
}
