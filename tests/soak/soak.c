/* Many recipes in a row, in one process by libcompress and by the program: resident
 * memory, descriptors, threads and files stay as they are.
 *
 *   soak RECIPES RUNS PROGRAM
 *
 * RECIPES recipes are run by compress_run_recipe, each model inspected, run and saved
 * once more; RUNS times PROGRAM runs the same recipe. A recipe builds a small ViT, trains
 * it for two steps, takes units out and rounds it. What is compared is the middle with
 * the end: what is kept for good by then has been kept. Prints a table; exit code 1 where
 * something grew. */
#include "ir/sanitized.h"
#include "session/compress.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { IMAGES = 64, SIDE = 8, PIXELS = SIDE * SIDE };

/* Memory that may come and go: pages of heaps that another order of frees leaves. */
enum { SLACK_KB = 1024 };

static const char RECIPE[] =
    "version: 1\nseed: 3\nthreads: 2\n"
    "model: {model_type: vit, image_size: 8, patch_size: 4, num_channels: 1,\n"
    "        hidden_size: 8, num_hidden_layers: 2, num_attention_heads: 2,\n"
    "        intermediate_size: 16, num_labels: 2}\n"
    "data:\n  train: {format: idx, images: images.idx, labels: labels.idx}\n"
    "passes:\n"
    "  - finetune: {data: train, steps: 2, batch_size: 16, lr: 0.01}\n"
    "  - prune_ffn: {keep: 8, score: magnitude}\n"
    "  - cast: {dtype: f16}\n"
    "output: out.h5\n";

typedef struct Usage {
    long resident_kb, descriptors, threads, files, temporary_files;
} Usage;

_Noreturn static void stop(const char *what, const char *why) {
    fprintf(stderr, "soak: %s: %s\n", what, why);
    exit(1);
}

static void write_file(const char *path, const void *data, size_t bytes) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0)
        stop(path, strerror(errno));
}

static void write_data(void) {
    unsigned char images[16 + IMAGES * PIXELS] = {0, 0, 8, 3,    0, 0, 0, IMAGES,
                                                  0, 0, 0, SIDE, 0, 0, 0, SIDE};
    unsigned char labels[8 + IMAGES] = {0, 0, 8, 1, 0, 0, 0, IMAGES};
    for (int i = 0; i < IMAGES; i++) {
        labels[8 + i] = (unsigned char)(i % 2);
        for (int p = 0; p < PIXELS; p++)
            images[16 + i * PIXELS + p] =
                (unsigned char)((p % SIDE < SIDE / 2) == i % 2 ? 160 : (i * 7 + p) % 64);
    }
    write_file("images.idx", images, sizeof images);
    write_file("labels.idx", labels, sizeof labels);
    write_file("recipe.yaml", RECIPE, sizeof RECIPE - 1);
}

static long count_names(const char *path) {
    DIR *list = opendir(path);
    long count = 0;
    while (list && readdir(list)) count++;
    if (list) closedir(list);
    return count;
}

/* What this process and its folders hold. */
static Usage usage_now(const char *temporary) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*d %ld", &pages) != 1) stop("/proc/self/statm", "unread");
    fclose(file);
    return (Usage){.resident_kb = pages * (sysconf(_SC_PAGESIZE) / 1024),
                   .descriptors = count_names("/proc/self/fd"),
                   .threads = count_names("/proc/self/task"),
                   .files = count_names("."),
                   .temporary_files = count_names(temporary)};
}

static void run_recipe(CompressContext *context) {
    CompressModel *model = NULL;
    char *report = NULL, *json = NULL;
    float pixels[PIXELS] = {0};
    const CompressTensor input = {
        "pixel_values", COMPRESS_F32, 4, {1, 1, SIDE, SIDE}, pixels};
    CompressTensor *outputs = NULL;
    size_t count = 0;
    CompressStatus status =
        compress_run_recipe(context, "recipe.yaml", NULL, 0, &model, &report);
    if (status == COMPRESS_OK) status = compress_inspect(context, model, &json);
    if (status == COMPRESS_OK)
        status = compress_run(context, model, &input, 1, &outputs, &count);
    if (status == COMPRESS_OK) status = compress_save(context, model, "again/", NULL);
    if (status != COMPRESS_OK) stop("a recipe failed", compress_messages(context));
    compress_free_tensors(outputs);
    compress_free_text(json);
    compress_free_text(report);
    compress_free_model(model);
}

static bool tell(const char *what, long middle, long end, long slack) {
    const bool grew = end > middle + slack;
    printf("| %s | %ld | %ld | %s |\n", what, middle, end, grew ? "grew" : "flat");
    return grew;
}

static bool soak_library(int recipes, const char *temporary) {
    Usage middle = {0};
    CompressContext *context;
    if (compress_open(&context, 2) != COMPRESS_OK) stop("compress_open", "failed");
    for (int i = 0; i < recipes; i++) {
        if (i == recipes / 2) middle = usage_now(temporary);
        run_recipe(context);
    }
    const Usage end = usage_now(temporary);
    compress_close(context);
    bool grew = false;
    printf("| %d recipes in one process | in the middle | at the end | |\n", recipes);
    printf("|---|--:|--:|---|\n");
    if (!SANITIZED)
        grew |=
            tell("resident memory, KB", middle.resident_kb, end.resident_kb, SLACK_KB);
    grew |= tell("descriptors", middle.descriptors, end.descriptors, 0);
    grew |= tell("threads", middle.threads, end.threads, 0);
    grew |= tell("names in the folder", middle.files, end.files, 0);
    grew |= tell("names in TMPDIR", middle.temporary_files, end.temporary_files, 0);
    return grew;
}

/* Runs the program once; its largest resident memory in KB. */
static long run_program(const char *program) {
    int how;
    struct rusage used;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stdout)) _exit(127);
        execl(program, program, "--recipe", "recipe.yaml", "--quiet", (char *)NULL);
        _exit(127);
    }
    if (child < 0 || wait4(child, &how, 0, &used) != child)
        stop(program, strerror(errno));
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 0) stop(program, "a run failed");
    return used.ru_maxrss;
}

static bool soak_program(int runs, const char *program, const char *temporary) {
    Usage middle = {0};
    long most[2] = {0, 0};
    for (int i = 0; i < runs; i++) {
        const int half = i >= runs / 2;
        if (i == runs / 2) middle = usage_now(temporary);
        const long resident = run_program(program);
        if (resident > most[half]) most[half] = resident;
    }
    const Usage end = usage_now(temporary);
    bool grew = false;
    printf("\n| %d runs of the program | first half | second half | |\n", runs);
    printf("|---|--:|--:|---|\n");
    if (!SANITIZED) grew |= tell("most resident memory, KB", most[0], most[1], SLACK_KB);
    grew |= tell("names in the folder", middle.files, end.files, 0);
    grew |= tell("names in TMPDIR", middle.temporary_files, end.temporary_files, 0);
    return grew;
}

int main(int argc, char **argv) {
    char folder[] = "/tmp/compress-soak-XXXXXX", temporary[] = "tmp", command[64];
    if (argc != 4) stop("expected", "RECIPES RUNS PROGRAM");
    /* A huge page is resident or not by chance, and holds what hundreds of recipes take.
     */
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    if (!mkdtemp(folder) || chdir(folder) != 0 || mkdir("tmp", 0700) != 0)
        stop(folder, strerror(errno));
    char inner[sizeof folder + sizeof temporary];
    snprintf(inner, sizeof inner, "%s/tmp", folder);
    setenv("TMPDIR", inner, 1);
    write_data();
    bool grew = soak_library(atoi(argv[1]), temporary);
    grew |= soak_program(atoi(argv[2]), argv[3], temporary);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 || grew;
}
