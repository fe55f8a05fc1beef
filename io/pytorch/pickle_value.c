/* Pickled values: see pickle_value.h. */
#include "io/pytorch/pickle_value.h"

#include <string.h>

const char *pickle_kind_name(PickleKind kind) {
    static const char *const NAMES[] = {
        [PICKLE_NONE] = "None",     [PICKLE_BOOL] = "bool",
        [PICKLE_INT] = "integer",   [PICKLE_LONG] = "integer",
        [PICKLE_REAL] = "float",    [PICKLE_TEXT] = "string",
        [PICKLE_BYTES] = "bytes",   [PICKLE_TUPLE] = "tuple",
        [PICKLE_LIST] = "list",     [PICKLE_DICT] = "dict",
        [PICKLE_NAME] = "name",     [PICKLE_STORAGE] = "storage",
        [PICKLE_TENSOR] = "tensor",
    };
    return NAMES[kind];
}

bool pickle_take_room(PickleSource *source, size_t count) {
    if (count > source->room) return false;
    source->room -= count;
    return true;
}

Status pickle_fail(const PickleSource *source, size_t at, const char *fmt, ...) {
    va_list args;
    Text text = {0};
    va_start(args, fmt);
    text_add_list(&text, fmt, args);
    va_end(args);
    diag_fail(source->diag, STATUS_FORMAT, LOC_FILE(source->path), source->name,
              "byte %zu: %s", at, text.data);
    text_free(&text);
    return STATUS_FORMAT;
}

bool pickle_is_text(const PickleValue *value, const char *text) {
    return value && value->kind == PICKLE_TEXT && strlen(text) == value->text.length &&
           memcmp(text, value->text.text, value->text.length) == 0;
}

const PickleValue *pickle_get(const PickleValue *dict, const char *key) {
    if (!dict || dict->kind != PICKLE_DICT) return NULL;
    for (size_t i = dict->list.count; i >= 2; i -= 2)
        if (pickle_is_text(dict->list.items[i - 2], key)) return dict->list.items[i - 1];
    return NULL;
}
