/* PyTorch checkpoints: files of Python's own pickle in every form, pickles that call,
 * lies about lengths and places, archives that are none. tests/data/pytorch/make_files.py
 * wrote the files. */
#include "io_test.h"

#include "exec/ops.h"
#include "io/files/file.h"
#include "io/formats/load.h"
#include "io/formats/safetensors.h"
#include "io/formats/shards.h"
#include "io/pytorch/pickle.h"
#include "io/pytorch/pytorch.h"
#include "io/pytorch/torch_file.h"
#include "io/pytorch/zip.h"

#include <sys/stat.h>

#define DATA "tests/data/pytorch/"

static char folder[256], path[300];
static Diag *diag;
static Arena *arena;

static int enter(void **state) {
    (void)state;
    scratch_make(folder);
    snprintf(path, sizeof path, "%s/x.pt", folder);
    diag = diag_create();
    arena = arena_create();
    return 0;
}

static int leave(void **state) {
    (void)state;
    scratch_remove(folder);
    diag_destroy(diag);
    arena_destroy(arena);
    return 0;
}

/* What was said so far; forgets it. */
static const char *take_diag(void) {
    char *text = diag_text(diag);
    const char *kept = arena_strdup(arena, text);
    free(text);
    diag_clear(diag);
    return kept;
}

/* Bytes of a file, which may be changed. */
static unsigned char *file_bytes(const char *name, size_t *bytes) {
    char *text;
    expect_ok(diag, file_read(&text, bytes, arena, name, 1 << 20, diag));
    return (unsigned char *)text;
}

/* --- good files --- */

static void expect_same(const Checkpoint *got, const Checkpoint *want) {
    assert_int_equal(got->count, want->count);
    for (int i = 0; i < got->count; i++) {
        const Tensor *a = &got->tensors[i].tensor, *b = &want->tensors[i].tensor;
        assert_string_equal(got->tensors[i].name, want->tensors[i].name);
        if (a->dtype != b->dtype || !tensor_same_shape(a, b) ||
            (tensor_bytes(a) > 0 &&
             memcmp(tensor_data(a), tensor_data(b), tensor_bytes(a)) != 0))
            fail_msg("%s differs", got->tensors[i].name);
    }
}

static void every_form(void **state) {
    (void)state;
    static const char *const FILES[] = {"state_2.pt", "state_3.pt", "state_4.pt",
                                        "state_5.pt", "state_stream.pt"};
    Checkpoint *want, *got;
    expect_ok(diag, safetensors_read(&want, DATA "state.safetensors", diag));
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        const char *file = arena_printf(arena, DATA "%s", FILES[i]);
        assert_true(pytorch_probe(file));
        expect_ok(diag, pytorch_read(&got, file, diag));
        expect_same(got, want);
        /* tied tensors are the same bytes */
        assert_ptr_equal(tensor_data(checkpoint_find(got, "tied")),
                         tensor_data(checkpoint_find(got, "a.weight")));
        checkpoint_destroy(got);
        const char *said = take_diag();
        assert_non_null(strstr(said, "1 tensor of f64 is read as f32"));
        assert_non_null(strstr(said, "size.0: 3 values are no tensors: left out"));
    }
    checkpoint_destroy(want);
    assert_false(pytorch_probe(DATA "state.safetensors"));
    assert_false(pytorch_probe(DATA));
}

static void state_among_others(void **state) {
    (void)state;
    Checkpoint *got;
    expect_ok(diag, pytorch_read(&got, DATA "training.pt", diag));
    assert_int_equal(got->count, 2);
    assert_non_null(checkpoint_find(got, "head.weight"));
    assert_non_null(checkpoint_find(got, "head.bias"));
    checkpoint_destroy(got);
    const char *said = take_diag();
    assert_non_null(strstr(said, "model: the weights are read from under this key; 3 "
                                 "others are left out"));
    assert_non_null(strstr(said, "all names begin with 'module.', which is left out"));

    expect_ok(diag, pytorch_read_from(&got, DATA "training.pt", "optimizer.state", diag));
    assert_int_equal(got->count, 1);
    assert_string_equal(got->tensors[0].name, "0.step");
    checkpoint_destroy(got);
    expect_error(diag, pytorch_read_from(&got, DATA "training.pt", "ema", diag),
                 STATUS_FORMAT, "ema: the file has no dict under this key");

    expect_ok(diag, pytorch_read(&got, DATA "list.pt", diag));
    assert_int_equal(got->count, 2);
    assert_string_equal(got->tensors[0].name, "0");
    assert_string_equal(got->tensors[1].name, "1.0");
    checkpoint_destroy(got);
}

/* What training scripts keep beside weights: PyTorch's own files
 * (tests/data/pytorch/make_training.py), one of them compressed. */
static void training_files(void **state) {
    static const char *const FILES[] = {DATA "arguments_2.pt", DATA "arguments_4.pt",
                                        DATA "deflated.pt"};
    (void)state;
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        Checkpoint *got;
        TorchFile file;
        expect_ok(diag, pytorch_read(&got, FILES[i], diag));
        assert_int_equal(got->count, 2);
        const Tensor *weight = checkpoint_find(got, "weight");
        assert_int_equal(tensor_count(weight), 600);
        for (int k = 0; k < 600; k++)
            assert_true(((const float *)tensor_data(weight))[k] == (float)k);
        checkpoint_destroy(got);
        expect_ok(diag, torch_file_open(&file, arena, FILES[i], diag));
        const PickleValue *args = pickle_get(file.root, "args");
        assert_true(pickle_get(args, "lr")->real == 1e-3);
        assert_true(pickle_is_text(pickle_get(args, "name"), "run"));
        assert_int_equal(pickle_get(args, "sizes")->list.count, 2);
        assert_int_equal(pickle_get(file.root, "epoch")->integer, -7);
        assert_true(pickle_get(file.root, "best")->real == 0.25);
        assert_true(pickle_get(file.root, "loss")->real == 1.5);
        assert_true(pickle_get(file.root, "flag")->boolean);
        torch_file_close(&file);
    }
}

/* Compressed entries that say they are huge, or are not what they say. */
static void zip_bombs(void **state) {
    static const struct {
        uint32_t bytes;
        const char *message;
    } SIZES[] = {{0x7fffffff, "its compressed entries would take more than"},
                 {3, "its compressed data is damaged, or not of 3 bytes"},
                 {500, "its compressed data is damaged, or not of 500 bytes"}};
    (void)state;
    size_t length;
    Checkpoint *got;
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        unsigned char *bytes = file_bytes(DATA "deflated.pt", &length);
        size_t central = 0;
        while (memcmp(bytes + central, "PK\1\2", 4) != 0) central++;
        memcpy(bytes + 22, &SIZES[i].bytes, 4); /* of the first entry */
        memcpy(bytes + central + 24, &SIZES[i].bytes, 4);
        put_file(path, bytes, length);
        expect_error(diag, pytorch_read(&got, path, diag), STATUS_FORMAT,
                     SIZES[i].message);
    }
    unsigned char *bytes = file_bytes(DATA "deflated.pt", &length);
    size_t central = 0;
    while (memcmp(bytes + central, "PK\1\2", 4) != 0) central++;
    bytes[14] ^= 1; /* the checksum */
    bytes[central + 16] ^= 1;
    put_file(path, bytes, length);
    expect_error(diag, pytorch_read(&got, path, diag), STATUS_FORMAT,
                 "its data does not match its checksum");
}

static void shards(void **state) {
    (void)state;
    char one[300], index[320];
    size_t bytes;
    Checkpoint *got;
    unsigned char *data = file_bytes(DATA "list.pt", &bytes);
    snprintf(one, sizeof one, "%s/pytorch_model.bin", folder);
    snprintf(index, sizeof index, "%s.index.json", one);
    put_file(path, data, bytes);
    put_text(index, "{\"weight_map\":{\"0\":\"x.pt\",\"1.0\":\"x.pt\"}}");
    expect_ok(diag, checkpoint_read(&got, folder, diag));
    assert_int_equal(got->count, 2);
    checkpoint_destroy(got);
    put_text(index, "{\"weight_map\":{\"0\":\"x.pt\",\"1.0\":\"y.pt\"}}");
    expect_error(diag, checkpoint_read(&got, folder, diag), STATUS_FORMAT,
                 "1.0: the index says that this tensor is in y.pt");
    put_file(one, data, bytes); /* one file wins over shards */
    expect_ok(diag, checkpoint_read(&got, folder, diag));
    assert_int_equal(got->count, 2);
    checkpoint_destroy(got);
    snprintf(one, sizeof one, "%s/model.safetensors", folder);
    data = file_bytes(DATA "state.safetensors", &bytes);
    put_file(one, data, bytes); /* and safetensors over both */
    expect_ok(diag, checkpoint_read(&got, folder, diag));
    assert_true(got->count > 2);
    checkpoint_destroy(got);
}

/* Tied weights have two names in such files: the second one is no tensor that is left
 * over, and nothing is said of it. */
static void tied_weights(void **state) {
    (void)state;
    Checkpoint *own;
    Model *model;
    expect_ok(diag, model_load(&model, DATA "tied", ops_table(), true, diag));
    assert_string_equal(take_diag(), "");
    expect_ok(diag, checkpoint_read(&own, DATA "tied", diag));
    assert_int_equal(model->graph->storage_count, own->count - 3);
    for (int i = 0; i < model->graph->storage_count; i++) {
        const Storage *storage = model->graph->storages[i];
        const Tensor *tensor = checkpoint_find(own, storage->name);
        assert_non_null(tensor);
        assert_memory_equal(tensor_data(tensor), tensor_data(&storage->tensor),
                            tensor_bytes(tensor));
    }
    checkpoint_destroy(own);
    model_destroy(model);
}

/* --- pickles --- */

#define P(text) text, sizeof text - 1
#define PROTO   "\x80\x02"
#define ORDERED "ccollections\nOrderedDict\n"
#define REBUILD "ctorch._utils\n_rebuild_tensor_v2\n"
#define STORED                                                                           \
    "(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0"                               \
    "0X\x03\0\0\0"                                                                       \
    "cpuK\x04tQ"

static const struct {
    const char *bytes;
    size_t length;
    const char *message;
} PICKLES[] = {
    /* calls */
    {P(PROTO "cos\nsystem\nX\x02\0\0\0id\x85R."), "byte 2: \"os.system\" is none of the"},
    {P(PROTO "cposix\nsystem\nX\x02\0\0\0id\x85R."), "\"posix.system\" is none"},
    {P(PROTO "cbuiltins\neval\nX\x03\0\0\0"
             "1+1\x85R."),
     "\"builtins.eval\" is none"},
    {P(PROTO "c__builtin__\nexec\n."), "\"__builtin__.exec\" is none"},
    {P("\x80\x04\x8c\x02os\x8c\x06system\x93."), "byte 14: \"os.system\" is none"},
    {P(PROTO "ctorch.storage\n_load_from_bytes\n."),
     "\"torch.storage._load_from_bytes\""},
    {P(PROTO "ctorch._utils\n_rebuild_tensor_v2.__globals__\n."),
     "__globals__\" is none"},
    {P(PROTO "(ios\nsystem\n."), "byte 3: \"os.system\" is none"},
    {P(PROTO "(icollections\nOrderedDict\n."), "\"collections.OrderedDict\" is none"},
    {P(PROTO "(" ORDERED "o."), "an instance of collections.OrderedDict is not read"},
    {P(PROTO ORDERED ")\x81."), "an instance of collections.OrderedDict is not read"},
    {P(PROTO ORDERED ")}\x92."), "an instance of collections.OrderedDict is not read"},
    {P(PROTO "N)\x81."), "an instance of what is no class is not read"},
    {P(PROTO "]}b."), "BUILD of a list with a dict is not read"},
    {P(PROTO ORDERED "}b."), "BUILD of a name with a dict"},
    {P(PROTO "N)R."), "expected a name and a tuple of arguments, found a None"},
    {P(PROTO ORDERED "]R."), "found a name and a list"},
    {P(PROTO ORDERED "N\x85R."), "expected nothing or a list of pairs for a dict"},
    {P(PROTO ORDERED "(]N\x61lR."), "found a name and a list"},
    {P(PROTO "ctorch\nfloat32\n)R."), "'torch.float32' is not read with these arguments"},
    {P(PROTO "ctorch\nFloatStorage\n)R."), "'torch.FloatStorage' is not read with these"},
    {P(PROTO "\x82\x01."), "the opcode EXT1 is not read"},
    {P(PROTO "\x97."), "the opcode NEXT_BUFFER is not read"},
    {P(PROTO "\x8f."), "the opcode EMPTY_SET is not read"},
    {P(PROTO "Pid\n."), "the opcode PERSID is not read"},
    {P(PROTO "I1\n."), "the opcode INT is not read"},
    {P(PROTO "\x7f."), "expected an opcode, found the byte 127"},
    {P(PROTO "c\xff\nx\n."), "byte 2: \"?\" is none of the names"},
    /* the stack, marks and the memo */
    {P("(I1\nl."), "expected a pickle of protocol 2 to 5"},
    {P("\x80\x06N."), "expected a pickle of protocol 2 to 5"},
    {P("\x80"), "expected a pickle of protocol 2 to 5"},
    {P(PROTO "."), "expected one value at the end, found 0"},
    {P(PROTO "NN."), "expected one value at the end, found 2"},
    {P(PROTO "(N."), "expected one value at the end, found 1"},
    {P(PROTO "l."), "expected a mark on the stack, found none"},
    {P(PROTO "1."), "expected a mark on the stack"},
    {P(PROTO "0."), "the stack holds 0 values here, expected 1"},
    {P(PROTO "2."), "the stack holds 0 values here, expected 1"},
    {P(PROTO "N(\x85l."), "the stack holds 0 values here, expected 1"},
    {P(PROTO "(N\x86."), "the stack holds 1 values here, expected 2"},
    {P(PROTO "]Ns."), "the stack holds 0 values here, expected 1"},
    {P(PROTO "}NNNs."), "expected a dict to add to, found a None"},
    {P(PROTO "}(Nu."), "expected keys and values in turn, found 1"},
    {P(PROTO "}(NNe."), "expected a list to add to, found a dict"},
    {P(PROTO "h\0."), "memo number 0 was not set"},
    {P(PROTO "Nq\x01h\0."), "memo number 0 was not set"},
    {P(PROTO "Nr\xff\xff\xff\x7f."), "memo number 2147483647 behind 0 others"},
    {P(PROTO "q\0."), "the stack holds 0 values here"},
    {P(PROTO "NN\x93."), "expected a module and a name, found a None and a None"},
    /* lengths */
    {P(PROTO "X\xff\xff\xff\xff"
             "abc"),
     "4294967295 bytes were announced, 3 left"},
    {P(PROTO "\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
             "abc"),
     "18446744073709551615 bytes"},
    {P(PROTO "\x8b\xff\xff\xff\x7f"
             "abc."),
     "2147483647 bytes were announced, 4 left"},
    {P(PROTO "\x8b\0\0\0\x80."), "2147483648 bytes were announced"},
    {P(PROTO "\x8a\x05"
             "ab"),
     "5 bytes were announced, 2 left"},
    {P(PROTO "G\0\0\0"), "the pickle ends in the middle: 5 bytes are missing"},
    {P(PROTO "J\0"), "3 bytes are missing"},
    {P(PROTO "N"), "the pickle ends in the middle: 1 bytes are missing"},
    {P(PROTO "cos\nsystem"), "expected a name that ends with its line"},
    /* storages and tensors */
    {P(PROTO "NQ."), "expected a storage with its class, key and number"},
    {P(PROTO "(X\x06\0\0\0modulectorch\nFloatStorage\nX\x01\0\0\0"
             "0NK\x04tQ."),
     "expected a storage with its class"},
    {P(PROTO "(X\x07\0\0\0storagectorch\nSize\nX\x01\0\0\0"
             "0NK\x04tQ."),
     "expected a storage with its class"},
    {P(PROTO "(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0"
             "0NJ\xff\xff\xff\xfftQ."),
     "expected a storage with its class"},
    {P(PROTO "(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0"
             "0N\x8a\x08\xff\xff\xff\xff"
             "\xff\xff\xff\x7ftQ."),
     "the storage has a key or a size that is none"},
    {P(PROTO "(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0"
             "0NK\x04(X\x01\0\0\0"
             "vK\x03K\x02ttQ."),
     "expected a view within the storage '0' of 4 elements"},
    {P(PROTO REBUILD ")R."), "expected a storage, an offset and up to 6 sizes"},
    {P(PROTO REBUILD "(" STORED "K\0K\x04\x85)N}tR."), "expected a storage, an offset"},
    {P(PROTO REBUILD "(" STORED "K\0J\xff\xff\xff\xff\x85K\x01\x85N}tR."),
     "an offset and"},
    {P(PROTO REBUILD "(" STORED "K\0K\x04\x85J\xff\xff\xff\xff\x85N}tR."),
     "an offset and"},
    {P(PROTO REBUILD "(" STORED "K\x01K\x04\x85K\x01\x85N}tR."),
     "a tensor of shape [4] from element 1 on does not lie in its storage '0' of 4"},
    {P(PROTO REBUILD "(" STORED "K\0K\x02\x85K\x04\x85N}tR."),
     "does not lie in its storage"},
    {P(PROTO REBUILD "(" STORED "K\0K\x08\x85K\0\x85N}tR."),
     "does not lie in its storage"},
    {P(PROTO REBUILD "(" STORED "K\x05K\0\x85K\0\x85N}tR."),
     "does not lie in its storage"},
    {P(PROTO REBUILD "(" STORED
                     "K\0K\x02\x85\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85N}tR."),
     "does not lie in its storage"},
    {P(PROTO REBUILD
       "(" STORED
       "K\0\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x8a\x08\xff\xff\xff\xff\xff\xff\xff"
       "\x7f\x86K\x01K\x01\x86N}tR."),
     "does not lie in its storage"},
};

/* Reads a pickle of memory, exactly as long as it is, so that reading beyond its end is
 * seen. */
static Status read_pickle(const void *bytes, size_t length, const PickleValue **out) {
    unsigned char *copy = malloc(length ? length : 1);
    if (length) memcpy(copy, bytes, length);
    PickleSource source = {
        .data = copy, .length = length, .path = "x.pkl", .arena = arena, .diag = diag};
    const Status status = pickle_read(out, &source, NULL);
    free(copy);
    return status;
}

static void hostile_pickles(void **state) {
    (void)state;
    const PickleValue *value;
    for (size_t i = 0; i < sizeof PICKLES / sizeof *PICKLES; i++)
        expect_error(diag, read_pickle(PICKLES[i].bytes, PICKLES[i].length, &value),
                     STATUS_FORMAT, PICKLES[i].message);
}

static void plain_pickles(void **state) {
    (void)state;
    const PickleValue *value;
    expect_ok(diag, read_pickle(P(PROTO "\x8a\x02\xff\x7f."), &value));
    assert_int_equal(value->integer, 32767);
    expect_ok(diag, read_pickle(P(PROTO "\x8a\x01\xff."), &value));
    assert_int_equal(value->integer, -1);
    expect_ok(diag, read_pickle(P(PROTO "\x8a\0."), &value));
    assert_int_equal(value->integer, 0);
    expect_ok(diag, read_pickle(P(PROTO "J\xfe\xff\xff\xff."), &value));
    assert_int_equal(value->integer, -2);
    expect_ok(diag, read_pickle(P(PROTO "G\x3f\xf8\0\0\0\0\0\0."), &value));
    assert_true(value->real == 1.5);
    expect_ok(diag, read_pickle(P(PROTO "N(NN0N1."), &value));
    assert_int_equal(value->kind, PICKLE_NONE);
    /* Python 2 wrote dicts as pairs; lists may hold themselves */
    expect_ok(diag, read_pickle(P(PROTO ORDERED "(](U\x01"
                                                "aK\x07\x86"
                                                "e\x85"
                                                "0"
                                                "](U\x01"
                                                "aK\x07\x86"
                                                "etR."),
                                &value));
    assert_int_equal(value->kind, PICKLE_DICT);
    assert_int_equal(value->list.count, 2);
    expect_ok(diag, read_pickle(P(PROTO "]q\0h\0a."), &value));
    assert_ptr_equal(value->list.items[0], value);
}

/* Pickles that would take much memory or depth for their length. */
static void bombs(void **state) {
    (void)state;
    const PickleValue *value;
    const size_t length = (size_t)9 << 20;
    char *text = malloc(length);
    memset(text, '(', length); /* containers that are open at once */
    memcpy(text, PROTO, 2);
    expect_error(diag, read_pickle(text, length, &value), STATUS_FORMAT,
                 "nested deeper than 1000 containers");
    memset(text + 2, 'N', length - 2);
    expect_error(diag, read_pickle(text, length, &value), STATUS_FORMAT,
                 "more than 1048576 values on the stack");
    for (size_t i = 2; i < length; i++) text[i] = i % 2 ? '0' : 'N'; /* pushed, popped */
    expect_error(diag, read_pickle(text, length, &value), STATUS_FORMAT,
                 "more than 4194304 values in a pickle");
    free(text);
}

/* A value that holds itself, and one of shared values that doubles with each level, end
 * in an error and not in the walk. */
static void put_archive(const char *pickle, size_t length);

static void endless_values(void **state) {
    (void)state;
    Checkpoint *got;
    Text text = {0};
    put_archive(P(PROTO "]q\0h\0a."));
    expect_error(diag, pytorch_read(&got, path, diag), STATUS_FORMAT,
                 "at most 8 containers in one another");
    text_bytes(&text, P(PROTO "(]q\0")); /* a list of all, the last one holding most */
    for (int i = 0; i < 7; i++) {        /* each list holds the one before 100 times */
        text_add(&text, "](");
        for (int j = 0; j < 100; j++) text_bytes(&text, (const char[]){'h', (char)i}, 2);
        text_bytes(&text, (const char[]){'e', 'q', (char)(i + 1)}, 3);
    }
    text_bytes(&text, P("l."));
    put_archive(text.data, text.length);
    expect_error(diag, pytorch_read(&got, path, diag), STATUS_FORMAT,
                 "at most 262144 values");
    text_free(&text);
}

/* --- archives --- */

static void put16(Text *text, unsigned value) {
    text_bytes(text, (const char[]){(char)value, (char)(value >> 8)}, 2);
}

static void put32(Text *text, uint32_t value) {
    put16(text, value & 0xffff);
    put16(text, value >> 16);
}

/* One entry for an archive of the simplest form, and where it may lie. */
typedef struct Entry {
    const char *name, *data;
    size_t length;
    unsigned flags, method;
    const char *local_name; /* NULL = name */
    int shift;              /* of its header's place in the directory */
    int more;               /* bytes that the directory says too many */
} Entry;

static void put_entries(const Entry *entries, int count) {
    Text out = {0}, directory = {0};
    for (int i = 0; i < count; i++) {
        const Entry *e = &entries[i];
        const char *local = e->local_name ? e->local_name : e->name;
        const uint32_t crc = zip_crc(e->data, e->length), at = (uint32_t)out.length;
        const uint32_t bytes = (uint32_t)e->length;
        put32(&out, 0x04034b50), put16(&out, 20), put16(&out, e->flags);
        put16(&out, e->method), put32(&out, 0), put32(&out, crc), put32(&out, bytes);
        put32(&out, bytes), put16(&out, (unsigned)strlen(local)), put16(&out, 0);
        text_bytes(&out, local, strlen(local));
        text_bytes(&out, e->data, e->length);
        put32(&directory, 0x02014b50), put32(&directory, 20), put16(&directory, e->flags);
        put16(&directory, e->method), put32(&directory, 0), put32(&directory, crc);
        put32(&directory, bytes + (uint32_t)e->more);
        put32(&directory, bytes + (uint32_t)e->more);
        put16(&directory, (unsigned)strlen(e->name)), put16(&directory, 0);
        put32(&directory, 0), put32(&directory, 0), put16(&directory, 0);
        put32(&directory, at + (uint32_t)e->shift);
        text_bytes(&directory, e->name, strlen(e->name));
    }
    const uint32_t start = (uint32_t)out.length;
    if (directory.length) text_bytes(&out, directory.data, directory.length);
    put32(&out, 0x06054b50), put32(&out, 0), put16(&out, (unsigned)count);
    put16(&out, (unsigned)count), put32(&out, (uint32_t)directory.length);
    put32(&out, start), put16(&out, 0);
    put_file(path, out.data, out.length);
    text_free(&out);
    text_free(&directory);
}

static void put_archive(const char *pickle, size_t length) {
    put_entries(&(Entry){.name = "x/data.pkl", .data = pickle, .length = length}, 1);
}

#define E(n) .name = n, .data = "abcdefgh", .length = 8

static const struct {
    Entry entries[3];
    int count;
    const char *message;
} ARCHIVES[] = {
    {{{E("x")}}, 0, "expected a file of torch.save, found something else"},
    {{{E("../data.pkl")}}, 1, "expected entries with plain paths inside of the archive"},
    {{{E("/etc/passwd")}}, 1, "found \"/etc/passwd\""},
    {{{E("x/../../y")}}, 1, "found \"x/../../y\""},
    {{{E("x/..")}}, 1, "plain paths"},
    {{{E("x\\y")}}, 1, "plain paths"},
    {{{E("C:x")}}, 1, "plain paths"},
    {{{E("x\ny")}}, 1, "plain paths"},
    {{{E("x\xff")}}, 1, "found \"?\""},
    {{{E("")}}, 1, "plain paths"},
    {{{E("x"), .method = 8}}, 1, "x: its compressed data is damaged, or not of"},
    {{{E("x"), .method = 12}},
     1,
     "x: expected a stored or deflated entry, found compression method 12"},
    {{{E("x"), .flags = 1}}, 1, "encrypted entries are not read"},
    {{{E("x"), .flags = 8}}, 1, "the record behind its data and the directory differ"},
    {{{E("x"), .local_name = "y"}}, 1, "x: its header and the directory differ"},
    {{{E("x"), .more = 1}}, 1, "x: its header and the directory differ"},
    {{{E("x"), .shift = 1}}, 1, "x: expected its header at byte 1, found none"},
    {{{E("x"), .shift = 100000}}, 1, "its header would lie outside"},
    {{{E("x")}, {E("x")}}, 2, "x: two entries have this name"},
    {{{E("x")}, {E("x"), .shift = -39}}, 2, "the entry overlaps"},
    {{{E("x")}, {E("y")}}, 2, "expected an archive of torch.save with a data.pkl"},
    {{{E("x/data.pkl")}, {E("y/data.pkl")}}, 2, "expected one data.pkl, found two"},
    {{{E("x/data.pkl")}}, 1, "x/data.pkl: byte 40: expected a pickle of protocol 2 to 5"},
    {{{E("x/data.pkl")}, {E("x/constants.pkl")}}, 2, "found a TorchScript program"},
    {{{E("x/data.pkl")}, {E("x/byteorder")}}, 2, "numbers with their little end first"},
};

static void hostile_archives(void **state) {
    (void)state;
    Checkpoint *got;
    for (size_t i = 0; i < sizeof ARCHIVES / sizeof *ARCHIVES; i++) {
        put_entries(ARCHIVES[i].entries, ARCHIVES[i].count);
        expect_error(diag, pytorch_read(&got, path, diag), STATUS_FORMAT,
                     ARCHIVES[i].message);
    }
    char tar[512] = "pickle";
    memcpy(tar + 257, "ustar", 5);
    put_file(path, tar, sizeof tar);
    expect_error(diag, pytorch_read(&got, path, diag), STATUS_FORMAT,
                 "tar files, as PyTorch wrote them before version 0.2, are not read");
    put_file(path, P(PROTO "N."));
    expect_error(diag, pytorch_read(&got, path, diag), STATUS_FORMAT,
                 "expected a file of torch.save, found another pickle");
    put_archive(P(PROTO "]."));
    expect_error(diag, pytorch_read(&got, path, diag), STATUS_FORMAT,
                 "expected tensors, found none");
    put_archive(P(PROTO REBUILD "(" STORED "K\0K\x04\x85K\x01\x85N}tR."));
    expect_error(diag, pytorch_read(&got, path, diag), STATUS_FORMAT,
                 "data/0: the archive lacks the bytes of this storage");
}

/* No prefix of a file is a file, and no changed byte makes the reader stumble. */
static void damaged(void **state) {
    (void)state;
    static const char *const FILES[] = {DATA "training.pt", DATA "state_stream.pt"};
    Checkpoint *got;
    for (size_t f = 0; f < sizeof FILES / sizeof *FILES; f++) {
        size_t bytes;
        unsigned char *data = file_bytes(FILES[f], &bytes);
        for (size_t length = 0; length < bytes; length++) {
            put_file(path, data, length);
            expect_error(diag, pytorch_read(&got, path, diag), STATUS_FORMAT, "");
        }
        for (size_t i = 0; i < bytes; i++) {
            const unsigned char bit = (unsigned char)(1 << i % 8);
            data[i] ^= bit;
            put_file(path, data, bytes);
            if (pytorch_read(&got, path, diag) == STATUS_OK)
                checkpoint_destroy(got);
            else
                assert_int_equal(diag_errors(diag), 1);
            diag_clear(diag);
            data[i] ^= bit;
        }
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, enter, leave)
    const struct CMUnitTest tests[] = {
        TEST(every_form),   TEST(state_among_others), TEST(shards),
        TEST(tied_weights), TEST(plain_pickles),      TEST(hostile_pickles),
        TEST(bombs),        TEST(endless_values),     TEST(hostile_archives),
        TEST(damaged),      TEST(training_files),     TEST(zip_bombs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
