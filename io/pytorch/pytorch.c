/* PyTorch checkpoints: see pytorch.h. Finding the state dict, collecting its tensors, and
 * their numbers. */
#include "io/pytorch/pytorch.h"

#include "io/pytorch/torch_file.h"

#include <string.h>

enum {
    DEPTH_MAX = 8,        /* of containers below the state dict */
    VISITS_MAX = 1 << 18, /* values looked at: shared ones are met again */
    NAME_BYTES_MAX = 500
};

/* Keys that authors put the weights under, the surest ones first. */
static const char *const ROOTS[] = {"state_dict", "model_state_dict", "model",
                                    "module",     "network",          "net"};

/* What wrappers put in front of all names: DataParallel, torch.compile. */
static const char *const WRAPPERS[] = {"module.", "_orig_mod."};

typedef struct StateTensor {
    const char *name;
    const PickleTensor *tensor;
} StateTensor;

typedef struct StateReader {
    TorchFile file;
    Arena *arena;
    StateTensor *tensors;
    int count, capacity;
    int visits;
    int others;        /* values that are no tensors */
    const char *other; /* the first of them */
    int doubles;       /* tensors of f64 */
    size_t copied;     /* bytes gathered or converted so far */
    Diag *diag;
} StateReader;

#define FAIL(reader, name, ...)                                                          \
    diag_fail((reader)->diag, STATUS_FORMAT, LOC_FILE((reader)->file.path), name,        \
              __VA_ARGS__)

bool pytorch_probe(const char *path) {
    return torch_file_probe(path);
}

/* --- where the weights are --- */

static bool is_container(const PickleValue *value) {
    return value->kind == PICKLE_DICT || value->kind == PICKLE_LIST ||
           value->kind == PICKLE_TUPLE;
}

static bool holds_tensor(const PickleValue *value) {
    for (size_t i = 0; is_container(value) && i < value->list.count; i++)
        if (value->list.items[i]->kind == PICKLE_TENSOR) return true;
    return false;
}

/* Steps down to the dict of weights that an author put among other things. */
static const PickleValue *find_root(const StateReader *reader, const PickleValue *value) {
    for (int depth = 0; depth < DEPTH_MAX && !holds_tensor(value); depth++) {
        const PickleValue *inner = NULL;
        size_t i = 0;
        while (i < sizeof ROOTS / sizeof *ROOTS && !inner) {
            inner = pickle_get(value, ROOTS[i++]);
            if (inner && !is_container(inner)) inner = NULL;
        }
        if (!inner) return value;
        if (value->list.count > 2)
            diag_warn(reader->diag, LOC_FILE(reader->file.path), ROOTS[i - 1],
                      "the weights are read from under this key; %zu other%s left out",
                      value->list.count / 2 - 1,
                      value->list.count == 4 ? " is" : "s are");
        value = inner;
    }
    return value;
}

/* Follows the keys that the caller named. */
static Status follow(const StateReader *reader, const char *from,
                     const PickleValue **value) {
    char *keys = arena_strdup(reader->arena, from), *rest = NULL;
    for (char *key = strtok_r(keys, ".", &rest); key; key = strtok_r(NULL, ".", &rest)) {
        const PickleValue *inner = pickle_get(*value, key);
        if (!inner || !is_container(inner))
            return FAIL(reader, from, "the file has no dict under this key");
        *value = inner;
    }
    return STATUS_OK;
}

/* --- the tensors --- */

/* Name of a member: prefix, dot, key. */
static Status member_name(StateReader *reader, const char *prefix, const PickleValue *key,
                          size_t index, const char **out) {
    const char *dot = *prefix ? "." : "", *name;
    if (!key)
        name = arena_printf(reader->arena, "%s%s%zu", prefix, dot, index);
    else if (key->kind == PICKLE_INT)
        name =
            arena_printf(reader->arena, "%s%s%lld", prefix, dot, (long long)key->integer);
    else if (key->kind != PICKLE_TEXT || key->text.length == 0 ||
             key->text.length > NAME_BYTES_MAX ||
             memchr(key->text.text, 0, key->text.length))
        return FAIL(reader, *prefix ? prefix : NULL,
                    "expected names of tensors as keys, found a %s",
                    pickle_kind_name(key->kind));
    else
        name = arena_printf(reader->arena, "%s%s%.*s", prefix, dot, (int)key->text.length,
                            key->text.text);
    *out = name;
    if (strlen(name) <= NAME_BYTES_MAX && utf8_is_valid(name)) return STATUS_OK;
    return FAIL(reader, NULL, "a tensor's name is longer than %d bytes or no UTF-8",
                NAME_BYTES_MAX);
}

static void add_tensor(StateReader *reader, const char *name,
                       const PickleTensor *tensor) {
    if (reader->count == reader->capacity) {
        reader->capacity = reader->capacity ? 2 * reader->capacity : 64;
        StateTensor *grown =
            ARENA_ARRAY(reader->arena, StateTensor, (size_t)reader->capacity);
        if (reader->count > 0)
            memcpy(grown, reader->tensors, (size_t)reader->count * sizeof *grown);
        reader->tensors = grown;
    }
    reader->tensors[reader->count++] = (StateTensor){name, tensor};
}

/* Collects the tensors in a container and in those inside of it. */
static Status collect(StateReader *reader, const PickleValue *value, const char *prefix,
                      int depth) {
    const bool dict = value->kind == PICKLE_DICT;
    if (depth > DEPTH_MAX)
        return FAIL(reader, prefix, "expected at most %d containers in one another",
                    DEPTH_MAX);
    for (size_t i = 0; i < value->list.count; i += dict ? 2 : 1) {
        const PickleValue *item = value->list.items[dict ? i + 1 : i];
        const char *name = prefix;
        if (reader->visits++ == VISITS_MAX)
            return FAIL(reader, prefix, "expected at most %d values", VISITS_MAX);
        TRY(member_name(reader, prefix, dict ? value->list.items[i] : NULL, i, &name));
        if (item->kind == PICKLE_TENSOR)
            add_tensor(reader, name, item->tensor);
        else if (is_container(item))
            TRY(collect(reader, item, name, depth + 1));
        else if (reader->others++ == 0)
            reader->other = name;
    }
    return STATUS_OK;
}

/* Takes away what a wrapper put in front of all names. */
static void unwrap(StateReader *reader) {
    for (size_t w = 0; w < sizeof WRAPPERS / sizeof *WRAPPERS; w++) {
        const size_t length = strlen(WRAPPERS[w]);
        int with = 0;
        while (with < reader->count &&
               strncmp(reader->tensors[with].name, WRAPPERS[w], length) == 0)
            with++;
        if (with < reader->count) continue;
        for (int i = 0; i < reader->count; i++) reader->tensors[i].name += length;
        diag_warn(reader->diag, LOC_FILE(reader->file.path), NULL,
                  "all names begin with '%s', which is left out", WRAPPERS[w]);
    }
}

/* --- their numbers --- */

static bool is_contiguous(const PickleTensor *tensor) {
    int64_t stride = 1;
    for (int i = tensor->rank - 1; i >= 0; i--) {
        if (tensor->dim[i] == 0) return true;
        if (tensor->dim[i] != 1 && tensor->stride[i] != stride) return false;
        stride *= tensor->dim[i];
    }
    return true;
}

/* Room for a copy of a tensor. Copies of all of a file's tensors together are bounded by
 * its size: many tensors may look at one storage. */
static Status make_room(StateReader *reader, const char *name, Tensor *out, DType dtype,
                        const PickleTensor *from, void **data) {
    const size_t most = 4 * buf_bytes(reader->file.buf) + ((size_t)64 << 20);
    TRY(tensor_create(out, dtype, from->rank, from->dim, reader->diag));
    reader->copied += tensor_bytes(out);
    if (reader->copied > most) {
        tensor_release(out);
        return FAIL(reader, name,
                    "the tensors are larger together than %zu bytes, far "
                    "more than the file",
                    most);
    }
    return tensor_writable(out, data, reader->diag);
}

static Status read_tensor(StateReader *reader, const StateTensor *named, Tensor *out) {
    const PickleTensor *tensor = named->tensor;
    const PickleStorage *storage = tensor->storage;
    Buf *buf;
    size_t offset;
    void *data;
    TRY(torch_file_bytes(&reader->file, storage, &buf, &offset));
    offset += (size_t)tensor->offset * dtype_bytes(storage->dtype);
    if (is_contiguous(tensor)) {
        TRY(checkpoint_view(out, buf, offset, storage->dtype, tensor->rank, tensor->dim,
                            reader->diag));
    } else {
        TRY(make_room(reader, named->name, out, storage->dtype, tensor, &data));
        checkpoint_gather(data, (const char *)buf_data(buf) + offset,
                          dtype_bytes(storage->dtype), tensor->rank, tensor->dim,
                          tensor->stride);
    }
    if (storage->dtype != DTYPE_F64) return STATUS_OK;
    Tensor doubles = *out;
    Status status = make_room(reader, named->name, out, DTYPE_F32, tensor, &data);
    if (status == STATUS_OK) tensor_read_f32(&doubles, 0, tensor_count(&doubles), data);
    tensor_release(&doubles);
    reader->doubles++;
    return status;
}

static Status read_tensors(StateReader *reader, Checkpoint *checkpoint) {
    for (int i = 0; i < reader->count; i++) {
        NamedTensor *named = &checkpoint->tensors[i];
        named->name = arena_strdup(checkpoint->arena, reader->tensors[i].name);
        TRY(read_tensor(reader, &reader->tensors[i], &named->tensor));
        checkpoint->count++;
    }
    checkpoint_sort(checkpoint);
    for (int i = 1; i < checkpoint->count; i++)
        if (strcmp(checkpoint->tensors[i].name, checkpoint->tensors[i - 1].name) == 0)
            return FAIL(reader, checkpoint->tensors[i].name,
                        "two tensors have this name");
    return STATUS_OK;
}

static void report(const StateReader *reader) {
    const Loc at = LOC_FILE(reader->file.path);
    if (reader->others > 0)
        diag_warn(reader->diag, at, reader->other, "%d value%s no tensor%s: left out",
                  reader->others, reader->others == 1 ? " is" : "s are",
                  reader->others == 1 ? "" : "s");
    if (reader->doubles > 0)
        diag_warn(reader->diag, at, NULL, "%d tensor%s of f64 %s read as f32",
                  reader->doubles, reader->doubles == 1 ? "" : "s",
                  reader->doubles == 1 ? "is" : "are");
}

static Status read_state(StateReader *reader, const char *from, Checkpoint **out) {
    const PickleValue *root = reader->file.root;
    if (from)
        TRY(follow(reader, from, &root));
    else
        root = find_root(reader, root);
    if (root->kind == PICKLE_TENSOR)
        add_tensor(reader, "0", root->tensor);
    else if (is_container(root))
        TRY(collect(reader, root, "", 1));
    if (reader->count == 0) return FAIL(reader, from, "expected tensors, found none");
    unwrap(reader);
    Checkpoint *checkpoint = checkpoint_create(reader->file.path, reader->count);
    checkpoint->file_bytes = (int64_t)buf_bytes(reader->file.buf);
    const Status status = read_tensors(reader, checkpoint);
    if (status == STATUS_OK) {
        report(reader);
        *out = checkpoint;
    } else {
        checkpoint_destroy(checkpoint);
    }
    return status;
}

Status pytorch_read_from(Checkpoint **out, const char *path, const char *from,
                         Diag *diag) {
    Arena *arena = arena_create();
    StateReader reader = {.arena = arena, .diag = diag};
    Status status = torch_file_open(&reader.file, arena, path, diag);
    if (status == STATUS_OK) status = read_state(&reader, from, out);
    torch_file_close(&reader.file);
    arena_destroy(arena);
    return status;
}

Status pytorch_read(Checkpoint **out, const char *path, Diag *diag) {
    return pytorch_read_from(out, path, NULL, diag);
}
