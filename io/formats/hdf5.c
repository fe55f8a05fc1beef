/* HDF5: the only file that includes hdf5.h.
 *
 * Order: shared helpers, a driver that reads from memory, walking a model file, writing
 * one, reading arrays. */
#include "io/formats/hdf5.h"

#include "ir/mapped.h"
#include "ir/resident.h"

#include <hdf5.h>
#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool fail(Text *fault, const char *fmt, const char *name) {
    text_add(fault, fmt, name);
    return false;
}

/* No messages on stderr, no plug-ins loaded from anywhere, nothing at exit: a child ends
 * by _exit, and the lock of what is done at exit may be held for ever by a thread that
 * the fork did not take along. */
static void library_quiet(void) {
    H5dont_atexit();
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    H5PLset_loading_state(0);
}

static hid_t access_list(void) {
    hid_t list = H5Pcreate(H5P_FILE_ACCESS);
#if H5_VERSION_GE(1, 10, 7)
    H5Pset_file_locking(list, 0, 1); /* locks fail on some network file systems */
#endif
    return list;
}

/* --- a driver that reads from memory --- */

typedef struct MemoryFile {
    H5FD_t base; /* the library's part comes first */
    Hdf5Source source;
    haddr_t end; /* of what the library believes to be there */
} MemoryFile;

static H5FD_t *memory_open(const char *name, unsigned flags, hid_t access, haddr_t most) {
    const Hdf5Source *source = H5Pget_driver_info(access);
    MemoryFile *file = source ? calloc(1, sizeof *file) : NULL;
    (void)name, (void)flags, (void)most;
    if (file) file->source = *source;
    return (H5FD_t *)file;
}

static herr_t memory_close(H5FD_t *base) {
    free(base);
    return 0;
}

static haddr_t memory_end(const H5FD_t *base, H5FD_mem_t type) {
    (void)type;
    return ((const MemoryFile *)base)->end;
}

static herr_t memory_set_end(H5FD_t *base, H5FD_mem_t type, haddr_t end) {
    (void)type;
    ((MemoryFile *)base)->end = end;
    return 0;
}

static haddr_t memory_bytes(const H5FD_t *base, H5FD_mem_t type) {
    (void)type;
    return ((const MemoryFile *)base)->source.bytes;
}

/* What lies behind the file's last byte reads as zeros, as from a file. */
static herr_t memory_read(H5FD_t *base, H5FD_mem_t type, hid_t transfer, haddr_t at,
                          size_t bytes, void *out) {
    const MemoryFile *file = (const MemoryFile *)base;
    const size_t all = file->source.bytes;
    const size_t there = at >= all ? 0 : bytes < all - at ? bytes : all - (size_t)at;
    (void)type, (void)transfer;
    if (at > file->end || bytes > file->end - at) return -1;
    if (there > 0) memcpy(out, (const char *)file->source.data + at, there);
    memset((char *)out + there, 0, bytes - there);
    return 0;
}

static herr_t memory_write(H5FD_t *base, H5FD_mem_t type, hid_t transfer, haddr_t at,
                           size_t bytes, const void *data) {
    (void)base, (void)type, (void)transfer, (void)at, (void)bytes, (void)data;
    return -1;
}

static hid_t file_open(const Hdf5Source *source, Text *fault) {
    static const H5FD_class_t MEMORY = {
#if H5_VERSION_GE(1, 13, 0)
        .version = H5FD_CLASS_VERSION,
        .value = (H5FD_class_value_t)600,
#endif
        .name = "memory",
        .maxaddr = INT64_MAX,
        .fc_degree = H5F_CLOSE_WEAK,
        .fapl_size = sizeof(Hdf5Source),
        .open = memory_open,
        .close = memory_close,
        .get_eoa = memory_end,
        .set_eoa = memory_set_end,
        .get_eof = memory_bytes,
        .read = memory_read,
        .write = memory_write,
        .fl_map = H5FD_FLMAP_SINGLE,
    };
    library_quiet();
    hid_t access = access_list();
    H5Pset_driver(access, H5FDregister(&MEMORY), source);
    hid_t file = H5Fopen("/memory", H5F_ACC_RDONLY, access);
    H5Pclose(access);
    if (file < 0) text_add(fault, "not a readable HDF5 file");
    return file;
}

/* IEEE half precision, which the library does not predefine. */
static hid_t type_half(void) {
    hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    H5Tset_fields(type, 15, 10, 5, 0, 10);
    H5Tset_size(type, 2);
    H5Tset_ebias(type, 15);
    return type;
}

/* Type of the elements in the file (and in memory: nothing is converted); close it. */
static hid_t type_create(DType dtype) {
    switch (dtype) {
    case DTYPE_F32: return H5Tcopy(H5T_IEEE_F32LE);
    case DTYPE_F64: return H5Tcopy(H5T_IEEE_F64LE);
    case DTYPE_F16: return type_half();
    case DTYPE_BF16: return H5Tcopy(H5T_STD_U16LE);
    case DTYPE_I64: return H5Tcopy(H5T_STD_I64LE);
    case DTYPE_I32: return H5Tcopy(H5T_STD_I32LE);
    case DTYPE_I8: return H5Tcopy(H5T_STD_I8LE);
    default: return H5Tcopy(H5T_STD_U8LE);
    }
}

/* --- walking --- */

typedef struct FileWalk {
    const char *group; /* being walked, NULL = the root */
    Hdf5Visit visit;
    void *state;
    Text *fault;
} FileWalk;

static bool set_type(Hdf5Set *set, hid_t id) {
    hid_t type = H5Dget_type(id);
    bool found = false;
    for (int d = 0; d < DTYPE_BOOL && !found; d++) {
        hid_t ours = type_create((DType)d);
        found = H5Tequal(type, ours) > 0;
        H5Tclose(ours);
        set->dtype = (DType)d;
    }
    H5Tclose(type);
    return found;
}

/* Shape of a data set; false when it has none or too many dimensions. */
static bool shape_get(hid_t id, int *rank, int64_t *dim) {
    hid_t space = H5Dget_space(id);
    H5S_class_t kind = H5Sget_simple_extent_type(space);
    hsize_t size[H5S_MAX_RANK] = {0};
    int n = H5Sget_simple_extent_ndims(space);
    bool ok = (kind == H5S_SCALAR || kind == H5S_SIMPLE) && n >= 0 && n <= RANK_MAX &&
              H5Sget_simple_extent_dims(space, size, NULL) == n;
    H5Sclose(space);
    *rank = n;
    for (int i = 0; ok && i < n; i++) {
        dim[i] = (int64_t)size[i];
        ok = size[i] <= INT64_MAX;
    }
    return ok;
}

static bool visit_set(FileWalk *walk, hid_t id, const char *name) {
    Hdf5Set set = {.group = walk->group, .name = name};
    hid_t list = H5Dget_create_plist(id);
    const bool plain = H5Pget_layout(list) == H5D_CONTIGUOUS &&
                       H5Pget_nfilters(list) == 0 && H5Pget_external_count(list) == 0;
    H5Pclose(list);
    if (!plain)
        return fail(walk->fault, "data set '%s' is not stored contiguously", name);
    if (!set_type(&set, id))
        return fail(walk->fault, "data set '%s' has an unexpected element type", name);
    if (!shape_get(id, &set.rank, set.dim))
        return fail(walk->fault, "data set '%s' has an impossible shape", name);
    set.bytes = H5Dget_storage_size(id);
    haddr_t offset = H5Dget_offset(id);
    if (offset == HADDR_UNDEF && set.bytes > 0)
        return fail(walk->fault, "data set '%s' has no data", name);
    set.offset = offset == HADDR_UNDEF ? 0 : offset;
    walk->visit(&set, walk->state);
    return true;
}

static bool walk_group(FileWalk *walk, hid_t group);

static bool visit_object(FileWalk *walk, hid_t id, const char *name) {
    if (H5Aget_num_attrs(id) != 0)
        return fail(walk->fault, "object '%s' has attributes", name);
    H5I_type_t kind = H5Iget_type(id);
    if (kind == H5I_DATASET) return visit_set(walk, id, name);
    if (kind != H5I_GROUP || walk->group)
        return fail(walk->fault, "'%s' is not a data set", name);
    FileWalk inner = *walk;
    inner.group = name;
    return walk_group(&inner, id);
}

static herr_t visit_link(hid_t group, const char *name, const H5L_info_t *info,
                         void *state) {
    FileWalk *walk = state;
    if (info->type != H5L_TYPE_HARD) {
        fail(walk->fault, "'%s' is a link out of place", name);
        return -1;
    }
    hid_t id = H5Oopen(group, name, H5P_DEFAULT);
    if (id < 0) {
        fail(walk->fault, "object '%s' cannot be opened", name);
        return -1;
    }
    bool ok = visit_object(walk, id, name);
    H5Oclose(id);
    return ok ? 0 : -1;
}

static bool walk_group(FileWalk *walk, hid_t group) {
    herr_t result = H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, NULL, visit_link, walk);
    if (result < 0 && walk->fault->length == 0)
        text_add(walk->fault, "a group's list of names is damaged");
    return result >= 0;
}

bool hdf5_walk(const Hdf5Source *source, Hdf5Visit visit, void *state, Text *fault) {
    hid_t file = file_open(source, fault);
    if (file < 0) return false;
    hid_t list = H5Fget_create_plist(file);
    hsize_t block = 1;
    if (H5Pget_userblock(list, &block) < 0 || block != 0)
        return fail(fault, "the file has a %s", "user block");
    H5Pclose(list);
    hid_t root = H5Gopen2(file, "/", H5P_DEFAULT);
    if (root < 0) return fail(fault, "the %s group cannot be opened", "root");
    FileWalk walk = {.visit = visit, .state = state, .fault = fault};
    if (H5Aget_num_attrs(root) != 0) return fail(fault, "the root has %s", "attributes");
    if (!walk_group(&walk, root)) return false;
    H5Gclose(root);
    H5Fclose(file);
    return true;
}

/* --- writing --- */

/* Keeps the operating system's message of a failed write, if that is what happened. */
static herr_t error_reason(unsigned n, const H5E_error2_t *error, void *state) {
    static const char mark[] = "error message = '";
    const char *from = error->desc ? strstr(error->desc, mark) : NULL;
    const char *to = from ? strchr(from + sizeof mark - 1, '\'') : NULL;
    Text *fault = state;
    (void)n;
    if (!to || fault->length) return 0;
    text_bytes(fault, from + sizeof mark - 1, (size_t)(to - from) - (sizeof mark - 1));
    return 0;
}

/* Called by the library when a call fails; the next one forgets why. */
static herr_t on_failure(hid_t stack, void *fault) {
    H5Ewalk2(stack, H5E_WALK_UPWARD, error_reason, fault);
    return 0;
}

static bool write_failed(Text *fault, const char *what) {
    if (fault->length == 0) text_add(fault, "HDF5 cannot write %s", what);
    return false;
}

/* The newest format that 1.8 and later read; its metadata carries checksums. */
static hid_t file_create(const char *path, Text *fault) {
    library_quiet();
    H5Eset_auto2(H5E_DEFAULT, on_failure, fault);
    hid_t create = H5Pcreate(H5P_FILE_CREATE);
    hid_t access = access_list();
    H5Pset_obj_track_times(create, 0);
    H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18);
    H5Pset_alignment(access, 1, 64);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, create, access);
    H5Pclose(access);
    H5Pclose(create);
    return file;
}

static hid_t set_create(hid_t parent, const Hdf5Set *set, hid_t type) {
    hsize_t dim[RANK_MAX] = {0};
    for (int i = 0; i < set->rank; i++) dim[i] = (hsize_t)set->dim[i];
    hid_t space =
        set->rank ? H5Screate_simple(set->rank, dim, NULL) : H5Screate(H5S_SCALAR);
    hid_t create = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_obj_track_times(create, 0);
    H5Pset_layout(create, H5D_CONTIGUOUS);
    H5Pset_alloc_time(create, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(create, H5D_FILL_TIME_NEVER);
    hid_t id =
        H5Dcreate2(parent, set->name, type, space, H5P_DEFAULT, create, H5P_DEFAULT);
    H5Pclose(create);
    H5Sclose(space);
    return id;
}

/* Writes rows [first, first + count) of a set that is open as `id`. */
static bool rows_write(hid_t id, hid_t type, const Hdf5Set *set, hsize_t first,
                       hsize_t count, const char *data) {
    hsize_t start[RANK_MAX] = {first}, dim[RANK_MAX] = {0};
    for (int i = 0; i < set->rank; i++) dim[i] = (hsize_t)set->dim[i];
    dim[0] = count;
    const hid_t to = H5Dget_space(id), from = H5Screate_simple(set->rank, dim, NULL);
    const bool ok =
        H5Sselect_hyperslab(to, H5S_SELECT_SET, start, NULL, dim, NULL) >= 0 &&
        H5Dwrite(id, type, from, to, H5P_DEFAULT, data) >= 0;
    H5Sclose(from);
    H5Sclose(to);
    return ok;
}

/* Writes all of a set, of a large one as many rows at a time as a piece has room for:
 * they may lie in a mapped file. */
static bool values_write(hid_t id, hid_t type, const Hdf5Set *set, size_t bytes) {
    const char *data = set->data;
    if (bytes <= PIECE_BYTES || set->rank == 0) {
        resident_use(data, bytes);
        return H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
    }
    const size_t rows = (size_t)set->dim[0], row = bytes / rows;
    const size_t most = row < PIECE_BYTES ? PIECE_BYTES / row : 1;
    for (size_t first = 0, count; first < rows; first += count) {
        count = rows - first < most ? rows - first : most;
        const size_t end = (first + count) * row, left = bytes - end;
        resident_use(data + first * row, count * row);
        resident_ahead(data + end, left < 2 * PIECE_BYTES ? left : 2 * PIECE_BYTES);
        if (!rows_write(id, type, set, first, count, data + first * row)) return false;
    }
    return true;
}

static bool set_write(hid_t parent, const Hdf5Set *set, haddr_t *told, Text *fault) {
    size_t bytes = 0;
    if (!shape_size(set->dtype, set->rank, set->dim, NULL, &bytes))
        return fail(fault, "'%s' has an impossible shape", set->name);
    hid_t type = type_create(set->dtype);
    hid_t id = set_create(parent, set, type);
    bool ok = id >= 0;
    if (ok && bytes > 0) ok = values_write(id, type, set, bytes);
    if (ok && set->tell) *told = H5Dget_offset(id);
    ok = ok && H5Dclose(id) >= 0;
    if (!ok) return write_failed(fault, set->name);
    H5Tclose(type);
    return true;
}

bool hdf5_write(const char *path, const Hdf5Set *sets, int count, Text *reply) {
    hid_t file = file_create(path, reply), group = -1;
    haddr_t told = HADDR_UNDEF;
    if (file < 0) return write_failed(reply, "the file");
    const char *name = NULL;
    for (int i = 0; i < count; i++) {
        if (sets[i].group && (!name || strcmp(name, sets[i].group) != 0)) {
            if (group >= 0) H5Gclose(group);
            name = sets[i].group;
            hid_t create = H5Pcreate(H5P_GROUP_CREATE);
            H5Pset_obj_track_times(create, 0);
            group = H5Gcreate2(file, name, H5P_DEFAULT, create, H5P_DEFAULT);
            H5Pclose(create);
            if (group < 0) return write_failed(reply, name);
        }
        if (!set_write(sets[i].group ? group : file, &sets[i], &told, reply))
            return false;
    }
    bool ok = group < 0 || H5Gclose(group) >= 0;
    ok = H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0 && H5Fclose(file) >= 0 && ok;
    if (!ok) return write_failed(reply, "the file");
    if (told != HADDR_UNDEF) text_add(reply, "%llu", (unsigned long long)told);
    return true;
}

/* --- arrays --- */

/* What a path leads to, every step of it a hard link. */
typedef enum PathKind { PATH_MISSING, PATH_LINK, PATH_HARD } PathKind;

static PathKind path_kind(hid_t file, const char *name) {
    char prefix[1024];
    size_t length = strlen(name);
    if (length == 0 || length >= sizeof prefix) return PATH_MISSING;
    for (size_t i = 1; i <= length; i++) {
        if (name[i] != '/' && name[i] != '\0') continue;
        H5L_info_t info;
        memcpy(prefix, name, i);
        prefix[i] = '\0';
        if (H5Lget_info(file, prefix, &info, H5P_DEFAULT) < 0) return PATH_MISSING;
        if (info.type != H5L_TYPE_HARD) return PATH_LINK;
    }
    return PATH_HARD;
}

static herr_t name_list(hid_t group, const char *name, const H5L_info_t *info,
                        void *state) {
    Text *list = state;
    (void)group, (void)info;
    text_add(list, "%s'%s'", list->length ? ", " : "", name);
    return list->length > 200; /* enough for a message */
}

static hid_t array_open(hid_t file, const char *name, Text *fault) {
    PathKind kind = path_kind(file, name);
    hid_t id = kind == PATH_HARD ? H5Oopen(file, name, H5P_DEFAULT) : -1;
    if (id >= 0 && H5Iget_type(id) == H5I_DATASET) return id;
    if (kind == PATH_MISSING) {
        Text names = {0};
        H5Literate(file, H5_INDEX_NAME, H5_ITER_INC, NULL, name_list, &names);
        text_add(fault, "expected a data set '%s', found %s", name,
                 names.length ? names.data : "an empty file");
        text_free(&names);
    } else if (kind == PATH_LINK) {
        fail(fault, "'%s' is a soft or external link, which is not followed", name);
    } else {
        fail(fault, "'%s' is not a readable data set", name);
    }
    return -1;
}

static bool filters_allowed(hid_t list) {
    int count = H5Pget_nfilters(list);
    for (int i = 0; i < count; i++) {
        unsigned flags, config;
        size_t values = 0;
        H5Z_filter_t filter =
            H5Pget_filter2(list, (unsigned)i, &flags, &values, NULL, 0, NULL, &config);
        if (filter != H5Z_FILTER_DEFLATE && filter != H5Z_FILTER_SHUFFLE &&
            filter != H5Z_FILTER_FLETCHER32)
            return false;
    }
    return count >= 0;
}

static bool array_type(hid_t id, const char *name, Hdf5Array *out, Text *fault) {
    hid_t type = H5Dget_type(id);
    H5T_class_t kind = H5Tget_class(type);
    size_t size = H5Tget_size(type);
    out->integer = kind == H5T_INTEGER;
    out->is_u8 = kind == H5T_INTEGER && size == 1 && H5Tget_sign(type) == H5T_SGN_NONE;
    H5Tclose(type);
    if ((kind != H5T_INTEGER && kind != H5T_FLOAT) || size > 16)
        return fail(fault, "data set '%s' does not hold numbers", name);
    return true;
}

/* Opens and describes; the data set stays open at *id. */
static bool array_describe(hid_t *id, hid_t file, const char *name, Hdf5Array *out,
                           Text *fault) {
    *id = array_open(file, name, fault);
    if (*id < 0) return false;
    hid_t list = H5Dget_create_plist(*id);
    H5D_layout_t layout = H5Pget_layout(list);
    if (H5Pget_external_count(list) != 0 || layout == H5D_VIRTUAL || layout < 0)
        return fail(fault, "data set '%s' keeps its data in another file", name);
    if (!filters_allowed(list))
        return fail(fault, "data set '%s' uses a filter other than deflate", name);
    H5Pclose(list);
    if (!array_type(*id, name, out, fault)) return false;
    if (!shape_get(*id, &out->rank, out->dim) || out->rank == 0)
        return fail(fault, "data set '%s' needs 1 to 6 dimensions, samples first", name);
    out->stored = H5Dget_storage_size(*id);
    return true;
}

bool hdf5_describe(const Hdf5Source *source, const char *name, Hdf5Array *out,
                   Text *fault) {
    hid_t id, file = file_open(source, fault);
    return file >= 0 && array_describe(&id, file, name, out, fault);
}

bool hdf5_read(const Hdf5Source *source, const char *name, const Hdf5Array *expected,
               int64_t first, int64_t count, DType as, void *data, Text *fault) {
    Hdf5Array array = {0};
    hid_t id, file = file_open(source, fault);
    if (file < 0 || !array_describe(&id, file, name, &array, fault)) return false;
    if (array.rank != expected->rank ||
        memcmp(array.dim, expected->dim, sizeof array.dim) != 0)
        return fail(fault, "data set '%s' changed while it was read", name);
    hsize_t start[RANK_MAX] = {(hsize_t)first}, size[RANK_MAX] = {(hsize_t)count};
    for (int i = 1; i < array.rank; i++) size[i] = (hsize_t)array.dim[i];
    hid_t from = H5Dget_space(id), to = H5Screate_simple(array.rank, size, NULL);
    H5Sselect_hyperslab(from, H5S_SELECT_SET, start, NULL, size, NULL);
    hid_t type = as == DTYPE_U8    ? H5T_NATIVE_UINT8
                 : as == DTYPE_F32 ? H5T_NATIVE_FLOAT
                                   : H5T_NATIVE_INT64;
    if (H5Dread(id, type, to, from, H5P_DEFAULT, data) < 0)
        return fail(fault, "data set '%s' cannot be read: its data is damaged", name);
    return true;
}
