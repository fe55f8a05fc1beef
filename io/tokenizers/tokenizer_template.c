/* Tokenizer: the post_processor of tokenizer.json, which puts special tokens around. */
#include "io/tokenizers/tokenizer_readers.h"

#include <string.h>

enum { TYPE_MAX = 127 };

static const char WHERE[] = "post_processor";

static Status fail(const Tree *processor, const char *part, Diag *diag) {
    char key[64];
    snprintf(key, sizeof key, "%s.%s", WHERE, part);
    return diag_fail(diag, STATUS_FORMAT, processor->loc, key, "%s",
                     strcmp(part, "special_tokens") == 0
                         ? "expected token numbers for each special token of a template"
                         : "expected special tokens and the texts A and B, each once");
}

static Status add_piece(Template *template, int64_t id, int64_t type,
                        const Tree *processor, Diag *diag) {
    if (template->count == TEMPLATE_MAX)
        return diag_fail(diag, STATUS_FORMAT, processor->loc, WHERE,
                         "expected at most %d tokens in a template", TEMPLATE_MAX);
    template->pieces[template->count++] = (TemplatePiece){(int32_t)id, (int32_t)type};
    return STATUS_OK;
}

/* Appends the numbers of a special token, which may stand for several. */
static Status add_special(Template *template, const Tokenizer *self, const char *name,
                          int64_t type, const Tree *processor, Diag *diag) {
    const Tree *specials, *ids = NULL;
    TRY(json_member(&specials, processor, "special_tokens", TREE_MAP, WHERE, diag));
    const Tree *entry = tree_get(specials, name);
    if (entry) TRY(json_member(&ids, entry, "ids", TREE_LIST, WHERE, diag));
    if (!ids || ids->count == 0) return fail(processor, "special_tokens", diag);
    for (const Tree *id = ids->first; id; id = id->next) {
        if (id->kind != TREE_INT || !tokenizer_token(self, (int32_t)id->integer) ||
            id->integer != (int32_t)id->integer)
            return fail(processor, "special_tokens", diag);
        TRY(add_piece(template, id->integer, type, processor, diag));
    }
    return STATUS_OK;
}

/* Reads one piece, {"SpecialToken" or "Sequence": {"id": ..., "type_id": ...}}. */
static Status read_piece(Template *template, const Tokenizer *self, const Tree *piece,
                         const char *part, const Tree *processor, Diag *diag) {
    const Tree *body = piece->kind == TREE_MAP && piece->count == 1 ? piece->first : NULL;
    const Tree *id = tree_get(body, "id"), *type = tree_get(body, "type_id");
    if (!id || id->kind != TREE_STRING || !type || type->kind != TREE_INT ||
        type->integer < 0 || type->integer > TYPE_MAX)
        return fail(processor, part, diag);
    if (strcmp(body->key, "SpecialToken") == 0)
        return add_special(template, self, id->string, type->integer, processor, diag);
    bool first = strcmp(id->string, "A") == 0, second = strcmp(id->string, "B") == 0;
    if (strcmp(body->key, "Sequence") != 0 || !(first || second))
        return fail(processor, part, diag);
    return add_piece(template, first ? PIECE_FIRST : PIECE_SECOND, type->integer,
                     processor, diag);
}

static int count_pieces(const Template *template, int32_t id) {
    int count = 0;
    for (int i = 0; i < template->count; i++) count += template->pieces[i].id == id;
    return count;
}

static Status read_template(Template *template, const Tokenizer *self, const char *part,
                            int texts, const Tree *processor, Diag *diag) {
    const Tree *list;
    TRY(json_member(&list, processor, part, TREE_LIST, WHERE, diag));
    if (!list) return fail(processor, part, diag);
    template->count = 0;
    for (const Tree *piece = list->first; piece; piece = piece->next)
        TRY(read_piece(template, self, piece, part, processor, diag));
    if (count_pieces(template, PIECE_FIRST) != 1 ||
        count_pieces(template, PIECE_SECOND) != texts - 1)
        return fail(processor, part, diag);
    return STATUS_OK;
}

/* A token of BertProcessing: ["[SEP]", 102]. */
static Status read_pair(int32_t *id, const Tokenizer *self, const char *key,
                        const Tree *processor, Diag *diag) {
    const Tree *list;
    TRY(json_member(&list, processor, key, TREE_LIST, WHERE, diag));
    const Tree *number = list && list->count == 2 ? list->last : NULL;
    if (!number || number->kind != TREE_INT || number->integer < 0 ||
        number->integer >= tokenizer_size(self))
        return diag_fail(diag, STATUS_FORMAT, processor->loc, WHERE,
                         "%s: expected a token and its number", key);
    *id = (int32_t)number->integer;
    return STATUS_OK;
}

/* BertProcessing, and RobertaProcessing, which separates a pair twice. */
static Status read_bert(Tokenizer *self, const Tree *processor, bool twice, Diag *diag) {
    int32_t cls = -1, sep = -1;
    TRY(read_pair(&cls, self, "cls", processor, diag));
    TRY(read_pair(&sep, self, "sep", processor, diag));
    (twice ? template_roberta : template_bert)(self, cls, sep);
    return STATUS_OK;
}

typedef struct TemplateReading {
    Tokenizer *self;
    bool done; /* a template was found */
} TemplateReading;

static Status read_processor(void *user, const Tree *map, const char *type,
                             const char *where, Diag *diag) {
    TemplateReading *reading = user;
    Tokenizer *self = reading->self;
    if (strcmp(type, "ByteLevel") == 0 && self->kind == MODEL_BPE) return STATUS_OK;
    if (reading->done)
        return diag_fail(diag, STATUS_FORMAT, map->loc, where,
                         "expected one template, found '%.64s' too", type);
    reading->done = true;
    if (strcmp(type, "BertProcessing") == 0) return read_bert(self, map, false, diag);
    if (strcmp(type, "RobertaProcessing") == 0) return read_bert(self, map, true, diag);
    if (strcmp(type, "TemplateProcessing") == 0) {
        TRY(read_template(&self->single, self, "single", 1, map, diag));
        return read_template(&self->pair, self, "pair", 2, map, diag);
    }
    return diag_fail(diag, STATUS_FORMAT, map->loc, "post_processor.type",
                     "expected TemplateProcessing or BertProcessing, found %.64s", type);
}

Status template_read(Tokenizer *self, const Tree *root, Diag *diag) {
    const Tree *map;
    TemplateReading reading = {self, false};
    TRY(json_member(&map, root, WHERE, TREE_MAP, "", diag));
    if (!map && self->kind == MODEL_WORDPIECE)
        return diag_fail(diag, STATUS_FORMAT, root->loc, "post_processor.type",
                         "expected TemplateProcessing or BertProcessing, found none");
    template_plain(self);
    return json_steps(map, WHERE, "processors", read_processor, &reading, diag);
}
