/* Data sets: the table of formats, binding of `data:` entries, checks formats share. */
#include "io/datasets/dataset.h"
#include "io/files/file.h"

#include <inttypes.h>
#include <string.h>

#define FORMAT(name) extern const DataFormat format_##name;
#include "io/datasets/formats.def"
#undef FORMAT

static const DataFormat *const FORMATS[] = {
#define FORMAT(name) &format_##name,
#include "io/datasets/formats.def"
#undef FORMAT
    NULL};

enum { FORMAT_COUNT = sizeof FORMATS / sizeof *FORMATS - 1 };

const DataFormat *const *dataformat_list(void) {
    return FORMATS;
}

const DataFormat *dataformat_find(const char *name) {
    for (int i = 0; i < FORMAT_COUNT; i++)
        if (strcmp(FORMATS[i]->name, name) == 0) return FORMATS[i];
    return NULL;
}

/* --- binding --- */

static void hint_formats(const char *word, Diag *diag) {
    const char *names[FORMAT_COUNT];
    Text list = {0};
    for (int i = 0; i < FORMAT_COUNT; i++) {
        names[i] = FORMATS[i]->name;
        text_add(&list, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = word ? name_nearest(word, names, FORMAT_COUNT) : NULL;
    if (near)
        diag_hint(diag, "did you mean '%s'?", near);
    else
        diag_hint(diag, "formats: %s", list.data);
    text_free(&list);
}

static Status format_choose(const DataFormat **out, Arena *arena, const Tree *spec,
                            Diag *diag) {
    const char *path = tree_path(arena, spec);
    if (spec->kind != TREE_MAP)
        return diag_fail(diag, STATUS_RECIPE, spec->loc, path,
                         "expected a map with 'format', found %s",
                         tree_kind_name(spec->kind));
    const Tree *name = tree_get(spec, "format");
    if (!name || name->kind != TREE_STRING) {
        Status status = diag_fail(diag, STATUS_RECIPE, name ? name->loc : spec->loc, path,
                                  "expected 'format' to name a format of data sets");
        hint_formats(NULL, diag);
        return status;
    }
    *out = dataformat_find(name->string);
    if (*out) return STATUS_OK;
    Status status = diag_fail(diag, STATUS_RECIPE, name->loc, tree_path(arena, name),
                              "unknown format '%s'", name->string);
    hint_formats(name->string, diag);
    return status;
}

/* The format's fields and one for `format` itself, so that all of the entry binds at
 * once; its value goes behind the options. */
static const Field *fields_with_format(Arena *arena, const DataFormat *format,
                                       size_t offset) {
    int count = 0;
    while (format->fields[count].name) count++;
    Field *fields = ARENA_ARRAY(arena, Field, (size_t)count + 2);
    memcpy(fields, format->fields, (size_t)count * sizeof *fields);
    fields[count] = (Field){.name = "format",
                            .kind = FIELD_STRING,
                            .offset = offset,
                            .required = true,
                            .help = "format of the data set"};
    return fields;
}

/* Whether a name is among those that are joined by '|'; NULL = none. */
static bool is_among(const char *names, const char *name) {
    size_t length = strlen(name);
    for (const char *at = names; at && *at; at += strcspn(at, "|"), at += *at == '|')
        if (strcspn(at, "|") == length && memcmp(at, name, length) == 0) return true;
    return false;
}

bool dataset_is_path(const DataFormat *format, const char *name) {
    return is_among(format->paths, name);
}

bool dataset_is_tolerance(const DataFormat *format, const char *name) {
    return is_among(format->tolerances, name);
}

Status dataset_bind(const DataFormat **format, void **options, Arena *arena,
                    const Tree *spec, const char *folder, Diag *diag) {
    const DataFormat *chosen;
    TRY(format_choose(&chosen, arena, spec, diag));
    const size_t align = sizeof(void *);
    size_t offset = (chosen->options_size + align - 1) / align * align;
    void *bound = arena_alloc(arena, offset + sizeof(const char *));
    if (chosen->defaults) memcpy(bound, chosen->defaults, chosen->options_size);
    const Field *fields = fields_with_format(arena, chosen, offset);
    TRY(fields_bind(fields, spec, bound, arena, STATUS_RECIPE, diag));
    for (const Field *field = chosen->fields; field->name; field++) {
        if (!dataset_is_path(chosen, field->name)) continue;
        char *at = (char *)bound + field->offset;
        StringList one = {(const char **)at, 1};
        if (field->kind == FIELD_STRINGS) one = *(StringList *)at;
        for (int i = 0; i < one.count; i++)
            if (one.items[i]) one.items[i] = path_join(arena, folder, one.items[i]);
    }
    if (chosen->check) TRY(chosen->check(bound, arena, spec->loc, diag));
    *format = chosen;
    *options = bound;
    return STATUS_OK;
}

Status dataset_open(Batches **out, const DataFormat *format, const void *options, Loc at,
                    Diag *diag) {
    *out = NULL;
    return format->open(out, options, at, diag);
}

/* --- for formats --- */

Status dataset_slice(int64_t *count, int64_t total, int64_t offset, int64_t limit,
                     const char *path, Loc at, Diag *diag) {
    int64_t left = offset < total ? total - offset : 0;
    if (left == 0 || limit > left)
        return diag_fail(diag, STATUS_RECIPE, at, limit > left ? "limit" : "offset",
                         "expected at least %" PRId64 " samples from %" PRId64
                         " on, %s has %" PRId64,
                         limit ? limit : 1, offset, path, total);
    *count = limit ? limit : left;
    return STATUS_OK;
}

Status dataset_check_sample(const Batches *data, int64_t sample, Diag *diag) {
    if (sample >= 0 && sample < data->count) return STATUS_OK;
    return diag_fail(diag, STATUS_INTERNAL, LOC_FILE(data->name), NULL,
                     "no sample %" PRId64 " of %" PRId64, sample, data->count);
}

Status dataset_check_tokens(const Batches *data, int64_t sample, int64_t tokens,
                            Diag *diag) {
    TRY(dataset_check_sample(data, sample, diag));
    const int64_t length = data->length(data, sample);
    if (length <= tokens) return STATUS_OK;
    return diag_fail(diag, STATUS_INTERNAL, LOC_FILE(data->name), NULL,
                     "sample %" PRId64 " has %" PRId64 " tokens, %" PRId64
                     " were asked for",
                     sample, length, tokens);
}

Status dataset_classes(int64_t *classes, const int32_t *labels, int64_t count,
                       int64_t first, const char *path, Diag *diag) {
    int64_t largest = -1;
    for (int64_t i = 0; i < count; i++) {
        int64_t label = labels[i];
        if (label < 0 || (*classes && label >= *classes)) {
            Status status =
                diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                          "label %" PRId64 " of sample %" PRId64 " is out of range",
                          label, first + i);
            if (*classes) diag_hint(diag, "labels lie in [0, %" PRId64 ")", *classes);
            return status;
        }
        if (label > largest) largest = label;
    }
    if (*classes == 0) *classes = largest + 1;
    return STATUS_OK;
}
