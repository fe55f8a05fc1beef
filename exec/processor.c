/* Processor: see exec/processor.h. This file is compiled for the oldest x86-64. */
#include "exec/processor.h"

#include "exec/linalg/blas.h"
#include "ir/arena.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VARIABLE  "COMPRESS_PROCESSOR"
#define RESTARTED "COMPRESS_RESTARTED"
#define TUNABLES  "GLIBC_TUNABLES"

/* What a level means to the libraries.
 *
 * OpenBLAS: the core type fixes its kernels and how it cuts matrices, with one exception:
 * since 0.3.34 it cuts them another way where the processor is an AMD one with AVX-512
 * and 1024 KiB of second-level cache, even when the core type is given. The size given
 * here is what such a processor does not have.
 *
 * libm has exp, log, sin and others with and without FMA, whose results differ in the
 * last bit. Every processor of v3 has FMA; for v2 it must not be used where there is. */
typedef struct Libraries {
    const char *name, *core, *cache, *tunables;
} Libraries;

static const Libraries LIBRARIES[PROCESSOR_COUNT] = {
    [PROCESSOR_AUTO] = {"native", NULL, NULL, NULL},
    [PROCESSOR_V2] = {"v2", "Nehalem", "256", "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4"},
    [PROCESSOR_V3] = {"v3", "Haswell", "256", NULL},
    [PROCESSOR_V4] = {"v4", "SkylakeX", "256", NULL},
};

/* ---- what this processor has ---- */

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>

/* The registers are large, so Linux gives them to programs that ask for them (from 5.16
 * on: Documentation/arch/x86/xstate.rst); threads that are started later have them,
 * too. */
static bool ask_for_tiles(void) {
    enum { REQUEST = 0x1023, TILE_DATA = 18 };
    enum { BF16 = 1 << 22, TILE = 1 << 24, INT8 = 1 << 25, ALL = BF16 | TILE | INT8 };
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & ALL) == ALL &&
           syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}
#else
static bool ask_for_tiles(void) {
    return false;
}
#endif

#ifdef COMPRESS_LEVELS

/* The builtin asks whether the operating system saves the registers, too. cpuid tells
 * what it has no names for. */
static bool has_v2(void) {
    unsigned a, b, c, d;
    __builtin_cpu_init();
    return __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("sse4.2") &&
           __get_cpuid(1, &a, &b, &c, &d) && (c & bit_CMPXCHG16B) &&
           __get_cpuid(0x80000001u, &a, &b, &c, &d) && (c & bit_LAHF_LM);
}

static bool has_v3(void) {
    unsigned a, b, c, d;
    return has_v2() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
           __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) && (c & bit_MOVBE) &&
           __get_cpuid(0x80000001u, &a, &b, &c, &d) && (c & bit_LZCNT);
}

static bool has_v4(void) {
    return has_v3() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

bool processor_has(Processor level) {
    switch (level) {
    case PROCESSOR_V2: return has_v2();
    case PROCESSOR_V3: return has_v3();
    case PROCESSOR_V4: return has_v4();
    default: return false;
    }
}

static Processor best_level(void) {
    return has_v4() ? PROCESSOR_V4 : has_v3() ? PROCESSOR_V3 : PROCESSOR_V2;
}

void processor_require(void) {
    if (has_v2()) return;
    fputs("error: this processor is older than x86-64-v2 (SSE 4.2), which the program is "
          "compiled for\nhint: compile it on this machine with "
          "-DCOMPRESS_NATIVE=ON\n",
          stderr);
    exit(1);
}

#else

bool processor_has(Processor level) {
    (void)level;
    return false;
}

static Processor best_level(void) {
    return PROCESSOR_AUTO;
}

void processor_require(void) {}

#endif

const char *processor_name(Processor level) {
    return LIBRARIES[level].name;
}

static Processor find_level(const char *name) {
    for (int level = PROCESSOR_V2; name && level < PROCESSOR_COUNT; level++)
        if (strcmp(LIBRARIES[level].name, name) == 0) return (Processor)level;
    return PROCESSOR_AUTO;
}

/* The one choice of the program that no argument carries: kernels are looked up where
 * nothing but their operands is at hand. Written before main, never again. */
static Processor chosen;
static bool fixed;

__attribute__((constructor)) static void choose(void) {
    const Processor wanted = find_level(getenv(VARIABLE));
    fixed = processor_has(wanted);
    chosen = fixed ? wanted : best_level();
    blas_suit(LIBRARIES[chosen].core);
}

bool processor_fixed(void) {
    return fixed;
}

static bool tiles;

static void find_tiles(void) {
    tiles = ask_for_tiles();
}

bool processor_tiles(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_tiles);
    return tiles;
}

Processor processor_level(void) {
    return chosen;
}

/* ---- fixing it ---- */

/* Whether the environment has a variable as it should be. */
static bool variable_is(const char *name, const char *value) {
    const char *old = getenv(name);
    return !value || (old && strcmp(old, value) == 0);
}

/* The same for a tunable of libc, among others. */
static bool tunable_is(const char *value) {
    const char *old = getenv(TUNABLES);
    return !value || (old && strstr(old, value));
}

/* Whether they were as they should be; sets them where not. */
static bool variable_set(const char *name, const char *value) {
    if (variable_is(name, value)) return true;
    setenv(name, value, 1);
    return false;
}

static bool tunable_set(const char *value) {
    const char *old = getenv(TUNABLES);
    if (tunable_is(value)) return true;
    const size_t room = (old ? strlen(old) : 0) + strlen(value) + 2;
    char *all = memory_alloc(room, 1);
    snprintf(all, room, "%s%s%s", old ? old : "", old && *old ? ":" : "", value);
    setenv(TUNABLES, all, 1);
    free(all);
    return false;
}

/* Starts this program anew with the arguments it was started with; returns where that
 * fails. */
static void start_anew(void) {
    FILE *file = fopen("/proc/self/cmdline", "r");
    char **args = NULL;
    size_t count = 0;
    bool more = file != NULL;
    while (more) {
        size_t room = 0;
        char *word = NULL;
        more = getdelim(&word, &room, '\0', file) > 0;
        args = memory_grow(args, count + 1, sizeof *args);
        args[count++] = more ? word : NULL;
    }
    if (file) fclose(file);
    if (count > 1) execv("/proc/self/exe", args);
}

static Status refuse_level(Processor level, Diag *diag) {
    Status status = diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                              "processor %s: expected a level that this processor and "
                              "this build have",
                              processor_name(level));
    if (processor_level() == PROCESSOR_AUTO)
        diag_hint(diag, "there is one set of kernels: that of x86-64 with "
                        "COMPRESS_NATIVE off has levels");
    else
        diag_hint(diag, "the best here is %s", processor_name(best_level()));
    return status;
}

bool processor_is_fixed_to(Processor level) {
    const Libraries *want = &LIBRARIES[level];
    return fixed && chosen == level && variable_is("OPENBLAS_CORETYPE", want->core) &&
           variable_is("OPENBLAS_L2_SIZE", want->cache) && tunable_is(want->tunables) &&
           strcmp(blas_core(), want->core) == 0;
}

const char *processor_environment(Arena *arena, Processor level) {
    const Libraries *want = &LIBRARIES[level];
    const char *tunables = want->tunables ? want->tunables : "";
    return arena_printf(arena, "%s=%s OPENBLAS_CORETYPE=%s OPENBLAS_L2_SIZE=%s%s%s",
                        VARIABLE, want->name, want->core, want->cache,
                        *tunables ? " " TUNABLES "=" : "", tunables);
}

Status processor_fix(Processor level, Diag *diag) {
    const char *given = getenv(VARIABLE);
    if (level == PROCESSOR_AUTO && given && *given) {
        level = find_level(given);
        if (level == PROCESSOR_AUTO)
            return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                             "environment variable %s: expected v2, v3 or v4, found "
                             "\"%s\"",
                             VARIABLE, given);
    }
    if (level == PROCESSOR_AUTO) return STATUS_OK;
    if (!processor_has(level)) return refuse_level(level, diag);
    const Libraries *want = &LIBRARIES[level];
    bool same = variable_set(VARIABLE, want->name);
    same &= variable_set("OPENBLAS_CORETYPE", want->core);
    same &= variable_set("OPENBLAS_L2_SIZE", want->cache);
    same &= tunable_set(want->tunables);
    char process[24]; /* a program started anew has the same number: not twice */
    snprintf(process, sizeof process, "%lld", (long long)getpid());
    if (!same && !variable_set(RESTARTED, process)) {
        start_anew();
        return diag_fail(diag, STATUS_IO, LOC_NONE, NULL,
                         "processor %s: cannot start the program anew: %s", want->name,
                         strerror(errno));
    }
    if (chosen == level && strcmp(blas_core(), want->core) == 0) return STATUS_OK;
    return diag_fail(
        diag, STATUS_USAGE, LOC_NONE, NULL,
        "processor %s: expected the kernels \"%s\" of OpenBLAS, found \"%s\"", want->name,
        want->core, blas_core());
}
