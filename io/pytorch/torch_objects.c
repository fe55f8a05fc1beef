/* PyTorch's objects in pickles: see torch_objects.h. */
#include "io/pytorch/torch_objects.h"

#include "ir/half.h"

#include <string.h>

typedef enum NameKind {
    NAME_DICT,
    NAME_TENSOR,    /* (storage, offset, size, stride, ...) */
    NAME_PARAMETER, /* (tensor, ...) */
    NAME_SIZE,
    NAME_STORAGE, /* a class of storages, said in persistent ids */
    NAME_DTYPE,   /* a value of its own */
    NAME_RECORD,  /* a class whose instances are their attributes */
    NAME_NUMBER,  /* (type, bytes): a number of numpy's */
    NAME_TYPE,    /* (text, ...): its type */
    NAME_ENCODING /* (text, "latin1"): bytes, as protocol 2 has them */
} NameKind;

struct TorchName {
    const char *full; /* "module.name" */
    NameKind kind;
    DType dtype; /* of a class of storages */
};

static const TorchName NAMES[] = {
    {"collections.OrderedDict", NAME_DICT, 0},
    {"torch._utils._rebuild_tensor", NAME_TENSOR, 0},
    {"torch._utils._rebuild_tensor_v2", NAME_TENSOR, 0},
    {"torch._utils._rebuild_parameter", NAME_PARAMETER, 0},
    {"torch.Size", NAME_SIZE, 0},
    {"torch.FloatStorage", NAME_STORAGE, DTYPE_F32},
    {"torch.DoubleStorage", NAME_STORAGE, DTYPE_F64},
    {"torch.HalfStorage", NAME_STORAGE, DTYPE_F16},
    {"torch.BFloat16Storage", NAME_STORAGE, DTYPE_BF16},
    {"torch.LongStorage", NAME_STORAGE, DTYPE_I64},
    {"torch.IntStorage", NAME_STORAGE, DTYPE_I32},
    {"torch.CharStorage", NAME_STORAGE, DTYPE_I8},
    {"torch.ByteStorage", NAME_STORAGE, DTYPE_U8},
    {"torch.BoolStorage", NAME_STORAGE, DTYPE_BOOL},
    {"torch.float32", NAME_DTYPE, 0},
    {"torch.float64", NAME_DTYPE, 0},
    {"torch.float16", NAME_DTYPE, 0},
    {"torch.bfloat16", NAME_DTYPE, 0},
    {"torch.int64", NAME_DTYPE, 0},
    {"torch.int32", NAME_DTYPE, 0},
    {"torch.int16", NAME_DTYPE, 0},
    {"torch.int8", NAME_DTYPE, 0},
    {"torch.uint8", NAME_DTYPE, 0},
    {"torch.bool", NAME_DTYPE, 0},
    {"argparse.Namespace", NAME_RECORD, 0},
    {"types.SimpleNamespace", NAME_RECORD, 0},
    {"numpy.core.multiarray.scalar", NAME_NUMBER, 0},
    {"numpy._core.multiarray.scalar", NAME_NUMBER, 0},
    {"numpy.dtype", NAME_TYPE, 0},
    {"_codecs.encode", NAME_ENCODING, 0},
};

const TorchName *torch_name_find(TextSpan module, TextSpan name) {
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        const char *full = NAMES[i].full, *dot = strrchr(full, '.');
        if ((size_t)(dot - full) == module.length && strlen(dot + 1) == name.length &&
            memcmp(full, module.text, module.length) == 0 &&
            memcmp(dot + 1, name.text, name.length) == 0)
            return &NAMES[i];
    }
    return NULL;
}

const char *torch_name_text(const TorchName *name) {
    return name->full;
}

/* The item of a tuple; NULL when there is none or it is not of this kind. */
static const PickleValue *item_of(const PickleValue *tuple, size_t index,
                                  PickleKind kind) {
    const PickleValue *item = index < tuple->list.count ? tuple->list.items[index] : NULL;
    return item && item->kind == kind ? item : NULL;
}

/* Copies a tuple of at most RANK_MAX integers >= 0; their number, or -1. */
static int read_integers(int64_t out[RANK_MAX], const PickleValue *value) {
    if (!value || value->kind != PICKLE_TUPLE || value->list.count > RANK_MAX) return -1;
    for (size_t i = 0; i < value->list.count; i++) {
        const PickleValue *item = item_of(value, i, PICKLE_INT);
        if (!item || item->integer < 0) return -1;
        out[i] = item->integer;
    }
    return (int)value->list.count;
}

/* Checks that all elements lie in the storage and are no more than it has. */
static Status check_extent(const PickleTensor *tensor, const PickleSource *source,
                           size_t at) {
    const PickleStorage *storage = tensor->storage;
    char shape[SHAPE_TEXT_BYTES];
    int64_t count, last = tensor->offset, step;
    bool fits = shape_size(storage->dtype, tensor->rank, tensor->dim, &count, NULL);
    for (int i = 0; i < tensor->rank && fits && count > 0; i++)
        fits = !__builtin_mul_overflow(tensor->dim[i] - 1, tensor->stride[i], &step) &&
               !__builtin_add_overflow(last, step, &last);
    if (fits && (count == 0 ? tensor->offset <= storage->count : last < storage->count) &&
        count <= storage->count)
        return STATUS_OK;
    return pickle_fail(source, at,
                       "a tensor of shape %s from element %lld on does not lie in its "
                       "storage '%.100s' of %lld elements",
                       shape_text(shape, tensor->rank, tensor->dim),
                       (long long)tensor->offset, storage->key,
                       (long long)storage->count);
}

static Status make_tensor(PickleValue *out, const PickleSource *source,
                          const PickleValue *arguments, size_t at) {
    PickleTensor *tensor = ARENA_NEW(source->arena, PickleTensor);
    const PickleValue *storage = item_of(arguments, 0, PICKLE_STORAGE),
                      *offset = item_of(arguments, 1, PICKLE_INT),
                      *size = item_of(arguments, 2, PICKLE_TUPLE),
                      *stride = item_of(arguments, 3, PICKLE_TUPLE);
    tensor->rank = read_integers(tensor->dim, size);
    const bool strided = read_integers(tensor->stride, stride) == tensor->rank;
    if (!storage || !offset || offset->integer < 0 || tensor->rank < 0 || !strided)
        return pickle_fail(source, at,
                           "expected a storage, an offset and up to %d sizes with "
                           "strides for a tensor",
                           RANK_MAX);
    tensor->storage = storage->storage;
    tensor->offset = offset->integer;
    *out = (PickleValue){.kind = PICKLE_TENSOR, .at = at, .tensor = tensor};
    return check_extent(tensor, source, at);
}

/* OrderedDict() or, as Python 2 has it, OrderedDict([[key, value], ...]). */
static Status make_dict(PickleValue *out, PickleSource *source,
                        const PickleValue *arguments, size_t at) {
    const PickleValue *pairs = item_of(arguments, 0, PICKLE_LIST);
    const size_t count = pairs ? pairs->list.count : 0;
    bool good =
        arguments->list.count == (pairs ? 1 : 0) && pickle_take_room(source, count);
    *out = (PickleValue){.kind = PICKLE_DICT, .at = at};
    if (good) out->list.items = ARENA_ARRAY(source->arena, PickleValue *, 2 * count);
    for (size_t i = 0; i < count && good; i++) {
        const PickleValue *pair = pairs->list.items[i];
        good = (pair->kind == PICKLE_LIST || pair->kind == PICKLE_TUPLE) &&
               pair->list.count == 2;
        for (size_t j = 0; j < 2 && good; j++)
            out->list.items[out->list.count++] = pair->list.items[j];
    }
    out->list.capacity = out->list.count;
    if (good) return STATUS_OK;
    return pickle_fail(source, at, "expected nothing or a list of pairs for a dict");
}

/* A number of numpy's: its type is text ("f8"), its bytes have their little end first. */
static Status make_number(PickleValue *out, const PickleSource *source,
                          const PickleValue *arguments, size_t at) {
    const PickleValue *type = item_of(arguments, 0, PICKLE_TEXT),
                      *bytes = item_of(arguments, 1, PICKLE_BYTES);
    const size_t length = bytes ? bytes->text.length : 0;
    const char kind = type && type->text.length == 2 ? type->text.text[0] : 0;
    uint64_t bits = 0;
    if (!type || !type->built || !kind || length < 1 || length > 8 ||
        type->text.text[1] != (char)('0' + length) || !strchr("fiub", kind))
        return pickle_fail(source, at, "this number of numpy's is not read");
    for (size_t i = 0; i < length; i++)
        bits |= (uint64_t)(unsigned char)bytes->text.text[i] << (8 * i);
    *out = (PickleValue){.kind = PICKLE_INT, .at = at};
    if (kind == 'i' && length < 8 && bits >> (8 * length - 1))
        bits |= UINT64_MAX << (8 * length);
    memcpy(&out->integer, &bits, sizeof bits);
    if (kind == 'b') *out = (PickleValue){.kind = PICKLE_BOOL, .boolean = bits != 0};
    if (kind != 'f') return STATUS_OK;
    float single = 0;
    memcpy(&single, bytes->text.text, length < 4 ? length : 4);
    out->kind = PICKLE_REAL;
    if (length == 8)
        memcpy(&out->real, &bits, sizeof bits);
    else
        out->real = length == 4 ? single : f16_to_float((uint16_t)bits);
    return STATUS_OK;
}

/* Bytes that stand as text: a character of Latin 1 for each. */
static Status make_bytes(PickleValue *out, const PickleSource *source,
                         const PickleValue *arguments, size_t at) {
    const PickleValue *text = item_of(arguments, 0, PICKLE_TEXT),
                      *encoding = item_of(arguments, 1, PICKLE_TEXT);
    if (!text || !encoding || !pickle_is_text(encoding, "latin1"))
        return pickle_fail(source, at, "'_codecs.encode' is read of Latin 1 alone");
    char *bytes = arena_alloc(source->arena, text->text.length + 1);
    size_t count = 0;
    for (size_t i = 0; i < text->text.length; i++) {
        unsigned char c = (unsigned char)text->text.text[i];
        if (c >= 0x80) { /* U+0080 to U+00FF take two bytes */
            if (c < 0xc2 || c > 0xc3 || ++i == text->text.length)
                return pickle_fail(source, at, "expected characters of Latin 1");
            c = (unsigned char)((c & 3) << 6 | (text->text.text[i] & 0x3f));
        }
        bytes[count++] = (char)c;
    }
    *out = (PickleValue){.kind = PICKLE_BYTES, .at = at};
    out->text = (TextSpan){bytes, count};
    return STATUS_OK;
}

Status torch_instance(PickleValue *out, const PickleSource *source, const TorchName *name,
                      const PickleValue *arguments, size_t at) {
    if (name->kind != NAME_RECORD || arguments->list.count > 0)
        return pickle_fail(source, at,
                           "an instance of %s is not read: nothing in a pickle is run",
                           name->full);
    *out = (PickleValue){.kind = PICKLE_DICT, .built = true, .at = at};
    return STATUS_OK;
}

Status torch_make(PickleValue *out, PickleSource *source, const TorchName *name,
                  const PickleValue *arguments, size_t at) {
    const PickleValue *first;
    switch (name->kind) {
    case NAME_DICT: return make_dict(out, source, arguments, at);
    case NAME_RECORD: return torch_instance(out, source, name, arguments, at);
    case NAME_NUMBER: return make_number(out, source, arguments, at);
    case NAME_ENCODING: return make_bytes(out, source, arguments, at);
    case NAME_TENSOR: return make_tensor(out, source, arguments, at);
    case NAME_PARAMETER: first = item_of(arguments, 0, PICKLE_TENSOR); break;
    case NAME_TYPE: first = item_of(arguments, 0, PICKLE_TEXT); break;
    case NAME_SIZE: first = item_of(arguments, 0, PICKLE_TUPLE); break;
    default: first = NULL;
    }
    if (!first)
        return pickle_fail(source, at, "'%s' is not read with these arguments",
                           name->full);
    *out = *first;
    out->built = name->kind == NAME_TYPE;
    return STATUS_OK;
}

/* The part of a storage that is one of its own: (key, offset, elements) or None. */
static Status read_view(PickleStorage *storage, const PickleSource *source,
                        const PickleValue *view, size_t at) {
    if (view->kind == PICKLE_NONE) return STATUS_OK;
    const bool is_tuple = view->kind == PICKLE_TUPLE;
    const PickleValue *offset = is_tuple ? item_of(view, 1, PICKLE_INT) : NULL,
                      *count = is_tuple ? item_of(view, 2, PICKLE_INT) : NULL;
    if (!offset || !count || offset->integer < 0 || count->integer < 0 ||
        offset->integer > storage->whole ||
        count->integer > storage->whole - offset->integer)
        return pickle_fail(source, at,
                           "expected a view within the storage '%.100s' of %lld elements",
                           storage->key, (long long)storage->whole);
    storage->offset = offset->integer;
    storage->count = count->integer;
    return STATUS_OK;
}

Status torch_storage(PickleValue *out, PickleSource *source, const PickleValue *id,
                     size_t at) {
    const bool tuple = id->kind == PICKLE_TUPLE && id->list.count >= 5 &&
                       pickle_is_text(id->list.items[0], "storage");
    const PickleValue *class = tuple ? item_of(id, 1, PICKLE_NAME) : NULL,
                      *key = tuple ? item_of(id, 2, PICKLE_TEXT) : NULL,
                      *count = tuple ? item_of(id, 4, PICKLE_INT) : NULL;
    if (!class || class->name->kind != NAME_STORAGE || !key || !count ||
        count->integer < 0)
        return pickle_fail(source, at,
                           "expected a storage with its class, key and number of "
                           "elements as persistent id");
    PickleStorage *storage = ARENA_NEW(source->arena, PickleStorage);
    *storage = (PickleStorage){
        .key = arena_strndup(source->arena, key->text.text, key->text.length),
        .dtype = class->name->dtype,
        .whole = count->integer,
        .count = count->integer,
        .next = source->storages};
    source->storages = storage;
    if (strlen(storage->key) != key->text.length || !utf8_is_valid(storage->key) ||
        !shape_size(storage->dtype, 1, &storage->whole, NULL, NULL))
        return pickle_fail(source, at, "the storage has a key or a size that is none");
    if (id->list.count > 5) TRY(read_view(storage, source, id->list.items[5], at));
    *out = (PickleValue){.kind = PICKLE_STORAGE, .at = at, .storage = storage};
    return STATUS_OK;
}
