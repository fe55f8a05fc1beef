/* What the files of the library (session/compress.h) share: contexts and their calls. */
#ifndef COMPRESS_SESSION_LIBRARY_H
#define COMPRESS_SESSION_LIBRARY_H

#include "exec/run/ticker.h"
#include "ir/model.h"
#include "session/compress.h"

#include <fenv.h>
#include <locale.h>
#include <pthread.h>

struct CompressContext {
    pthread_mutex_t lock; /* during a call */
    int threads;
    char *messages; /* of the latest call; NULL = none */
    void *self;     /* of compress_watch */
    void (*progress)(void *self, int64_t done, int64_t total, const char *text);
    int (*cancelled)(void *self);
};

struct CompressModel {
    Model *model;
};

/* What a call does, which decides which others may run at the same time. */
typedef enum LibraryWork {
    LIBRARY_COMPUTES, /* computes with models that are not changed: any except passes */
    LIBRARY_FILES,    /* reads, writes or hashes files: any that compute */
    LIBRARY_PASSES    /* changes process-wide state: none */
} LibraryWork;

/* One call of a function of the library. */
typedef struct LibraryCall {
    CompressContext *context;
    Arena *arena;
    Diag *diag;
    Watch watch; /* the context's */

    LibraryWork work;

    /* state of the host's thread to restore */
    int host_openmp; /* threads of OpenMP's */
    locale_t host_locale;
    fenv_t host_floats; /* rounding, exceptions that trap, flags */
} LibraryCall;

/* Begins a call, as soon as running calls allow it; to be ended. The watch refers to
 * `call`, which must not move. False: there is no context, or the calling thread is
 * already in a call. */
bool library_begin(LibraryCall *call, CompressContext *context, LibraryWork work);

/* A call of kind files only computes from now on, so that others may use files. */
void library_compute(LibraryCall *call);

/* Whether the calling thread is in a call, and so in a callback of the host. */
bool library_in_call(void);

/* To be called around calls of the host's functions, which get its own locale and
 * floating-point environment. */
void library_leave(const LibraryCall *call);
void library_return(void);

/* Fails with STATUS_USAGE if an argument, called by that name, is NULL. */
Status library_need(const LibraryCall *call, const void *argument, const char *name);

/* Keeps the messages and frees the rest. Returns the status as the library's number.
 */
CompressStatus library_end(LibraryCall *call, Status status);

/* A map that the caller wrote in YAML; NULL or an empty text = an empty one. Fails with
 * STATUS_USAGE for anything else. `name` is the argument's in messages. */
Status library_options(Tree **out, const LibraryCall *call, const char *name,
                       const char *text);

/* A model of the library, which takes over `model`, ready to be read by several threads;
 * and a text of a tree. */
CompressModel *library_model(Model *model);
char *library_json(const Tree *tree);

#endif
