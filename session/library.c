/* The library: contexts, models from and to files, what they are made of. */
#include "session/library.h"

#include "exec/linalg/blas.h"
#include "exec/ops.h"
#include "exec/processor.h"
#include "exec/run/parallel.h"
#include "io/files/path.h"
#include "io/files/yaml.h"
#include "io/formats/load.h"
#include "io/formats/save.h"
#include "ir/memory_failure.h"
#include "ir/version.h"
#include "session/inspection.h"
#include "session/output_files.h"
#include "session/session.h"

#include <locale.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define STATUS(name, code, help)                                                         \
    _Static_assert((int)COMPRESS_##name == (code), "the number of " #name);
#include "ir/status.def"
#undef STATUS

const char *compress_version(void) {
    return COMPRESS_VERSION_TEXT;
}

const char *compress_status_text(CompressStatus status) {
    for (int i = 0; i < STATUS_COUNT; i++)
        if (status_exit_code((Status)i) == (int)status) return status_help((Status)i);
    return "no status";
}

void compress_on_memory(void (*handler)(void *self), void *self) {
    memory_on_failure(handler, self);
}

/* ---- contexts and calls ---- */

/* One call reads and writes files at a time; what is the process's is set by calls that
 * run alone, for which others wait that have not begun. */
static pthread_mutex_t files = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t process = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

/* A callback that calls again is told so, and frees nothing that the call may use. */
static _Thread_local bool in_call;

bool library_in_call(void) {
    return in_call;
}

static void lock_for(LibraryWork work) {
    if (work != LIBRARY_COMPUTES) pthread_mutex_lock(&files);
    if (work == LIBRARY_PASSES)
        pthread_rwlock_wrlock(&process);
    else
        pthread_rwlock_rdlock(&process);
    in_call = true;
}

static void unlock_for(LibraryWork work) {
    in_call = false;
    pthread_rwlock_unlock(&process);
    if (work != LIBRARY_COMPUTES) pthread_mutex_unlock(&files);
}

/* Numbers have a point, whatever the host's locale makes of them. */
static locale_t plain_locale;

static void make_locale(void) {
    plain_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

void library_leave(const LibraryCall *call) {
    uselocale(call->host_locale);
    fesetenv(&call->host_floats);
}

/* Numbers are rounded to the nearest and nothing traps, too: threads that a call starts
 * inherit that. */
void library_return(void) {
    uselocale(plain_locale);
    fesetenv(FE_DFL_ENV);
}

static void tell_progress(void *self, int64_t done, int64_t total, const char *text) {
    const LibraryCall *call = self;
    const CompressContext *context = call->context;
    if (!context->progress) return;
    library_leave(call);
    context->progress(context->self, done, total, text);
    library_return();
}

static bool is_cancelled(void *self) {
    const LibraryCall *call = self;
    const CompressContext *context = call->context;
    if (!context->cancelled) return false;
    library_leave(call);
    const bool cancelled = context->cancelled(context->self) != 0;
    library_return();
    return cancelled;
}

bool library_begin(LibraryCall *call, CompressContext *context, LibraryWork work) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!context || in_call) return false;
    pthread_once(&once, make_locale);
    pthread_mutex_lock(&context->lock);
    lock_for(work);
    const int openmp = parallel_alone();
    blas_hold();
    *call = (LibraryCall){.context = context,
                          .arena = arena_create(),
                          .diag = diag_create(),
                          .watch = {call, tell_progress, is_cancelled},
                          .work = work,
                          .host_openmp = openmp,
                          .host_locale = uselocale((locale_t)0)};
    fegetenv(&call->host_floats);
    library_return();
    return true;
}

void library_compute(LibraryCall *call) {
    if (call->work == LIBRARY_FILES) pthread_mutex_unlock(&files);
    call->work = LIBRARY_COMPUTES;
}

Status library_need(const LibraryCall *call, const void *argument, const char *name) {
    if (argument) return STATUS_OK;
    return diag_fail(call->diag, STATUS_USAGE, LOC_NONE, name,
                     "expected one, found NULL");
}

CompressStatus library_end(LibraryCall *call, Status status) {
    CompressContext *context = call->context;
    size_t length = 0;
    free(context->messages);
    context->messages = NULL;
    FILE *out = open_memstream(&context->messages, &length);
    if (out) diag_print(call->diag, out);
    if (out) fclose(out);
    diag_destroy(call->diag);
    arena_destroy(call->arena);
    library_leave(call);
    blas_release();
    parallel_together(call->host_openmp);
    unlock_for(call->work);
    pthread_mutex_unlock(&context->lock);
    return (CompressStatus)status_exit_code(status);
}

Status library_options(Tree **out, const LibraryCall *call, const char *name,
                       const char *text) {
    *out = tree_new(call->arena, TREE_MAP, LOC_NONE);
    if (!text) return STATUS_OK;
    Tree *value = NULL;
    if (yaml_parse(&value, call->arena, name, text, strlen(text), call->diag) !=
        STATUS_OK)
        return STATUS_USAGE;
    if (value->kind == TREE_NULL) return STATUS_OK;
    if (value->kind != TREE_MAP)
        return diag_fail(call->diag, STATUS_USAGE, value->loc, NULL,
                         "expected a map, found %s", tree_kind_name(value->kind));
    *out = value;
    return STATUS_OK;
}

CompressStatus compress_open(CompressContext **out, int threads) {
    const bool levels = processor_level() != PROCESSOR_AUTO;
    fenv_t host_floats;
    if (!out) return COMPRESS_USAGE;
    *out = NULL;
    if (in_call) return COMPRESS_USAGE;
    if (threads < 0 || (levels && !processor_has(PROCESSOR_V2))) return COMPRESS_USAGE;
    *out = memory_alloc(1, sizeof **out);
    pthread_mutex_init(&(*out)->lock, NULL);
    fegetenv(&host_floats);
    fesetenv(FE_DFL_ENV);
    (*out)->threads = threads_choose(threads);
    fesetenv(&host_floats);
    return COMPRESS_OK;
}

void compress_close(CompressContext *context) {
    if (!context || in_call) return;
    pthread_mutex_destroy(&context->lock);
    free(context->messages);
    free(context);
}

const char *compress_messages(const CompressContext *context) {
    return context && context->messages ? context->messages : "";
}

void compress_watch(CompressContext *context, void *self,
                    void (*progress)(void *self, int64_t done, int64_t total,
                                     const char *text),
                    int (*cancelled)(void *self)) {
    if (!context || in_call) return;
    pthread_mutex_lock(&context->lock);
    context->self = self;
    context->progress = progress;
    context->cancelled = cancelled;
    pthread_mutex_unlock(&context->lock);
}

/* ---- models ---- */

CompressModel *library_model(Model *model) {
    CompressModel *own = memory_alloc(1, sizeof *own);
    own->model = model;
    graph_number(model->graph); /* who reads a graph that is numbered writes nothing */
    return own;
}

static Status load_model(const LibraryCall *call, const char *path, CompressModel **out) {
    Model *model;
    TRY(library_need(call, path, "path"));
    TRY(library_need(call, out, "out"));
    TRY(model_load(&model, path, ops_table(), true, call->diag));
    *out = library_model(model);
    return STATUS_OK;
}

CompressStatus compress_load(CompressContext *context, const char *path,
                             CompressModel **out) {
    LibraryCall call;
    if (out) *out = NULL;
    if (!library_begin(&call, context, LIBRARY_FILES)) return COMPRESS_USAGE;
    return library_end(&call, load_model(&call, path, out));
}

static Status save_model(const LibraryCall *call, const CompressModel *own,
                         const char *path, const char *options) {
    Tree *map;
    ModelOutput output = {0};
    TRY(library_need(call, own, "model"));
    TRY(library_need(call, path, "path"));
    const Model *model = own->model;
    TRY(library_options(&map, call, "options", options));
    if (tree_get(map, "path"))
        return diag_fail(call->diag, STATUS_USAGE, map->loc, "path",
                         "expected no path among the options");
    tree_put_string(call->arena, map, "path", path);
    TRY(output_bind(&output, call->arena, map, STATUS_USAGE, call->diag));
    TRY(output_path_check(call->arena, "path", &output, call->diag));
    if (path_is_folder(path)) /* files are replaced whatever they are */
        TRY(output_replace_check("path", path, OUTPUT_MODEL, &(StringList){0},
                                 call->diag));
    TRY(output_check_model(&output, model, call->diag));
    Model *copy = model_copy(model);
    const Status status = model_save(copy, &output, call->diag);
    model_destroy(copy);
    return status;
}

CompressStatus compress_save(CompressContext *context, const CompressModel *model,
                             const char *path, const char *options) {
    LibraryCall call;
    if (!library_begin(&call, context, LIBRARY_FILES)) return COMPRESS_USAGE;
    return library_end(&call, save_model(&call, model, path, options));
}

CompressModel *compress_copy(const CompressModel *model) {
    return model ? library_model(model_copy(model->model)) : NULL;
}

void compress_free_model(CompressModel *model) {
    if (!model || in_call) return;
    model_destroy(model->model);
    free(model);
}

char *library_json(const Tree *tree) {
    Text text = {0};
    tree_print_json(&text, tree, 2);
    return text.data;
}

static Status inspect_model(const LibraryCall *call, const CompressModel *own,
                            char **json) {
    Inspection it;
    TRY(library_need(call, own, "model"));
    TRY(library_need(call, json, "json"));
    TRY(inspection_make(&it, call->arena, NULL, own->model, call->diag));
    *json = library_json(inspection_tree(&it));
    return STATUS_OK;
}

CompressStatus compress_inspect(CompressContext *context, const CompressModel *model,
                                char **json) {
    LibraryCall call;
    if (json) *json = NULL;
    if (!library_begin(&call, context, LIBRARY_FILES)) return COMPRESS_USAGE;
    return library_end(&call, inspect_model(&call, model, json));
}

void compress_free_text(char *text) {
    free(text);
}
