/* Confinement by Landlock, seccomp and limits. */
#include "io/files/confine.h"
#include "io/files/calls.h"
#include "io/files/sandbox.h"
#include "ir/sanitized.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__has_include)
#if __has_include(<linux/landlock.h>)
#define HAVE_LANDLOCK 1
#include <linux/landlock.h>
#endif
#endif

bool confine_can(void) {
    struct stat tasks; /* a folder with one for each thread, beside "." and ".." */
    return stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink == 3;
}

static void limit_lower(int resource, int64_t bytes) {
    struct rlimit limit;
    if (bytes == 0 || getrlimit(resource, &limit) != 0) return;
    if ((rlim_t)bytes < limit.rlim_max) limit.rlim_max = (rlim_t)bytes;
    if (limit.rlim_max < limit.rlim_cur) limit.rlim_cur = limit.rlim_max;
    setrlimit(resource, &limit);
}

#if HAVE_LANDLOCK

/* The kernel's structure as of its sixth version; older headers have its beginning. */
typedef struct Ruleset {
    uint64_t files, network, scopes;
} Ruleset;

/* Rights that older headers lack: the second, third and fifth version's. */
#define RIGHT_REFER    (1ull << 13)
#define RIGHT_TRUNCATE (1ull << 14)
#define RIGHT_DEVICE   (1ull << 15)

#define RIGHTS_READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define RIGHTS_WRITE                                                                     \
    (RIGHTS_READ | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_FILE |      \
     LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |                       \
     LANDLOCK_ACCESS_FS_MAKE_DIR | RIGHT_REFER | RIGHT_TRUNCATE)
/* Those that can be given at a file; the others are a folder's. */
#define RIGHTS_FILE                                                                      \
    (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | RIGHT_TRUNCATE)

/* All that a version of Landlock can take away. */
static Ruleset ruleset_of(int version) {
    Ruleset all = {.files =
                       (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1}; /* the first's last */
    if (version >= 2) all.files |= RIGHT_REFER;
    if (version >= 3) all.files |= RIGHT_TRUNCATE;
    if (version >= 4) all.network = 3; /* bind and connect, of TCP */
    if (version >= 5) all.files |= RIGHT_DEVICE;
    if (version >= 6) all.scopes = 3; /* abstract sockets and signals */
    return all;
}

static Status allow_path(int rules, const char *path, uint64_t rights, Diag *diag) {
    struct stat info;
    const int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return STATUS_OK;
    bool done = fd >= 0 && fstat(fd, &info) == 0;
    if (done && !S_ISDIR(info.st_mode)) rights &= RIGHTS_FILE;
    const struct landlock_path_beneath_attr rule = {.allowed_access = rights,
                                                    .parent_fd = fd};
    done = done && syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH,
                           &rule, 0) == 0;
    const int cause = errno;
    if (fd >= 0) close(fd);
    if (done) return STATUS_OK;
    return diag_fail(diag, STATUS_IO, LOC_FILE(path), NULL,
                     "cannot confine the program to it: %s", strerror(cause));
}

static Status allow_paths(int rules, uint64_t handled, const Confinement *wanted,
                          Diag *diag) {
    static const char *const SYSTEM[] = {"/dev/urandom", "/proc/cpuinfo",
                                         "/sys/devices/system/cpu"};
    for (size_t i = 0; i < sizeof SYSTEM / sizeof *SYSTEM; i++)
        TRY(allow_path(rules, SYSTEM[i], handled & RIGHTS_READ, diag));
    TRY(allow_path(rules, "/dev/null", handled & RIGHTS_WRITE, diag));
    if (SANITIZED) /* the search for leaks reads there */
        TRY(allow_path(rules, "/proc/self/task", handled & RIGHTS_READ, diag));
    for (int i = 0; i < wanted->reads.count; i++)
        TRY(allow_path(rules, wanted->reads.items[i], handled & RIGHTS_READ, diag));
    for (int i = 0; i < wanted->writes.count; i++)
        TRY(allow_path(rules, wanted->writes.items[i], handled & RIGHTS_WRITE, diag));
    return STATUS_OK;
}

static Status confine_files(const Confinement *wanted, Diag *diag) {
    const long version =
        syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (version < 1)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "this system has no Landlock to confine the program by: %s",
                         strerror(errno));
    const Ruleset all = ruleset_of((int)version);
    const int rules = (int)syscall(SYS_landlock_create_ruleset, &all, sizeof all, 0);
    Status status = STATUS_OK;
    if (rules >= 0) status = allow_paths(rules, all.files, wanted, diag);
    if (status == STATUS_OK &&
        (rules < 0 || syscall(SYS_landlock_restrict_self, rules, 0) != 0))
        status = diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                           "Landlock does not confine the program: %s", strerror(errno));
    if (rules >= 0) close(rules);
    return status;
}

#else

static Status confine_files(const Confinement *wanted, Diag *diag) {
    (void)wanted;
    return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                     "this system has no Landlock to confine the program by");
}

#endif

Status confine(const Confinement *wanted, Diag *diag) {
    sandbox_prepare();
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "cannot give up privileges: %s", strerror(errno));
    TRY(confine_files(wanted, diag));
    if (!calls_drop_reach())
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "there is no filter of system calls to confine the program by");
    if (!SANITIZED) limit_lower(RLIMIT_DATA, wanted->memory);
    limit_lower(RLIMIT_FSIZE, wanted->file);
    return STATUS_OK;
}
