/* Save: see save.h. */
#include "io/formats/save.h"

#include "ir/cast.h"
#include "ir/verify.h"

#include <stdlib.h>
#include <string.h>

static const char DTYPES[] = "keep|f32|f16|bf16";

static bool keeps_dtypes(const ModelOutput *output) {
    return strcmp(output->options.dtype, "keep") == 0;
}

static const char *dtypes_of(const ModelFormat *format) {
    return format->dtypes ? format->dtypes : DTYPES;
}

/* ---- binding ---- */

/* The format whose ending the path has, with a name in front of it. */
static const ModelFormat *format_of_path(const char *path) {
    const ModelFormat *const *format = model_format_list();
    for (; *format; format++)
        if ((*format)->write && text_ends_with(path, (*format)->ending) &&
            strcmp(path, (*format)->ending) != 0)
            break;
    return *format;
}

static Status unknown_ending(const char *path, Loc at, Status status, Diag *diag) {
    Text endings = {0};
    for (const ModelFormat *const *f = model_format_list(); *f; f++)
        if ((*f)->write)
            text_add(&endings, "%s%s (%s)", endings.length ? ", " : "", (*f)->ending,
                     (*f)->name);
    diag_fail(diag, status, at, "output",
              "expected a path that ends in one of %s; found '%s'", endings.data, path);
    diag_hint(diag, "`compress formats` tells what each of them holds and who reads it");
    text_free(&endings);
    return status;
}

/* Takes `dtype`, which every format has, out of the map; the rest is the format's own. */
static Status bind_dtype(ModelOutput *out, Arena *arena, const Tree *value, Status status,
                         Diag *diag) {
    const Field field = {.name = "dtype",
                         .kind = FIELD_CHOICE,
                         .choices = dtypes_of(out->format),
                         .help = "type of the weights"};
    int choice = 0, length;
    if (value) TRY(field_set(&field, value, &choice, arena, status, diag));
    const char *name = field_choice_name(&field, choice, &length);
    out->options.dtype = arena_strndup(arena, name, (size_t)length);
    return STATUS_OK;
}

static Status bind_options(ModelOutput *out, Arena *arena, const Tree *map, Status status,
                           Diag *diag) {
    const ModelFormat *format = out->format;
    void *options = ARENA_ARRAY(arena, char, format->options_size + 1);
    if (format->defaults) memcpy(options, format->defaults, format->options_size);
    out->options.options = options;
    if (format->fields)
        return fields_bind(format->fields, map, options, arena, status, diag);
    if (!map->first) return STATUS_OK;
    diag_fail(diag, status, map->first->key_loc, tree_path(arena, map->first),
              "unknown key");
    diag_hint(diag, "known keys: path, dtype");
    return status;
}

bool output_same_format(const char *a, const char *b) {
    const ModelFormat *format = format_of_path(a);
    return format && format == format_of_path(b);
}

Status output_bind(ModelOutput *out, Arena *arena, const Tree *value, Status status,
                   Diag *diag) {
    const bool is_map = value->kind == TREE_MAP;
    const Tree *path = is_map ? tree_get(value, "path") : value, *dtype = NULL;
    Tree *rest = tree_new(arena, TREE_MAP, value->loc);
    if (value->key) /* so that paths are whole; a list looks for its own */
        rest->key = value->key, rest->parent = value->parent;
    *out = (ModelOutput){.at = value->loc};
    if (!path || path->kind != TREE_STRING || !*path->string)
        return diag_fail(diag, status, path ? path->loc : value->loc, "output",
                         "expected a path, or a map with `path`");
    out->path = arena_strdup(arena, path->string);
    out->format = format_of_path(out->path);
    if (!out->format) return unknown_ending(out->path, path->loc, status, diag);
    for (const Tree *own = is_map ? value->first : NULL; own; own = own->next) {
        if (strcmp(own->key, "dtype") == 0)
            dtype = own;
        else if (own != path)
            tree_append(arena, rest, own->key, own->key_loc, tree_copy(arena, own));
    }
    TRY(bind_dtype(out, arena, dtype, status, diag));
    return bind_options(out, arena, rest, status, diag);
}

/* ---- manual ---- */

void output_document_format(Text *text, const ModelFormat *format) {
    const bool reads = format->read, writes = format->write;
    text_add(text, "%-12s %-14s %-5s %-6s %s\n", format->name,
             writes ? format->ending : "", reads ? "reads" : "", writes ? "writes" : "",
             format->summary);
    if (!writes) return;
    text_add(text, "  dtype: %s\n", dtypes_of(format));
    if (format->fields) fields_document(text, format->fields, format->defaults);
}

void output_document(Text *text) {
    for (const ModelFormat *const *f = model_format_list(); *f; f++) {
        if (f != model_format_list()) text_add(text, "\n");
        output_document_format(text, *f);
    }
}

/* ---- writing ---- */

Status output_check_model(ModelOutput *output, const Model *model, Diag *diag) {
    const ModelFormat *format = output->format;
    output->pieces = keeps_dtypes(output) && format->pieces && format->pieces(model);
    if (!format->check) return STATUS_OK;
    const Status status = format->check(model, &output->options, diag);
    if (status == STATUS_OK) return status;
    if (output->at.file) diag_place(diag, output->at, "output");
    diag_note(diag, "%s is to be written to %s", format->what, output->path);
    return status;
}

Status model_save(Model *model, ModelOutput *output, Diag *diag) {
    const ModelFormat *format = output->format;
    Model *cast = NULL;
    DType dtype;
    Status status = output_check_model(output, model, diag);
    /* to these types weights are cast before the format sees them */
    const bool casts = dtype_parse(output->options.dtype, &dtype) &&
                       (dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16);
    if (status == STATUS_OK && (casts || !format->verifies))
        status = graph_verify_weights(model->graph, diag);
    if (status == STATUS_OK && casts) {
        cast = model_copy(model);
        status = model_cast(cast, dtype, NULL, diag);
    }
    if (status == STATUS_OK)
        status = format->write(cast ? cast : model, output->path, &output->options,
                               &output->written, diag);
    if (status == STATUS_OK && output->hashed && (casts || keeps_dtypes(output)))
        model_hash(cast ? cast : model, output->hash);
    model_destroy(cast);
    return status;
}
