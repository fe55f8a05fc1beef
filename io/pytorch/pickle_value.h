/* Pickled values: what a pickle is read into. Plain data in an arena: containers,
 * numbers, text, and the few PyTorch objects that a state dict consists of. */
#ifndef COMPRESS_IO_PYTORCH_PICKLE_VALUE_H
#define COMPRESS_IO_PYTORCH_PICKLE_VALUE_H

#include "ir/arena.h"
#include "ir/tensor.h"
#include "ir/text.h"

typedef enum PickleKind {
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,
    PICKLE_LONG, /* an integer of more than 64 bits */
    PICKLE_REAL,
    PICKLE_TEXT,
    PICKLE_BYTES,
    PICKLE_TUPLE,
    PICKLE_LIST,
    PICKLE_DICT,
    PICKLE_NAME, /* of a class, function or element type, see torch_objects.h */
    PICKLE_STORAGE,
    PICKLE_TENSOR
} PickleKind;

typedef struct PickleValue PickleValue;

/* Elements of a container; those of a dict are alternating keys and values. */
typedef struct PickleItems {
    PickleValue **items;
    size_t count, capacity;
} PickleItems;

/* Numbers of one type that tensors are views of. */
typedef struct PickleStorage PickleStorage;
struct PickleStorage {
    const char *key; /* which part of the file they are */
    DType dtype;
    int64_t whole;         /* elements of that part */
    int64_t offset, count; /* which of them, in elements */
    PickleStorage *next;   /* another storage of the same pickle */
};

/* A strided view of a storage; it lies within it and has no more elements than it. */
typedef struct PickleTensor {
    const PickleStorage *storage;
    int64_t offset; /* of the first element, from the storage's */
    int rank;
    int64_t dim[RANK_MAX], stride[RANK_MAX]; /* strides in elements, >= 0 */
} PickleTensor;

struct PickleValue {
    PickleKind kind;
    bool built; /* an object that BUILD gives its state: attributes of a dict, byte order
                   of a type of numpy's */
    size_t at;  /* byte of the file where it was made */
    union {
        bool boolean;
        int64_t integer;
        double real;
        TextSpan text; /* also of bytes and long integers, little end first */
        PickleItems list;
        const struct TorchName *name;
        const PickleStorage *storage;
        const PickleTensor *tensor;
    };
};

/* The bytes that a pickle is read from, and their names in messages. */
typedef struct PickleSource {
    const unsigned char *data;
    size_t length;
    size_t base;             /* where they begin in the file */
    const char *path;        /* of the file */
    const char *name;        /* of the part of it, NULL = the file itself */
    Arena *arena;            /* of the values */
    PickleStorage *storages; /* all that were mentioned, linked */
    size_t room;             /* values and elements that may still be made */
    Diag *diag;
} PickleSource;

/* What a kind is called in messages: "tuple". */
const char *pickle_kind_name(PickleKind kind);

/* Takes `count` values or elements from the remaining allowance; false when there are
 * not that many. Keeps the work that a small pickle can cause proportional. */
bool pickle_take_room(PickleSource *source, size_t count);

/* Reports what is wrong at byte `at` of the file. Returns STATUS_FORMAT. */
Status pickle_fail(const PickleSource *source, size_t at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Value of a dict for a text as key, NULL when absent or not a dict. The last one
 * counts, as in Python. */
const PickleValue *pickle_get(const PickleValue *dict, const char *key);

/* Whether a value is this text. */
bool pickle_is_text(const PickleValue *value, const char *text);

#endif
